"""Hyperblocks of any flow graph against what they are for: what is told of the first block holds for all."""

from __future__ import annotations

import random

import pytest

from memopt.cfg.loop_nesting import find_nesting
from memopt.instrumentation.hyperblocks import hyperblocks
from tests.support.graphs import drawn, graph_of


@pytest.mark.parametrize("seed", range(300))
def test_any_walk_enters_them_at_their_first_block_and_in_one_iteration(seed: int) -> None:
    graph, source = drawn(seed), random.Random(seed)
    nesting = find_nesting(graph)
    innermost, headers = nesting.innermost, {loop.header for loop in nesting.loops}
    first = {b for b in graph.blocks if source.random() < 0.2}
    sizes = {b: source.randrange(5) for b in graph.blocks}
    made = hyperblocks(graph, nesting, first, sizes, 8)
    assert sorted(b for blocks in made.values() for b in blocks) == sorted(graph.blocks)
    of = {b: root for root, blocks in made.items() for b in blocks}
    for root, blocks in made.items():
        assert blocks[0] == root
        assert sum(sizes[b] for b in blocks) <= 8
        assert not (first | headers) & set(blocks[1:])
        assert {innermost.get(b) for b in blocks} == {innermost.get(root)}
    block = graph.entry
    for _ in range(200):
        following = graph.successors(block)
        if not following:
            break
        after = source.choice(following)
        if of[after] != after:
            assert of[after] == of[block]
            assert made[of[block]].index(block) < made[of[block]].index(after)
        block = after


def test_both_ways_around_a_block_are_in_one() -> None:
    graph = graph_of({1: (2,), 2: (3, 4), 3: (4,), 4: (2, 5), 5: ()})
    made = hyperblocks(graph, find_nesting(graph), (), dict.fromkeys(graph.blocks, 1), 9)
    assert {root: set(blocks) for root, blocks in made.items()} == {1: {1}, 2: {2, 3, 4}, 5: {5}}
