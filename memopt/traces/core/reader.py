"""Base of all analyses of a trace: the shapes of its blocks, and a number (a site) for each access in each context.

In: blocks and loops as they become known, nodes, words. Out: for the kernels, tables of shapes; for results, the access
that a site belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import Access, BlockShape, Words
from memopt.traces.core.tables import Array, extended, joined, larger, likely, new_table, slot


@kernel(forceinline=True)
def first_site(context_blocks, places, counts, last, block, node, accesses):
    """The site of the first access of ``block`` in ``node``; its other accesses follow. Below 0 if ``context_blocks``
    (node, block, site) is too full for another row.

    ``counts``: the number of rows, and the next site. ``last``: for each block the node and the result of the last
    call.
    """
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
    """Base class: reads the trace of one thread, buffer by buffer. ``words``: how many words were read."""

    def __init__(self) -> None:
        self.words = 0
        self._blocks = numpy.zeros((0, 5), numpy.int64)  # first shape, how many, loop, header, entry but no header
        self._shapes = numpy.zeros((0, 3), numpy.int64)  # size, reads + 2 * writes, repeated
        self._loops = numpy.zeros((0, 2), numpy.int64)  # loop around it, depth
        self._context_blocks = new_table(1 << 12, 3)
        self._counts = numpy.array([0, 1], numpy.int64)
        self._last = numpy.zeros((0, 2), numpy.int64)
        self._rest = numpy.zeros(0, numpy.int64)

    def know(self, blocks: Sequence[BlockShape], loops: Sequence[tuple[int | None, int]]) -> None:
        """Adds ``blocks`` and ``loops``, which continue the numbering. A loop is (number of the loop around it, depth
        from 1).
        """
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
        """Reads new nodes (``know_nodes``) and then words (``feed``)."""
        self.know_nodes(nodes)
        self.feed(words)

    def know_nodes(self, nodes: Array) -> None:
        """Adds nodes: rows of (node, the node that called it)."""

    def feed(self, words: Words) -> None:
        """Reads the next words of the trace. Precondition: their blocks are known."""
        raise NotImplementedError

    def _pending(self, words: Words) -> Array:
        """The words that are to be read: those left over from the last buffer, and the new ones."""
        self.words += len(words)
        return joined(self._rest, words)

    def _more_contexts(self) -> None:
        self._context_blocks = larger(self._context_blocks)

    def _sites(self) -> Array:
        """Rows (node, block, first site) of the blocks that have accesses, by site."""
        blocks = self._context_blocks[self._context_blocks[:, 1] != -1]
        blocks = blocks[self._blocks[blocks[:, 1], 1] > 0]
        ordered: Array = blocks[numpy.argsort(blocks[:, 2])]
        return ordered


def named(sites: Array, site: int) -> Access:
    """The access that a site belongs to. ``sites``: as ``Reading._sites`` returns them."""
    node, block, first = sites[int(numpy.searchsorted(sites[:, 2], site, side="right")) - 1].tolist()
    return Access(node, block, site - first)
