"""Path numbering: a number for each acyclic path of a function, as the sum of values on its edges.

Example: ``a; if (..) b; else c; d``: with 1 on the edge a -> c and 0 elsewhere, the path a b d has number 0 and a c d
has number 1. A back edge ends a path and begins another one at its target. Numbers go from 0 on without gaps.

In: a flow graph. Out: a ``PathNumbers``. Source: Ball and Larus, Efficient path profiling (MICRO 1996), section 3.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from memopt.ir.frozen import dataclass
from memopt.ir.graph import FlowGraph
from memopt.ir.reasons import Reason, Rejected

MOST_PATHS = 1 << 62  # in a function: a probe adds 64-bit words


@dataclass(frozen=True)
class PathNumbers:
    """The values that sum up to the number of a path."""

    values: dict[tuple[int, int], int]  # by edge
    starts: dict[int, int]  # by the block where a path begins
    ends: dict[int, int]  # by the block where a path leaves the function
    back: dict[tuple[int, int], int]  # by back edge: added to the path that ends there
    count: int  # of all paths

    def blocks(self, number: int) -> tuple[int, ...]:
        """The blocks of the path with this number, in order."""
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
        """By block: (value, next block) for each way on; the next block is None where the path ends."""
        found: dict[int, list[tuple[int, int | None]]] = {}
        for (source, target), value in self.values.items():
            found.setdefault(source, []).append((value, target))
        for (source, _), value in self.back.items():
            found.setdefault(source, []).append((value, None))
        for source, value in self.ends.items():
            found.setdefault(source, []).append((value, None))
        return found


def number_paths(graph: FlowGraph) -> PathNumbers:
    """Numbers the paths of ``graph``. Raises Rejected(UNSUPPORTED_INSTRUCTION) where there are more than 2**62."""
    order, back = _ordered(graph)
    paths: dict[int, int] = {}
    values: dict[tuple[int, int], int] = {}
    ends: dict[int, int] = {}
    backs: dict[tuple[int, int], int] = {}
    for block in order:  # its successors come before it
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
        raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"{total} paths are too many to number")
    return PathNumbers(values, starts, ends, backs, total)


def _ordered(graph: FlowGraph) -> tuple[list[int], dict[tuple[int, int], None]]:
    """All blocks in depth-first postorder (each behind its successors, except along back edges), and the back edges."""
    order: list[int] = []
    back: dict[tuple[int, int], None] = {}
    state: dict[int, bool] = {}  # True: on the current depth-first path; False: done
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
