"""Bit fields: parts, joins and masks of random values have the bits that the machine's operations have."""

from __future__ import annotations

import random

import pytest

from memopt.lifting.values.bits import base_and_offset, bitwise, concat, extract, inverted, mask, select, zext
from memopt.lifting.values.canonical import canonical
from memopt.lifting.values.values import Loaded, Node
from tests.support.packed import bits_of, drawn
from tests.support.towers import tower


@pytest.mark.parametrize("seed", range(40))
def test_each_operation_has_the_bits_of_its_definition(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(30):
        width = source.choice((16, 32, 64))
        left, right = (canonical(drawn(source, 3, width)) for _ in range(2))
        one, two, most = bits_of(left), bits_of(right), (1 << width) - 1
        size = source.choice([n for n in (1, 8, 16, 32) if n <= width])
        low = source.randrange(width - size + 1)
        assert bits_of(extract(left, low, size)) == one >> low & ((1 << size) - 1)
        truth = extract(left, low, 1)
        assert bits_of(mask(truth, width)) == (most if one >> low & 1 else 0)
        assert bits_of(inverted(truth)) == 1 - (one >> low & 1)
        assert bits_of(select(truth, left, right)) == (one if one >> low & 1 else two)
        assert bits_of(bitwise("and", (left, right))) == one & two
        assert bits_of(bitwise("or", (left, right))) == one | two
        assert bits_of(bitwise("xor", (left, right))) == one ^ two
        assert bits_of(bitwise("not", (left,))) == one ^ most
        assert bits_of(zext(left, 64)) == one
        if width < 64:
            assert bits_of(concat(left, right)) == one << width | two


def test_parts_of_parts_are_parts_of_the_base() -> None:
    cell = Loaded(0, 64)
    part = extract(extract(cell, 8, 32), 8, 8)
    assert base_and_offset(part) == (cell, 16)
    assert concat(extract(cell, 32, 32), extract(cell, 0, 32)) == cell
    assert concat(extract(cell, 0, 32), extract(cell, 32, 32)) != cell


def test_a_blend_by_masks_is_a_select() -> None:
    less = Node("flt", (Loaded(0, 64), Loaded(1, 64)), 1)
    chosen = mask(less, 64)
    first, second = (bitwise("and", (m, Loaded(n, 64))) for m, n in ((chosen, 1), (bitwise("not", (chosen,)), 2)))
    assert bitwise("or", (first, second)) == Node("select", (less, Loaded(1, 64), Loaded(2, 64)), 64)


def test_time_grows_with_the_parts_that_values_share_not_with_their_trees() -> None:
    data_sum = tower("add", Loaded(1, 64), 100)
    assert (extract(data_sum, 0, 32) == tower("add", extract(Loaded(1, 64), 0, 32),
                                              100)) is True  # as text it has no end
