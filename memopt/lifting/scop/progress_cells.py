"""Progress cells: stores of a counter to a cell that does not move, left to the rejoin.

Example::

    for (i = 0; i < n; i++) { row = i; for (j...) for (k...) c[i][j] += a[i][k] * b[k][j]; }

A signal handler may read ``row`` and take all rows below it for complete. The version computes rows in another order.
So ``row = i`` is no statement of the SCoP. The rejoin stores ``row = H - 1``, the value of the last iteration that the
version has run, when all other stores are done. The cell is never ahead of its rows, and it moves at the end of each
chunk (memopt.ir.region.Region.returns_often).

In: the SCoP. Out: the SCoP without these statements, and their cells as rejoins. Sound because nobody else in the nest
reads or writes the cell, so only its last value matters to what follows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from memopt.ir.linear import Linear
from memopt.ir.region import Cell, Rejoin
from memopt.ir.scop import LIMIT, Array, Index, Scop, Statement
from memopt.lifting.execution.assumptions import GENERAL


def progress_cells(scop: Scop, moving: Collection[str]) -> tuple[Scop, tuple[Rejoin, ...]]:
    """``scop`` without the statements that store progress, and the rejoins that store it instead.

    ``moving``: registers that differ from one iteration of the outermost loop to the next. A SCoP of nothing else stays
    as it is.
    """
    found = {a.name: made for a in scop.arrays if (made := _rejoin(a, scop, moving)) is not None}
    others = tuple(s for s in scop.statements if s.write.array not in found)
    if not found or not others:
        return scop, ()
    return replace(scop, statements=others), tuple(found.values())


def _rejoin(array: Array, scop: Scop, moving: Collection[str]) -> Rejoin | None:
    """The rejoin of ``array``, if it is one cell that nothing but stores of counters accesses; else None."""
    stores = [s for s in scop.statements if s.write.array == array.name]
    if array.private or not stores or any(r.array == array.name for s in scop.statements for r in s.reads) or (
            len({s.write for s in stores}) != 1 or not all(map(_stores_counter, stores))):
        return None
    last = max(stores, key=lambda s: s.position)
    assert isinstance(last.expression, Index)
    address, size = array.base, last.expression.element.size
    for subscript, stride in zip(last.write.subscripts, array.strides, strict=False):
        address += subscript * stride
    base = address.terms[0][0] if address.terms else ""
    if len(address.terms) > 1 or any(c != 1 for _, c in address.terms) or (
            base and (base not in GENERAL or base in moving)):
        return None
    counter = last.dimensions[0].name
    value = last.expression.value.substitute({counter: Linear.symbol(LIMIT) - 1})
    return Rejoin(Cell(base, address.constant, size), value, size)


def _stores_counter(statement: Statement) -> bool:
    """Whether the statement stores an affine value of 4 or 8 bytes to one cell in every outer iteration."""
    expression = statement.expression
    return (len(statement.dimensions) == 1 and not statement.conditions and isinstance(expression, Index)
            and expression.element.size in (4, 8) and not expression.value.quotients
            and all(s.is_constant for s in statement.write.subscripts))
