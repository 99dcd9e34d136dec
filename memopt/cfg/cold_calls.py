"""Calls that a loop makes only in exceptional iterations: the loop without them.

Compilers turn ``sqrt(x)`` into ``if (0 > x) call sqrt; else sqrtsd``. What leads to the call is left out of the flow
graph, so the branch there looks like an exit. Symbolic execution accepts such an exit when the hardware tells that it
would have been taken (memopt.lifting.execution.iteration): then a version takes everything back, and the original runs.
"""

from __future__ import annotations

from dataclasses import replace

from memopt.cfg.natural_loops import find_loops
from memopt.ir.graph import BasicBlock, FlowGraph, Kind, Loop, LoopForest


def calls_out(block: BasicBlock) -> bool:
    """Whether the block calls something that is not in the graph."""
    return block.kind is Kind.CALL and block.successors == (block.end,)


def without_cold_calls(graph: FlowGraph, loop: Loop) -> tuple[LoopForest, Loop] | None:
    """The loops of ``graph`` without those blocks of ``loop`` that call, and what of it remains; None when nothing does
    or calls still do."""
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
