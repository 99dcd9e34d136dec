"""Working sets of loops: how many different cache lines and pages an entry of a loop has touched after n iterations.

Example: each entry of ``for (j = 0; j < 512; j++) sum += a[j];`` (``double``, aligned) touches 64 lines.

In: the accesses of a thread's trace. Out: for each loop in each context a curve at 1, 2, 4, ... iterations and at the
end of the loop, and how many entries had how many iterations. An iteration is a run of the loop's header.

A line is new to an entry if its last touch was before the entry began. So the time of the last touch of each line tells
this for all active loops at once, from the innermost outwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy

from memopt.ir.frozen import dataclass
from memopt.traces.core.active_loops import (
    ACTIVE,
    BLOCK_NOW,
    CONTEXT_LOOPS,
    DONE,
    ENTERED,
    ITERATION,
    LEVELS,
    MORE_OWN,
    NUMBER,
    OWN,
    ROW,
    TIME,
    Activity,
    begin_block,
)
from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import BLOCK, LINE, PAGE, RESUMED, Words
from memopt.traces.core.tables import Array, larger, longer, new_table, pointer, slot, zeros

POINTS = 40  # points of a curve: after 1 << 0, 1 << 1, ... iterations
_LINES = PAGE // LINE
_TIMES = _LINES + 8  # words for a page: the time of its last touch, and those of its lines
_POINT = 5  # words of a point: entries, lines, most lines, pages, most pages
_ITERATIONS = _POINT * (POINTS + 1)  # column of the iterations of all entries, behind the points and the end
_TRIPS = _ITERATIONS + 3  # from here on: how many entries had at least 1 << n iterations, and less than 1 << n + 1
_ROW = _TRIPS + POINTS
_CACHE = 1 << 10
_PIECE = 1 << 16  # bytes of a repeated access that are touched at a time

_SEEN, _PAGES, _PAGE_PLACES, _NEXT, _ROOM, _DONE_OF_REPEATED, _CURVE_ROOM, _NUMBERS = range(OWN, OWN + 8)
_MORE_PAGES, _MORE_TIMES, _MORE_CURVES = range(MORE_OWN, MORE_OWN + 3)


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the curve of a loop: average and maximum over its entries."""

    iterations: float  # after so many; at the end of the loop: the average over the entries
    entries: int  # that had so many iterations
    lines: float  # touched, on average
    most_lines: int
    pages: float  # touched, on average
    most_pages: int


@dataclass(frozen=True, slots=True)
class WorkingSet:
    """The working set of one loop in one context."""

    node: int
    loop: int
    curve: tuple[Point, ...]
    end: Point
    trips: dict[int, int]  # how many entries had 1 iteration, 2 to 3, 4 to 7, ..., by the least of each class


class _Tables(NamedTuple):
    """Pointers to the tables. The first ones are those of ``Activity`` and ``Reading``.

    levels: for each active loop the time of its entry, its number in its context, iteration, lines, pages.

    curves: for each loop in a context the points of its curve, and its end.

    pages: number of a page, 0, the place of its times. cache: number of a page, the place of its times. times: see
    _TIMES.
    """

    state: Any
    frames: Any
    active: Any
    rings: Any
    blocks: Any
    shapes: Any
    loops: Any
    context_blocks: Any
    context_loops: Any
    last: Any
    counts: Any
    levels: Any
    curves: Any
    pages: Any
    cache: Any
    times: Any
    callers: Any


@kernel()
def _note(t, place, lines, pages):
    """Adds an entry that has touched so many lines and pages to a point of a curve."""
    t.curves[place] += 1
    t.curves[place + 1] += lines
    t.curves[place + 2] = max(t.curves[place + 2], lines)
    t.curves[place + 3] += pages
    t.curves[place + 4] = max(t.curves[place + 4], pages)


@kernel()
def _end(t, level):
    """Ends the loop at ``level``: adds its entry to the end of its curve and to its trip counts."""
    row = 5 * level
    place = _ROW * t.levels[row + 1] + _POINT * POINTS
    _note(t, place, t.levels[row + 3], t.levels[row + 4])
    iterations, place = t.levels[row + 2], _ROW * t.levels[row + 1]
    t.curves[place + _ITERATIONS] += iterations
    trips = 0
    while iterations > 1:
        iterations >>= 1
        trips += 1
    t.curves[place + _TRIPS + trips] += 1


@kernel()
def _turn(t):
    """Follows what a new block has changed: loops have ended, begun, or begun another iteration."""
    active, level = t.state[ACTIVE], t.state[_SEEN] - 1
    while level >= 0 and (level >= active or t.levels[5 * level] != t.active[ROW * level + ENTERED]
                          or t.levels[5 * level + 1] != t.active[ROW * level + NUMBER]):
        _end(t, level)
        level -= 1
    for new in range(level + 1, active):
        row, active_row = 5 * new, ROW * new
        t.levels[row], t.levels[row + 1] = t.active[active_row + ENTERED], t.active[active_row + NUMBER]
        t.levels[row + 2] = 1
        t.levels[row + 3], t.levels[row + 4] = 0, 0
    t.state[_SEEN] = active
    if active:
        row, iteration = 5 * (active - 1), t.active[ROW * (active - 1) + ITERATION]
        if iteration != t.levels[row + 2]:
            t.levels[row + 2] = iteration
            after, point = iteration - 1, 0
            if after & after - 1 == 0:
                while after > 1:
                    after >>= 1
                    point += 1
                _note(t, _ROW * t.levels[row + 1] + _POINT * point, t.levels[row + 3], t.levels[row + 4])


@kernel(forceinline=True)
def _touched(t, before, column):
    """Counts a line (``column`` 3) or page (``column`` 4) that was last touched at the time ``before``: it is new to
    all loops that were entered since.
    """
    level = t.state[_SEEN] - 1
    while level >= 0 and before < t.levels[5 * level]:
        t.levels[5 * level + column] += 1
        level -= 1


@kernel(forceinline=True)
def _access(t, address, size):
    """Touches the lines of an access of at most _PIECE bytes. Returns what must grow first, or 0."""
    state, line, last = t.state, address // LINE, (address + size - 1) // LINE
    time = state[TIME]
    if 2 * (state[_PAGES] + _PIECE // PAGE + 2) > state[_PAGE_PLACES]:
        return _MORE_PAGES
    if state[_NEXT] + _TIMES * (_PIECE // PAGE + 2) > state[_ROOM]:
        return _MORE_TIMES
    while line <= last:
        number = line // _LINES
        entry = 2 * (number & (_CACHE - 1))
        if t.cache[entry] != number:
            at = 3 * slot(t.pages, 3, state[_PAGE_PLACES], number, 0)
            if t.pages[at + 1] == -1:
                t.pages[at], t.pages[at + 1], t.pages[at + 2] = number, 0, state[_NEXT]
                state[_NEXT] += _TIMES
                state[_PAGES] += 1
            t.cache[entry], t.cache[entry + 1] = number, t.pages[at + 2]
        page = t.cache[entry + 1]
        place = page + 1 + line % _LINES
        if t.times[place] != time:
            _touched(t, t.times[place], 3)
            _touched(t, t.times[page], 4)
            t.times[place] = t.times[page] = time
        line += 1
    return 0


@kernel()
def _repeat(t, address, size):
    """Touches the lines of an access of any size, in pieces. Returns what must grow before it can go on, or 0."""
    while t.state[_DONE_OF_REPEATED] < size:
        done = t.state[_DONE_OF_REPEATED]
        piece = min(_PIECE, size - done)
        more = _access(t, address + done, piece)
        if more:
            return more
        t.state[_DONE_OF_REPEATED] += piece
    t.state[_DONE_OF_REPEATED] = 0
    return 0


@kernel(forceinline=True)
def _go_on(t, words, count, at):
    while at < count:
        word = words[at]
        index = word >> 48 & 0xFFFF
        if index == BLOCK:
            if at + 1 == count:
                break
            if t.state[CONTEXT_LOOPS] + LEVELS > t.state[_CURVE_ROOM]:
                return at, _MORE_CURVES
            more = begin_block(t, word & 0xFFFFFFFF, words[at + 1])
            if more:
                return at, more
            if not words[at + 1] & RESUMED:
                _turn(t)
            at += 2
            continue
        block = t.state[BLOCK_NOW]
        if block < 0 or index >= t.blocks[5 * block + 1]:  # cannot be: a trace begins with a block
            at += 1
            continue
        row = 3 * (t.blocks[5 * block] + index)
        size, address, repeated = t.shapes[row], word & 0xFFFFFFFFFFFF, t.shapes[row + 2]
        if repeated:
            if at + 1 == count:
                break
            more = _repeat(t, address, size * words[at + 1])
        else:
            more = _access(t, address, size)
        if more:
            return at, more
        at += 1 + repeated
    return at, DONE


@kernel(nogil=True)
def _feed(words, at, state, frames, active, rings, blocks, shapes, loops, context_blocks, context_loops, last, counts,
          levels, curves, pages, cache, times, callers):
    """Reads from the word ``at`` on. Returns where it stopped, and what must grow first, or DONE. With ``at`` below 0
    the trace has ended: it ends the active loops.
    """
    t = _Tables(pointer(state.ctypes.data), pointer(frames.ctypes.data), pointer(active.ctypes.data),
                pointer(rings.ctypes.data), pointer(blocks.ctypes.data), pointer(shapes.ctypes.data),
                pointer(loops.ctypes.data), pointer(context_blocks.ctypes.data), pointer(context_loops.ctypes.data),
                pointer(last.ctypes.data), pointer(counts.ctypes.data), pointer(levels.ctypes.data),
                pointer(curves.ctypes.data), pointer(pages.ctypes.data), pointer(cache.ctypes.data),
                pointer(times.ctypes.data), pointer(callers.ctypes.data))
    if at < 0:
        for level in range(state[_SEEN]):
            _end(t, level)
        state[_SEEN] = 0
        return 0, DONE
    return _go_on(t, pointer(words.ctypes.data), len(words), at)


class WorkingSets(Activity):
    """Finds the working sets of the loops of one thread."""

    def __init__(self) -> None:
        super().__init__(_NUMBERS)
        self._levels = numpy.zeros((LEVELS, 5), numpy.int64)
        self._curves = zeros(1 << 10, _ROW)
        self._pages, self._cache = new_table(1 << 12, 3), numpy.full((_CACHE, 2), -1, numpy.int64)
        self._times = zeros(1 << 20, 1)

    def feed(self, words: Words) -> None:
        """Reads the next words of the trace. Precondition: their blocks are known."""
        pending = self._pending(words)
        at, more = 0, -1
        while more != DONE:
            self._set_places()
            self._state[[_PAGE_PLACES, _ROOM, _CURVE_ROOM]] = len(self._pages), len(self._times), len(self._curves)
            at, more = self._kernel(pending, at)
            self._grow(more)
        self._rest = pending[at:].copy()

    def _grow(self, more: int) -> None:
        super()._grow(more)
        if more == _MORE_PAGES:
            self._pages = larger(self._pages)
        elif more == _MORE_TIMES:
            self._times = longer(self._times)
        elif more == _MORE_CURVES:
            self._curves = longer(self._curves)

    def _kernel(self, words: Array, at: int) -> tuple[int, int]:
        at, more = _feed(words, at, self._state, self._frames, self._active, self._rings, self._blocks, self._shapes,
                         self._loops, self._context_blocks, self._context_loops, self._last, self._counts,
                         self._levels, self._curves, self._pages, self._cache, self._times, self._callers)
        return at, more

    def all(self) -> Iterator[WorkingSet]:
        """Yields the working sets of all loops. To be called once, at the end of the trace."""
        self._kernel(self._rest, -1)
        for number, (node, loop) in self._loops_by_number().items():
            row = self._curves[number].tolist()
            points = [row[_POINT * n:_POINT * (n + 1)] for n in range(POINTS + 1)]
            curve = tuple(_point(float(1 << n), point) for n, point in enumerate(points[:-1]) if point[0])
            entries, iterations = points[-1][0], row[_ITERATIONS]
            trips = {1 << n: count for n, count in enumerate(row[_TRIPS:_TRIPS + POINTS]) if count}
            if entries:
                yield WorkingSet(node, loop, curve, _point(iterations / entries, points[-1]), trips)


def _point(iterations: float, words: list[int]) -> Point:
    entries, lines, most_lines, pages, most_pages = words
    return Point(iterations, entries, lines / entries, most_lines, pages / entries, most_pages)
