"""Reuse distances, held against a list of lines in the order of their last touch."""

from __future__ import annotations

import random

import numpy
import pytest

from memopt.traces import reuse_distance
from memopt.traces.core.format import BLOCK, LINE, PAGE, AccessShape, BlockShape
from memopt.traces.reuse_distance import COLD, Reuses


def expected(accesses: list[tuple[int, int, int]]) -> dict[int, list[int]]:
    """By access: columns. ``accesses``: (access, address, bytes)."""
    order: list[int] = []
    found: dict[int, list[int]] = {}
    for access, address, size in accesses:
        row = found.setdefault(access, [0] * 48)
        for line in range(address // LINE, (address + size - 1) // LINE + 1) if size else ():
            if line in order:
                row[(len(order) - 1 - order.index(line)).bit_length()] += 1
                order.remove(line)
            else:
                row[COLD] += 1
            order.append(line)
    return found


def found(accesses: list[tuple[int, int, int]], shapes: tuple[AccessShape, ...],
          pieces: int = 1) -> dict[int, list[int]]:
    seen = Reuses()
    seen.know([BlockShape(None, False, True, shapes)], [])
    words = []
    for access, address, size in accesses:
        words += [BLOCK << 48, 16, access << 48 | address]
        if shapes[access].repeated:
            words.append(size // shapes[access].size)
    for piece in numpy.array_split(numpy.array(words, numpy.uint64), pieces):
        seen.feed(piece)
    return {r.access.index: [*r.counts, r.cold] for r in seen.all()}


@pytest.mark.parametrize("seed", range(40))
def test_distances_are_those_of_the_stack(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    shapes = (AccessShape(8, True, False), AccessShape(32, False, True), AccessShape(4, False, True, repeated=True))
    lines = draw.choice((5, 40, 400))
    accesses = []
    at = 0
    for _ in range(3000):
        access = draw.choices((0, 1, 2), (8, 3, 1))[0]
        at = draw.choice((at + 8, at + 64, draw.randrange(lines * LINE), at)) % (lines * LINE)
        accesses.append((access, (1 << 30) + at, 4 * draw.randrange(200) if access == 2 else shapes[access].size))
    assert found(accesses, shapes, draw.randrange(1, 9)) == expected(accesses)


def test_an_access_that_there_must_be_more_room_for_in_the_middle_touches_each_line_once() -> None:
    shapes = (AccessShape(8, True, False), AccessShape(16, True, False))
    accesses = [row for page in range(2500)
                for row in ((0, PAGE * page, 8), (1, PAGE * page + LINE - 8, 16))]  # the first line is the newest
    assert found(accesses, shapes) == expected(accesses)


def test_the_tree_is_numbered_anew_and_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Reuses()
    seen._tree = numpy.zeros(65, numpy.int64)
    seen.know([BlockShape(None, False, True, (AccessShape(8, True, False),))], [])
    draw = random.Random(2)
    accesses = [(0, LINE * draw.choice((draw.randrange(300), draw.randrange(20))), 8) for _ in range(4000)]
    seen.feed(numpy.array([(BLOCK << 48, 16, address) for _, address, _ in accesses], numpy.uint64).ravel())
    (row,) = seen.all()
    assert [*row.counts, row.cold] == expected(accesses)[0]
    assert len(seen._tree) > 65


def test_a_sweep_over_more_lines_than_a_cache_has_no_hits_in_it() -> None:
    accesses = [(0, LINE * line, 8) for _ in range(3) for line in range(1000)]
    row = found(accesses, (AccessShape(8, True, False),))[0]
    assert row[COLD] == 1000
    assert row[reuse_distance._column.py_func(999)] == 2000
