"""Streams of addresses, held against what Python counts."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy
import pytest

from memopt.traces.core.format import BLOCK, LINE, Access, AccessShape, BlockShape
from memopt.traces.streams import PLACES, Stream, Streams


def streams(addresses: list[int], size: int = 8, pieces: int = 1) -> list[Stream]:
    seen = Streams()
    seen.know([BlockShape(None, False, True, (AccessShape(size, True, False),))], [])
    trace = numpy.array([(BLOCK << 48, 16, a) for a in addresses], numpy.uint64).ravel()
    for piece in numpy.array_split(trace, pieces):
        seen.feed(piece)
    return list(seen.all())


@pytest.mark.parametrize("seed", range(20))
def test_few_strides_are_counted_exactly(seed: int) -> None:
    draw = random.Random(seed)
    steps = draw.sample([0, 8, -8, 16, 4096, -24, 3], PLACES)
    taken = draw.choices(steps, (9, 5, 3, 1), k=500)
    addresses = [1 << 20]
    for step in taken:
        addresses.append(addresses[-1] + step)
    (found,) = streams(addresses, pieces=draw.randrange(1, 9))
    assert found == Stream(
        Access(16, 0, 0), 501, min(addresses), max(addresses),
        sum(one == two for one, two in pairwise(taken)), sum(a % 8 > 0 for a in addresses),
        dict(Counter(taken)), found.alignment, found.banks, found.parts)


@pytest.mark.parametrize("step", [1, 8, 12, 64, 96])
def test_where_in_its_line_an_access_begins(step: int) -> None:
    addresses = [4096 + step * n for n in range(100)]
    (found,) = streams(addresses)
    in_line = Counter(a % LINE // 8 for a in addresses)
    assert found.banks == tuple(in_line[bank] for bank in range(8))
    assert found.alignment == step & -step
    (repeated,) = repeats((4096, 100), size=step)
    assert (repeated.banks, repeated.alignment) == (found.banks, found.alignment)


def test_the_stride_of_most_is_never_lost() -> None:
    draw = random.Random(1)
    taken = [8 if draw.random() < 0.6 else draw.randrange(-9999, 9999) for _ in range(3000)]
    addresses = [1 << 20]
    for step in taken:
        addresses.append(addresses[-1] + step)
    (found,) = streams(addresses)
    count = Counter(taken)[8]
    assert count - 600 <= found.strides[8] <= count


def repeats(*runs: tuple[int, int], size: int = 4) -> list[Stream]:
    """Of runs of an access that is repeated: (address, times)."""
    seen = Streams()
    seen.know([BlockShape(None, False, True, (AccessShape(size, False, True, repeated=True),))], [])
    seen.feed(numpy.array([(BLOCK << 48, 16, address, times) for address, times in runs], numpy.uint64).ravel())
    return list(seen.all())


def test_a_repeated_access_is_a_stream_by_itself() -> None:
    (found,) = repeats((4096, 10), (4096, 0), (8192, 1))
    assert (found.count, found.lowest, found.highest, found.steady) == (11, 4096, 8192, 8)
    assert found.strides == {4: 9, 8192 - 4096 - 36: 1}


def test_contexts_have_streams_of_their_own() -> None:
    seen = Streams()
    shape = AccessShape(8, True, False)
    seen.know([BlockShape(None, False, True, (shape, shape)), BlockShape(None, False, True, (shape,))], [])
    trace = [word for node in range(16, 16 * 5000, 16) for word in (
        BLOCK << 48, node, node, 1 << 48 | 2 * node, BLOCK << 48 | 1, node, 3 * node)]
    seen.feed(numpy.array(trace, numpy.uint64))
    assert {(s.access.node, s.access.block, s.access.index): s.lowest for s in seen.all()} == {
        (node, block, index): (1 + block * 2 + index) * node
        for node in range(16, 16 * 5000, 16) for block, index in ((0, 0), (0, 1), (1, 0))}
