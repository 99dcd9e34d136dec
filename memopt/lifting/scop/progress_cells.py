"""Progress cells: stores of a counter to a cell that does not move, left to the rejoin.

Example::

    for (i = 0; i < n; i++) { row = i; for (j...) for (k...) c[i][j] += a[i][k] * b[k][j]; }

A signal handler may read ``row`` and take all rows below it for complete. The version computes rows in another order.
So ``row = i`` is no statement of the SCoP. The rejoin stores ``row = H - 1``, the value of the last iteration that the
version has run, when all other stores are done. The cell is never ahead of its rows, and it moves at the end of each
chunk (memopt.ir.region.Region.returns_often). For ``rows++`` the rejoin adds H to the cell by one instruction, because
a handler may have set it back meanwhile.

In: the SCoP. Out: the SCoP without these statements, and their cells as rejoins. Sound because nobody else in the nest
reads or writes the cell, so only its last value matters to what follows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from memopt.ir.linear import Linear
from memopt.ir.region import Cell, Rejoin
from memopt.ir.scop import LIMIT, Apply, Array, Constant, ElementType, Index, Read, Scop, Statement
from memopt.lifting.execution.assumptions import GENERAL

_INTEGERS = (ElementType.I32, ElementType.I64)


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
    """The rejoin of ``array``, if it is one cell that nothing but counting accesses; else None."""
    stores = sorted((s for s in scop.statements if s.write.array == array.name), key=lambda s: s.position)
    others = (r for s in scop.statements if s not in stores for r in s.reads)
    if array.private or not stores or any(r.array == array.name for r in others) or len({s.write for s in stores}) > 1:
        return None
    last, steps = stores[-1], [_step(s) for s in stores]
    if all(s is None and _stores_counter(x) for s, x in zip(steps, stores, strict=True)):
        assert isinstance(last.expression, Index)
        value = last.expression.value.substitute({last.dimensions[0].name: Linear.symbol(LIMIT) - 1})
        element, added = last.expression.element, False
    elif all(s is not None and _in_each_iteration(x) for s, x in zip(steps, stores, strict=True)):
        assert isinstance(last.expression, Apply)
        value, element, added = Linear.symbol(LIMIT, sum(s for s in steps if s)), last.expression.element, True
    else:
        return None
    address = array.base
    for subscript, stride in zip(last.write.subscripts, array.strides, strict=False):
        address += subscript * stride
    base = address.terms[0][0] if address.terms else ""
    if element.size not in (4, 8) or len(address.terms) > 1 or any(c != 1 for _, c in address.terms) or (
            base and (base not in GENERAL or base in moving)):
        return None
    return Rejoin(Cell(base, address.constant, element.size), value, element.size, added)


def _stores_counter(statement: Statement) -> bool:
    """Whether the statement stores an affine value."""
    expression = statement.expression
    return _in_each_iteration(statement) and isinstance(expression, Index) and not expression.value.quotients


def _in_each_iteration(statement: Statement) -> bool:
    """Whether the statement stores to one cell in every outer iteration."""
    return (len(statement.dimensions) == 1 and not statement.conditions
            and all(s.is_constant for s in statement.write.subscripts))


def _step(statement: Statement) -> int | None:
    """The constant that the statement adds to the integer in its cell (``rows++``); None if it does something else."""
    if statement.reads == (statement.write,):
        match statement.expression:
            case (Apply("add", (Read(0), Constant(bits, element)))
                  | Apply("add", (Constant(bits, element), Read(0)))) if element in _INTEGERS:
                return bits - (bits >> 8 * element.size - 1 << 8 * element.size)
    return None
