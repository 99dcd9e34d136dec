"""Quotients and products in linear expressions: exact, in one form, and never taken for something linear."""

from __future__ import annotations

import pickle
import random

import pytest

from memopt.ir.linear import Linear, product, quotient
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


@pytest.mark.parametrize("seed", range(50))
def test_a_product_is_multiplied_out(seed: int) -> None:
    chance = random.Random(seed)

    def some(*symbols: str) -> Linear:
        return Linear.build({s: chance.randrange(-5, 6) for s in symbols}, chance.randrange(-9, 10))

    one, two = some("c:i", "n"), some("m", "n")
    moved = {"c:i": some("c:j", "R"), "m": some("m")}
    for _ in range(20):
        values = {s: chance.randrange(-20, 20) for s in ("c:i", "c:j", "m", "n", "R")}
        assert product(one, two).evaluate(values) == one.evaluate(values) * two.evaluate(values)
        assert product(one, two) == product(two, one)
        inside = values | {s: e.evaluate(values) for s, e in moved.items()}
        assert product(one, two).substitute(moved).evaluate(values) == one.evaluate(inside) * two.evaluate(inside)


def test_what_a_product_depends_on_has_no_coefficient() -> None:
    made = product(C + 1, N) * 8
    assert made == product(C, N) * 8 + N * 8
    assert made.symbols == {"c:i", "n"}
    for forbidden in (made.coefficient, made.without):
        with pytest.raises(Rejected):
            forbidden("c:i")
    assert made.factor("n") == 8
    assert made.coefficient("c:j") == 0
    assert made.without(*made.products) == N * 8


@pytest.mark.parametrize("more", [product(C, N), quotient(C, 3)], ids=["a product", "a quotient"])
def test_no_more_than_two_symbols_are_multiplied(more: Linear) -> None:
    with pytest.raises(Rejected):
        product(more, N)
    assert product(more, Linear.of(3)) == more * 3


@pytest.mark.parametrize("linear", [
    quotient(Linear.symbol("a", 3, 1), 2), product(Linear.symbol("a"), Linear.symbol("n")) + Linear.symbol("b", 2)])
def test_pickles_are_equal(linear: Linear) -> None:
    found = pickle.loads(pickle.dumps(linear))
    assert found == linear
    assert found.evaluate({"a": 5, "b": 7, "n": 11}) == linear.evaluate({"a": 5, "b": 7, "n": 11})
