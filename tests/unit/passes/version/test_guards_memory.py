"""Guards on memory, executed both ways: where arrays lie, what cells hold, and which are read at all."""

from __future__ import annotations

import mmap
import struct
from dataclasses import replace

import pytest

from memopt.ir import scop
from memopt.ir.cells import CellSet
from memopt.ir.linear import Linear
from memopt.ir.region import (
    Cell,
    Disjoint,
    Interval,
    Lane,
    LiveIn,
    MemoryBacked,
    NanFree,
    Progression,
    Region,
    Register,
    Relation,
    Trips,
)
from memopt.ir.scop import Access, Array, Dimension, ElementType, Read, Scop, Statement
from tests.support.entering import TRIPS, N, mirrored, passes, with_guard
from tests.support.fenced import Fenced
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


@pytest.mark.parametrize("base", ["rdx", ""])
def test_a_cell_is_read_only_when_the_guards_on_earlier_ones_hold(header: Header, base: str) -> None:
    """``if (*flag) s += *p;``: p may be no pointer where the flag is not set."""
    memory = Fenced()
    page = 0 if base else memory.start
    flag = LiveIn("flag", Cell("rdi", 0, 8))
    inside = LiveIn("m", Cell(base, page + 8, 8))
    guards = (Relation(linear(m=1), True, "the cell is zero"), Relation(linear(-1, flag=1), False, "a branch"))
    header.install(header.region((N, flag, inside), TRIPS, guards))
    for number in (0, 1):
        header.write_arena(0, struct.pack("<Q", number))
        memory.protect(memory.start, mmap.PROT_READ if number else 0)
        assert passes(header, {"rsi": 10, "rdi": header.arena, "rdx": memory.start}) is bool(number)


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
    """The guard compares the words of iterations 0 .. H-1, four of five; nothing is mapped around these."""
    memory, first, step, count = Fenced(), 0x7fff_1234_5678, -0x1230, 4
    low = memory.end - 8 * count
    cells = CellSet(linear(p=1, i=8), (Dimension("i", linear(R=1)),))
    guard = Progression(memory.start, first, step, (cells,), Interval(linear(p=1), linear(p=1, R=8)), "rows")
    header.install(header.region((N, LiveIn("p", Register("rdi"))), TRIPS, (guard,)))
    words = [first + (low - memory.start) // 8 * step + step * n for n in range(count)]

    def holds(rdi: int, *words: int, trips: int = count + 1) -> bool:
        memory.write(low, struct.pack(f"<{len(words)}Q", *words))
        return passes(header, {"rsi": trips, "rdi": rdi}, FLAGS)

    assert holds(low, *words)
    assert not holds(low + 8, *words[1:], 0, trips=4)
    assert not any(holds(low - odd, *words, trips=4) for odd in (1, 2, 4))
    for n in range(count):
        changed = [w ^ (n == m) << 40 for m, w in enumerate(words)]
        assert not holds(low, *changed)
        assert holds(low, *changed, trips=3) is (n > 1)


@pytest.mark.parametrize(("trips", "conditions", "read"), [
    ({"i": 1}, (), [0, 1, 2]),  # j < i, i < 4
    ({"": 3}, (), [0, 1, 2]),
    ({"n": 1, "": -5}, (), []),  # no iteration of the inner loop: the table may be anywhere
    ({"": 4}, ({"j": 1, "": -2},), [2, 3]),
    ({"": 4}, ({"j": -1, "i": 1, "": -2},), [0, 1]),
    ({"": 4}, ({"j": 2, "i": -1, "": -2},), [1, 2, 3]),
])
def test_words_that_no_iteration_reads_are_not_looked_at(
        header: Header, trips: dict[str, int], conditions: tuple[dict[str, int], ...], read: list[int]) -> None:
    """The words of ``for i < H: for j < trips: if (conditions) a[j]``, each in a page of its own or nowhere."""
    def over(terms: dict[str, int]) -> Linear:
        return linear(terms.get("", 0), **{s: c for s, c in terms.items() if s})

    memory, first = Fenced(4), 0x5000
    dimensions = (Dimension("i", linear(R=1)), Dimension("j", over(trips)))
    cells = CellSet(linear(p=1, j=4096), dimensions, tuple(map(over, conditions)))
    guard = Progression(memory.start, first, 16, (cells,), Interval(linear(p=1), linear(p=1)), "rows")
    header.install(header.region((N, LiveIn("p", Register("rdi"))), TRIPS, (guard,)))
    values = {"n": 5, "p": memory.start, "R": 5, "H": 4}
    assert cells.addresses(values) == {memory.start + 4096 * n for n in read}
    for page in range(4):
        memory.write(memory.start + 4096 * page, struct.pack("<Q", first + 512 * 16 * page))
        memory.protect(memory.start + 4096 * page, mmap.PROT_READ if page in read else 0)
    assert passes(header, {"rsi": 5, "rdi": memory.start})
    for page in read:
        memory.protect(memory.start + 4096 * page, mmap.PROT_READ | mmap.PROT_WRITE)
        memory.write(memory.start + 4096 * page, bytes(8))
        assert not passes(header, {"rsi": 5, "rdi": memory.start})
        memory.write(memory.start + 4096 * page, struct.pack("<Q", first + 512 * 16 * page))


def numeric(header: Header, size: int) -> Region:
    """Reads the first three numbers of each row of seven of an array at rdi, in iterations 0 .. H-1."""
    element = ElementType.F64 if size == 8 else ElementType.F32
    array = Array("A", element, linear(p=1), (7 * size, size))
    dimensions = (Dimension("i", linear(R=1)), Dimension("j", linear(3)))
    access = Access("A", (linear(i=1), linear(j=1)))
    other = Access("A", (linear(i=1), linear(3)))
    statement = Statement("S0", dimensions, other, (access,), Read(0), (0, 0, 0))
    return replace(header.region((N, LiveIn("p", Register("rdi"))), TRIPS), scop=Scop((array,), (statement,)),
                   nan_free=(NanFree("A", size),))


@pytest.mark.parametrize("size", [4, 8])
def test_a_nan_that_is_read_keeps_the_version_out(header: Header, size: int) -> None:
    """NaNs elsewhere do not, and what lies before the first and behind the last number cannot even be read."""
    header.install(numeric(header, size))
    rows, memory = 4, Fenced()
    first, last = memory.start, memory.end - size * (7 * (rows - 1) + 3)
    infinities = INFINITIES[size]
    numbers = [0, 1, *infinities, *(i - 1 for i in infinities), 1 << 8 * size - 1, infinities[0] >> 1]
    nans = [n for i in infinities for n in (i + 1, i + (1 << 20), i | (1 << 22))]
    for start in (first, last):
        for place in range(7 * (rows - 1) + 3):
            read = place % 7 < 3
            for number in (*numbers, *nans):
                cells = [nans[0] if n % 7 > 2 else 0 for n in range(7 * (rows - 1) + 3)]
                cells[place] = number
                memory.write(start, b"".join(c.to_bytes(size, "little") for c in cells))
                outcome = passes(header, {"rsi": rows + 1, "rdi": start}, FLAGS)
                assert outcome is (not read or number in numbers)


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
