"""The element size of a modelled copy, and when copying forwards gives what the function gives."""

from __future__ import annotations

import pytest

from memopt.ir.linear import Linear
from memopt.lifting.execution.copy_operators import COPY_OPERATORS
from memopt.lifting.values.algebra import AssumeEqual
from memopt.lifting.values.values import constant_of
from tests.support.numbers import X, algebra

C = Linear.symbol("c:1")
P = Linear.symbol("p")


def granule(size: Linear, x: int = 5, trial: int = 0) -> int | None:
    tool = algebra(x)
    tool.trial = trial
    return constant_of(COPY_OPERATORS["granule"](tool, (size,)))


@pytest.mark.parametrize(("size", "elements"), [
    (Linear.of(24), 8), (Linear.of(12), 4), (Linear.of(6), 2), (Linear.of(7), 1), (C * 8 + 16, 8), (X * 16 + 4, 4),
    (C * 4 + X * 12, 4), (C * 3, 1), (C * 2 + 8, 2)])
def test_elements_are_as_large_as_the_size_allows_whatever_its_symbols_are(size: Linear, elements: int) -> None:
    assert granule(size) == elements
    for c in range(9):
        assert size.evaluate({"c:1": c, "x": 3 * c + 1}) % elements == 0


def test_a_size_that_promises_little_is_specialised() -> None:
    for size in (X, X * 2):
        with pytest.raises(AssumeEqual) as need:
            granule(size, 16)
        assert need.value.linear == size
    assert granule(C + X, 16) == 1  # a counter has no number to specialise on


def test_there_is_no_loop_in_a_trial() -> None:
    assert granule(X, trial=1) == 0


@pytest.mark.parametrize(("distance", "holds"), [
    (-8, True), (0, True), (40, True), (41, True), (8, False), (39, False)])
def test_the_destination_may_not_begin_inside_of_the_source(distance: int, holds: bool) -> None:
    """A copy of 40 bytes from p to p + x."""
    tool = algebra(distance)
    assert constant_of(COPY_OPERATORS["forwards"](tool, (P + X, P, Linear.of(40)))) == 1
    (obligation,) = tool.obligations
    assert (obligation.linear.evaluate(tool.sample) >= 0) == holds


@pytest.mark.parametrize("captured", [-8, 80])
def test_it_must_stay_on_the_side_where_it_was_captured(captured: int) -> None:
    tool = algebra(captured)
    COPY_OPERATORS["forwards"](tool, (P + X, P, Linear.of(40)))
    (obligation,) = tool.obligations
    for other in range(-100, 100):
        if obligation.linear.evaluate({"x": other}) >= 0:
            assert not 0 < other < 40
            assert (other > 0) == (captured > 0)
