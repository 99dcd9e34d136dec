"""Cold calls: a loop without the calls that it makes only in exceptional iterations.

Example: compilers turn ``y[i] = sqrt(x[i])`` into ``if (0 > x) call sqrt; else sqrtsd``, since a negative x sets errno.
The block with the call is left out of the flow graph, so that the branch to it looks like a loop exit.

In: a flow graph and one of its loops. Out: the loops of the graph without the blocks that call.
Symbolic execution accepts such an exit only when the hardware tells that the branch would have been taken
(memopt.lifting.execution.iteration). The version then rolls everything back, and the original runs.
"""

from __future__ import annotations

from dataclasses import replace

from memopt.cfg.natural_loops import find_loops
from memopt.ir.graph import BasicBlock, FlowGraph, Kind, Loop, LoopForest


def calls_out(block: BasicBlock) -> bool:
    """Whether the block ends with a call of code that is not in the graph."""
    return block.kind is Kind.CALL and block.successors == (block.end,)


def without_cold_calls(graph: FlowGraph, loop: Loop) -> tuple[LoopForest, Loop] | None:
    """The loops of ``graph`` without the blocks of ``loop`` that call out, and the remaining loop with the same header.

    None when no such loop remains, or when the entry of the graph is one of these blocks.
    """
    calling = {b for b in loop.blocks if calls_out(graph.blocks[b])}
    kept = replace(graph, blocks={b: block for b, block in graph.blocks.items() if b not in calling})
    if graph.entry not in kept.blocks:
        return None
    reachable = _reachable(kept)
    forest = find_loops(replace(kept, blocks={b: block for b, block in kept.blocks.items() if b in reachable}))
    found = next((x for x in forest.loops if x.header == loop.header), None)
    return None if found is None else (forest, found)


def _reachable(graph: FlowGraph) -> set[int]:
    found, pending = {graph.entry}, [graph.entry]
    while pending:
        following = set(graph.successors(pending.pop())) - found
        found |= following
        pending += following
    return found
