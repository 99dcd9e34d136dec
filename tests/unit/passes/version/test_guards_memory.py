"""Guards on memory, executed both ways: where arrays lie, what cells hold, and which are read at all."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from memopt.ir import scop
from memopt.ir.region import (
    Cell,
    Disjoint,
    Interval,
    Lane,
    LiveIn,
    MemoryBacked,
    NanFree,
    Progression,
    Register,
    Relation,
    Trips,
)
from tests.support.entering import TRIPS, N, mirrored, passes, with_guard
from tests.support.header import FLAGS, Header, held_by_lane, linear

INFINITIES = {8: (0x7ff0000000000000, 0xfff0000000000000), 4: (0x7f800000, 0xff800000)}


@pytest.mark.parametrize(("first", "second", "passing"), [
    ((0, 64), (64, 128), True), ((0, 65), (64, 128), False), ((64, 128), (0, 64), True), ((63, 128), (0, 64), False),
    ((0, 64), (0, 64), False), ((0, 64), (8, 16), False), ((8, 16), (0, 64), False),
    ((0, 64), (2**40, 2**40 + 8), True),
    ((2**63 - 8, 2**63 - 4), (0, 8), True),
])
def test_disjoint(header: Header, first: tuple[int, int], second: tuple[int, int], passing: bool) -> None:
    intervals = (Interval(linear(x=1), linear(first[1] - first[0], x=1)),
                 Interval(linear(y=1), linear(second[1] - second[0], y=1)))
    header.install(with_guard(header, Disjoint(*intervals, "")))
    assert passes(header, {"rsi": 10, "rax": first[0], "rdx": second[0]}) is passing


def test_an_interval_that_wraps_is_a_failure(header: Header) -> None:
    intervals = Interval(linear(x=1), linear(64, x=1)), Interval(linear(y=1), linear(64, y=1))
    header.install(with_guard(header, Disjoint(*intervals, "")))
    assert not passes(header, {"rsi": 10, "rax": 2**63 - 10, "rdx": 0})
    assert not passes(header, {"rsi": 10, "rax": 0, "rdx": 2**63 - 10})


def test_a_cell_behind_a_pointer_is_read_only_when_the_other_guards_hold(header: Header) -> None:
    """The program itself reads through the pointer only where it is not null."""
    pointer, inside = LiveIn("p", Register("rdx")), LiveIn("m", Cell("rdx", 8, 8))
    guards = (Relation(linear(m=1), True, "the cell is zero"), Relation(linear(p=1) - 1, False, "a branch"))
    header.install(header.region((inside, N, pointer), TRIPS, guards))
    assert not passes(header, {"rsi": 10, "rdx": 0})
    for number in (0, 7):
        header.write_arena(8, struct.pack("<Q", number))
        assert passes(header, {"rsi": 10, "rdx": header.arena}) is (number == 0)
    header.install(header.region((inside, N, pointer), Trips(linear(m=1, n=1), 1), guards[1:]))
    assert not passes(header, {"rsi": 10, "rdx": 0})
    assert passes(header, {"rsi": 10, "rdx": header.arena})


@pytest.mark.parametrize("displacement", [16, 5 * 2**33])
def test_a_cell_behind_a_cell_is_read_once_that_one_is_known(header: Header, displacement: int) -> None:
    pointer, inside = LiveIn("p", Cell("rdx", 8, 8)), LiveIn("a", Cell("p", displacement, 8))
    guards = (Relation(linear(a=1) - 7, True, "the cell holds 7"), Relation(linear(p=1) - 1, False, "a branch"))
    header.install(header.region((inside, N, pointer), TRIPS, guards))
    header.write_arena(8, struct.pack("<Q", 0))
    assert not passes(header, {"rsi": 10, "rdx": header.arena})
    for number in (0, 7):
        header.write_arena(8, struct.pack("<QQ", header.arena + 16 - displacement, number))
        assert passes(header, {"rsi": 10, "rdx": header.arena}) is (number == 7)


@pytest.mark.parametrize(("cell", "near", "read"), [
    (0, 8, True), (8, 4095 - 7, True), (0, 4096, False), (0, -1, False), (0, 1 << 47, False), (4092, 0, False)])
def test_a_cell_is_only_read_in_the_page_of_one_that_the_original_touches(header: Header, cell: int, near: int,
                                                                         read: bool) -> None:
    mirror = MemoryBacked(Register("r12"), 8, linear(cell, p=1), linear(near, p=1))
    header.install(mirrored(header, mirror))
    header.write_arena(0, bytes(4096))
    assert header.run({"rsi": 10, "rdi": header.arena, "r12": 0}).runs == read


def test_a_cell_that_cannot_be_read_is_not(header: Header) -> None:
    """Nothing is mapped at the cell."""
    header.install(mirrored(header, MemoryBacked(Register("r12"), 8, linear(-8, p=1), linear(0, p=1))))
    assert not passes(header, {"rsi": 10, "rdi": 4096, "r12": 0})


def test_words_of_a_table_are_compared_each(header: Header) -> None:
    pointer = LiveIn("p", Register("rdi"))
    low, first, step, count = header.arena + 64, 0x7fff_1234_5678, -0x1230, 5
    guard = Progression(low, low + 8 * count, first, step, (linear(p=1),), "rows")
    header.install(header.region((N, pointer), TRIPS, (guard,)))
    words = [first + step * n for n in range(count)]

    def holds(rdi: int, *words: int) -> bool:
        header.write_arena(64, struct.pack(f"<{count}Q", *words))
        return passes(header, {"rsi": 5, "rdi": rdi})

    assert holds(low, *words)
    assert holds(low + 24, *words)
    assert holds(low - 8, *words)
    assert not any(holds(low + odd, *words) for odd in (1, 2, 4, -4))
    for n in range(count):
        assert not holds(low, *(w ^ (n == m) << 40 for m, w in enumerate(words)))


@pytest.mark.parametrize("size", [4, 8])
def test_a_nan_anywhere_keeps_the_version_out(header: Header, size: int) -> None:
    where = Interval(linear(0, p=1), linear(0, p=1, R=size))
    region = header.region((N, LiveIn("p", Register("rdi"))), TRIPS)
    header.install(replace(region, nan_free=(NanFree(where, size),)))
    registers = {"rsi": 10, "rdi": header.arena + 64}
    infinities = INFINITIES[size]
    numbers = [0, 1, *infinities, *(i - 1 for i in infinities), 1 << 8 * size - 1, infinities[0] >> 1]
    nans = [n for i in infinities for n in (i + 1, i + (1 << 20), i | (1 << 22))]
    for place in range(10):
        for number in numbers:
            cells = [0] * 10
            cells[place] = number
            outside = b"\xff" * 64
            header.write_arena(0, outside + b"".join(c.to_bytes(size, "little") for c in cells) + outside)
            assert passes(header, registers, FLAGS)
        for number in nans:
            cells = [0] * 10
            cells[place] = number
            header.write_arena(64, b"".join(c.to_bytes(size, "little") for c in cells))
            assert not passes(header, registers, FLAGS)


@pytest.mark.parametrize("xcr0", [-1, 0])
@pytest.mark.parametrize(("offset", "width"), [(0, 8), (8, 8), (0, 4), (12, 4)])
def test_a_nan_in_a_lane_keeps_the_version_out(monkeypatch: pytest.MonkeyPatch, offset: int, width: int,
                                               xcr0: int) -> None:
    """What the lane holds is a number, or a NaN for who takes the largest number for a smaller one."""
    header = Header(xcr0=xcr0)
    held = int.from_bytes(held_by_lane(13, offset, width), "little") % (1 << 8 * width - 1)
    for largest in (held, held - 1):
        monkeypatch.setitem(scop.INFINITY, width, largest)
        numeric = (NanFree(Lane("xmm13", offset, width), width),)
        header.install(replace(header.region((N,), TRIPS), nan_free=numeric))
        assert passes(header, {"rsi": 10}, FLAGS) is (held <= largest)
