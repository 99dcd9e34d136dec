"""What all that read a trace have in common: the shapes of its blocks, and a number for each access in each context."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import Access, BlockShape, Words
from memopt.traces.core.tables import Array, extended, joined, larger, likely, new_table, slot


@kernel(forceinline=True)
def first_site(context_blocks, places, counts, last, block, node, accesses):
    """The number of the first access of ``block`` in ``node``; below 0 where ``context_blocks`` (node, block, number)
    is too full for another row. ``counts``: of its rows, and the next number; ``last``: of each block the node, and
    what was returned, when it was asked for before."""
    if not likely(last[2 * block] == node):
        place = 3 * slot(context_blocks, 3, places, node, block)
        if context_blocks[place + 1] == -1:
            if 2 * (counts[0] + 1) > places:
                return -1
            context_blocks[place], context_blocks[place + 1], context_blocks[place + 2] = node, block, counts[1]
            counts[0] += 1
            counts[1] += accesses
        last[2 * block], last[2 * block + 1] = node, context_blocks[place + 2]
    return last[2 * block + 1]


class Reading:
    """A trace of one thread that comes in pieces. ``words``: of it until now."""

    def __init__(self) -> None:
        self.words = 0
        self._blocks = numpy.zeros((0, 5), numpy.int64)  # first shape, how many, loop, header, entry and no header
        self._shapes = numpy.zeros((0, 3), numpy.int64)  # size, reads + 2 * writes, repeated
        self._loops = numpy.zeros((0, 2), numpy.int64)  # around it, depth
        self._context_blocks = new_table(1 << 12, 3)
        self._counts = numpy.array([0, 1], numpy.int64)
        self._last = numpy.zeros((0, 2), numpy.int64)
        self._rest = numpy.zeros(0, numpy.int64)

    def know(self, blocks: Sequence[BlockShape], loops: Sequence[tuple[int | None, int]]) -> None:
        """``blocks``: more of them, numbered on; ``loops``: so are these: (number of the loop around, depth from 1)."""
        shapes: list[tuple[int, ...]] = []
        rows: list[tuple[int, ...]] = []
        for block in blocks:
            rows.append((len(self._shapes) + len(shapes), len(block.accesses),
                         -1 if block.loop is None else block.loop, block.header, block.entry and not block.header))
            shapes += [(a.size, a.reads + 2 * a.writes, a.repeated) for a in block.accesses]
        self._blocks = extended(self._blocks, rows)
        self._shapes = extended(self._shapes, shapes)
        self._loops = extended(self._loops, [(-1 if p is None else p, depth) for p, depth in loops])
        self._last = extended(self._last, [(-1, 0)] * len(blocks))

    def take(self, nodes: Array, words: Words) -> None:
        """``nodes``: see ``know_nodes``; ``words``: see ``feed``."""
        self.know_nodes(nodes)
        self.feed(words)

    def know_nodes(self, nodes: Array) -> None:
        """Rows (node, the one that called it) of more of them."""

    def feed(self, words: Words) -> None:
        """The trace goes on. Precondition: its blocks are known."""
        raise NotImplementedError

    def _pending(self, words: Words) -> Array:
        """With what was left of the piece before."""
        self.words += len(words)
        return joined(self._rest, words)

    def _more_contexts(self) -> None:
        self._context_blocks = larger(self._context_blocks)

    def _sites(self) -> Array:
        """Rows (node, block, first site) of those that have accesses, by the last column."""
        blocks = self._context_blocks[self._context_blocks[:, 1] != -1]
        blocks = blocks[self._blocks[blocks[:, 1], 1] > 0]
        ordered: Array = blocks[numpy.argsort(blocks[:, 2])]
        return ordered


def named(sites: Array, site: int) -> Access:
    """``sites``: as Reading has them."""
    node, block, first = sites[int(numpy.searchsorted(sites[:, 2], site, side="right")) - 1].tolist()
    return Access(node, block, site - first)
