"""Dates that follow the rows of an array.

A nest that is entered in its middle counts some rows from the iterations that remain (``i - R + 100``), others from
the first one (``k``). Where that is so, a loop's date is the row that it goes over, so that one row has the same date
in all statements; rows that are gone through downwards are counted from the last one. Where no row depends on R, or on
another symbol, a loop's date is its counter.
"""

from __future__ import annotations

from dataclasses import dataclass

from memopt.ir.linear import Linear
from memopt.ir.scop import Scop, Statement


@dataclass(frozen=True, slots=True)
class Rows:
    """``written``: arrays whose rows count, none where counters do; ``last``: the one that others are counted from
    downwards."""

    written: frozenset[str] = frozenset()
    last: int | None = None

    @staticmethod
    def of(scop: Scop) -> Rows:
        written = frozenset(s.write.array for s in scop.statements)
        found = [(f, f.symbols - _names(s)) for s in scop.statements for a in (s.write, *s.reads)
                 if a.array in written for f in a.subscripts if len(f.symbols & _names(s)) == 1]
        if not any(symbols for _, symbols in found):
            return Rows()
        down = [f.constant for f, symbols in found if not symbols and f.terms[0][1] == -1]
        return Rows(written, max(down, default=None))

    def date(self, statement: Statement, loop: str) -> Linear:
        """The row that the loop of ``statement`` is at, or its counter."""
        for access in (statement.write, *statement.reads):
            for subscript in access.subscripts if access.array in self.written else ():
                if subscript.symbols & _names(statement) == {loop}:
                    row = self.row(subscript, subscript.coefficient(loop))
                    if row is not None:
                        return row
        return Linear.symbol(loop)

    def row(self, subscript: Linear, direction: int) -> Linear | None:
        """The date of a row that advances by ``direction``; None where it has none."""
        if direction == 1:
            return subscript
        return -subscript + self.last if direction == -1 and self.last is not None else None


def _names(statement: Statement) -> set[str]:
    return {d.name for d in statement.dimensions}
