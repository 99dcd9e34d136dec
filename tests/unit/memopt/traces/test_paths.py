"""Paths in traces of random functions that call each other, held against walks that are followed one by one."""

from __future__ import annotations

import random
from collections import Counter

import numpy
import pytest

from memopt.instrumentation.path_numbering import PathNumbers, number_paths
from memopt.ir.graph import BasicBlock, FlowGraph
from memopt.traces.core.format import BLOCK, RESUMED
from memopt.traces.paths import PathBlock, Paths


def drawn(draw: random.Random) -> FlowGraph:
    """Each block leads on, to a place further on at least now and then."""
    count = draw.randrange(2, 7)
    ways = {n: tuple(dict.fromkeys((min(n + 1, count - 1), draw.randrange(count)))) if n + 1 < count else ()
            for n in range(count)}
    return FlowGraph(0, {n: BasicBlock(n, n + 1, (), targets) for n, targets in ways.items()})


class Program:
    def __init__(self, seed: int, functions: int = 3) -> None:
        self.random = random.Random(seed)
        self.graphs = [drawn(self.random) for _ in range(functions)]
        self.numbers = [number_paths(graph) for graph in self.graphs]
        self.first: list[int] = []
        self.blocks: list[PathBlock] = []
        for unit, (graph, numbers) in enumerate(zip(self.graphs, self.numbers, strict=True)):
            self.first.append(len(self.blocks))
            self.blocks += [described(unit, block, numbers, self.first[-1]) for block in graph.blocks]
        self.words: list[int] = []
        self.counts: Counter[tuple[int, int]] = Counter()

    def run(self, unit: int, node: int, deep: int) -> None:
        graph, numbers = self.graphs[unit], self.numbers[unit]
        block, path = 0, numbers.starts[0]
        while True:
            self.words += [BLOCK << 48 | self.first[unit] + block, node]
            targets = graph.successors(block)
            if not targets:
                break
            if deep < 3 and len(targets) == 1 and self.random.random() < 0.4:  # this block ends with a call
                other = self.random.randrange(len(self.graphs))
                self.run(other, 16 * (node + block) * 4 + 16 * other + 16, deep + 1)
            target = self.random.choice(targets) if len(self.words) < 20_000 else max(targets)
            if (block, target) in numbers.back:
                self.counts[unit, path + numbers.back[block, target]] += 1
                path = numbers.starts[target]
            else:
                path += numbers.values[block, target]
            block = target
        self.counts[unit, path + numbers.ends[block]] += 1


def described(unit: int, block: int, numbers: PathNumbers, first: int) -> PathBlock:
    edges = [(first + t, v, None) for (s, t), v in numbers.values.items() if s == block]
    edges += [(first + t, v, numbers.starts[t]) for (s, t), v in numbers.back.items() if s == block]
    return PathBlock(unit, numbers.starts.get(block), numbers.ends.get(block), tuple(edges))


def counted(program: Program, pieces: int = 1, weight: float = 1.0) -> dict[tuple[int, int], float]:
    seen = Paths()
    seen.know(program.blocks)
    for piece in numpy.array_split(numpy.array(program.words, numpy.uint64), pieces):
        seen.feed(piece)
    assert seen.paths <= sum(program.counts.values())
    seen.end_window(weight)
    return {(unit, path): count for unit, path, count in seen.all()}


@pytest.mark.parametrize("seed", range(100))
def test_paths_are_those_of_the_walks(seed: int) -> None:
    program = Program(seed)
    caller = [BLOCK << 48 | len(program.blocks), 8]
    program.blocks.append(PathBlock(len(program.graphs), None, None, ()))
    for again in range(20):
        if len(program.words) < 19_000:
            program.words += caller
            program.run(0, 16 * (1 + again % 2), 0)
    program.words += caller
    assert counted(program, program.random.randrange(1, 9)) == program.counts


def test_a_recursive_function_has_frames_of_its_own() -> None:
    """0 -> 1 or 2; 1 calls the function again and goes on at 2; 2 returns. All frames have one node."""
    graph = FlowGraph(0, {n: BasicBlock(n, n + 1, (), t) for n, t in {0: (1, 2), 1: (2,), 2: ()}.items()})
    numbers = number_paths(graph)
    seen = Paths()
    seen.know([described(0, block, numbers, 0) for block in graph.blocks]
              + [PathBlock(1, 0, 0, ())])
    words = [w for b, node in ((3, 32), (0, 16), (1, 16), (0, 16), (1, 16), (0, 16), (2, 16), (2, 16), (2, 16), (3, 32))
             for w in (BLOCK << 48 | b, node)]
    seen.feed(numpy.array(words, numpy.uint64))
    seen.end_window(1.0)
    long, short = (next(n for n in range(numbers.count) if numbers.blocks(n) == p) for p in ((0, 1, 2), (0, 2)))
    assert {(unit, path): count for unit, path, count in seen.all() if unit == 0} == {(0, long): 2.0, (0, short): 1.0}


def test_what_is_resumed_counts_from_the_next_path_on_and_windows_have_weights() -> None:
    graph = FlowGraph(0, {0: BasicBlock(0, 1, (), (1,)), 1: BasicBlock(1, 2, (), (1, 2)), 2: BasicBlock(2, 3, (), ())})
    numbers = number_paths(graph)
    seen = Paths()
    seen.know([described(0, block, numbers, 0) for block in graph.blocks])
    for weight in (2.0, 3.0):
        words = [BLOCK << 48 | 1, 16 | RESUMED, *[BLOCK << 48 | 1, 16] * 5]
        seen.feed(numpy.array(words, numpy.uint64))
        seen.end_window(weight)
    ((unit, path, count),) = seen.all()
    assert (unit, numbers.blocks(path), count) == (0, (1,), 4 * 2.0 + 4 * 3.0)


def test_many_paths_outgrow_their_table() -> None:
    ways = {3 * n + k: t for n in range(16) for k, t in enumerate([(3 * n + 1, 3 * n + 2), (3 * n + 3,), (3 * n + 3,)])}
    graph = FlowGraph(0, {n: BasicBlock(n, n + 1, (), t) for n, t in {**ways, 48: (0,)}.items()})
    numbers = number_paths(graph)
    seen = Paths()
    seen.know([described(0, block, numbers, 0) for block in graph.blocks])
    words = []
    for bits in range(1 << 16):
        for n in range(16):
            words += [3 * n, 3 * n + 1 + (bits >> n & 1)]
        words.append(48)
    told = numpy.array([w for b in (*words, 0) for w in (BLOCK << 48 | b, 16)], numpy.uint64)
    half = len(told) // 4 * 2
    seen.feed(told[:half])
    seen.end_window(1.0)
    seen.feed(told[half:])
    seen.end_window(1.0)
    found = [count for _, _, count in seen.all()]
    assert len(found) >= (1 << 16) - 1
    assert set(found) == {1.0}
