"""Versions of one loop for different sizes: which entries each takes, and how one leads to the one before."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memopt.ir.cells import CellSet
from memopt.ir.code import CompiledRegion, Placement
from memopt.ir.linear import Linear
from memopt.ir.plan import NestPlan
from memopt.ir.region import Disjoint, Guard, Interval, Progression, Region, Relation, Trips, admits
from memopt.ir.scop import Dimension, Scop
from memopt.session.replacing.versions import followed_by, line
from tests.support.installed import installed

N, A, B = (Linear.symbol(s) for s in ("rdi", "rsi", "rdx"))


def region(*guards: Guard) -> Region:
    return Region(0x401000, b"\x90" * 5, (), Trips(N, 1), guards, (), (), Scop((), ()))


def compiled(code: int, entry: int) -> CompiledRegion:
    return CompiledRegion(region(), NestPlan(()), Placement(code, 4096, 0, 0, 0, 0, 0), bytes(range(64)), entry, 0, "")


def nothing(address: int, bits: int) -> int:
    raise AssertionError


def holding(words: Mapping[int, int]) -> Callable[[int, int], int]:
    return lambda address, bits: words[address]


def test_words_of_a_table_are_looked_at_where_they_are() -> None:
    """The words of the iterations that a version runs: all but the last."""
    words = CellSet(Linear.symbol("rdi", 1) + Linear.symbol("i", 8), (Dimension("i", Linear.symbol("R")),))
    found = region(Progression(0x5000, 100, 32, (words,), Interval(A, A), ""))
    cells = {0x5000: 100, 0x5008: 132, 0x5010: 164}
    for trips in (2, 3, 4):
        assert admits(found, {"rdi": 0x5000, "R": trips}, holding(cells))
    for changed in cells:
        assert not admits(found, {"rdi": 0x5000, "R": 4}, holding(cells | {changed: 99}))
    assert admits(found, {"rdi": 0x5000, "R": 3}, holding(cells | {0x5010: 99}))
    assert not admits(found, {"rdi": 0x5001, "R": 2}, holding({0x5001: 100}))


def test_guards_of_each_kind_admit_or_refuse() -> None:
    found = region(Relation(N - 40, True, ""), Relation(A - 8, False, ""),
                   Disjoint(Interval(A, A + 16), Interval(B, B + 8), ""))
    assert admits(found, {"rdi": 40, "rsi": 16, "rdx": 32}, nothing)
    assert admits(found, {"rdi": 40, "rsi": 16, "rdx": 8}, nothing)
    assert not admits(found, {"rdi": 41, "rsi": 16, "rdx": 32}, nothing)
    assert not admits(found, {"rdi": 40, "rsi": 7, "rdx": 32}, nothing)
    assert not admits(found, {"rdi": 40, "rsi": 16, "rdx": 31}, nothing)
    assert not admits(found, {"rdi": 40, "rsi": 16, "rdx": 9}, nothing)


def test_what_the_guard_refuses_goes_on_in_the_version_before() -> None:
    new, old = compiled(0x10000, 0x10040), compiled(0x20000, 0x20030)
    assert followed_by(new, None) == new.code
    assert followed_by(new, old) == b"\xe9" + (0x20030 - 0x10005).to_bytes(4, "little") + new.code[5:]


def test_the_line_of_versions_starts_with_the_newest() -> None:
    first = installed()
    second = installed(first)
    assert list(line(second)) == [second, first]
    assert list(line(None)) == []
