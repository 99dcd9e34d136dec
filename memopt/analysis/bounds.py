"""Bounds of linear expressions over all iterations of a nest, and over the iterations that remain.

Counters are eliminated from the innermost outwards: a counter lies between 0 and its largest value, which may depend
on counters further out (triangles). Where a loop does not run for some outer iteration, those iterations are counted
all the same, so every bound here is conservative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memopt.ir.linear import Linear
from memopt.ir.scop import TRIPS

Ranges = Mapping[str, Linear]  # counter -> its largest value


def least(linear: Linear, ranges: Ranges) -> Linear:
    """A lower bound without the counters of ``ranges``."""
    while True:
        symbol = _innermost(linear, ranges)
        if symbol is None:
            return linear
        coefficient = linear.coefficient(symbol)
        linear = linear.without(symbol)
        if coefficient < 0:
            linear = linear + ranges[symbol] * coefficient


def greatest(linear: Linear, ranges: Ranges) -> Linear:
    return -least(-linear, ranges)


def least_where(linear: Linear, ranges: Ranges, conditions: Iterable[Linear], sample: Mapping[str, int]) -> Linear:
    """A lower bound of ``linear`` where every one of ``conditions`` is >= 0: the highest found at ``sample``."""
    conditions = tuple(conditions)
    best, reduced = least(linear, ranges), linear
    improved = True
    while improved:
        improved = False
        for condition in conditions:
            for factor in _factors(reduced, condition):
                bound = least(reduced - condition * factor, ranges)
                if bound.evaluate(sample) > best.evaluate(sample) or (bound.is_constant and not best.is_constant):
                    best, reduced, improved = bound, reduced - condition * factor, True
    return best


def _factors(linear: Linear, condition: Linear) -> set[int]:
    """Multiples of ``condition`` that take a symbol out of ``linear``."""
    found = {divmod(linear.coefficient(s), c) for s, c in condition.terms}
    return {factor for factor, rest in found if factor > 0 and not rest}


def _innermost(linear: Linear, ranges: Ranges) -> str | None:
    """A counter of ``linear`` that bounds no other of its counters."""
    present = [s for s, _ in linear.terms if s in ranges]
    for symbol in present:
        if not any(symbol in _outer(other, ranges) for other in present if other != symbol):
            return symbol
    return None


def _outer(counter: str, ranges: Ranges) -> set[str]:
    """The counters that the largest value of ``counter`` depends on, at whatever distance."""
    found: set[str] = set()
    pending = [counter]
    while pending:
        for symbol in ranges[pending.pop()].symbols:
            if symbol in ranges and symbol not in found:
                found.add(symbol)
                pending.append(symbol)
    return found


def proved(linear: Linear, longest: int | None = None) -> bool:
    """Whether ``linear`` over R is >= 0 for every R."""
    number = number_at_least(linear, longest)
    return number is not None and number >= 0


def number_at_least(linear: Linear, longest: int | None) -> int | None:
    """A number that ``linear`` over R never falls below, for 2 <= R <= ``longest``; None when there is none."""
    slope = linear.coefficient(TRIPS)
    if slope >= 0:
        at = 2
    elif longest is not None:
        at = max(longest, 2)
    else:
        return None
    rest = linear.without(TRIPS)
    return rest.constant + slope * at if rest.is_constant else None
