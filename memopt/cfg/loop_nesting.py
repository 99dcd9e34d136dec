"""Loop nesting forest of a control-flow graph, irreducible loops included, as a profile counts them.

Example: ``if (x) goto b; a: ...; b: ...; if (y) goto a;`` is a cycle that is entered at a and at b. Such a cycle is a
loop here, too; its header is the first of its entries in depth-first order. (A version needs a loop with a single
entry: ``memopt.cfg.natural_loops``. For reducible graphs both find the same loops.)

In: a flow graph. Out: a ``Nesting``. Sources: Havlak, Nesting of reducible and irreducible loops, 1997, with the bound
on its work by Ramalingam, Identifying loops in almost linear time, 1999.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from memopt.cfg.natural_loops import nest
from memopt.ir.frozen import dataclass
from memopt.ir.graph import FlowGraph, Loop


@dataclass(frozen=True)
class Nesting:
    """All loops of a function and how they nest."""

    loops: tuple[Loop, ...]  # each after its parent, siblings by address; a loop's blocks include those of inner loops
    irreducible: frozenset[int]  # headers of loops that are entered at other blocks as well

    @cached_property
    def innermost(self) -> Mapping[int, int]:
        """For each block that is in a loop, the index of the innermost loop around it."""
        return {block: index for index, loop in enumerate(self.loops) for block in loop.blocks}  # inner ones come later


def find_nesting(graph: FlowGraph) -> Nesting:
    """The loops among the blocks that are reachable from the entry."""
    if all(target > source for source in graph.blocks for target in graph.successors(source)):
        return Nesting((), frozenset())  # all edges go to higher addresses
    order, last = _depth_first(graph)
    number = {block: index for index, block in enumerate(order)}
    into: list[list[int]] = [[] for _ in order]  # by target: sources of edges that are not back edges
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
    """The loops found so far. Blocks are depth-first numbers; the head of a loop stands for the whole loop."""

    leader: list[int]  # union-find: from each number towards the head of the outermost loop known around it
    own: dict[int, set[int]]  # by head: the blocks of its loop and the heads of loops, of the next level only
    irreducible: set[int]

    def find(self, number: int) -> int:
        top = number
        while self.leader[top] != top:
            top = self.leader[top]
        while self.leader[number] != top:
            self.leader[number], number = top, self.leader[number]
        return top


def _collect(head: int, into: list[list[int]], back: list[int], last: list[int], found: _Loops) -> None:
    """Makes a loop of the sources of back edges to ``head`` and all below ``head`` that lead to them.

    A loop that was found before (a deeper one) is taken as one vertex.
    """
    if not back:
        return
    inside = {found.find(n) for n in back} - {head}
    pending = list(inside)
    while pending:
        for source in into[pending.pop()]:
            above = found.find(source)
            if not head <= above <= last[head]:
                found.irreducible.add(head)
                into[head].append(above)  # that edge enters the loop around this one, too
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
    """Blocks in depth-first preorder, and by number the highest number in the subtree of each."""
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
