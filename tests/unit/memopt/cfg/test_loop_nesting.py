"""Loops of any flow graph against their definition: strongly connected parts, and so on inside without the header."""

from __future__ import annotations

import pytest

from memopt.cfg.loop_nesting import find_nesting
from memopt.cfg.natural_loops import find_loops
from memopt.ir.graph import FlowGraph
from tests.support.graphs import drawn, graph_of


def reached(graph: FlowGraph, start: int, inside: frozenset[int]) -> set[int]:
    """Blocks of ``inside`` behind ``start``, which counts when there is a way back to it."""
    found: set[int] = set()
    pending = [start]
    while pending:
        for successor in graph.successors(pending.pop()):
            if successor in inside and successor not in found:
                found.add(successor)
                pending.append(successor)
    return found


def parts(graph: FlowGraph, inside: frozenset[int]) -> set[frozenset[int]]:
    """What is strongly connected in ``inside`` and a cycle."""
    after = {b: reached(graph, b, inside) for b in inside}
    return {frozenset(c for c in after[b] if b in after[c]) for b in inside if b in after[b]}


@pytest.mark.parametrize("seed", range(300))
def test_loops_are_what_is_strongly_connected(seed: int) -> None:
    graph = drawn(seed)
    everything = frozenset(graph.blocks)
    nesting = find_nesting(graph)
    children: dict[int | None, set[frozenset[int]]] = {None: set()}
    for index, loop in enumerate(nesting.loops):
        children.setdefault(loop.parent, set()).add(loop.blocks)
        children.setdefault(index, set())
        assert loop.parent is None or loop.parent < index
    assert children[None] == parts(graph, everything)
    predecessors = graph.predecessors
    for index, loop in enumerate(nesting.loops):
        assert children[index] == parts(graph, loop.blocks - {loop.header})
        entries = {b for b in loop.blocks
                   if b == graph.entry or not loop.blocks.issuperset(predecessors[b])}
        assert loop.header in entries
        assert (loop.header in nesting.irreducible) == (entries != {loop.header})
        assert {source for source, _ in loop.back_edges} == set(predecessors[loop.header]) & loop.blocks


@pytest.mark.parametrize("seed", range(300))
def test_where_flow_is_regular_they_are_the_natural_loops(seed: int) -> None:
    graph = drawn(seed)
    natural = find_loops(graph)
    nesting = find_nesting(graph)
    if not natural.irreducible:
        assert nesting.loops == natural.loops
        assert not nesting.irreducible


def test_the_innermost_loop_of_each_block() -> None:
    nesting = find_nesting(graph_of({1: (2,), 2: (3,), 3: (3, 4), 4: (2, 5), 5: ()}))
    inside = {block: nesting.loops[index].header for block, index in nesting.innermost.items()}
    assert inside == {2: 2, 3: 3, 4: 2}
