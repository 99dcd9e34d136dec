"""Bounds over random nests of triangular loops, against all their iterations."""

from __future__ import annotations

import random

import pytest

from memopt.ir.linear import Linear, product, quotient
from memopt.lifting.values.bounds import (
    Limits,
    contradictory,
    greatest,
    is_bit,
    is_remainder,
    least,
    necessary,
    number_at_least,
    sign_where,
    sufficient,
)

X, J, R = Linear.symbol("i"), Linear.symbol("j"), Linear.symbol("R")


def test_a_counter_below_an_outer_one() -> None:
    ranges = {"i": R - 1, "j": X - 1}
    assert least(X - J, ranges) == Linear.of(1)
    assert greatest(J, ranges) == R - 2
    assert least(J * 3 + 5, ranges) == Linear.of(5)


@pytest.mark.parametrize("seed", range(40))
def test_no_iteration_is_outside(seed: int) -> None:
    source = random.Random(seed)

    def some(*symbols: str) -> Linear:
        return Linear.build({s: source.randrange(-2, 3) for s in symbols}, source.randrange(-4, 8))

    ranges = {"i": Linear.of(source.randrange(6)), "j": some("i"), "k": some("i", "j")}
    expression = some("i", "j", "k")
    low, high = least(expression, ranges), greatest(expression, ranges)
    assert low.is_constant
    assert high.is_constant
    for i in range(ranges["i"].constant + 1):
        for j in range(ranges["j"].evaluate({"i": i}) + 1):
            for k in range(ranges["k"].evaluate({"i": i, "j": j}) + 1):
                assert low.constant <= expression.evaluate({"i": i, "j": j, "k": k}) <= high.constant


@pytest.mark.parametrize("seed", range(60))
def test_no_iteration_is_outside_where_counters_are_multiplied_with_strides(seed: int) -> None:
    source = random.Random(seed)

    def some(*symbols: str) -> Linear:
        return Linear.build({s: source.randrange(-2, 3) for s in symbols}, source.randrange(-4, 8))

    ranges = {"i": some("n"), "j": some("i", "m")}
    expression = some("i", "j", "n") + product(some("i", "j"), some("s", "t"))
    low, high = least(expression, ranges), greatest(expression, ranges)
    assert not (low.symbols | high.symbols) & ranges.keys()
    for _ in range(60):
        values = {"n": source.randrange(5), "m": source.randrange(5), "s": source.randrange(1, 9),
                  "t": source.randrange(1, 9)}
        for i in range(ranges["i"].evaluate(values) + 1):
            for j in range(ranges["j"].evaluate(values | {"i": i}) + 1):
                found = expression.evaluate(values | {"i": i, "j": j})
                assert low.evaluate(values) <= found <= high.evaluate(values)


def test_the_distance_of_rows_outweighs_columns() -> None:
    """A row has a length of at least 1, so 8*n - 8 is not negative, and the first row is the lowest."""
    n = Linear.symbol("n")
    assert least(product(X, n) * 8 - X * 8 + 5, {"i": R - 1}) == Linear.of(5)
    assert greatest(product(X, n) * 8 - X * 8, {"i": R - 1}) == product(R - 1, n * 8 - 8)
    assert least(product(X, n) * 8 - X * 9, {"i": R - 1}) == -(R - 1) * 9
    assert number_at_least(product(R, n) * 8 - 20, Limits(facts=(n - 1,))) == -4
    assert number_at_least(product(R, n) * -8, Limits(facts=(n - 1,))) is None


def test_bounds_over_the_iterations_that_remain() -> None:
    assert number_at_least(R * 3 - 1) == 5
    assert number_at_least(-R + 10) is None
    assert number_at_least(-R + 10, Limits(8)) == 2
    assert number_at_least(R + X, Limits(8)) is None
    assert number_at_least(X - 1, Limits(facts=(X - R,))) == 1
    assert number_at_least(X * -2, Limits(facts=(X - R, -X + 40))) == -80


@pytest.mark.parametrize("seed", range(60))
def test_signs_of_rounded_expressions(seed: int) -> None:
    """``sufficient`` and ``necessary`` against all values; ``least`` never lies above a value."""
    chance = random.Random(seed)
    n, i = Linear.symbol("n"), Linear.symbol("c:i")
    divisor = chance.choice((2, 4))
    rounded = quotient(n - i + chance.randrange(4), divisor)
    factor = chance.choice((1, -1, 2, -2, 4, -4, 3, -3, 8))
    linear = rounded * factor + n * chance.randrange(-3, 4) + i * chance.randrange(-3, 4) + chance.randrange(-9, 9)
    below = least(linear.substitute({"n": Linear.of(17)}), {"c:i": Linear.of(12)})
    for values in ({"n": a, "c:i": b} for a in range(-5, 20) for b in range(13)):
        true = linear.evaluate(values) >= 0
        assert sufficient(linear).evaluate(values) < 0 or true
        assert necessary(linear).evaluate(values) >= 0 or not true
        if abs(factor) == 1:
            assert (sufficient(linear).evaluate(values) >= 0) == true
        if values["n"] == 17:
            assert below.evaluate(values) <= linear.evaluate(values)


@pytest.mark.parametrize("seed", range(120))
def test_signs_where_conditions_hold(seed: int) -> None:
    """Never claimed where it is wrong, for expressions and conditions with remainders."""
    chance = random.Random(seed)
    n, i = Linear.symbol("n"), Linear.symbol("c:i")

    def some() -> Linear:
        rounded = quotient(n - i + chance.randrange(4), chance.choice((2, 4)))
        return rounded * chance.choice((1, -1, 2, -4)) + n * chance.randrange(-1, 2) + i * chance.randrange(-1, 2) + (
            chance.randrange(-3, 4))

    linear, conditions = some(), [some() for _ in range(chance.randrange(4))]
    bound = sign_where(linear, {}, conditions, {"n": 10, "c:i": 3})
    if bound.is_constant and bound.constant >= 0:
        for values in ({"n": a, "c:i": b} for a in range(-9, 20) for b in range(-9, 20)):
            assert linear.evaluate(values) >= 0 or any(c.evaluate(values) < 0 for c in conditions)


def test_signs_that_follow_from_the_strongest_condition() -> None:
    n = Linear.symbol("n")
    half = quotient(n, 2)
    assert sign_where(half - 2, {}, (n, n - 3, n - 4), {"n": 3}) == Linear()
    quarter = quotient(n + 2, 4)
    assert sign_where(half - quarter * 2, {}, (n - quarter * 4,), {"n": 3}) == Linear()
    assert sign_where(-n, {}, (n - 4, -n + 3), {"n": 3}) == Linear()  # there is no such n


@pytest.mark.parametrize("divisor", [2, 3, 4, 8])
def test_remainders_are_told_from_other_differences(divisor: int) -> None:
    number = X + J * divisor + 5
    rest = number - quotient(number, divisor) * divisor
    assert is_remainder(rest)
    assert is_bit(rest) == (divisor == 2)
    for other in (rest + 1, -rest, rest * 2, number - quotient(number, divisor), X - J):
        assert not is_remainder(other)


def test_conditions_that_contradict_each_other() -> None:
    assert contradictory((J, X - 3, -X + 2))
    assert not contradictory((J, X - 3, -X + 3))
    assert not contradictory((X - 3, -J + 2))
    assert not contradictory((X,))
