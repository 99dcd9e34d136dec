"""Sums over small loops in one statement: the same operations, fewer stores."""

from __future__ import annotations

import pytest

from memopt.ir.scop import TRIPS, Scop
from memopt.lifting.scop.reduction_unrolling import unroll_reductions
from tests.support.enumeration import Cell, Memory, Term, cell, date, evaluate, points
from tests.support.nests import region

ARRAYS = {"A": (20, 20), "B": (20, 20), "w": (8, 8)}


def _run(scop: Scop, trips: int) -> dict[Cell, Term]:
    memory = Memory()
    instances = [(date(s, p), s, p) for s in scop.statements for p in points(s, {TRIPS: trips})]
    for _, statement, point in sorted(instances, key=lambda instance: instance[0]):
        values = [memory.load(cell(r, point)) for r in statement.reads]
        memory.store(cell(statement.write, point), evaluate(statement.expression, values))
    return memory.cells


@pytest.mark.parametrize("text", [
    "B[i,j] = add(B[i,j], mul(w[l,m], A[i+l,j+m]))",
    "B[i,j] = sub(mul(w[l,m], A[i+l,j]), B[i,j])",
    "B[i,j] = max(A[i+l,j+m], abs(B[i,j]))",
])
def test_the_same_operations_in_the_same_order(text: str) -> None:
    scop = region(f"""
for i < R
  for j < 5
    B[i,j] = 0
    for l < 3
      for m < 2
        {text}
    A[i,j] = B[i,j]
""", ARRAYS).scop
    made = unroll_reductions(scop)
    assert [len(s.dimensions) for s in made.statements] == [2, 2, 2]
    for trips in (1, 4):
        assert _run(made, trips) == _run(scop, trips)


@pytest.mark.parametrize("inside", [
    "for l < 3\n      B[i,j] = add(B[i,j], A[i+l,j])\n      B[i,j] = sub(mul(w[l,1], A[i+l,j+1]), B[i,j])",
    "for l < 2\n      for m < 3\n        B[i,j] = add(A[i+l,j], B[i,j])\n        B[i,j] = add(B[i,j], A[i+l,j+m])",
])
def test_statements_that_go_on_with_one_sum(inside: str) -> None:
    scop = region(f"for i < R\n  for j < 5\n    {inside}\n    A[i,j] = B[i,j]\n", ARRAYS).scop
    made = unroll_reductions(scop)
    assert [len(s.dimensions) for s in made.statements] == [2, 2]
    for trips in (1, 4):
        assert _run(made, trips) == _run(scop, trips)


@pytest.mark.parametrize("inside", [
    "for l < 3\n      B[i,j] = add(B[i,j], A[i+l,j])\n      B[i,j+1] = add(B[i,j+1], A[i+l,j])",
    "for l < 3\n      B[i,j] = add(B[i,j], A[i+l,j])\n      B[i,j] = mul(A[i,j], A[i+l,j])",
    "for l < 3\n      B[i,j] = add(B[i,j], A[i+l,j])\n      if l + i - 2 >= 0\n        B[i,j] = add(B[i,j], A[i,j])",
    "for l < 3\n      B[i,j] = add(B[i,j], A[i+l,j])",  # one loop
    "for l < 3\n      for m < 9\n        B[i,j] = add(B[i,j], A[i+l,j+m])",  # one that is short
    "for l < 6\n      for m < 6\n        B[i,j] = add(B[i,j], A[i+l,j+m])",  # too many terms
    "for l < 3\n      for m < l + 1\n        B[i,j] = add(B[i,j], A[i+l,j+m])",
    "for l < 3\n      for m < 3\n        B[i,j+m] = add(B[i,j+m], A[i+l,j+m])",
    "for l < 3\n      for m < 3\n        B[i,j] = add(B[i,j], B[i+l,j+m])",
    "for l < 3\n      for m < 3\n        B[i,j] = add(B[i,j], mul(B[i,j], A[i+l,j+m]))",
    "for l < 3\n      for m < 3\n        B[i,j] = add(B[i,j], A[i+l,j+m])\n      A[i,j] = B[i,j]",
    "for l < 3\n      for m < 3\n        if l + i - 2 >= 0\n          B[i,j] = add(B[i,j], A[i+l,j+m])",
])
def test_what_is_left_alone(inside: str) -> None:
    scop = region(f"for i < R\n  for j < 5\n    {inside}\n", ARRAYS).scop
    assert unroll_reductions(scop) == scop
