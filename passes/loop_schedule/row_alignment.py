"""Loop alignment: dates that follow the rows of an array, so that a row has the same date in all statements.

Example: a nest that is entered in its middle counts some rows from the iterations that remain (``i - R + 100``), others
from the first one (``k``). The date of a loop is then the row that it is at, not its counter.

Rows that a loop goes through downwards are counted from the last row. Columns count as rows too: the columns of a
matrix are counted so that a diagonal element has one number as row and as column, wherever rows and columns begin.
Where no row depends on R or on another symbol, the date of a loop is its counter.

This only chooses dates. ``carried_dependences`` decides whether a date keeps the dependences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import field

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.scop import Scop, Statement

_Subscript = tuple[str, int]  # array and number of the subscript


@dataclass(frozen=True, slots=True)
class RowAlignment:
    """How the rows of each array are numbered."""

    # Arrays whose rows are dates; empty where counters are.
    written: frozenset[str] = frozenset()
    # The row from which rows that a loop goes through downwards are counted.
    last: int | None = None
    # The number subtracted from a subscript to get its row.
    origins: Mapping[_Subscript, Linear] = field(default_factory=dict)
    # The number subtracted from every date.
    start: Linear = field(default_factory=Linear)

    @staticmethod
    def of(scop: Scop) -> RowAlignment:
        """The numbering for the arrays that ``scop`` writes. Dates are counters where no row depends on a symbol."""
        written = frozenset(s.write.array for s in scop.statements)
        origins = _origins(scop, written)
        found = [(_from(origins, place, subscript), loop) for s in scop.statements
                 for place, subscript, loop in _single(s, written)]
        if not any(subscript.symbols - {loop} for subscript, loop in found):
            return RowAlignment(origins=origins)
        down = [f.constant for f, loop in found if f.symbols == {loop} and f.coefficient(loop) == -1]
        return RowAlignment(written, max(down, default=None), origins)

    def date(self, statement: Statement, loop: str) -> Linear:
        """The date of a loop of ``statement``: the row that it is at, or its counter."""
        for place, subscript, name in _single(statement, self.written):
            if name == loop:
                row = self.row(place, subscript, subscript.coefficient(loop))
                if row is not None:
                    return row
        return Linear.symbol(loop) - self.start

    def row(self, place: _Subscript, subscript: Linear, direction: int) -> Linear | None:
        """The date of the row at ``subscript``, which advances by ``direction`` in each iteration; None where it has
        none."""
        row = _from(self.origins, place, subscript)
        if direction == -1 and self.last is not None:
            row = -row + self.last
        elif direction != 1:
            return None
        return row - self.start


def _from(origins: Mapping[_Subscript, Linear], place: _Subscript, subscript: Linear) -> Linear:
    return subscript - origins[place] if place in origins else subscript


def _single(statement: Statement, arrays: frozenset[str]) -> Iterator[tuple[_Subscript, Linear, str]]:
    """Subscripts of ``arrays`` that exactly one loop moves: place, subscript, loop."""
    names = {d.name for d in statement.dimensions}
    for access in (statement.write, *statement.reads):
        for number, subscript in enumerate(access.subscripts if access.array in arrays else ()):
            loops = subscript.symbols & names
            if len(loops) == 1:
                yield (access.array, number), subscript, next(iter(loops))


def _origins(scop: Scop, written: frozenset[str]) -> dict[_Subscript, Linear]:
    """For columns: what to subtract so that the columns of an array begin where its rows do. Found where one loop of a
    statement goes over both; the nearest one where there are several."""
    found: dict[_Subscript, list[Linear]] = defaultdict(list)
    for statement in scop.statements:
        subscripts = tuple(_single(statement, written))
        for (array, row), first, loop in subscripts:
            for (other, column), second, same in subscripts:
                ahead = second - first
                if (array, loop) == (other, same) and row == 0 < column and loop not in ahead.symbols:
                    found[array, column].append(ahead)
    return {place: min(distances, key=lambda d: abs(d.constant)) for place, distances in found.items()}
