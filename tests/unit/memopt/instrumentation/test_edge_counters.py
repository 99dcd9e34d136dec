"""Counters at few places tell how often every block and edge ran."""

from __future__ import annotations

import random
from collections import Counter

import numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from memopt.cfg.loop_nesting import find_nesting
from memopt.instrumentation.edge_counters import Place, plan_counters
from memopt.ir.graph import BasicBlock, DecodedInstruction, FlowGraph, Kind

_NAMES = {Kind.PLAIN: "nop", Kind.JUMP: "jmp", Kind.CONDITIONAL: "je", Kind.CALL: "call", Kind.RETURN: "ret",
          Kind.INDIRECT: "jmp"}


def random_graph(chance: random.Random, size: int) -> FlowGraph:
    """Blocks 0, 16, 32 ... with ends of every kind; the last returns."""
    blocks = {}
    for number in range(size):
        start = 16 * number
        kind = chance.choice(list(_NAMES)) if number < size - 1 else Kind.RETURN
        following = start + 16
        successors: tuple[int, ...] = ()
        if kind in (Kind.PLAIN, Kind.CALL):
            successors = (following,)
            if kind is Kind.CALL and chance.random() < 0.4:  # what catches exceptions
                successors = tuple(dict.fromkeys((following, 16 * chance.randrange(size))))
        elif kind is Kind.CONDITIONAL:
            successors = tuple(dict.fromkeys((following, 16 * chance.randrange(size))))
        elif kind is Kind.JUMP:
            successors = (16 * chance.randrange(size) if chance.random() < 0.9 else 16 * size + 160,)
        elif kind is Kind.INDIRECT:
            successors = tuple(dict.fromkeys(16 * chance.randrange(size) for _ in range(3)))
        instruction = DecodedInstruction(start, 16, _NAMES[kind], "", kind, None, bytes(16))
        blocks[start] = BasicBlock(start, following, (instruction,), successors)
    return FlowGraph(0, blocks)


def reached(graph: FlowGraph) -> FlowGraph:
    found, pending = {graph.entry}, [graph.entry]
    while pending:
        for successor in graph.successors(pending.pop()):
            if successor not in found:
                found.add(successor)
                pending.append(successor)
    return FlowGraph(graph.entry, {s: b for s, b in graph.blocks.items() if s in found})


def untold(graph: FlowGraph) -> set[tuple[int, int]]:
    """Edges that no counter can stand on: of indirect jumps and exceptions."""
    return {(b.start, s) for b in graph.blocks.values() for s in b.successors
            if b.kind is Kind.INDIRECT or (b.kind is Kind.CALL and s != b.end)}


def walk(graph: FlowGraph, chance: random.Random, runs: int) -> Counter[Place]:
    """What ran, in executions of the function that end: at the end of a block, a call that never returns included."""
    return sum((_execution(graph, chance, graph.entry)[0] for _ in range(runs)), Counter())


def _execution(graph: FlowGraph, chance: random.Random, block: int, middle: bool = False, stops: float = 0.0
               ) -> tuple[Counter[Place], Counter[int]]:
    """From the beginning of ``block``, or from its ``middle``; how likely each block is to be the last. Also the blocks
    in whose middle it began, less those in which it ended."""
    ran: Counter[Place] = Counter({(block, None): -1} if middle else {})
    cut = Counter({block: 1} if middle else {})
    for _ in range(500):
        ran[block, None] += 1
        if chance.random() < stops:
            cut[block] -= 1
            return ran, cut
        kind, successors = graph.blocks[block].kind, graph.blocks[block].successors
        following = chance.choice(successors) if successors else -1
        if (kind is Kind.CALL and chance.random() < 0.1) or following not in graph.blocks:
            return ran, cut
        if (block, following) not in untold(graph):
            ran[block, following] += 1
        block = following
    return Counter(), Counter()


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 14))
def test_all_counts_follow_from_those_that_are_kept(seed: int, size: int) -> None:
    chance = random.Random(seed)
    graph = reached(random_graph(chance, size))
    ran = walk(graph, chance, 20)
    loops = find_nesting(graph).loops
    known = frozenset(b for b in graph.blocks if chance.random() < 0.3)
    for counting in (plan_counters(graph, loops), plan_counters(graph, loops, known)):
        counts = numpy.array([[ran[place], 2 * ran[place]] for place in counting.places], numpy.int64).reshape(-1, 2)
        solved = counting.solve(counts)
        edges = {(b, s) for b in graph.blocks for s in graph.successors(b)} - untold(graph)
        assert set(solved) == edges | {(b, None) for b in graph.blocks}
        assert {place: (int(a), int(b)) for place, (a, b) in solved.items()} == {
            place: (ran[place], 2 * ran[place]) for place in solved}


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 14))
def test_runs_that_begin_and_end_in_the_middle(seed: int, size: int) -> None:
    """As a child does that the function has forked, and a program that is killed."""
    chance = random.Random(seed)
    graph = reached(random_graph(chance, size))
    ran = walk(graph, chance, 5)
    cut: Counter[int] = Counter()
    for _ in range(5):
        begins = chance.random() < 0.7
        more, own = _execution(graph, chance, chance.choice(list(graph.blocks)) if begins else graph.entry, begins, 0.2)
        ran.update(more)
        cut.update(own)
    counting = plan_counters(graph, find_nesting(graph).loops)
    counts = numpy.array([[ran[place]] for place in counting.places], numpy.int64).reshape(-1, 1)
    solved = counting.solve(counts, {block: numpy.array([count]) for block, count in cut.items()})
    assert {place: int(count) for place, (count,) in solved.items()} == {place: ran[place] for place in solved}


def test_a_loop_of_one_block_needs_one_counter_and_one_where_it_is_entered() -> None:
    def block(start: int, kind: Kind, *successors: int) -> BasicBlock:
        return BasicBlock(start, start + 16, (DecodedInstruction(start, 16, _NAMES[kind], "", kind, None, bytes(16)),),
                          successors)

    graph = FlowGraph(0, {0: block(0, Kind.PLAIN, 16), 16: block(16, Kind.CONDITIONAL, 32, 16),
                          32: block(32, Kind.RETURN)})
    places = plan_counters(graph, find_nesting(graph).loops).places
    assert len(places) == 2
    assert sum(16 in place for place in places) == 1
    # What is known is taken rather than the edge back.
    assert (16, None) in plan_counters(graph, find_nesting(graph).loops, frozenset((16,))).places
