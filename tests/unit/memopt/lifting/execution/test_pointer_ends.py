"""Inner loops that end where two pointers meet that both advance with the outer loop, against the loops run on numbers.

Example: ``for (; row != last; row += n, end += n + 1) for (p = row; p != end; p++) *p += x;``, drawn with other steps,
directions, exits and counters. The addresses that the region writes are those that the machine code writes, at every
entry that the guards admit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region, admits
from memopt.ir.scop import TRIPS
from tests.support.effort import some
from tests.support.enumeration import points
from tests.support.lifting import lift_assembly

ROWS, COUNTER = 0x7000_0000, 0x5000_0000
MOVES = {4: ("movss", "addss"), 8: ("movsd", "addsd"), 16: ("movups", "addps")}


@dataclass(frozen=True)
class Triangle:
    """``rounds`` rows of ``first``, ``first + growth``, ... elements of ``size`` bytes, each ``row`` bytes after the
    one before. ``turn``: what the outer counter advances by; 0: the start of the row counts. ``unrolled``: elements
    that one iteration of the inner loop takes."""

    rounds: int
    first: int
    growth: int
    size: int
    row: int
    turn: int
    down: bool
    ordered: bool
    unrolled: int

    @property
    def source(self) -> str:
        move, add = MOVES[self.size]
        places = [f"[rax{-self.size * (n + 1) if self.down else self.size * n:+}]" for n in range(self.unrolled)]
        body = "\n".join(f"{move} xmm0, {p}; {add} xmm0, xmm1; {move} {p}, xmm0" for p in places)
        start, end, step = ("rcx", "rdi", -1) if self.down else ("rdi", "rcx", 1)
        again = ("ja" if self.down else "jb") if self.ordered else "jne"
        outer = f"add r8, {self.turn}; cmp r8, r9" if self.turn else "cmp rdi, r9"
        inner = f"{body}\nadd rax, {step * self.size * self.unrolled}; cmp rax, {end}; {again} j"
        following = f"add rdi, {self.row}; add rcx, {self.row + self.size * self.growth}; {outer}; jne i"
        return f"i: mov rax, {start}\nj: {inner}\n{following}; xor eax, eax; ret"

    def registers(self, done: int = 0) -> dict[str, int]:
        """At the header, after ``done`` iterations."""
        last = COUNTER + self.turn * self.rounds if self.turn else ROWS + self.row * self.rounds
        return {"rdi": ROWS + self.row * done, "r8": COUNTER + self.turn * done, "r9": last,
                "rcx": ROWS + self.row * done + self.size * (self.first + self.growth * done)}

    def written(self, done: int) -> list[set[int]]:
        """The addresses that each of the iterations but ``done`` writes."""
        return [{ROWS + self.row * i + self.size * j for j in range(self.first + self.growth * i)}
                for i in range(done, self.rounds)]


def drawn(seed: int) -> Triangle:
    rng = random.Random(seed)
    unrolled = rng.choice((1, 1, 1, 2))
    rounds, growth = rng.randrange(4, 9), rng.choice((-2, -1, 1, 2)) * unrolled
    first = unrolled * rng.randrange(1, 4) + (0 if growth > 0 else -growth * (rounds - 1))
    size = rng.choice((4, 8, 16))
    row = size * rng.randrange(84, 99) * rng.choice((1, 1, -1))
    return Triangle(rounds, first, growth, size, row, rng.choice((0, 1, 8, row, row)), rng.random() < 0.4,
                    rng.random() < 0.4, unrolled)


def addresses(region: Region, values: dict[str, int]) -> Iterator[set[int]]:
    """What each iteration writes, by element of 4 bytes or more."""
    found: dict[int, set[int]] = {n: set() for n in range(values[TRIPS])}
    for statement in region.scop.statements:
        array = region.scop.array(statement.write.array)
        for point in points(statement, values):
            place = array.base.evaluate(values) + sum(
                s.evaluate(values | point) * stride
                for s, stride in zip(statement.write.subscripts, array.strides, strict=True))
            found[point[statement.dimensions[0].name]].add(place)
    return iter(found.values())


@pytest.mark.parametrize("seed", some(range(240), 60, most=120))
def test_a_region_writes_what_the_machine_code_writes(seed: int) -> None:
    triangle = drawn(seed)
    begun = seed % (triangle.rounds - 2)
    lifted = lift_assembly(triangle.source, triangle.registers(begun))
    for done in range(triangle.rounds - 1):
        entry = {**lifted.entry, **triangle.registers(done)}
        values = {x.symbol: entry[x.symbol.removeprefix("n:")] for x in lifted.region.live_ins if x.symbol in entry}
        trips, rest = divmod(lifted.region.trips.numerator.evaluate(values), lifted.region.trips.divisor)
        assert (trips, rest) == (triangle.rounds - done, 0)
        values[TRIPS] = trips
        assert admits(lifted.region, values, lambda address, bits: 0), "guards hold at every entry of one run"
        for found, expected in zip(addresses(lifted.region, values), triangle.written(done), strict=True):
            assert {a - a % triangle.size for a in found} == expected


def test_an_end_that_is_stepped_over_is_refused() -> None:
    """Rows of 1, 2, 3, ... elements, two at a time: the second row never ends."""
    odd = Triangle(6, 2, 1, 8, 256, 1, False, False, 2)
    with pytest.raises(Rejected) as refused:
        lift_assembly(odd.source, odd.registers())
    assert refused.value.reason is Reason.TRIP_COUNT


@pytest.mark.parametrize("turn", [0, 8, 256])
def test_other_rows_are_not_admitted(turn: int) -> None:
    """At an entry with rows that are an element longer, the guards fail."""
    triangle, longer = (Triangle(6, first, 1, 8, 256, turn, False, False, 1) for first in (1, 2))
    lifted = lift_assembly(triangle.source, triangle.registers())
    entry = {**lifted.entry, **longer.registers()}
    values = {x.symbol: entry[x.symbol] for x in lifted.region.live_ins if x.symbol in entry} | {TRIPS: 6}
    assert not admits(lifted.region, values, lambda address, bits: 0)


def test_a_size_that_differs_between_entries_is_a_parameter() -> None:
    """rsi tells the elements of the first row; the outer counter is the row."""
    one, two = (Triangle(6, first, 1, 8, 256, 0, False, False, 1) for first in (3, 5))
    first = lift_assembly(one.source, one.registers() | {"rsi": 3})
    again = lift_assembly(two.source, two.registers() | {"rsi": 5}, earlier=(first.entry,))
    for triangle, size in ((one, 3), (two, 5)):
        entry = {**again.entry, **triangle.registers(2), "rsi": size}
        values = {x.symbol: entry[x.symbol.removeprefix("n:")] for x in again.region.live_ins} | {TRIPS: 4}
        assert admits(again.region, values, lambda address, bits: 0), size
        assert list(addresses(again.region, values)) == triangle.written(2)


UNROLLED = """
i: mov rax, rdi; mov r10, rcx; sub r10, rdi; mov rdx, r10; shr rdx, 3; and edx, 3; je whole
some: movsd xmm0, [rax]; addsd xmm0, xmm1; movsd [rax], xmm0; add rax, 8; dec rdx; jne some
cmp r10, 32; jae four; jmp out
whole: cmp r10, 32; jb out
four: movsd xmm0, [rax]; addsd xmm0, xmm1; movsd [rax], xmm0
movsd xmm0, [rax+8]; addsd xmm0, xmm1; movsd [rax+8], xmm0
movsd xmm0, [rax+16]; addsd xmm0, xmm1; movsd [rax+16], xmm0
movsd xmm0, [rax+24]; addsd xmm0, xmm1; movsd [rax+24], xmm0
add rax, 32; cmp rax, rcx; jb four
out: add rdi, 800; add rcx, 808; add r8, 1; cmp r8, r9; jne i; xor eax, eax; xor edx, edx; ret"""


@pytest.mark.parametrize("first", some(range(3, 16), 4))
def test_an_end_behind_the_remainder_of_an_unrolled_loop(first: int) -> None:
    """From ``row + 8 * (n % 4)`` on, four at a time up to ``end``; the path without a remainder is one of its own."""
    triangle = Triangle(7, first, 1, 8, 800, 1, False, True, 1)
    lifted = lift_assembly(UNROLLED, triangle.registers(2))
    entry = {**lifted.entry, **triangle.registers(1)}
    values = {x.symbol: entry[x.symbol] for x in lifted.region.live_ins if x.symbol in entry} | {TRIPS: 6}
    assert admits(lifted.region, values, lambda address, bits: 0)
    assert list(addresses(lifted.region, values)) == triangle.written(1)
