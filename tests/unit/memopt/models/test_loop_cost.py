"""The cost model of loops: the average trip counts by which plans are priced."""

from __future__ import annotations

from memopt.ir.linear import Linear
from memopt.ir.scop import TRIPS, Access, Constant, Dimension, Statement
from memopt.models.loop_cost import average_trips

OUTER, INNER, R = (Linear.symbol(n) for n in ("i", "j", TRIPS))


def usual(inner: Linear, *conditions: Linear) -> dict[str, int]:
    loops = Dimension("i", R), Dimension("j", inner)
    return average_trips(Statement("S0", loops, Access("A", (OUTER,)), (), Constant(0), (0, 0, 0), conditions), 100)


def test_a_triangle_is_taken_at_its_middle() -> None:
    assert usual(R - OUTER) == {"i": 100, "j": 50}


def test_a_statement_of_the_last_iterations_runs_in_these() -> None:
    assert usual(R - OUTER, OUTER - R + 5) == {"i": 5, "j": 3}


def test_a_statement_of_the_first_iterations_runs_in_these() -> None:
    assert usual(R - OUTER, -(OUTER + OUTER) + 7) == {"i": 4, "j": 98}


def test_a_condition_on_both_loops_leaves_half() -> None:
    assert usual(Linear.of(40), OUTER - INNER) == {"i": 100, "j": 20}


def test_a_pair_of_conditions_leaves_what_is_between() -> None:
    assert usual(Linear.of(40), OUTER - INNER, INNER - OUTER) == {"i": 100, "j": 1}
    assert usual(Linear.of(40), OUTER - INNER * 4, INNER * 4 - OUTER + 3) == {"i": 100, "j": 1}
    assert usual(Linear.of(40), OUTER - INNER, INNER - OUTER + 3) == {"i": 100, "j": 4}
