"""Quotients in linear expressions: rounded down, in one form, and never taken for something linear."""

from __future__ import annotations

import random

import pytest

from memopt.ir.linear import Linear, quotient
from memopt.ir.reasons import Rejected

C, N = Linear.symbol("c:i"), Linear.symbol("n")


@pytest.mark.parametrize("seed", range(50))
def test_a_quotient_is_rounded_down(seed: int) -> None:
    chance = random.Random(seed)
    number = Linear.build({"c:i": chance.randrange(-9, 10), "n": chance.randrange(-9, 10)}, chance.randrange(-50, 50))
    divisor = chance.choice((2, 3, 4, 8))
    for _ in range(20):
        values = {"c:i": chance.randrange(-20, 20), "n": chance.randrange(-99, 99)}
        assert quotient(number, divisor).evaluate(values) == number.evaluate(values) // divisor
        moved = {"c:i": C * 3 + 5, "n": N - C}
        assert (quotient(number, divisor) * 5 + 1).substitute(moved).evaluate(values) == (
            number.substitute(moved).evaluate(values) // divisor * 5 + 1)


def test_what_divides_evenly_is_no_quotient() -> None:
    assert quotient(C * 4 - N * 2 + 7, 2) == C * 2 - N + 3
    assert quotient(N - C + 9, 4) - quotient(N - C + 1, 4) == Linear.of(2)


def test_what_a_quotient_depends_on_has_no_coefficient() -> None:
    rounded = quotient(N - C, 2) + C
    assert rounded.symbols >= {"n", "c:i"}
    for forbidden in (rounded.coefficient, rounded.without):
        with pytest.raises(Rejected):
            forbidden("c:i")
    assert rounded.coefficient("c:j") == 0
