"""Blocks of memory in made-up traces."""

from __future__ import annotations

import random

import numpy
import pytest

from memopt.traces.allocations import Allocation, Allocations
from memopt.traces.allocators import allocates
from memopt.traces.core.format import BLOCK, EXTRA, AccessShape, BlockShape

_NAMES = ("malloc", "__libc_calloc", "realloc", "_ZnwmX")
SHAPES = [BlockShape(None, False, True, (AccessShape(8, True, False),), allocates(name)) for name in _NAMES]
BEHIND = len(SHAPES)  # the number of a block behind a call


def entry(kind: int, node: int, first: int, second: int) -> list[int]:
    return [BLOCK << 48 | kind, node, EXTRA << 48 | first, EXTRA << 48 | second, 7 << 20]


def behind(node: int, result: int) -> list[int]:
    return [BLOCK << 48 | BEHIND, node, EXTRA << 48 | result]


def read(words: list[int], pieces: int = 1) -> list[Allocation]:
    found = Allocations()
    found.know([*SHAPES, BlockShape(None, False, False, ())], [])
    for piece in numpy.array_split(numpy.array(words, numpy.uint64), pieces):
        found.feed(piece)
    return sorted(found.all(), key=lambda a: a.address)


@pytest.mark.parametrize("seed", range(30))
def test_blocks_have_the_sizes_and_nodes_of_their_calls(seed: int) -> None:
    draw = random.Random(seed)
    words, expected = behind(64, 5), {}
    for _ in range(draw.randrange(1, 3000)):
        caller, kind = draw.randrange(100, 200), draw.randrange(4)
        node = 1000 + 8 * draw.randrange(9)
        first, second, address = draw.randrange(1, 99), draw.randrange(1, 99), 4096 + 16 * draw.randrange(2000)
        words += entry(kind, node, first, second)
        for _ in range(draw.randrange(3)):  # what it calls
            words += behind(draw.choice((node, node + 5)), draw.randrange(99))
        if draw.random() < 0.2:  # it hands its work on
            words += entry(0, node + 4, 33, 1)
        words += behind(caller, address)
        if kind < 3:
            expected[address] = Allocation(address, (first, first * second, second)[kind], node)
        elif words[-8:-7] == [BLOCK << 48]:
            expected[address] = Allocation(address, 33, node + 4)
    assert read(words, draw.randrange(1, 9)) == [expected[address] for address in sorted(expected)]


def test_one_that_fails_has_no_block() -> None:
    assert read([*entry(0, 1000, 8, 0), *behind(100, 0), *behind(100, 4096)]) == []


@pytest.mark.parametrize(("name", "known"), [
    ("malloc", True), ("__libc_malloc", True), ("__calloc", True), ("_int_malloc", False), ("free", False),
    ("", False)])
def test_names(name: str, known: bool) -> None:
    assert (allocates(name) != 0) is known
