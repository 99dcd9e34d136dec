"""Index-set splitting: the pieces are before, on and after a hyperplane, and hold every instance exactly once."""

from __future__ import annotations

import pytest

from memopt.ir.scop import Scop
from memopt.polyhedral.dependence_pieces import dependence_pieces
from passes.loop_schedule.index_set_splitting import split
from tests.support.enumeration import points
from tests.support.nests import scop

SHORTEST_PATHS = scop("""
for k < 5
  for i < 5
    for j < 5
      D[i,j] = min(D[i,j], add(D[i,k], D[k,j]))
""", {"D": (5, 5)})


def domains(of: Scop) -> dict[str, list[tuple[int, ...]]]:
    """The instances of each statement, sorted."""
    return {s.name: sorted(tuple(point.values()) for point in points(s)) for s in of.statements}


def test_pieces_are_before_on_and_after_a_hyperplane() -> None:
    made = split(SHORTEST_PATHS, dependence_pieces(SHORTEST_PATHS))
    assert made is not None
    found = domains(made)
    (whole,) = domains(SHORTEST_PATHS).values()
    assert found == {"S0a": [p for p in whole if p[2] < p[0]],
                     "S0b": [p for p in whole if p[2] == p[0]],
                     "S0c": [p for p in whole if p[2] > p[0]]}
    assert sorted(p for piece in found.values() for p in piece) == whole


def test_a_loop_that_is_parallel_as_it_is_stays_whole() -> None:
    copies = scop("for i < 5\n  for j < 5\n    A[i+1,j] = add(A[i,j], 0)", {"A": (6, 5)})
    assert split(copies, dependence_pieces(copies)) is None


@pytest.mark.parametrize("statement", ["A[i+1] = add(A[i], 0)", "A[i] = add(A[5-i], 0)"])
def test_dependences_that_go_through_no_hyperplane_leave_the_statement_whole(statement: str) -> None:
    """Each iteration on the one before, and pairs of iterations on both sides of the middle."""
    made = scop(f"for i < 6\n  {statement}", {"A": (7,)})
    assert split(made, dependence_pieces(made)) is None
