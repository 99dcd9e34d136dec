"""Path profile: how often each acyclic path of each function was taken (Ball and Larus, 1996).

Example: each iteration of ``for (...) { if (c) a(); else b(); }`` is one of two paths.

In: the blocks and nodes of a thread's trace (no accesses), and the values that ``instrumentation/path_numbering.py``
has given to edges. Out: (function, path, count).

The method is that of Ball and Larus, Efficient path profiling (MICRO 1996).

A path begins at the entry of its function or behind a back edge, goes on behind the calls in it, and ends at a back
edge or where the function is left. Its number is the sum of the values of its edges. A path whose beginning the trace
does not show, because recording began within it, is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy

from memopt.ir.frozen import dataclass
from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import RESUMED, Words
from memopt.traces.core.tables import extended, joined, larger, new_table, pointer, slot

_FRAMES = 4096
_UNKNOWN = -1  # a path whose beginning the trace does not show
_ENTRY = 0  # the number that a path begins with at the entry of its function
_FRAME, _PATHS, _COUNTED, _NUMBERS = range(4)
_DONE, _MORE = range(2)


@dataclass(frozen=True, slots=True)
class PathBlock:
    """A block, and what it adds to the numbers of paths."""

    unit: int  # the number of its function
    start: int | None  # the first number of a path that begins here; None if none does
    end: int | None  # the value added to a path that ends here; None if none does
    # For each edge: number of the block it leads to, value, and for a back edge the first number of the next path.
    edges: tuple[tuple[int, int, int | None], ...]


@kernel()
def _count(counts, places, state, unit, path, times):
    at = 3 * slot(counts, 3, places, unit, path)
    if counts[at + 1] == -1:
        counts[at], counts[at + 1] = unit, path
        state[_COUNTED] += 1
    counts[at + 2] += times
    state[_PATHS] += times


@kernel()
def _over(frames, frame, blocks, counts, places, state):
    """The function of ``frame`` was left behind its last block: the path ends there and is counted."""
    block, path = frames[3 * frame + 1], frames[3 * frame + 2]
    if path >= 0 and blocks[3 * block + 2] >= 0:
        _count(counts, places, state, blocks[3 * block], path + blocks[3 * block + 2], 1)


@kernel()
def _frame_of(frames, top, node):
    """The highest frame of ``node`` from ``top`` downwards; -1 if there is none."""
    while top >= 0 and frames[3 * top] != node:
        top -= 1
    return top


@kernel()
def _go_on(frames, frame, node, block, blocks, edges, many, counts, places, state):
    """Adds the edge to ``block``, which runs in the top frame, of ``node``, to the path of that frame. Returns the
    frame that the block runs in, and its path up to there.

    All frames of a recursive function have one node. So an edge that does not exist means that the function was left
    and entered again, or has returned to a caller of the same node, or has called itself.
    """
    edge = 4 * slot(edges, 4, many, frames[3 * frame + 1], block)
    while (edges[edge + 1] == -1 and blocks[3 * block + 1] != _ENTRY and frame > 0
           and frames[3 * frame - 3] == node):  # returned to a recursive caller
        _over(frames, frame, blocks, counts, places, state)
        frame -= 1
        edge = 4 * slot(edges, 4, many, frames[3 * frame + 1], block)
    path = frames[3 * frame + 2]
    if edges[edge + 1] == -1:
        if blocks[3 * frames[3 * frame + 1] + 2] >= 0:  # left, and entered again
            _over(frames, frame, blocks, counts, places, state)
        elif blocks[3 * block + 1] == _ENTRY:  # called by itself
            frame = min(frame + 1, _FRAMES - 1)
        path = blocks[3 * block + 1]
    elif edges[edge + 3] >= 0:
        if path >= 0:
            _count(counts, places, state, blocks[3 * block], path + edges[edge + 2], 1)
        path = edges[edge + 3]
    elif path >= 0:
        path += edges[edge + 2]
    return frame, path


@kernel(nogil=True)
def _read(words, state, all_frames, all_blocks, all_edges, all_counts, at):
    """Reads from the word ``at`` on. Returns where it stopped, and _MORE if the table of counts must grow first, else
    _DONE.
    """
    frames, blocks = pointer(all_frames.ctypes.data), pointer(all_blocks.ctypes.data)
    edges, counts = pointer(all_edges.ctypes.data), pointer(all_counts.ctypes.data)
    many, places, end = len(all_edges), len(all_counts), len(words)
    while at + 1 < end:
        if 2 * (state[_COUNTED] + _FRAMES) > places:
            return at, _MORE
        block, node, resumed = words[at] & 0xFFFFFFFF, words[at + 1] & ~RESUMED, words[at + 1] & RESUMED
        at += 2
        frame = state[_FRAME]
        below = _frame_of(frames, frame, node)
        if resumed:
            frame, path = max(below, 0), _UNKNOWN
        elif below < 0:
            frame, path = min(frame + 1, _FRAMES - 1), blocks[3 * block + 1]
        else:
            while frame > below:
                _over(frames, frame, blocks, counts, places, state)
                frame -= 1
            frame, path = _go_on(frames, frame, node, block, blocks, edges, many, counts, places, state)
        frames[3 * frame], frames[3 * frame + 1], frames[3 * frame + 2] = node, block, path
        state[_FRAME] = frame
    return at, _DONE


class Paths:
    """Counts the paths of one thread, in windows of time that each have a weight."""

    def __init__(self) -> None:
        self._state = numpy.array([-1, 0, 0], numpy.int64)
        self._frames = numpy.zeros((_FRAMES, 3), numpy.int64)
        self._blocks = numpy.zeros((0, 3), numpy.int64)
        self._edges = new_table(1 << 12, 4)
        self._used = 0
        self._counts = new_table(1 << 15, 3)
        self._weights = numpy.zeros(len(self._counts))
        self._rest = numpy.zeros(0, numpy.int64)

    @property
    def paths(self) -> int:
        """How many paths have ended."""
        return int(self._state[_PATHS])

    def know(self, blocks: Sequence[PathBlock]) -> None:
        """Adds blocks, which continue the numbering."""
        first = len(self._blocks)
        self._blocks = extended(self._blocks, [
            (b.unit, _UNKNOWN if b.start is None else b.start, _UNKNOWN if b.end is None else b.end) for b in blocks])
        for number, block in enumerate(blocks, first):
            for target, value, start in block.edges:
                self._used += 1
                if 2 * self._used > len(self._edges):
                    self._edges = larger(self._edges)
                _add_edge(self._edges, number, target, value, _UNKNOWN if start is None else start)

    def feed(self, words: Words) -> None:
        """Reads the next words of the trace. Precondition: their blocks are known."""
        pending = joined(self._rest, words)
        at, more = 0, -1
        while more != _DONE:
            at, more = _read(pending, self._state, self._frames, self._blocks, self._edges, self._counts, at)
            if more == _MORE:
                self._grow()
        self._rest = pending[at:].copy()

    def _grow(self) -> None:
        """Doubles the table of counts; the weights move with their rows."""
        old, weights = self._counts, self._weights
        self._counts = larger(old)
        self._weights = numpy.zeros(len(self._counts))
        for row in numpy.nonzero(old[:, 1] != -1)[0].tolist():
            self._weights[_row(self._counts, old[row, 0], old[row, 1])] = weights[row]

    def end_window(self, weight: float) -> None:
        """Adds what was counted in this window to the result, times ``weight``: the window stands for so much of the
        run. Forgets the frames, since the program now runs unseen.
        """
        self._weights += weight * self._counts[:, 2]
        self._counts[:, 2] = 0
        self._state[_FRAME] = -1

    def all(self) -> Iterator[tuple[int, int, float]]:
        """Yields function, path and weighted count, over all windows that have ended."""
        for row in numpy.nonzero(self._weights)[0].tolist():
            yield int(self._counts[row, 0]), int(self._counts[row, 1]), float(self._weights[row])


@kernel()
def _add_edge(edges, source, target, value, start):
    table = pointer(edges.ctypes.data)
    at = 4 * slot(table, 4, len(edges), source, target)
    table[at], table[at + 1], table[at + 2], table[at + 3] = source, target, value, start


@kernel()
def _row(counts, unit, path):
    return slot(pointer(counts.ctypes.data), 3, len(counts), unit, path)
