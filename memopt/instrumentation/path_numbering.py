"""Numbers for the acyclic paths of a function, so that additions along a path come to its number.

Ball and Larus, Efficient path profiling (MICRO 1996), section 3: a jump back ends a path and begins another at its
target; each edge has a value, and the values along a path add up to a number of its own, from 0 on without gaps.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from memopt.ir.graph import FlowGraph
from memopt.ir.reasons import Reason, Rejected

MOST_PATHS = 1 << 62  # of a function: numbers are words


@dataclass(frozen=True)
class PathNumbers:
    """``values``: of edges; ``starts``: of the ways in, by the block where a path begins; ``ends``: of the ways out, by
    block; ``back``: of jumps back, what they add to the path that ends there. ``count``: of all paths."""

    values: dict[tuple[int, int], int]
    starts: dict[int, int]
    ends: dict[int, int]
    back: dict[tuple[int, int], int]
    count: int

    def blocks(self, number: int) -> tuple[int, ...]:
        """Of the path with this number, in order."""
        start, left = max(self.starts.items(), key=lambda s: (s[1] <= number, s[1]))
        left = number - left
        found = [start]
        while True:
            value, target = max((way for way in self._ways[found[-1]] if way[0] <= left), key=lambda way: way[0])
            left -= value
            if target is None:
                return tuple(found)
            found.append(target)

    @functools.cached_property
    def _ways(self) -> dict[int, list[tuple[int, int | None]]]:
        """By block, values and where they lead to: None where the path ends."""
        found: dict[int, list[tuple[int, int | None]]] = {}
        for (source, target), value in self.values.items():
            found.setdefault(source, []).append((value, target))
        for (source, _), value in self.back.items():
            found.setdefault(source, []).append((value, None))
        for source, value in self.ends.items():
            found.setdefault(source, []).append((value, None))
        return found


def number_paths(graph: FlowGraph) -> PathNumbers:
    """Raises Rejected(UNSUPPORTED_INSTRUCTION) where there are more than numbers."""
    order, back = _ordered(graph)
    paths: dict[int, int] = {}
    values: dict[tuple[int, int], int] = {}
    ends: dict[int, int] = {}
    backs: dict[tuple[int, int], int] = {}
    for block in order:  # what it leads to comes before it
        total = 0
        for target in dict.fromkeys(graph.successors(block)):
            if (block, target) in back:
                backs[block, target] = total
                total += 1
            else:
                values[block, target] = total
                total += paths[target]
        if total == 0 or any(s not in graph.blocks for s in graph.blocks[block].successors):
            ends[block] = total
            total += 1
        paths[block] = total
    starts: dict[int, int] = {}
    total = 0
    entered = {target for _, target in values}
    for block in dict.fromkeys((graph.entry, *(target for _, target in back), *(b for b in order if b not in entered))):
        starts[block] = total
        total += paths[block]
    if total > MOST_PATHS:
        raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"{total} paths are more than there are numbers")
    return PathNumbers(values, starts, ends, backs, total)


def _ordered(graph: FlowGraph) -> tuple[list[int], dict[tuple[int, int], None]]:
    """All blocks, each behind those it leads to but for jumps back, and these jumps."""
    order: list[int] = []
    back: dict[tuple[int, int], None] = {}
    state: dict[int, bool] = {}  # True: on the way from a root
    for root in (graph.entry, *graph.blocks):
        if root in state:
            continue
        state[root] = True
        stack: list[tuple[int, Iterator[int]]] = [(root, iter(graph.successors(root)))]
        while stack:
            block, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                stack.pop()
                state[block] = False
                order.append(block)
            elif target not in state:
                state[target] = True
                stack.append((target, iter(graph.successors(target))))
            elif state[target]:
                back[block, target] = None
    return order, back
