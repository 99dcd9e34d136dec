"""Hyperblocks: groups of blocks with a single entry, each of which runs at most once whenever the group is entered.

Example: ``a; if (..) b; else c; d`` in one loop iteration is one hyperblock. One probe can record the accesses of all
its blocks at once.

In: a flow graph, its loops, sizes of blocks. Out: a partition of the reachable blocks. Source: Scott A. Mahlke et al.,
Effective compiler support for predicated execution using the hyperblock, 1992; here nothing is executed together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from memopt.cfg.dominators import reverse_postorder
from memopt.cfg.loop_nesting import Nesting
from memopt.ir.graph import FlowGraph


def hyperblocks(graph: FlowGraph, nesting: Nesting, first: Collection[int], sizes: Mapping[int, int],
                most: int) -> Mapping[int, tuple[int, ...]]:
    """The hyperblocks of ``graph`` by their first blocks; the blocks of each are in an order in which they may run.

    Every reachable block is in one of them. ``first``: blocks that begin a hyperblock, as loop headers do. ``sizes``:
    of blocks, in any unit; a hyperblock of several blocks has at most ``most`` of it.
    """
    innermost, headers = nesting.innermost, {loop.header for loop in nesting.loops}
    made: dict[int, list[int]] = {}
    of: dict[int, int] = {}
    taken: dict[int, int] = {}
    for block in reverse_postorder(graph):
        above = {of.get(source) for source in graph.predecessors[block]}
        root = above.pop() if len(above) == 1 else None  # a predecessor that comes later is in no hyperblock yet
        if (root is None or block in first or block in headers or innermost.get(block) != innermost.get(root)
                or taken[root] + sizes[block] > most):
            root = block
            made[root], taken[root] = [], 0
        of[block] = root
        made[root].append(block)
        taken[root] += sizes[block]
    return {root: tuple(blocks) for root, blocks in made.items()}
