"""Hyperblocks: blocks that are entered only at the first one, which run once at most each, in one iteration.

Scott A. Mahlke et al., Effective compiler support for predicated execution using the hyperblock, 1992; here for what
can be told once of all of them, not to execute them together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from memopt.cfg.dominators import reverse_postorder
from memopt.cfg.loop_nesting import Nesting
from memopt.ir.graph import FlowGraph


def hyperblocks(graph: FlowGraph, nesting: Nesting, first: Collection[int], sizes: Mapping[int, int],
                most: int) -> Mapping[int, tuple[int, ...]]:
    """All blocks that are reached from the entry, each in one of them: by the first one, in an order in which they may
    run. ``first``: blocks that begin one, as loop headers do; ``sizes``: of blocks, ``most`` of those in one."""
    innermost, headers = nesting.innermost, {loop.header for loop in nesting.loops}
    made: dict[int, list[int]] = {}
    of: dict[int, int] = {}
    taken: dict[int, int] = {}
    for block in reverse_postorder(graph):
        above = {of.get(source) for source in graph.predecessors[block]}
        root = above.pop() if len(above) == 1 else None  # a source that comes later is in none yet
        if (root is None or block in first or block in headers or innermost.get(block) != innermost.get(root)
                or taken[root] + sizes[block] > most):
            root = block
            made[root], taken[root] = [], 0
        of[block] = root
        made[root].append(block)
        taken[root] += sizes[block]
    return {root: tuple(blocks) for root, blocks in made.items()}
