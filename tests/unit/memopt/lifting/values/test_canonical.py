"""Canonical form of values: another form of the same bits, in time that grows with the shared parts."""

from __future__ import annotations

import random

import pytest

from memopt.lifting.values.canonical import canonical
from memopt.lifting.values.values import Loaded, Node, Value, constant
from tests.support.packed import bits_of, drawn
from tests.support.recovering import v
from tests.support.towers import tower


@pytest.mark.parametrize(("shift", "kept", "number"), [
    *((0, bits, 0) for bits in (0x01, 0x04, 0x05, 0x40, 0x41, 0x44, 0x45)),
    (0, 0x40, 0x40), (0, 0x04, 0x04), (2, 1, 0), (2, 1, 1), (6, 1, 0), (6, 1, 1), (2, 0x10, 0x10)])
@pytest.mark.parametrize("quiet", ["fcompare", "fqcompare"])
def test_each_test_of_flags_is_a_comparison(quiet: str, shift: int, kept: int, number: int) -> None:
    """``comisd; jp`` and the like, for operands that are below, above, equal, or of which one is a NaN."""
    set_ = Node("zext", (Node("and", (Node(quiet, (v(0), v(1)), 32), constant(0x45, 32)), 32),), 64)
    moved = Node("shr", (set_, constant(shift, 8)), 64) if shift else set_
    found = canonical(Node("eq", (Node("and", (moved, constant(kept, 64)), 64), constant(number, 64)), 1))
    for flags in (0x45, 0x01, 0x00, 0x40):
        assert truth(found, flags) == ((flags >> shift) & kept == number), hex(flags)


def truth(value: Value, flags: int) -> bool:
    """``value``, of comparisons of v(0) and v(1), where they compare like ``flags``."""
    assert isinstance(value, Node)
    less = flags == (0x01 if value.operands[0] == v(0) else 0x00)
    match value.operator:
        case "not":
            return not truth(value.operands[0], flags)
        case "or":
            return truth(value.operands[0], flags) or truth(value.operands[1], flags)
        case "funord" | "fsunord":
            return flags == 0x45
        case "flt" | "fqlt":
            return less
        case "fle" | "fqle":
            return less or flags == 0x40
    raise AssertionError(value)


def test_several_flags_that_are_not_all_0_are_no_comparison() -> None:
    flags = Node("and", (Node("fcompare", (v(0), v(1)), 32), constant(0x41, 32)), 32)
    assert "fcompare" in str(canonical(Node("eq", (flags, constant(0x01, 32)), 1)))


def test_time_grows_with_the_parts_that_values_share_not_with_their_trees() -> None:
    data_sum = tower("add", Loaded(1, 64), 100)
    assert (canonical(data_sum) == data_sum) is True  # as text it has no end


@pytest.mark.parametrize("seed", range(40))
def test_it_has_the_same_bits(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(40):
        value = drawn(source, 4, source.choice((8, 16, 32, 64)))
        assert bits_of(canonical(value)) == bits_of(value), value
