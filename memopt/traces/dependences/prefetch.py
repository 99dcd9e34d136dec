"""Prefetches the shadow memory that the words of the trace coming next will be looked up in.

The work for one word is spread: its cell is prefetched first, at the next call the cell of the part that it touches, at
the call after that the readers of that part.

In: the trace from the current word on. Out: nothing but speed, so what is prefetched may be out of date. ``Worth``
decides by trial whether it is done at all.
"""

from __future__ import annotations

from memopt.traces.core.compiler import kernel
from memopt.traces.core.tables import likely, prefetch
from memopt.traces.dependences.shadow_lines import room_in, row_of
from memopt.traces.dependences.shadow_memory import (
    CELL,
    CHUNK,
    DUE,
    IN_STRIP,
    LINE,
    LOW,
    WRITER,
    WRITTEN,
    part_at,
    parts_of,
)
from memopt.traces.dependences.shadow_strips import (
    CELLS,
    IN_CELLS,
    LINES_OF_PAGE,
    NUMBER,
    TOLD,
    WORDS_OF_PAGE,
    row_of_page,
)
from memopt.traces.dependences.state import tables_at

_AHEAD = 32  # words of the trace that are prefetched at a time
# Columns of the table ``ahead``: how many cells, how many parts; the cells, each with the byte in it; the parts.
_CELLS, _PARTS, _OF_CELLS, _OF_PARTS, OF_AHEAD = 0, 1, 2, 2 + _AHEAD, 2 + 2 * _AHEAD
_TURNS, _LEAST_WORDS = 12, 1 << 14  # buffers from one trial to the next; words of a buffer that counts


class Worth:
    """Whether prefetching pays. It does if much of the shadow memory is in no cache.

    Now and then, of two successive buffers of the trace, one is read with it and one without it, and the faster way is
    taken until the next trial.
    """

    def __init__(self) -> None:
        self._turn, self._took, self._worth = 0, 0.0, True

    def __bool__(self) -> bool:
        return self._turn == 0 or (self._turn > 1 and self._worth)

    def learn(self, words: int, seconds: float) -> None:
        """Notes how many seconds it took to read a buffer of so many words, with or without prefetching."""
        if words < _LEAST_WORDS:
            return
        if self._turn == 0:
            self._took = seconds / words
        elif self._turn == 1:
            self._worth = seconds / words > self._took
        self._turn = (self._turn + 1) % _TURNS


@kernel()
def _look_ahead(tables, words, at, count):
    """Prefetches the cells of the words that lie 2 to 3 times _AHEAD ahead, the parts for those of the last call, and
    the readers for those of the call before.
    """
    t = tables_at(tables)
    cells, parts = t.ahead[_CELLS], t.ahead[_PARTS]
    for place in range(_OF_PARTS, _OF_PARTS + parts):
        chunk = CHUNK * (t.cells[CELL * t.ahead[place] + WRITER] & LOW)
        prefetch(t.chunks, chunk)
        prefetch(t.chunks, chunk + CHUNK // 2)
    for place in range(cells):
        cell, byte = t.ahead[_OF_CELLS + place] >> 3, t.ahead[_OF_CELLS + place] & 7
        value = t.cells[CELL * cell + WRITTEN]
        part = part_at(parts_of(value), byte) if IN_STRIP < value < 0 else cell
        prefetch(t.cells, CELL * part)
        t.ahead[_OF_PARTS + place] = part
    place = _OF_CELLS
    for word in range(min(at + 2 * _AHEAD, count), min(at + 3 * _AHEAD, count)):
        address = words[word] & (1 << 48) - 1
        row = row_of_page(address >> 12)
        if t.cache[row + NUMBER] != address >> 12:
            continue
        if t.cache[row + IN_CELLS] >> (address >> 6 & 63) & 1:
            cell = t.cache[row + CELLS] + (address >> 3 & WORDS_OF_PAGE - 1)
            prefetch(t.cells, CELL * cell)
            t.ahead[place] = cell << 3 | address & 7
            place += 1
        else:
            value = t.lines[t.cache[row + TOLD] + 2 * (address >> 6 & LINES_OF_PAGE - 1)]
            first = row_of(value)
            for ahead in range(first, first + min(4 * LINE, 4 * room_in(value)), 8):
                prefetch(t.lines, ahead)
    t.ahead[_CELLS], t.ahead[_PARTS], t.state[DUE] = place - _OF_CELLS, cells, at + _AHEAD


@kernel(forceinline=True)
def look_ahead(t, words, at, count):
    """Prefetches for the words soon behind ``at``, if that is due."""
    if not likely(at < t.state[DUE]):
        _look_ahead(t.own, words, at, count)
