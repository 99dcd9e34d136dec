"""Nests with rows as long as the entry says, against the real run: one region for all lengths does what processes do.

A region is lifted at one entry, with others known. Then processes are started with further sizes: rows longer than
what is used of them, as long, and shorter; results that overlap an operand. Where the guards hold, the region run by
its text must leave the memory that the process leaves, and rejoin with its registers. Where rows or arrays overlap in
a way that matters, a guard must fail, or the memory would differ.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest

from memopt.ir.graph import Loop
from memopt.ir.region import Region, Sample
from memopt.ir.scop import LIMIT, TRIPS
from memopt.lifting.lift import Code, Lifted, lift_region
from tests.conftest import Build
from tests.support.effort import some, some_rows
from tests.support.lifting import DISPLACED, stopped_at_nest
from tests.support.replay import Replay, Watch, holds, live_values
from tests.support.traced import Traced

ORDERS = ("ijk", "ikj", "jik", "jki", "kij", "kji")
APART = -1
Sizes = tuple[int, ...]  # m, n, k, lda, ldb, ldc, shift


@contextmanager
def stopped(program: Path, sizes: Sizes) -> Iterator[tuple[Traced, Code, Loop]]:
    with stopped_at_nest([str(program), *map(str, sizes)]) as (process, code, loop):
        yield process, code, loop


def lifted(program: Path, entries: list[Sizes]) -> Lifted:
    """The nest at the last of ``entries``, with the others known."""
    known: list[Sample] = []
    for sizes in entries:
        with stopped(program, sizes) as (process, code, loop):
            found = lift_region(code, loop, process.registers(), process.peek, DISPLACED, process.vectors(),
                                earlier=tuple(known), strided=lambda _: True)
        known.append(found.entry)
    return found


def check_entry(region: Region, program: Path, sizes: Sizes) -> bool:
    """Whether the guards let an entry of these sizes pass. If so, the region must do what the process does."""
    with stopped(program, sizes) as (process, code, loop):
        values = live_values(region, process)
        if values[TRIPS] < 2 or not all(holds(g, values) for g in region.guards):
            return False
        replay = Replay(region, values, process)
        replay.run()
        iterations = Watch(process, code, loop, region).run()
        for number, iteration in enumerate(iterations[:values[TRIPS]]):
            assert iteration.written == replay.written.get(number, set())
            for rejoin in region.rejoin:
                expected = rejoin.value.evaluate(values | {LIMIT: number}) % (1 << 8 * rejoin.width)
                assert iteration.values[f"at {rejoin.location}"] == expected, str(rejoin)
        assert {address: process.read(address, 1)[0] for address in replay.memory} == replay.memory
    return True


def transposed(order: str, a: int, b: int, c: int, *more: str) -> tuple[str, ...]:
    return (f"-DORDER={order}", *(f"-DT_{name}" for name, yes in zip("ABC", (a, b, c), strict=True) if yes), *more)


def draw(source: random.Random, flags: tuple[str, ...], slack: int, shift: int = APART) -> Sizes:
    """Sizes with rows that are up to ``slack`` longer than what is used of them (or shorter, if that is negative)."""
    m, n, k = (source.randint(3, 9) for _ in range(3))
    used = {"A": (k, m), "B": (n, k), "C": (n, m)}
    lengths = [used[name][f"-DT_{name}" in flags] + (source.randint(0, slack) if slack >= 0 else slack)
               for name in "ABC"]
    return m, n, k, *(max(x, 1) for x in lengths), shift


def learning(source: random.Random, flags: tuple[str, ...]) -> list[Sizes]:
    """Entries from which it shows which values are sizes of their own."""
    return [draw(source, flags, slack=5) for _ in range(5)]


@pytest.mark.parametrize(("order", "a", "b", "c"), some_rows(
    list(product(ORDERS, (0, 1), (0, 1), (0, 1))), 2, most=16))
def test_one_region_for_rows_of_any_length(build: Build, order: str, a: int, b: int, c: int) -> None:
    flags, source = transposed(order, a, b, c), random.Random(f"{order}{a}{b}{c}")
    program = build("strided.c", *flags)
    region = lifted(program, learning(source, flags)).region
    assert region.scop.strided
    passed = [check_entry(region, program, draw(source, flags, slack)) for slack in (0, 4, 9)]
    assert all(passed), f"{passed}\n{region}"
    assert not check_entry(region, program, draw(source, flags, -1))
    for shift in (0, 1, 5, 17):  # the result lies in A
        check_entry(region, program, draw(source, flags, 3, shift))


@pytest.mark.parametrize("more", some([("-DINT=int",), ("-DLD(p)=*p_##p",), ("-DINT=int", "-DLD(p)=*p_##p")], 1,
                                      ["32 bits", "read in the loops", "both"]))
def test_lengths_in_32_bits_and_in_memory(build: Build, more: tuple[str, ...]) -> None:
    """Lengths that are read in the loops lie in cells that the result must not overlap."""
    flags, source = transposed("ijk", 0, 0, 0, *more), random.Random(str(more))
    program = build("strided.c", *flags)
    region = lifted(program, learning(source, flags)).region
    assert region.scop.strided
    assert all(check_entry(region, program, draw(source, flags, slack)) for slack in (0, 6))
    assert not check_entry(region, program, draw(source, flags, -2))
