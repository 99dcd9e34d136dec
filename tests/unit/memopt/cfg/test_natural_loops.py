from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from memopt.cfg import natural_loops
from memopt.cfg.dominators import dominates, immediate_dominators
from memopt.cfg.natural_loops import (
    entered_in_the_middle,
    find_loops,
    innermost_loop_at,
)
from memopt.ir.graph import FlowGraph, LoopForest
from memopt.ir.reasons import Reason, Rejected
from tests.support.graphs import drawn_with_dead_blocks, graph_of, reachable_without


@pytest.mark.parametrize("seed", range(60))
def test_loops_against_their_definition(seed: int) -> None:
    graph = drawn_with_dead_blocks(seed)
    found = immediate_dominators(graph)
    everything = reachable_without(graph, 0)
    forest = find_loops(graph)
    back = {(s, t) for s in everything for t in graph.successors(s) if dominates(found, t, s)}
    assert {e for loop in forest.loops for e in loop.back_edges} == back
    assert len({loop.header for loop in forest.loops}) == len(forest.loops)
    for index, loop in enumerate(forest.loops):
        assert all(dominates(found, loop.header, b) for b in loop.blocks)
        assert loop.depth == len(list(forest.chain(loop)))
        assert all(forest.loops[c].parent == index for c in loop.children)
        if loop.parent is not None:
            assert loop.parent < index
            assert loop.blocks < forest.loops[loop.parent].blocks
        for outside, (block, target) in ((t not in loop.blocks, (b, t)) for b, t in loop.exits):
            assert outside
            assert target in graph.blocks[block].successors
    assert not set(forest.irreducible) & back
    assert bool(forest.irreducible) == _has_cycle_without(graph, back, everything)


def _has_cycle_without(graph: FlowGraph, removed: set[tuple[int, int]], blocks: set[int]) -> bool:
    """Whether a cycle is left when the back edges are gone: the definition of irreducible."""
    left = {b: {s for s in graph.successors(b) if (b, s) not in removed} for b in blocks}
    while True:
        ends = {b for b, targets in left.items() if not targets}
        if not ends:
            return bool(left)
        left = {b: targets - ends for b, targets in left.items() if b not in ends}


NEST = {1: (2,), 2: (3, 9), 3: (4,), 4: (4, 5), 5: (3, 6), 6: (2,), 9: (77,)}


def nest() -> LoopForest:
    return find_loops(graph_of(NEST))


def test_nest_text() -> None:
    assert str(nest()) == """\
loops of 0x1
  loop 0x2 blocks 0x2, 0x3, 0x4, 0x5, 0x6; back from 0x6; exits 0x2->0x9
    loop 0x3 blocks 0x3, 0x4, 0x5; back from 0x5; exits 0x5->0x6
      loop 0x4 blocks 0x4; back from 0x4; exits 0x4->0x5"""


def test_loops_at_an_address() -> None:
    forest = nest()
    headers = {a: loop and loop.header for a in range(1, 10) for loop in [innermost_loop_at(forest, a)]}
    assert headers == {1: None, 2: 2, 3: 3, 4: 4, 5: 3, 6: 2, 7: None, 8: None, 9: None}


def test_two_back_edges_to_one_header_are_one_loop() -> None:
    (loop,) = find_loops(graph_of({1: (2,), 2: (3, 4), 3: (2,), 4: (2, 5), 5: ()})).loops
    assert loop.back_edges == ((3, 2), (4, 2))
    assert loop.blocks == {2, 3, 4}


def test_an_irreducible_cycle_is_rejected_only_where_it_matters() -> None:
    forest = find_loops(graph_of({1: (2, 5), 2: (3, 4), 3: (2,), 4: (), 5: (6, 7), 6: (7,), 7: (6, 8), 8: ()}))
    loop = innermost_loop_at(forest, 3)
    assert loop is not None
    assert loop.header == 2
    for address in (6, 7):
        with pytest.raises(Rejected) as caught:
            innermost_loop_at(forest, address)
        assert caught.value.reason is Reason.IRREDUCIBLE
    assert innermost_loop_at(forest, 8) is None


def test_a_cycle_that_is_entered_in_its_middle_is_a_loop_from_one_of_its_entries() -> None:
    """What a jump threaded past the test at the top of a loop leaves: from 5 it is one loop, from 2 there are two."""
    forest = find_loops(graph_of({1: (2, 5), 2: (3,), 3: (4,), 4: (5, 9), 5: (2, 6), 6: (3, 6), 9: ()}))
    found = entered_in_the_middle(forest, 6)
    assert found is not None
    view, loop = found
    assert str(view) == """\
loops of 0x5
  loop 0x5 blocks 0x2, 0x3, 0x4, 0x5, 0x6; back from 0x4; exits 0x4->0x9
    loop 0x6 blocks 0x6; back from 0x6; exits 0x6->0x3"""
    assert loop == view.loops[0]
    assert entered_in_the_middle(forest, 1) is None
    assert entered_in_the_middle(nest(), 4) is None


@pytest.mark.parametrize("seed", range(60))
def test_no_cycle_is_left_without_the_headers_of_a_view(seed: int) -> None:
    source = random.Random(seed)
    count = source.randrange(3, 12)
    edges = {n: tuple({source.randrange(1, count + 2) for _ in range(source.randrange(1, 3))})
             for n in range(1, count + 1)}
    graph = graph_of(edges)
    for block in reachable_without(graph, 0):
        found = entered_in_the_middle(find_loops(graph), block)
        if found is not None:
            view, loop = found
            assert block in loop.blocks
            back = {e for one in view.loops for e in one.back_edges}
            assert not _has_cycle_without(view.graph, back, set(view.graph.blocks))
            assert all(one.parent is None or one.blocks < view.loops[one.parent].blocks for one in view.loops)


def test_a_cycle_with_many_entries_at_every_level_takes_bounded_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an interpreter with computed jumps has it: the first block and each part lead to many parts."""
    calls = []

    def counted(graph: FlowGraph, blocks: frozenset[int]) -> Iterator[frozenset[int]]:
        calls.append(blocks)
        return components(graph, blocks)

    components = natural_loops._components
    monkeypatch.setattr(natural_loops, "_components", counted)
    parts = range(1, 80)
    edges = {n: tuple(1 + (n * k + k * k) % 79 for k in range(1, 20)) for n in parts} | {0: tuple(parts)}
    found = entered_in_the_middle(find_loops(graph_of(edges)), 77)
    assert found is not None
    assert 77 in found[1].blocks
    assert len(calls) <= 8 * 301
