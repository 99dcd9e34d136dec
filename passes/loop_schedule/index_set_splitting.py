"""Index-set splitting: a statement is cut in three by a hyperplane that all its dependences go through.

Before: ``for j: D[i, j] = min(D[i, j], D[i, k] + D[k, j])``, where the iteration j = k writes what all others read.
After: the pieces j < k, j = k and j > k one after the other, each of them parallel along j.

Every instance is in exactly one piece. In: a ``Scop`` and its dependences. Out: the ``Scop`` of the pieces, or None
where that makes no loop parallel. It does not decide the order of the pieces; ``allen_kennedy`` does.

(Banerjee, "Loop Transformations for Restructuring Compilers", 1993; Griebl, Feautrier, Lengauer, "Index set splitting",
IJPP 28(6), 2000.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memopt.ir.linear import Linear
from memopt.ir.scop import Scop, Statement
from memopt.polyhedral.dependence_pieces import DependencePiece
from memopt.polyhedral.isl import instances
from passes.loop_schedule.carried_dependences import DependencePieces, carry, within

MOST_PIECES = 12  # more than that many additional statements are not worth scheduling


def split(scop: Scop, conflicts: DependencePieces) -> Scop | None:
    """``scop`` with statements in pieces where that makes a loop parallel; None where it does not, or the pieces are
    too many."""
    statements: list[Statement] = []
    for statement in scop.statements:
        statements += _pieces(statement, within(conflicts, (statement.name,)))
    if len(statements) == len(scop.statements) or len(statements) > len(scop.statements) + MOST_PIECES:
        return None
    return replace(scop, statements=tuple(statements))


def _pieces(statement: Statement, conflicts: DependencePieces) -> Iterator[Statement]:
    """The whole statement where a loop is parallel as innermost one. Else the pieces before, on and after a
    hyperplane that all dependences left for the innermost loop go through; the whole statement where there is no
    such hyperplane."""
    blocked: list[tuple[str, DependencePieces]] = []
    for dimension in statement.dimensions:
        left: DependencePieces | None = conflicts
        for other in statement.dimensions:
            if other is not dimension and left is not None:
                left = carry(left, {statement.name: Linear.symbol(other.name)})
        if left == ():
            yield statement
            return
        if left is not None:
            blocked.append((dimension.name, left))
    for name, left in reversed(blocked):
        for plane in _planes(statement, name):
            if all(_goes_through(c, plane) for c in left):
                yield from _cut(statement, plane)
                return
    yield statement


def _planes(statement: Statement, along: str) -> Iterator[Linear]:
    """Hyperplanes on which an operand may be the written cell: differences of subscripts that move with the loop
    ``along``, with the sign that ascends."""
    seen = set()
    for read in statement.reads:
        if read.array == statement.write.array:
            for write, other in zip(statement.write.subscripts, read.subscripts, strict=True):
                plane = write - other
                if plane.coefficient(along) < 0:
                    plane = -plane
                if plane.coefficient(along) and plane not in seen:
                    seen.add(plane)
                    yield plane


def _goes_through(conflict: DependencePiece, plane: Linear) -> bool:
    """Whether every pair of dependent instances has one of the two on the hyperplane."""
    later = conflict.later_instance(plane)
    return all(conflict.where(nonnegative=(a - 1, b - 1)).pairs.is_empty
               for a in (plane, -plane) for b in (later, -later))


def _cut(statement: Statement, plane: Linear) -> Iterator[Statement]:
    pieces = (("a", (-plane - 1,)), ("b", (plane, -plane)), ("c", (plane - 1,)))
    for suffix, conditions in pieces:
        piece = replace(statement, name=statement.name + suffix, conditions=(*statement.conditions, *conditions))
        if not instances(piece).is_empty:
            yield piece
