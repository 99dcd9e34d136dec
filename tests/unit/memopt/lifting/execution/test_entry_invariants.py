"""Entry invariants: sums that have one value at every entry of a loop, and from which a live-in value follows."""

from __future__ import annotations

import pytest

from memopt.ir.linear import Linear
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
