"""Dominators of a control-flow graph (Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm, 2001)."""

from __future__ import annotations

from memopt.ir.graph import FlowGraph


def reverse_postorder(graph: FlowGraph) -> tuple[int, ...]:
    """Blocks reachable from the entry, each before its successors but for edges that close a cycle."""
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
    """The immediate dominator of every reachable block, in reverse postorder; the entry is its own."""
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
    """For each block of ``inside`` the next one that every way out of ``inside`` goes through, where there is one.

    An edge to the entry (a back edge) is a way out.
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
    # The postdominators of a block form a chain; the next one has all others of the chain behind it.
    return {b: max(after[b] - {b}, key=lambda p: len(after[p])) for b in inside if len(after[b]) > 1}


def dominates(dominators: dict[int, int], first: int, second: int) -> bool:
    """Whether every path from the entry to ``second`` goes through ``first`` (a block dominates itself)."""
    while second != first:
        above = dominators[second]
        if above == second:
            return False
        second = above
    return True
