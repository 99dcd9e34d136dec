"""The instances of a statement, and the cells that they touch."""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.linear import Linear
from passes.loop_schedule.index_set_splitting import instances
from tests.support.nests import region


def test_cells_may_depend_on_what_no_bound_names() -> None:
    """``B[i - n, j]`` is ``B[j, i]`` for some n, and ``B[i - n, j + 9]`` never."""
    (statement,) = region("for i < R\n  for j < 5\n    B[i,j] = add(B[i,j], B[j,i])", {"B": (20, 20)}).scop.statements
    row, column = statement.write.subscripts
    cell = (row - Linear.symbol("n"), column)
    moved = replace(statement, write=replace(statement.write, subscripts=cell))
    for other, meets in (((column, row), True), ((row, column + 9), False)):
        equal = [a - b for a, b in zip(cell, other, strict=True)]
        assert instances(moved).where(equal=equal).is_empty is not meets
