"""Flow graphs written down as edges or drawn at random, and the definition of reachability."""

from __future__ import annotations

import random

from memopt.ir.graph import BasicBlock, DecodedInstruction, FlowGraph, Kind


def graph_of(edges: dict[int, tuple[int, ...]], entry: int = 1) -> FlowGraph:
    """Blocks of one byte each, numbered; an address without a key lies outside."""
    blocks = {}
    for start, successors in sorted(edges.items()):
        nop = DecodedInstruction(start, 1, "nop", "", Kind.PLAIN, None, b"\x90")
        blocks[start] = BasicBlock(start, start + 1, (nop,), successors)
    return FlowGraph(entry, blocks)


def reachable_without(graph: FlowGraph, removed: int) -> set[int]:
    """The blocks that paths from the entry reach which do not go through ``removed``."""
    if graph.entry == removed:
        return set()
    found, pending = {graph.entry}, [graph.entry]
    while pending:
        for successor in graph.successors(pending.pop()):
            if successor != removed and successor not in found:
                found.add(successor)
                pending.append(successor)
    return found


def drawn(seed: int) -> FlowGraph:
    """A random graph, irreducible or not, whose blocks can all be reached."""
    source = random.Random(seed)
    count = source.randrange(2, 14)
    edges = {n: tuple({source.randrange(1, count + 3) for _ in range(source.randrange(4))})
             for n in range(1, count + 1)}
    there = reachable_without(graph_of(edges), 0)
    return graph_of({n: targets for n, targets in edges.items() if n in there})


def drawn_with_dead_blocks(seed: int) -> FlowGraph:
    """A random graph, irreducible or not; some of its blocks cannot be reached."""
    source = random.Random(seed)
    count = source.randrange(2, 12)
    edges = {n: tuple({source.randrange(1, count + 3) for _ in range(source.randrange(3))})
             for n in range(1, count + 1)}
    return graph_of(edges)
