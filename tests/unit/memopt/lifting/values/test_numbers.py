"""Numbers in symbolic execution: when they are specialised, promoted and taken from samples."""

from __future__ import annotations

import pytest

from memopt.ir.linear import Linear
from memopt.lifting.values.algebra import AssumeEqual, PromoteCell
from memopt.lifting.values.values import Integer, Loaded, Node, Value, constant
from tests.support.numbers import X, algebra

WORD = 1 << 64


def test_products_specialise_on_what_is_live_in() -> None:
    tool = algebra()
    with pytest.raises(AssumeEqual) as need:
        tool.compute("mul", (Integer(X, 64), Integer(Linear.symbol("c:1"), 64)), 64)
    assert need.value.linear == X
    square = tool.compute("mul", (Integer(Linear.symbol("c:1"), 64),) * 2, 64)
    assert isinstance(square, Node), "the square of a counter is no linear expression"


def test_a_loaded_number_is_promoted_when_its_address_is_fixed() -> None:
    tool = algebra()
    with pytest.raises(PromoteCell) as need:
        tool.compute("add", (Loaded(1, 32), constant(1, 32)), 32)
    assert (need.value.address, need.value.width) == (Linear.symbol("p"), 32)
    assert isinstance(tool.compute("add", (Loaded(0, 32), constant(1, 32)), 32), Node), "its address is a counter"


def test_live_in_numbers_have_samples_where_the_captured_iteration_does_not_get() -> None:
    """What a counter is there is not known; a live-in value is the same everywhere."""
    tool = algebra(-5)
    tool.given = (Linear.of(-1),)
    assert not tool.reached
    assert tool.in_range(Integer(X, 64), signed=False)[0] == X + WORD
    tool.sample["c:1"] = -5
    assert tool.in_range(Integer(Linear.symbol("c:1"), 64), signed=False)[0] == Linear.symbol("c:1")


def test_a_number_is_looked_for_once_in_each_part() -> None:
    """What is asked for is as without sharing, in time that grows with the parts, not with the tree they stand for."""
    def tower(base: Value) -> Value:
        for _ in range(100):
            base = Node("xor", (base, Node("mul", (base, base), 64)), 64)
        return base

    data, fixed = Loaded(0, 64), Loaded(1, 64)  # at an address that moves, and at one that does not
    tool = algebra()
    assert tool.integer(tower(data)) is None
    with pytest.raises(PromoteCell):
        tool.integer(tower(fixed))
    assert tool.integer(Node("xor", (tower(fixed), tower(data)), 64)) is None  # nothing is asked for in vain
    assert tool.integer(tower(Node("select", (data, data, data), 64))) is None
