"""Copies of a row in overlapping pieces, as memcpy makes them, become one loop over the row.

Example: 100 bytes are copied as bytes 0..15, then 16-byte words from the first aligned address on, then bytes 84..99.
Some cells are copied twice, and the start of the middle is a floor division. The result is
``for (i = 0; i < 100; i++) to[i] = from[i];``.

In: a ``StatementLoop``. Out: one with such runs of pieces joined, and the ranges of the new counters. Sound because the
pieces are proved to cover exactly the cells between two ends, nothing else happens between them, and no copied cell is
written: copying a cell again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.reasons import Rejected
from memopt.ir.scop import Read
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.statements import CellStatement, StatementItem, StatementLoop
from memopt.lifting.values.bounds import Ranges, least, proved, sign

Items = tuple[StatementItem, ...]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A copy to the bytes [low, high) from those ``shift`` bytes further on."""

    statement: CellStatement
    low: Linear
    high: Linear
    shift: Linear

    @property
    def size(self) -> int:
        return self.statement.element.size

    @property
    def rounded(self) -> bool:
        return bool(self.low.quotients or self.high.quotients)


def whole_rows(loop: StatementLoop, aliasing: Aliasing) -> tuple[StatementLoop, Ranges]:
    """The nest with overlapping pieces joined, and the largest values of the counters of the new loops."""
    rows = _Rows(aliasing, {})
    return rows.inside(loop), rows.ranges


@dataclass(frozen=True, slots=True)
class _Rows:
    aliasing: Aliasing
    ranges: dict[str, Linear]  # of the new loops

    def inside(self, loop: StatementLoop) -> StatementLoop:
        return replace(loop, items=tuple(self._items(loop.items)))

    def _items(self, items: Items) -> Iterator[StatementItem]:
        pieces = [(item, _piece(item)) for item in items]
        for key, group in groupby(pieces, lambda p: None if p[1] is None else (p[1].shift, p[1].statement.element)):
            members = list(group)
            row = self._row([p for _, p in members if p is not None]) if key is not None else None
            if row is not None:
                yield row
                continue
            for item, _ in members:
                yield self.inside(item) if isinstance(item, StatementLoop) else item

    def _row(self, pieces: list[_Piece]) -> StatementLoop | None:
        """All ``pieces`` as one loop; None unless they are proved to cover exactly the cells between two ends."""
        exact = [p for p in pieces if not p.rounded]
        if not exact:
            return None
        sample = {c: 0 for p in pieces for n in (p.low, p.high) for c in n.symbols} | dict(self.aliasing.sample)
        low = min((p.low for p in exact), key=lambda n: n.evaluate(sample))
        high = max((p.high for p in exact), key=lambda n: n.evaluate(sample))
        size, length = pieces[0].size, high - low
        cells = sum((p.high - p.low).evaluate(sample) for p in pieces)
        if len(pieces) == len(exact) and cells <= length.evaluate(sample):
            return None  # they do not overlap: memopt.lifting.reroll.peeling joins them
        if length.quotients or any(c % size for n in (length, *(p.low - low for p in pieces))
                                   for c in (*(c for _, c in n.terms), n.constant)):
            return None
        if not all(self._holds(p.low - low) and self._holds(high - p.high) for p in pieces):
            return None
        reached = [low]  # all cells before these are covered
        for piece in sorted(pieces, key=lambda p: p.low.evaluate(sample)):
            if not any(self._holds(end - piece.low) for end in reached):
                return None
            reached.append(piece.high)
        if not any(self._holds(end - high) for end in reached):
            return None
        return self._loop(pieces[0], low, Linear(tuple((s, c // size) for s, c in length.terms),
                                                 length.constant // size))

    def _loop(self, piece: _Piece, low: Linear, trips: Linear) -> StatementLoop | None:
        counter = f"c:row{len(self.ranges)}"
        write = low + Linear.symbol(counter, piece.size)
        statement = replace(piece.statement, write=write, reads=(write + piece.shift,))
        known = replace(self.aliasing, ranges={**self.aliasing.ranges, counter: trips - 1})
        bits = 8 * piece.size
        if known.overlap_across((counter,), write, bits, write + piece.shift, bits):
            return None
        self.ranges[counter] = trips - 1
        return StatementLoop(counter, trips, (statement,))

    def _holds(self, linear: Linear) -> bool:
        """Whether ``linear >= 0`` is proved for every iteration."""
        for bound in (least, sign):
            try:
                if proved(bound(linear, self.aliasing.ranges), self.aliasing.limits):
                    return True
            except Rejected:  # nothing says how large a rounded number is
                continue
        return False


def _piece(item: StatementItem) -> _Piece | None:
    """``item`` as a copy of adjacent cells; None if it does anything else."""
    if isinstance(item, CellStatement):
        return _copied(item, item.write, item.element.size)
    parts = [_piece(inner) if isinstance(inner, CellStatement) else None for inner in item.items]
    if not parts or parts[0] is None:
        return None
    first, step = parts[0], len(parts) * parts[0].size
    for number, part in enumerate(parts):
        if (part is None or part.low != first.low + number * first.size or part.shift != first.shift
                or part.statement.element != first.statement.element):
            return None
    if first.low.factor(item.counter) != step or item.counter in _rounded(first.low) | first.shift.symbols:
        return None
    low = first.low - Linear.symbol(item.counter, step)
    return replace(first, low=low, high=low + item.trips * step)


def _rounded(linear: Linear) -> frozenset[str]:
    return frozenset().union(*(q.numerator.symbols for q in linear.quotients))


def _copied(statement: CellStatement, low: Linear, size: int) -> _Piece | None:
    if statement.expression != Read(0) or statement.conditions or statement.indices:
        return None
    if statement.elements != (statement.element,) * 2:
        return None
    return _Piece(statement, low, low + size, statement.reads[0] - statement.write)
