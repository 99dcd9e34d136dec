"""The convex pieces together are the dependences that isl's union maps give."""

from __future__ import annotations

import pytest

from memopt.ir.scop import Scop
from memopt.polyhedral.dependence_pieces import dependence_pieces, shared_loops
from memopt.polyhedral.dependences import dependences
from memopt.polyhedral.isl import IntegerMap
from tests.support.enumeration import conflicts as enumerated
from tests.support.nests import scop

_NESTS = {
    "triangle": scop("""
for i < 6
  for j < i+1
    C[i, j] = mul(C[i, j], A[i, j])
    for k < i - j
      C[i, j] = add(C[i, j], mul(A[i, k], A[j, k]))
""", {"A": (8, 8), "C": (8, 8)}),
    "time": scop("""
for t < 3
  for i < 6
    B[i+1] = add(A[i], A[i+2])
  for i < 6
    A[i+1] = add(B[i+1], 0)
""", {"A": (8,), "B": (8,)}),
    "condition": scop("""
for i < 5
  for j < 5
    if i - j >= 0
      if j + i - 3 >= 0
        A[i, j] = add(A[j, i], A[i-1, j])
""", {"A": (8, 8)}),
}


def _pairs(made: Scop) -> set[tuple[str, tuple[int, ...], str, tuple[int, ...]]]:
    return {(s.name, tuple(p.values()), t.name, tuple(q.values())) for s, p, t, q, _ in enumerated(made)}


@pytest.mark.parametrize("name", list(_NESTS))
def test_conflicts_are_the_pairs_that_share_a_cell(name: str) -> None:
    made = _NESTS[name]
    found = set()
    for each in dependence_pieces(made):
        sizes = {s.name: len(s.dimensions) for s in made.statements}
        count = sizes[each.earlier]
        for point in _points(each.pairs.handle):
            found.add((each.earlier, point[:count], each.later, point[count:]))
    assert found == _pairs(made)
    text = "; ".join(f"{s}[{', '.join(map(str, p))}] -> {t}[{', '.join(map(str, q))}]" for s, p, t, q in found)
    assert dependences(made).all == IntegerMap.parse(f"{{ {text} }}")


def _points(handle: object) -> list[tuple[int, ...]]:
    import islpy as isl

    found: list[tuple[int, ...]] = []

    def visit(point: isl.Point) -> None:
        values = (point.get_coordinate_val(isl.dim_type.set, n) for n in range(point.get_space().dim(isl.dim_type.set)))
        found.append(tuple(int(v.to_python()) for v in values))

    isl.Set.from_basic_set(handle).foreach_point(visit)
    return found


def test_loops_are_shared_where_positions_agree() -> None:
    first, second = _NESTS["time"].statements
    assert shared_loops(first, second) == 1
    first, second = _NESTS["triangle"].statements
    assert shared_loops(first, second) == 2
