"""Dependences where accesses are wide, and 64 bytes are kept as one."""

from __future__ import annotations

import random

import numpy
import pytest

from memopt.traces.core.format import BLOCK, Access, AccessShape, BlockShape
from memopt.traces.dependences.dependences import Dependences
from memopt.traces.dependences.shadow_memory import FREE_LINES
from memopt.traces.dependences.shadow_strips import CACHE
from tests.support.dependence_model import Model, counts_in, found_in
from tests.support.effort import some


@pytest.mark.parametrize("seed", some(range(30), 8))
def test_lines_of_wide_accesses(seed: int) -> None:
    """At any address, by few or many instructions, mostly reads; some of the seeds have narrow ones later, and all
    have bytes that the same instruction reads with different others."""
    chance, model, seen = random.Random(seed), Model(), Dependences()
    wide = [AccessShape(chance.choice((12, 16, 24, 32, 32, 64)), *chance.choice(((True, False),) * 6 + ((False, True),
            (True, True)))) for _ in range(chance.choice((4, 12, 40)))]
    narrow = [AccessShape(chance.choice((1, 2, 4, 8)), *chance.choice(((True, False), (False, True))))
              for _ in range(20)]
    block = BlockShape(0, True, True, (*wide, *narrow))
    seen.know([block], [(None, 1)])
    words, begins = [], 4096 - 100
    places = [chance.randrange(250) for _ in range(chance.choice((3, 10, 200)))]
    for iteration in range(240):
        words += [BLOCK << 48, 16]
        for index, shape in enumerate(block.accesses):
            late = index >= len(wide) and (seed % 3 or iteration < 160)
            if not late and chance.random() < 0.15:
                address = begins + chance.choice(places)
                words.append(index << 48 | address)
                model.access(shape, Access(16, 0, index), address, (((16, 0), 0, iteration),), iteration)
    seen.feed(numpy.array(words, numpy.uint64))
    assert found_in(seen) == model.found
    assert counts_in(seen) == model.counted([block])


def test_entries_of_a_line_find_room_until_there_are_too_many() -> None:
    """All rooms there are have been given up for larger ones, and the last one for cells."""
    sites, model, seen, words = 90, Model(), Dependences(), []
    block = BlockShape(0, True, True, (AccessShape(32, True, False),) * sites + (AccessShape(64, False, True),))
    seen.know([block], [(None, 1)])
    for iteration in range(3):
        words += [BLOCK << 48, 16]
        for index in (*range(sites), sites, *range(iteration)):
            address = 4096 + (index % 29 if index < sites else 0)
            words.append(index << 48 | address)
            model.access(block.accesses[index], Access(16, 0, index), address, (((16, 0), 0, iteration),), iteration)
    seen.feed(numpy.array(words, numpy.uint64))
    assert numpy.all(seen._state[FREE_LINES:FREE_LINES + 5] > 0)
    assert found_in(seen) == model.found
    assert counts_in(seen) == model.counted([block])


def test_lines_of_pages_that_share_a_row_of_the_cache() -> None:
    """One of them is in cells when another page is met, and still is when it is met again."""
    model, seen, words = Model(), Dependences(), []
    block = BlockShape(0, True, True, (AccessShape(1, False, True),) * 8 + (AccessShape(1, True, False),) * 8)
    seen.know([block], [(None, 1)])
    for iteration in range(4):
        words += [BLOCK << 48, 16]
        for page in range(3):
            for index in range(16):
                address = (1 << 30) + (page * CACHE << 12) + (index + iteration) % 8
                words.append(index << 48 | address)
                model.access(block.accesses[index], Access(16, 0, index), address, (((16, 0), 0, iteration),),
                             iteration)
    seen.feed(numpy.array(words, numpy.uint64))
    assert found_in(seen) == model.found
    assert counts_in(seen) == model.counted([block])
