"""Every loop of a control-flow graph, whichever way it is entered, and how loops nest: what a profile counts.

A version needs a loop with one header, which ``memopt.cfg.natural_loops`` finds; here a cycle that is entered at
several blocks is a loop too, with the first of them in depth-first order for its head (Havlak, Nesting of reducible and
irreducible loops, 1997, with the bound on its work by Ramalingam, Identifying loops in almost linear time, 1999).
Where flow is regular, both say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from memopt.cfg.natural_loops import nest
from memopt.ir.graph import FlowGraph, Loop


@dataclass(frozen=True)
class Nesting:
    """``loops``: each after its parent, siblings by address; the blocks of a loop hold those of the loops in it.
    ``irreducible``: headers of loops that are entered at other blocks as well."""

    loops: tuple[Loop, ...]
    irreducible: frozenset[int]

    @cached_property
    def innermost(self) -> Mapping[int, int]:
        """For each block that is in a loop, the index of the innermost one."""
        return {block: index for index, loop in enumerate(self.loops) for block in loop.blocks}  # inner ones come later


def find_nesting(graph: FlowGraph) -> Nesting:
    """The loops among the blocks that are reached from the entry."""
    if all(target > source for source in graph.blocks for target in graph.successors(source)):
        return Nesting((), frozenset())  # nothing goes back
    order, last = _depth_first(graph)
    number = {block: index for index, block in enumerate(order)}
    into: list[list[int]] = [[] for _ in order]  # edges that come from elsewhere than from below, by number
    back: list[list[int]] = [[] for _ in order]
    for source in order:
        for target in graph.successors(source):
            first, second = number[source], number[target]
            (back if second <= first <= last[second] else into)[second].append(first)
    found = _Loops(list(range(len(order))), {}, set())
    for head in reversed(range(len(order))):
        _collect(head, into, back[head], last, found)
    bodies = {order[head]: frozenset(order[n] for n in _with_inner(found.own, head)) for head in found.own}
    closing = {order[head]: [order[n] for n in back[head]] for head in found.own}
    return Nesting(nest(graph, bodies, closing), frozenset(order[head] for head in found.irreducible))


@dataclass(frozen=True, slots=True)
class _Loops:
    """``leader``: union-find, from each number towards the head of the outermost loop known around it. ``own``: for
    each head the heads and blocks right inside its loop."""

    leader: list[int]
    own: dict[int, set[int]]
    irreducible: set[int]

    def find(self, number: int) -> int:
        top = number
        while self.leader[top] != top:
            top = self.leader[top]
        while self.leader[number] != top:
            self.leader[number], number = top, self.leader[number]
        return top


def _collect(head: int, into: list[list[int]], back: list[int], last: list[int], found: _Loops) -> None:
    """What goes back to ``head`` and everything that leads there from below it, inner loops as one."""
    if not back:
        return
    inside = {found.find(n) for n in back} - {head}
    pending = list(inside)
    while pending:
        for source in into[pending.pop()]:
            above = found.find(source)
            if not head <= above <= last[head]:
                found.irreducible.add(head)
                into[head].append(above)  # the loop around is entered there, too
            elif above != head and above not in inside:
                inside.add(above)
                pending.append(above)
    found.own[head] = inside
    for number in inside:
        found.leader[number] = head


def _with_inner(own: dict[int, set[int]], head: int) -> Iterator[int]:
    pending = [head]
    while pending:
        number = pending.pop()
        yield number
        pending += own.get(number, ())


def _depth_first(graph: FlowGraph) -> tuple[list[int], list[int]]:
    """Blocks in preorder, and for each by its number the highest number below it."""
    order, number = [graph.entry], {graph.entry: 0}
    last = [0]
    stack = [(0, iter(graph.successors(graph.entry)))]
    while stack:
        index, successors = stack[-1]
        for following in successors:
            if following not in number:
                number[following] = len(order)
                stack.append((len(order), iter(graph.successors(following))))
                order.append(following)
                last.append(0)
                break
        else:
            last[index] = len(order) - 1
            stack.pop()
    return order, last
