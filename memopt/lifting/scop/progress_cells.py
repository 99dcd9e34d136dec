"""Progress cells: stores of a counter to a cell that does not move, left to the rejoin.

Example::

    for (i = 0; i < n; i++) { row = i; for (j...) for (k...) c[i][j] += a[i][k] * b[k][j]; }

A signal handler may read ``row`` and take all rows below it for complete. The version computes rows in another order.
So ``row = i`` is no statement of the SCoP. The rejoin stores ``row = H - 1``, the value of the last iteration that the
version has run, when all other stores are done. The cell is never ahead of its rows, and it moves at the end of each
chunk (memopt.ir.region.Region.returns_often). For ``rows++`` the rejoin adds H to the cell by one instruction, because
a handler may have set it back meanwhile.

In: the SCoP. Out: the SCoP without these statements, and their cells as rejoins. Sound because nobody else in the nest
reads or writes the cell, so only its last value matters to what follows. A nest that tells how far it is in another
way, such as ``if (i % 8 == 0) row = i``, is refused: its statements in another order would be ahead of their rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from memopt.ir.linear import Compound, Linear, product
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Cell, Rejoin
from memopt.ir.scop import LIMIT, Apply, Array, Constant, ElementType, Index, Read, Scop, Statement, bytes_of

_INTEGERS = (ElementType.I32, ElementType.I64)


def progress_cells(scop: Scop, moving: Collection[str]) -> tuple[Scop, tuple[Rejoin, ...]]:
    """``scop`` without the statements that store progress, and the rejoins that store it instead.

    ``moving``: registers that differ from one iteration of the outermost loop to the next. A SCoP of nothing else stays
    as it is. Raises Rejected for a counter that cannot be left to the rejoin.
    """
    found = {a.name: made for a in scop.arrays if (made := _rejoin(a, scop, moving)) is not None}
    others = tuple(s for s in scop.statements if s.write.array not in found)
    for array in scop.arrays:
        if array.name not in found and _tells(array, scop):
            raise Rejected(Reason.NO_SCHEDULE, f"the loop stores how far it is at {array.base}, in a way that memopt "
                                               "cannot keep in step with the other stores")
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
        address += product(subscript, bytes_of(stride))
    base = address.terms[0][0] if address.terms else ""
    if len(address.terms) > 1 or any(c != 1 for _, c in address.terms) or base in moving or (
            isinstance(base, Compound)):
        return None
    return Rejoin(Cell(base, address.constant, element.size), value, element.size, added)


def _tells(array: Array, scop: Scop) -> bool:
    """Whether the nest stores a counter to the cell ``array``, outside its innermost loops.

    A cell at a constant distance from the stack pointer is the loop's own."""
    stores = [s for s in scop.statements if s.write.array == array.name]
    if array.private or len(stores) == len(scop.statements) or set(array.base.symbols) == {"rsp"} or not all(
            x.is_constant for s in stores for x in s.write.subscripts):
        return False
    deepest = max(len(s.dimensions) for s in scop.statements)
    return any(len(s.dimensions) < max(2, deepest) and (_counts(s) or _step(s) is not None) for s in stores)


def _counts(statement: Statement) -> bool:
    return isinstance(statement.expression, Index) and not statement.expression.value.is_constant


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
