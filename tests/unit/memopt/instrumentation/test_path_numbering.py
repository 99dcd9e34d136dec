"""Numbers of acyclic paths, held against all paths there are."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from memopt.instrumentation import path_numbering
from memopt.instrumentation.path_numbering import number_paths
from memopt.ir.graph import BasicBlock, FlowGraph
from memopt.ir.reasons import Rejected


def graph_of(successors: dict[int, tuple[int, ...]]) -> FlowGraph:
    return FlowGraph(0, {start: BasicBlock(start, start + 1, (), targets) for start, targets in successors.items()})


def drawn(seed: int) -> FlowGraph:
    draw = random.Random(seed)
    count = draw.randrange(1, 9)
    return graph_of({n: tuple(draw.randrange(count + 1) for _ in range(draw.randrange(3))) for n in range(count)})


def walks(graph: FlowGraph, back: set[tuple[int, int]], path: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All paths that begin with ``path``, once for each way in which they can end."""
    block = path[-1]
    targets = list(dict.fromkeys(graph.successors(block)))
    outside = any(s not in graph.blocks for s in graph.blocks[block].successors)
    for target in targets:
        if (block, target) in back:
            yield path
        else:
            yield from walks(graph, back, (*path, target))
    if outside or not targets:
        yield path


@pytest.mark.parametrize("seed", range(200))
def test_numbers_are_without_gaps_and_tell_the_path(seed: int) -> None:
    graph = drawn(seed)
    numbers = number_paths(graph)
    expected = sorted(p for start in numbers.starts for p in walks(graph, set(numbers.back), (start,)))
    assert sorted(numbers.blocks(n) for n in range(numbers.count)) == expected
    assert numbers.starts[0] == 0


@pytest.mark.parametrize("seed", range(50))
def test_additions_along_a_path_come_to_its_number(seed: int) -> None:
    numbers = number_paths(drawn(seed))
    for number in range(numbers.count):
        path = numbers.blocks(number)
        along = numbers.starts[path[0]] + sum(numbers.values[edge] for edge in itertools.pairwise(path))
        ends = {along + v for (source, _), v in numbers.back.items() if source == path[-1]}
        ends |= {along + numbers.ends[path[-1]]} if path[-1] in numbers.ends else set()
        assert number in ends


def test_too_many_paths_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    diamonds = {3 * n + k: t for n in range(5) for k, t in enumerate(
        [(3 * n + 1, 3 * n + 2), (3 * n + 3,), (3 * n + 3,)])}
    graph = graph_of({**diamonds, 15: ()})
    assert number_paths(graph).count == 32
    monkeypatch.setattr(path_numbering, "MOST_PATHS", 31)
    with pytest.raises(Rejected):
        number_paths(graph)
