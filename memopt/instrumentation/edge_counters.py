"""Where counters must stand so that every block and edge of a graph is counted, and what their counts say of the rest.

A spanning tree of the flow graph needs no counters: what flows into a block flows out of it (Knuth and Stevenson,
Optimal measurement points for program frequency counts, 1973; Ball and Larus, Optimally profiling and tracing
programs, 1994). The tree takes what runs most often. A block is an edge as well, from its way in to its way out, so
that a counter may stand in it. All ways in and out of the function meet in one vertex.

Invariant: exact for every run, where it is known in which block one began or ended that did so in its middle. A call
may never return, so what follows it is counted by itself; where an indirect jump or an exception goes is told by what
it goes to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy
import numpy.typing

from memopt.ir.graph import FlowGraph, Kind, Loop

Place = tuple[int, int | None]  # (block, None): the block; (block, successor): the edge between them
Counts = numpy.typing.NDArray[numpy.int64]

_OUTSIDE = -1
_DEEPEST = 6  # loops inside loops that make a difference to where counters stand
_OFTEN = 16  # how much oftener a loop runs than what is around it, for want of anything better


class _Way(NamedTuple):
    """From one vertex to another: twice the number of a block for its way in, one more for its way out. ``place``: what
    runs whenever this way is taken; None: what no counter can stand at."""

    source: int
    target: int
    place: Place | None


@dataclass(frozen=True, slots=True)
class Counting:
    """``places``: where counters stand, in the order of the counts that ``solve`` takes."""

    places: tuple[Place, ...]
    _tree: tuple[tuple[_Way, int], ...]  # from the leaves inwards, with the vertex at which each is the last
    _chords: tuple[_Way, ...]

    def solve(self, counts: Counts, cut: Mapping[int, Counts] = MappingProxyType({})) -> dict[Place, Counts]:
        """For ``counts`` of shape (places, runs) how often each block and each edge ran: arrays of shape (runs,).
        ``cut``: by block, how many runs more began in its middle than ended there; a run of a block counts for it where
        it begins."""
        ways = (*self._chords, *(way for way, _ in self._tree)) if cut else ()
        surplus = {way.target: cut[way.place[0]] for way in ways
                   if way.place is not None and way.place[1] is None and way.place[0] in cut}
        if cut:
            surplus[_OUTSIDE] = -numpy.sum(list(cut.values()), axis=0)
        result: dict[Place, Counts] = {}
        zero = numpy.zeros(counts.shape[1:], numpy.int64)

        def flows(way: _Way, count: Counts) -> None:
            surplus[way.source] = surplus.get(way.source, zero) - count
            surplus[way.target] = surplus.get(way.target, zero) + count
            if way.place is not None:
                result[way.place] = count

        for way, count in zip(self._chords, counts, strict=True):
            flows(way, count)
        for way, leaf in self._tree:
            missing = surplus.get(leaf, zero)
            flows(way, missing if way.source == leaf else -missing)
        return result


def plan_counters(graph: FlowGraph, loops: Sequence[Loop], known: frozenset[int] = frozenset()) -> Counting:
    """``known``: blocks whose counts cost something only where their innermost loop is entered and left."""
    depth = dict.fromkeys(graph.blocks, 0)
    for loop in loops:
        for block in loop.blocks:
            depth[block] = max(depth[block], min(loop.depth, _DEEPEST))
    ways = sorted(_ways(graph), key=lambda way: _order(way, depth, known))
    leader: dict[int, int] = {}

    def find(vertex: int) -> int:
        while (above := leader.get(vertex, vertex)) != vertex:
            leader[vertex] = vertex = leader.get(above, above)
        return vertex

    tree, chords = [], []
    for way in ways:
        first, second = find(way.source), find(way.target)
        if first == second:
            chords.append(way)
        else:
            leader[first] = second
            tree.append(way)
    places = tuple(way.place for way in chords if way.place is not None)
    assert len(places) == len(chords), "a way without a place closes a cycle"
    return Counting(places, tuple(_inwards(tree)), tuple(chords))


def _order(way: _Way, depth: Mapping[int, int], known: frozenset[int]) -> tuple[bool, int, bool]:
    """What the tree takes first: what cannot be counted, then what runs often, and edges, where counting costs a
    jump, before blocks."""
    if way.place is None:
        return False, 0, False
    block, successor = way.place
    inside = depth[block] - (block in known) if successor is None else min(depth[block], depth[successor])
    return True, -(_OFTEN ** inside), successor is None


def _ways(graph: FlowGraph) -> Iterator[_Way]:
    number = {block: index for index, block in enumerate(graph.blocks)}
    for start, block in graph.blocks.items():
        into, out = 2 * number[start], 2 * number[start] + 1
        yield _Way(into, out, (start, None))
        if start in graph.led or start == graph.entry:
            yield _Way(_OUTSIDE, into, None)
        successors = [s for s in dict.fromkeys(block.successors) if s != start or not block.repeats]
        for successor in successors:
            if successor in number and successor not in block.led:
                yield _Way(out, 2 * number[successor], (start, successor))
        leaves = block.kind in (Kind.RETURN, Kind.INDIRECT, Kind.TRAP, Kind.CALL)
        if leaves or not successors or any(s not in number for s in successors):
            yield _Way(out, _OUTSIDE, None)


def _inwards(tree: Sequence[_Way]) -> Iterator[tuple[_Way, int]]:
    """The ways of a tree such that each is, at one of its ends, the only one that has not come before."""
    degree: dict[int, int] = {}
    indices: dict[int, int] = {}  # of the ways at a vertex, by exclusive or: where there is one, it is that one
    for index, way in enumerate(tree):
        for vertex in way[:2]:
            degree[vertex] = degree.get(vertex, 0) + 1
            indices[vertex] = indices.get(vertex, 0) ^ index
    leaves = [vertex for vertex, ways in degree.items() if ways == 1]
    while leaves:
        leaf = leaves.pop()
        if not degree[leaf]:
            continue
        index = indices[leaf]
        yield tree[index], leaf
        for vertex in tree[index][:2]:
            degree[vertex] -= 1
            indices[vertex] ^= index
            if degree[vertex] == 1:
                leaves.append(vertex)
