"""Reuse distances: how many other cache lines are touched between two touches of a line (LRU stack distance).

Example: when lines are touched in the order A B C A, the second touch of A has the distance 2.

In: the accesses of a thread's trace. Out: for each access in each context, how many touches fall into each class of
distances (by powers of two), and how many touch a line for the first time.

An access hits in a fully associative LRU cache of more lines than its distance (Mattson et al., Evaluation techniques
for storage hierarchies, 1970). The most recent lines are kept in a list, in their order. An older line has a place in a
tree of counts (Bennett and Kruskal, LRU stack processing, 1975), numbered by the time at which it left the list. The
lines at higher places were touched since then.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from memopt.ir.frozen import dataclass
from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import BLOCK, FLAGS, LINE, Access, Words
from memopt.traces.core.reader import Reading, first_site, named
from memopt.traces.core.tables import Array, larger, longer, new_table, pointer, slot, zeros

COLD = 47  # column of first touches
_COLUMNS = 48  # column 0: no other line; column n: at least 2 ** (n - 1) lines and less than 2 ** n
_RECENT = 16  # lines in the list of the most recent ones
_LINES = 64  # lines of a page of the table
_NEVER, _IS_RECENT = 0, -1  # in ``times``: the line has no place in the tree
(_BLOCK_NOW, _CURRENT, _PAGES, _NEXT, _PLACE, _OLD, _FILLED, _DONE_OF_REPEATED, _NEWEST,
 _NUMBERS) = range(10)
_DONE, _MORE_CONTEXTS, _MORE_SITES, _MORE_PAGES, _MORE_PLACES = range(5)


@dataclass(frozen=True, slots=True)
class Reuse:
    """The reuse distances of one access in one context."""

    access: Access
    counts: tuple[int, ...]  # touches by class of distance: 0 lines, 1, 2 to 3, 4 to 7, ...
    cold: int  # first touches of a line


@kernel(forceinline=True)
def _add(tree, places, at, value):
    """Adds ``value`` at the place ``at`` of a tree of counts (a binary indexed tree)."""
    while at <= places:
        tree[at] += value
        at += at & -at


@kernel(forceinline=True)
def _until(tree, at):
    """The sum of the counts up to the place ``at``."""
    count = 0
    while at > 0:
        count += tree[at]
        at -= at & -at
    return count


@kernel()
def _column(distance):
    """The class of a distance: the number of its bits."""
    column = 0
    while distance:
        distance >>= 1
        column += 1
    return column


@kernel()
def _touch(state, recent, times, tree, places, row, where):
    """Counts a touch of the line whose word in ``times`` is at ``where``, in the columns ``row`` of its access, and
    makes it the most recent line.
    """
    filled, rank = state[_FILLED], 0
    if times[where] == _IS_RECENT:
        while recent[rank] != where:
            rank += 1
        row[_column(rank)] += 1
    else:
        if times[where] == _NEVER:
            row[COLD] += 1
        else:
            row[_column(filled + state[_OLD] - _until(tree, times[where]))] += 1
            _add(tree, places, times[where], -1)
            state[_OLD] -= 1
        times[where] = _IS_RECENT
        if filled < _RECENT:
            state[_FILLED] = filled + 1
            rank = filled
        else:
            rank = _RECENT - 1
            state[_PLACE] += 1
            times[recent[rank]] = state[_PLACE]
            _add(tree, places, state[_PLACE], 1)
            state[_OLD] += 1
    while rank > 0:
        recent[rank] = recent[rank - 1]
        rank -= 1
    recent[0] = where


@kernel(forceinline=True)
def _access(state, recent, times, room, tree, places, pages, page_places, row, address, size):
    """Touches all lines of an access but those of its first _DONE_OF_REPEATED bytes, which were touched before a table
    had to grow. Returns what must grow first, or _DONE.
    """
    first, last = (address + state[_DONE_OF_REPEATED]) // LINE, (address + size - 1) // LINE
    for line in range(first, last + 1):
        if line == state[_NEWEST]:
            row[0] += 1
            state[_DONE_OF_REPEATED] = (line + 1) * LINE - address
            continue
        number = line // _LINES
        if 2 * (state[_PAGES] + 1) > page_places or state[_NEXT] + _LINES > room:
            return _MORE_PAGES
        if state[_PLACE] + 2 > places:
            return _MORE_PLACES
        at = 3 * slot(pages, 3, page_places, number, 0)
        if pages[at + 1] == -1:
            pages[at], pages[at + 1], pages[at + 2] = number, 0, state[_NEXT]
            state[_NEXT] += _LINES
            state[_PAGES] += 1
        _touch(state, recent, times, tree, places, row, pages[at + 2] + line % _LINES)
        state[_NEWEST], state[_DONE_OF_REPEATED] = line, (line + 1) * LINE - address
    state[_DONE_OF_REPEATED] = 0
    return _DONE


@kernel(nogil=True)
def _feed(all_words, at, state, all_blocks, all_shapes, all_contexts, all_counts, all_last, rows, recent, all_times,
          all_tree, all_pages):
    """Reads from the word ``at`` on. Returns where it stopped, and what must grow first, or _DONE."""
    words, count = pointer(all_words.ctypes.data), len(all_words)
    blocks, shapes = pointer(all_blocks.ctypes.data), pointer(all_shapes.ctypes.data)
    contexts, counts, last = (pointer(all_contexts.ctypes.data), pointer(all_counts.ctypes.data),
                              pointer(all_last.ctypes.data))
    times, tree, pages = pointer(all_times.ctypes.data), pointer(all_tree.ctypes.data), pointer(all_pages.ctypes.data)
    while at < count:
        word = words[at]
        index, block = word >> 48 & 0xFFFF, state[_BLOCK_NOW]
        if index == BLOCK:
            if at + 1 == count:
                break
            block = word & 0xFFFFFFFF
            site = first_site(contexts, len(all_contexts), counts, last, block, words[at + 1] & ~FLAGS,
                              blocks[5 * block + 1])
            if site < 0:
                return at, _MORE_CONTEXTS
            if counts[1] > len(rows):
                return at, _MORE_SITES
            state[_BLOCK_NOW], state[_CURRENT] = block, site
            at += 2
            continue
        if block < 0 or index >= blocks[5 * block + 1]:  # cannot be: a trace begins with a block
            at += 1
            continue
        shape = 3 * (blocks[5 * block] + index)
        repeated, size = shapes[shape + 2], shapes[shape]
        if repeated:
            if at + 1 == count:
                break
            size *= words[at + 1]
        if size > 0:
            more = _access(state, recent, times, len(all_times), tree, len(all_tree) - 1, pages, len(all_pages),
                           rows[state[_CURRENT] + index], word & 0xFFFFFFFFFFFF, size)
            if more:
                return at, more
        at += 1 + repeated
    return at, _DONE


class Reuses(Reading):
    """Finds the reuse distances of one thread."""

    def __init__(self) -> None:
        super().__init__()
        self._state = numpy.zeros(_NUMBERS, numpy.int64)
        self._state[[_BLOCK_NOW, _NEWEST]] = -1
        self._rows = zeros(1 << 12, _COLUMNS)
        self._recent = numpy.zeros(_RECENT, numpy.int64)
        self._pages, self._times = new_table(1 << 12, 3), zeros(1 << 16, 1)
        self._tree = numpy.zeros((1 << 16) + 1, numpy.int64)

    def feed(self, words: Words) -> None:
        """Reads the next words of the trace. Precondition: their blocks are known."""
        pending = self._pending(words)
        at, more = 0, -1
        while more != _DONE:
            at, more = _feed(pending, at, self._state, self._blocks, self._shapes, self._context_blocks, self._counts,
                             self._last, self._rows, self._recent, self._times, self._tree, self._pages)
            if more == _MORE_CONTEXTS:
                self._more_contexts()
            elif more == _MORE_PAGES:
                self._pages, self._times = larger(self._pages), longer(self._times)
            elif more == _MORE_PLACES:
                self._tree = renumbered(self._times, self._state, len(self._tree) - 1)
            while len(self._rows) < self._counts[1]:
                self._rows = longer(self._rows)
        self._rest = pending[at:].copy()

    def all(self) -> Iterator[Reuse]:
        """Yields the result of each access that was met, in the order in which they were met first."""
        sites = self._sites()
        for site in numpy.nonzero(self._rows.any(axis=1))[0].tolist():
            *counts, cold = self._rows[site].tolist()
            yield Reuse(named(sites, site), tuple(counts), cold)


def renumbered(times: Array, state: Array, places: int) -> Array:
    """A new tree with the old lines at its first places, in their order; ``times`` then has their new places. It is
    twice as large if more than half of the places are in use.
    """
    flat = times.reshape(-1)
    old = numpy.nonzero(flat > 0)[0]
    order = old[numpy.argsort(flat[old])]
    flat[order] = numpy.arange(1, len(order) + 1)
    state[_PLACE] = len(order)
    if 2 * len(order) > places:
        places *= 2
    at = numpy.arange(places + 1, dtype=numpy.int64)
    below = at - (at & -at)
    tree: Array = numpy.minimum(at, len(order)) - numpy.minimum(below, len(order))
    return tree
