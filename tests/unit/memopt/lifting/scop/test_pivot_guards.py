"""A pivot's column is none of those that are written: a guard where nothing proves it, none where it is so anyway."""

from __future__ import annotations

import pytest

from memopt.ir.linear import Linear
from memopt.ir.scop import Access, Apply, Array, Dimension, ElementType, Read, Scop, Statement
from memopt.lifting.scop.pivot_guards import disjoint_cells
from memopt.lifting.values.bounds import Limits

COLUMN, K, R = Linear.symbol("i"), Linear.symbol("k"), Linear.symbol("R")


def update(pivot: Linear, column: Linear) -> Scop:
    """for i < R: for k < 10: A[k, column] += A[k, pivot]"""
    written = Access("A", (K, column))
    body = Apply("add", (Read(0), Read(1)), ElementType.F64)
    statement = Statement("S0", (Dimension("i", R), Dimension("k", Linear.of(10))), written,
                          (written, Access("A", (K, pivot))), body, (0, 0, 0))
    return Scop((Array("A", ElementType.F64, Linear.symbol("rdi"), (800, 8)),), (statement,))


@pytest.mark.parametrize(("pivot", "column", "guards"), [
    (Linear.of(12), COLUMN - R + 60, ["-R + 47 >= 0"]),  # from 60 - R on: 12 is below that where R is below 48
    (Linear.of(70), COLUMN - R + 60, []),  # beyond the last one
    (Linear.of(12), COLUMN + 13, []),
    (Linear.of(30), COLUMN - R + 60, []),  # is among those written at the captured values: it stays as it is
])
def test_guards(pivot: Linear, column: Linear, guards: list[str]) -> None:
    found = [str(g) for g in disjoint_cells(update(pivot, column), Limits(), {"R": 40, "rdi": 0})]
    assert found == guards


def test_what_is_known_of_sizes_is_not_asked_again() -> None:
    assert not list(disjoint_cells(update(Linear.of(12), COLUMN - R + 60), Limits(47), {"R": 40, "rdi": 0}))
