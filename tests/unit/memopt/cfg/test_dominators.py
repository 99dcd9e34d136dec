"""Dominators against their definition: a block dominates those that no path reaches without it."""

from __future__ import annotations

import pytest

from memopt.cfg.dominators import dominates, immediate_dominators, immediate_postdominators, reverse_postorder
from tests.support.graphs import drawn_with_dead_blocks, graph_of, reachable_without


@pytest.mark.parametrize("seed", range(60))
def test_dominators_against_their_definition(seed: int) -> None:
    graph = drawn_with_dead_blocks(seed)
    found = immediate_dominators(graph)
    everything = reachable_without(graph, 0)
    assert set(found) == everything == set(reverse_postorder(graph))
    for first in everything:
        cut = everything - reachable_without(graph, first)
        assert {b for b in everything if dominates(found, first, b)} == cut


def test_postdominators_of_a_branch_in_a_loop() -> None:
    diamond = {1: (2, 3), 2: (4,), 3: (4,), 4: (1, 9), 9: ()}
    inside = frozenset((1, 2, 3, 4))
    assert immediate_postdominators(graph_of(diamond), inside) == {1: 4, 2: 4, 3: 4}
    leaving = diamond | {2: (4, 9)}
    assert immediate_postdominators(graph_of(leaving), inside) == {3: 4}
    returning = diamond | {3: ()}
    assert immediate_postdominators(graph_of(returning), inside) == {2: 4}


def test_the_immediate_postdominator_is_the_nearest_one() -> None:
    line = graph_of({1: (2, 3), 2: (3,), 3: (4,), 4: (5,), 5: (1,)})
    assert immediate_postdominators(line, frozenset(line.blocks)) == {1: 3, 2: 3, 3: 4, 4: 5}
