"""Optimal counter placement: the fewest counters from which the counts of all blocks and edges follow.

Example: in ``a; if (..) b; c`` counters on b and on the edge a -> c are enough: a and c run as often as both together.
Edges of a spanning tree of the flow graph need no counter, because as much flows into a block as out of it (Knuth and
Stevenson, Optimal measurement points for program frequency counts, 1973; Ball and Larus, Optimally profiling and
tracing programs, 1994). The tree takes the edges that run most often. Each block is an edge itself, from its entry to
its exit, so that a counter may stand in a block, too. All entries and exits of the function meet in one vertex.

In: a flow graph and its loops. Out: a ``Counting``: the places of counters, and ``solve`` for the other counts.
Invariant: counts are exact for complete runs. For a run that began or ended in the middle of a block they are exact if
that block is known (``cut``). A call may never return, so the code behind it has a count of its own. How often indirect
jumps and exceptions went to a target follows from the count of the block there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy
import numpy.typing

from memopt.ir.frozen import dataclass
from memopt.ir.graph import FlowGraph, Kind, Loop

Place = tuple[int, int | None]  # (block, None): the block; (block, successor): the edge between them
Counts = numpy.typing.NDArray[numpy.int64]

_OUTSIDE = -1
_DEEPEST = 6  # deeper loops count as this deep when counters are placed
_OFTEN = 16  # assumed iterations of a loop


class _Way(NamedTuple):
    """An edge of the graph of flows. Vertices: 2 * n is the entry of block n, 2 * n + 1 its exit, _OUTSIDE the rest."""

    source: int
    target: int
    place: Place | None  # the block or edge of the flow graph that this is; None: no counter can stand here


@dataclass(frozen=True, slots=True)
class Counting:
    """Where counters stand in a function, and how all other counts follow."""

    places: tuple[Place, ...]  # of the counters, in the order of the counts that ``solve`` takes
    _tree: tuple[tuple[_Way, int], ...]  # edges without counters, leaves first, each with the vertex that it solves
    _chords: tuple[_Way, ...]

    def solve(self, counts: Counts, cut: Mapping[int, Counts] = MappingProxyType({})) -> dict[Place, Counts]:
        """The counts of all blocks and edges, arrays of shape (runs,), from ``counts`` of shape (places, runs).

        ``cut``: by block, the number of runs that began in its middle minus those that ended there. A block is counted
        where it begins.
        """
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
    """Where counters must stand in ``graph`` with these ``loops``.

    ``known``: blocks that an induction register counts; they cost something only where their innermost loop is entered
    and left.
    """
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
    assert len(places) == len(chords), "an edge that no counter can stand at closes a cycle"
    return Counting(places, tuple(_inwards(tree)), tuple(chords))


def _order(way: _Way, depth: Mapping[int, int], known: frozenset[int]) -> tuple[bool, int, bool]:
    """Sort key: the tree first takes edges that cannot be counted, then those that run often. Of two that run as often
    it takes an edge before a block: counting an edge costs a jump."""
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
    """The edges of a tree, leaves first, each with one of its vertices.

    At that vertex, all its other edges have come before: so the flow through this one follows from theirs.
    """
    degree: dict[int, int] = {}
    indices: dict[int, int] = {}  # by vertex: exclusive or of the indices of its edges; of one edge that is its index
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
