"""Patterns of addresses, expanded again from their text."""

from __future__ import annotations

import random

import numpy
import pytest

from memopt.traces import notation, pattern_levels
from memopt.traces.core.format import BLOCK, AccessShape, BlockShape
from memopt.traces.notation import affine, expanded, needed, written
from memopt.traces.patterns import Kind, Pattern
from memopt.traces.streams import Stream, Streams
from tests.support.effort import some

BASE = 1 << 30


def found(addresses: list[int], size: int = 8, pieces: int = 1) -> tuple[Stream, list[Pattern]]:
    seen = Streams()
    seen.know([BlockShape(None, False, True, (AccessShape(size, True, False),))], [])
    trace = numpy.array([(BLOCK << 48, 16, BASE + a) for a in addresses], numpy.uint64).ravel()
    for piece in numpy.array_split(trace, pieces):
        seen.feed(piece)
    (stream,) = seen.all()
    return stream, seen.patterns()


def again(stream: Stream, made: list[Pattern]) -> list[int]:
    assert stream.parts is not None
    names = {n: written(made, n) for n in needed(made, {number for _, number in stream.parts})}
    whole = [(address, expanded(f"[ID{number}]", names, address), number) for address, number in stream.parts]
    for address, found, number in whole:
        for most in (1, len(found) // 2 + 1, 2 * len(found)):
            assert list(expanded(f"[ID{number}]", names, address, most)) == list(found[:most])
    return [int(a) - BASE for _, found, _ in whole for a in found]


def in_full(made: list[Pattern], number: int) -> str:
    return written(made, number, lambda inner: in_full(made, inner))


def texts(stream: Stream, made: list[Pattern]) -> list[str]:
    assert stream.parts is not None
    return [in_full(made, number) for _, number in stream.parts]


def nest(draw: random.Random, depth: int) -> list[int]:
    if depth == 0:
        return [0]
    inner = nest(draw, depth - 1)
    if draw.random() < 0.3:
        inner = inner + [a + draw.choice((8, 64, -16, 1000)) for a in nest(draw, depth - 1)]
    stride, count = draw.choice((8, 8, 16, 0, -8, 800, 24)), draw.randrange(1, 9)
    return [a + stride * i for i in range(count) for a in inner]


@pytest.mark.parametrize("seed", some(range(120), 30))
def test_random_nests_expand_to_their_addresses(seed: int) -> None:
    draw = random.Random(seed)
    addresses = nest(draw, draw.randrange(1, 5))
    if draw.random() < 0.3:
        addresses = [a + draw.choice((0,) * 9 + (8,)) for a in addresses]
    stream, made = found(addresses, pieces=draw.randrange(1, 9))
    assert again(stream, made) == addresses
    assert stream.parts is not None
    assert sum(made[number].accesses for _, number in stream.parts) == len(addresses)


def test_loops_around_loops_are_one_pattern_with_a_level_each() -> None:
    """The rows of a block of 4 x 5 x 67 floats in a grid, as published."""
    addresses = [20000 * z + 516 * y + 4 * x for z in range(4) for y in range(5) for x in range(67)]
    stream, made = found(addresses, size=4)
    assert texts(stream, made) == [
        "[[4x67,(+248+4x67)*4],(+17668+[4x67,(+248+4x67)*4])*3]"]
    assert stream.parts is not None
    ((_, number),) = stream.parts
    assert made[number].level == 2
    assert affine(made, number) == "20000 i0 + 516 i1 + 4 i2, i0 < 4, i1 < 5, i2 < 67"


@pytest.mark.parametrize(("addresses", "expected"), [
    ([0], ["8x1"]),
    ([0, 8, 16], ["8x3"]),
    ([0, 0, 0, 0], ["[8x1,(-8+8x1)*3]"]),
    ([0, 40, 80], ["[8x1,(+32+8x1)*2]"]),
    ([0, 8, 40, 48, 80, 88], ["[8x2,(+24+8x2)*2]"]),
    ([100 * i + a for i in range(4) for a in (0, 40)], ["[[8x1,+32+8x1],(+52+[8x1,+32+8x1])*3]"]),
    ([0, 8, 16, 1000], ["8x3", "8x1"]),
])
def test_base_patterns(addresses: list[int], expected: list[str]) -> None:
    stream, made = found(addresses)
    assert texts(stream, made) == expected


def test_a_sequence_of_different_patterns_that_comes_again_is_one() -> None:
    rows = [9, 7, 5, 3]
    addresses = [10_000 * again + 1000 * row + 8 * x for again in range(20) for row, n in enumerate(rows)
                 for x in range(n)]
    stream, made = found(addresses)
    (text,) = texts(stream, made)
    sequence = "[8x9,+928+8x7,+944+8x5,+960+8x3]"
    assert text == f"[{sequence},(+6976+{sequence})*19]"


def test_what_is_not_regular_has_no_patterns_and_the_rest_has() -> None:
    draw = random.Random(1)
    seen = Streams()
    shape = AccessShape(8, True, False)
    seen.know([BlockShape(None, False, True, (shape, shape))], [])
    count = 3 * pattern_levels.MOST_PARTS
    seen.feed(numpy.array([(BLOCK << 48, 16, 8 * draw.randrange(1 << 30), 1 << 48 | BASE + 8 * n)
                           for n in range(count)], numpy.uint64).ravel())
    wild, tame = seen.all()
    assert wild.parts is None
    assert wild.count == tame.count == count
    assert texts(tame, seen.patterns()) == [f"8x{count}"]


def test_many_different_patterns_outgrow_their_tables() -> None:
    """Rows that get longer and longer: a pattern each, of 40 accesses."""
    seen = Streams()
    seen.know([BlockShape(None, False, True, tuple(AccessShape(8, True, False) for _ in range(40)))], [])
    words = []
    for row in range(600):
        for x in range(row + 1):
            words += [BLOCK << 48, 16,
                      *(index << 48 | BASE + 10_000 * row + (8 + index % 2) * x for index in range(40))]
    for piece in numpy.array_split(numpy.array(words, numpy.uint64), 7):
        seen.feed(piece)
    streams, made = list(seen.all()), seen.patterns()
    for index, stream in enumerate(streams):
        assert again(stream, made) == [10_000 * row + (8 + index % 2) * x for row in range(600) for x in range(row + 1)]


@pytest.mark.parametrize("text", [
    "", "8x", "[8x1", "[8x1,8x1]", "[8x1,(+8+8x1)]", "8x1,", "[8x1,+8+]", "[8x1,(8x1)*2]"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"should|too early|no part"):
        notation.expanded(text, {})


def test_pairs_have_no_affine_form() -> None:
    stream, made = found([100 * i + a for i in range(4) for a in (0, 40)])
    assert stream.parts is not None
    ((_, number),) = stream.parts
    assert affine(made, number) is None
    assert {made[n].kind for n in needed(made, {number})} == {Kind.DATUM, Kind.PAIR, Kind.RUN}
