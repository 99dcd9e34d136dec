"""Entry invariants: sums that have one value at every entry of a loop, and from which a live-in value follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.ir.linear import Linear
from memopt.ir.region import Trips
from memopt.ir.scop import TRIPS
from memopt.lifting.execution.assumptions import Assumptions
from memopt.lifting.execution.entry_invariants import EntryInvariants
from memopt.lifting.execution.parameters import low_byte, parameter

COUNTER, BOUND, ROW, BASE, R = (Linear.symbol(s) for s in ("rcx", "rdx", "rsi", "rdi", TRIPS))
CELL = Linear.symbol("rsp") + 24


def invariants(numerator: Linear, divisor: int, steps: dict[str, int]) -> EntryInvariants:
    return EntryInvariants(Assumptions({}, lambda address, bits: 0), steps, numerator, divisor)


@pytest.mark.parametrize(("divisor", "step", "row"), [(1, 1, 800), (4, 4, -8), (3, 3, 64)])
def test_an_invariant_has_one_value_at_every_entry(divisor: int, step: int, row: int) -> None:
    """for (i = rcx; i < rdx; i += step) rsi += row"""
    made = invariants(BOUND - COUNTER, divisor, {"rcx": step, "rsi": row})
    address = ROW + BASE - 8
    assert made.moves(address + R) == {"rsi"}
    sum_ = made.invariant(address)
    at = {"rcx": 0, "rdx": 100 * step, "rsi": 5000, "rdi": 70}
    entries = [at | {"rcx": n * step, "rsi": 5000 + n * row} for n in range(10)]
    assert len({sum_.evaluate(entry) for entry in entries}) == 1
    for entry in entries:
        remaining = (entry["rdx"] - entry["rcx"]) // divisor
        assert (sum_.evaluate(entry) - made.step(address) * divisor * remaining) // divisor == address.evaluate(entry)


def test_where_trips_are_related_the_invariant_is_one_over_them() -> None:
    made = invariants(BOUND - COUNTER, 4, {"rcx": 4, "rsi": 24})
    made = replace(made, assumptions=replace(made.assumptions, trips=Trips(BOUND - COUNTER, 4)))
    assert made.step(ROW - R * 5) == 29
    assert made.invariant(ROW + BASE) == ROW + BASE + R * 24
    assert made.invariant(ROW + R * 24) == ROW + R * 24


@pytest.mark.parametrize(("divisor", "row", "step", "even"), [
    (1, 8, 8, True), (1, 4, 8, False), (2, 16, 8, True), (8, 8, 8, False), (6400, 8, 8, False), (6400, 0, 8, True)])
def test_whether_an_invariant_makes_the_way_to_a_bound_even(divisor: int, row: int, step: int, even: bool) -> None:
    """divisor * way + row * (bound - counter) is a number, so way is one, less row / divisor * (bound - counter)."""
    assert invariants(BOUND - COUNTER, divisor, {"rcx": divisor, "rsi": row}).evenly(ROW - BASE, step) == even


def test_what_stays_is_its_own_invariant() -> None:
    made = invariants(BOUND - COUNTER, 2, {"rcx": 2, "rsi": 8})
    assert made.invariant(BASE + BOUND * 3) == BASE + BOUND * 3
    assert made.moves(BASE + BOUND) == frozenset()


def test_cells_on_the_stack_and_parameters_advance_with_their_locations() -> None:
    made = invariants(BOUND - COUNTER, 1, {"rcx": 1, "slot:24:64": 16})
    cell, other = made.assumptions.add_cell(CELL, 64), made.assumptions.add_cell(BASE, 64)
    assert made.step(Linear.symbol(cell, 2) + Linear.symbol(other) + Linear.symbol(parameter("rcx"))) == 33
    assert made.moves(Linear.symbol(cell) + Linear.symbol(other)) == {cell}
    assert made.step(Linear.symbol(low_byte("rcx"))) == 0


def test_the_counter_of_the_exit_test_follows_from_the_remaining_iterations() -> None:
    steps = {"rcx": 1}
    assert invariants(BOUND - COUNTER, 1, steps).by_trips() == {"rcx": BOUND - R}
    assert invariants(BOUND - COUNTER + 3, 4, steps).by_trips() == {"rcx": BOUND - R * 4 + 3}
    assert invariants(BOUND * 2 - COUNTER * 2, 4, steps).by_trips() == {"rcx": BOUND - R * 2}
    assert invariants(BOUND - COUNTER * 2, 4, steps).by_trips() == {}
    assert invariants(BOUND - COUNTER, 1, {"rsi": 1}).by_trips() == {}
