"""Dominators and postdominators of a control-flow graph, as fixed points of their dataflow equations.

Example: in ``a; if (..) b; d`` block a dominates b and d, and d postdominates a and b.

In: a flow graph. Out: immediate dominators, by the start addresses of blocks. Source: Cooper, Harvey, Kennedy: A
Simple, Fast Dominance Algorithm, 2001.
"""

from __future__ import annotations

from memopt.ir.graph import FlowGraph


def reverse_postorder(graph: FlowGraph) -> tuple[int, ...]:
    """Blocks reachable from the entry; each comes before its successors, except along edges that close a cycle."""
    order: list[int] = []
    seen = {graph.entry}
    stack = [(graph.entry, iter(graph.successors(graph.entry)))]
    while stack:
        block, successors = stack[-1]
        for following in successors:
            if following not in seen:
                seen.add(following)
                stack.append((following, iter(graph.successors(following))))
                break
        else:
            order.append(block)
            stack.pop()
    return tuple(reversed(order))


def immediate_dominators(graph: FlowGraph) -> dict[int, int]:
    """The immediate dominator of every reachable block, in reverse postorder; the entry is its own dominator."""
    order = reverse_postorder(graph)
    number = {block: index for index, block in enumerate(order)}
    predecessors = graph.predecessors
    dominator = {graph.entry: graph.entry}

    def intersect(first: int, second: int) -> int:
        while first != second:
            if number[first] > number[second]:
                first = dominator[first]
            else:
                second = dominator[second]
        return first

    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            known = [p for p in predecessors[block] if p in dominator]
            found = known[0]
            for other in known[1:]:
                found = intersect(found, other)
            if dominator.get(block) != found:
                dominator[block] = found
                changed = True
    return dominator


def immediate_postdominators(graph: FlowGraph, inside: frozenset[int]) -> dict[int, int]:
    """For each block of ``inside`` that has one, its immediate postdominator in ``inside``.

    That is the next block on every path that leaves ``inside``. An edge to the entry of the graph (the back edge of a
    loop) leaves ``inside``, too.
    """
    inner = {b: [s for s in graph.blocks[b].successors if s in inside and s != graph.entry] for b in inside}
    leaves = {b for b in inside if len(inner[b]) < len(set(graph.blocks[b].successors)) or not inner[b]}
    after = {b: {b} if b in leaves else set(inside) for b in inside}
    changed = True
    while changed:
        changed = False
        for block in inside - leaves:
            common = set[int].intersection(*(after[s] for s in inner[block])) | {block}
            if common != after[block]:
                after[block] = common
                changed = True
    # The postdominators of a block form a chain: the nearest one is the one with the most postdominators itself.
    return {b: max(after[b] - {b}, key=lambda p: len(after[p])) for b in inside if len(after[b]) > 1}


def dominates(dominators: dict[int, int], first: int, second: int) -> bool:
    """Whether every path from the entry to ``second`` goes through ``first`` (a block dominates itself)."""
    while second != first:
        above = dominators[second]
        if above == second:
            return False
        second = above
    return True
