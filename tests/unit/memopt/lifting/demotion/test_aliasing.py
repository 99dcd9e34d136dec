from __future__ import annotations

from memopt.ir.linear import Linear, quotient
from memopt.ir.region import Interval
from memopt.lifting.demotion.aliasing import Aliasing

H, J, R = Linear.symbol("c:i"), Linear.symbol("c:j"), Linear.symbol("R")
P, Q = Linear.symbol("p"), Linear.symbol("q")


def aliasing(trips: int = 10) -> Aliasing:
    return Aliasing({"c:i": R - 1, "c:j": Linear.of(9)}, {"p": 1000, "q": 5000, "R": trips})


def test_cells_of_one_iteration() -> None:
    tool = aliasing()
    assert tool.overlap(P + J * 8, 64, P + J * 8, 64)
    assert tool.overlap(P + J * 8, 64, P + J * 8 + 4, 32)
    assert not tool.overlap(P + J * 8, 32, P + J * 8 + 4, 32)
    assert not tool.overlap(P + J * 8, 64, P + J * 8 + 8, 64)
    assert not tool.overlap(P + J * 8 + 8, 64, P + J * 8, 64)


def test_a_cell_against_all_of_a_row() -> None:
    tool = aliasing()
    assert tool.overlap(P, 64, P + J * 8, 64)
    assert tool.overlap(P + 72, 64, P + J * 8, 64)
    assert not tool.overlap(P + 80, 64, P + J * 8, 64)
    assert not tool.overlap(P - 8, 64, P + J * 8, 64)
    assert tool.overlap(P + 76, 64, P + J * 8, 64), "half of the last cell"


def test_two_iterations() -> None:
    tool = aliasing()
    assert not tool.overlap(P + J * 8, 64, P + J * 8 + 8, 64)
    assert tool.overlap_across(["c:j"], P + J * 8, 64, P + J * 8 + 8, 64)
    assert not tool.overlap_across(["c:j"], P + J * 8, 64, P + J * 8 + 80, 64)


def test_several_counters_may_differ_at_once() -> None:
    """Either distance alone is too short for a conflict, both together are not."""
    ranges = {"c:j": Linear.of(50), "c:k": Linear.of(50)}
    tool = Aliasing(ranges, {})
    cell = P + J * 8 + Linear.symbol("c:k", 8)
    assert not tool.overlap_across(["c:j"], cell, 64, cell + 504, 64)
    assert not tool.overlap_across(["c:k"], cell, 64, cell + 504, 64)
    assert tool.overlap_across(["c:j", "c:k"], cell, 64, cell + 504, 64)


def test_different_symbols_are_left_to_the_guards() -> None:
    assert not aliasing().overlap(P, 64, Q, 64)


def test_a_distance_that_depends_on_the_outer_trip_count_is_assumed_and_noted() -> None:
    tool = aliasing(10)
    assert not tool.overlap(P + H * 8, 64, P + 200, 64)
    assert list(tool.assumed) == [(Interval(P, P + R * 8), Interval(P + 200, P + 208))]
    assert aliasing(30).overlap(P + H * 8, 64, P + 200, 64), "the captured trip count reaches it"


def test_cells_that_conditions_keep_apart() -> None:
    tool, quarter = aliasing(), quotient(H, 4)
    assert tool.overlap(P + quarter * 32, 64, P, 64)
    assert not tool.overlap_where((H - 4,), P + quarter * 32, 64, P, 64)
    assert not tool.overlap_where((H - 4,), P, 64, P + quarter * 32, 64)
    assert tool.overlap_where((H - 4,), P + quarter * 32, 64, P + 32, 64)
    assert tool.overlap_where((H - 3,), P + quarter * 32, 64, P, 64)
    assert not tool.overlap_where((H - 4,), P + quarter * 32, 64, Q, 64)


def test_a_row_whose_length_is_rounded() -> None:
    """``for j < (i - R) / 2 + 5``: where it ends is not known, but it starts behind the cell."""
    rounded = quotient(H - R, 2)
    tool = Aliasing({"c:i": R - 1, "c:j": rounded + 5}, {"p": 1000, "R": 10})
    distance = H * 8 - R * 8 - rounded * 16  # 0 or 8
    assert not tool.overlap(P, 64, P + distance + J * 16 + 8, 64)
    assert not tool.overlap(P - 8, 64, P + distance + J * 16, 64)
    assert tool.overlap(P + 8, 64, P + distance + J * 16, 64)
    assert tool.overlap(P, 64, P + distance + J * 16, 64)
    assert tool.overlap(P, 64, Q + distance + J * 16, 64) is False, "another array"
