"""Bounds of affine expressions over all iterations of a nest, and over R, the iterations that remain.

Example: for ``for (i < n) for (j <= i)`` the expression i - j has the lower bound 0: j is at most i.

In: an affine expression, for each counter its largest value (the smallest is 0), conditions that are >= 0. Out: an
expression without counters that bounds it. Counters are eliminated from the innermost outwards, because the largest
value of one may depend on outer counters (triangles).
Sound because every bound is conservative: an outer iteration in which the inner loop does not run counts all the same.

A counter may be multiplied with a stride (memopt.ir.linear.Product), as i and n are in ``a[i * n]``. Then the bound has
the largest value of the counter times the stride. That relies on the stride being at least 1, which is an obligation of
whoever makes the product (memopt.lifting.execution.executor).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear, Product, Quotient, product
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import TRIPS

Ranges = Mapping[str, Linear]  # counter -> its largest value


def least(linear: Linear, ranges: Ranges) -> Linear:
    """A lower bound of ``linear``, without the counters of ``ranges`` and without quotients.

    Raises Rejected(NON_AFFINE) where a quotient has no known lower bound.
    """
    return _least(linear, ranges, lambda x: _without_quotient(x, x.quotients[0], ranges))


def sign(linear: Linear, ranges: Ranges) -> Linear:
    """An expression without counters and quotients that is >= 0 only if ``linear`` is in every iteration."""
    return _least(linear, ranges, sufficient)


def _least(linear: Linear, ranges: Ranges, rounded: Callable[[Linear], Linear]) -> Linear:
    """A lower bound of ``linear`` without counters; ``rounded`` eliminates a quotient."""
    while True:
        if linear.quotients:
            linear = rounded(linear)
            continue
        symbol = _innermost(linear, ranges)
        if symbol is None:
            return linear
        linear = _eliminated(linear, symbol, ranges[symbol])


def _eliminated(linear: Linear, counter: str, largest: Linear) -> Linear:
    """A lower bound of ``linear`` without ``counter``, which goes from 0 to ``largest``.

    The factor of the counter is a number plus multiples of strides. A stride is at least 1. So the factor is not
    negative if no multiple is, nor the factor at strides of 1; then the counter is taken for 0. It is not positive in
    the opposite case. In all other cases the number and the multiples are bounded one by one.
    """
    number, multiples = linear.factor(counter), {}
    for made in linear.products:
        if counter in made.factors:
            multiples[made.other(counter)] = linear.factor(made)
    rest = linear.without(counter, *(p for p in linear.products if counter in p.factors))
    if not multiples:
        return rest + largest * min(number, 0)
    if counter in multiples:
        raise Rejected(Reason.NON_AFFINE, "a counter is multiplied with itself")
    factor = Linear.build(multiples, number)
    at_least = number + sum(multiples.values())
    if min(multiples.values()) >= 0 and at_least >= 0:
        return rest
    if max(multiples.values()) <= 0 and at_least <= 0:
        return rest + product(largest, factor)
    negative = Linear.build({s: min(c, 0) for s, c in multiples.items()}, min(number, 0))
    return rest + product(largest, negative)


def _without_quotient(linear: Linear, rounded: Quotient, ranges: Ranges) -> Linear:
    """A lower bound of ``linear`` without the quotient q = floor(n / d) named ``rounded``.

    Its coefficient is often * d + rest. For the first part, d * q is n minus a remainder of at most d - 1. For the
    rest, q is at least its smallest number. Raises Rejected(NON_AFFINE) where that is not known.
    """
    often, rest = divmod(linear.factor(rounded), rounded.divisor)
    linear = Linear(tuple(t for t in linear.terms if t[0] != rounded), linear.constant) + rounded.numerator * often
    linear = linear - max(0, often) * (rounded.divisor - 1)
    if not rest:
        return linear
    number = number_at_least(least(rounded.numerator, ranges))
    if number is None:
        raise Rejected(Reason.NON_AFFINE, f"{rounded.numerator} divided by {rounded.divisor} has no known lower bound")
    return linear + rest * (number // rounded.divisor)


def sufficient(linear: Linear) -> Linear:
    """An expression without quotients that is >= 0 only where ``linear`` is."""
    return _without_quotients(linear, 0)


def necessary(linear: Linear) -> Linear:
    """An expression without quotients that is >= 0 wherever ``linear`` is."""
    return _without_quotients(linear, 1)


def _exactly(linear: Linear) -> Linear:
    """An expression with fewer quotients that is >= 0 exactly where ``linear`` is."""
    while rounded := next((q for q in linear.quotients if linear.factor(q) in (1, -1)), None):
        linear = _multiplied_out(linear, rounded)
    return linear


def _multiplied_out(linear: Linear, rounded: Quotient) -> Linear:
    """An expression without the quotient ``rounded`` = floor(n / d) that is >= 0 exactly where ``linear`` is.

    Precondition: its coefficient is 1 or -1. For integers x, floor(n / d) + x >= 0 is the same as n + d * x >= 0.
    """
    rest = Linear(tuple(t for t in linear.terms if t[0] != rounded), linear.constant) * rounded.divisor
    return rest + (rounded.numerator if linear.factor(rounded) > 0 else -rounded.numerator + (rounded.divisor - 1))


def _without_quotients(linear: Linear, slack: int) -> Linear:
    """``linear`` with (n - remainder) / d in place of each quotient, multiplied out.

    ``slack``: 0 takes the least favourable remainder (a sufficient condition), 1 the most favourable (a necessary one).
    """
    while linear.quotients:
        linear = _tightened(linear)
        rounded = next((q for q in linear.quotients if linear.factor(q) in (1, -1)), linear.quotients[0])
        factor, n, d = linear.factor(rounded), rounded.numerator, rounded.divisor
        rest = Linear(tuple(t for t in linear.terms if t[0] != rounded), linear.constant)
        if factor in (1, -1):
            linear = _multiplied_out(linear, rounded)
            continue
        if factor % d:
            rest = rest * d
        else:
            factor //= d
        linear = rest + n * factor + (max(0, -factor) if slack else -max(0, factor)) * (d - 1)
    return linear


def greatest(linear: Linear, ranges: Ranges) -> Linear:
    """An upper bound of ``linear``, as ``least``."""
    return -least(-linear, ranges)


def sign_where(linear: Linear, ranges: Ranges, conditions: Iterable[Linear], sample: Mapping[str, int]) -> Linear:
    """An expression without counters and quotients that is >= 0 only if ``linear`` is, wherever all of ``conditions``
    are >= 0. Of several such expressions, it is one that is always >= 0, else the largest at ``sample``."""
    conditions = tuple(conditions)
    strongest = _strongest((*conditions, *map(necessary, conditions)))
    if contradictory(strongest):
        return Linear()
    bounds = [_least_where(start, ranges, strongest, sample, sign)
              for start in dict.fromkeys((linear, _exactly(linear), sufficient(linear)))]
    return max(bounds, key=lambda b: (b.is_constant and b.constant >= 0, b.evaluate(sample)))


def least_where(linear: Linear, ranges: Ranges, conditions: Iterable[Linear], sample: Mapping[str, int],
                numbers: bool = True) -> Linear:
    """A lower bound of ``linear`` where every one of ``conditions`` is >= 0.

    Of those found it is the highest at ``sample``; with ``numbers``, a constant one is preferred.
    """
    return _least_where(linear, ranges, _strongest(conditions), sample, least, numbers)


def contradictory(conditions: Iterable[Linear]) -> bool:
    """Whether two of ``conditions`` are never >= 0 together, by their sum."""
    return any((both := one + two).is_constant and both.constant < 0 for one, two in combinations(conditions, 2))


def _without_free(linear: Linear, ranges: Ranges, bound: frozenset[str]) -> Linear:
    """A lower bound of ``linear`` without the innermost counters that no condition has; their ranges eliminate them.

    ``bound``: the symbols of the conditions.
    """
    while not linear.quotients:
        free = Linear(tuple(t for t in linear.terms if bound.isdisjoint(_parts(t[0]))))
        symbol = _innermost(free, ranges)
        if symbol is None or any(symbol in _outer(other, ranges) for other in linear.symbols & ranges.keys()) or any(
                symbol in p.factors and p not in free.products for p in linear.products):
            return linear
        linear = _eliminated(linear, symbol, ranges[symbol])
    return linear


def _parts(symbol: str) -> tuple[str, ...]:
    return symbol.factors if isinstance(symbol, Product) else (symbol,)


def _strongest(conditions: Iterable[Linear]) -> tuple[Linear, ...]:
    """``conditions`` without redundant ones: of several with the same terms the tightest is left, with coefficients
    divided by their common factor (the same for integers)."""
    found: dict[tuple[tuple[str, int], ...], Linear] = {}
    for condition in map(_tightened, conditions):
        known = found.get(condition.terms)
        if known is None or condition.constant < known.constant:
            found[condition.terms] = condition
    return tuple(found.values())


def _least_where(linear: Linear, ranges: Ranges, conditions: tuple[Linear, ...], sample: Mapping[str, int],
                 bound_of: Callable[[Linear, Ranges], Linear], numbers: bool = True) -> Linear:
    linear = _without_free(linear, ranges, frozenset().union(*(c.symbols for c in conditions)))
    best, reduced = bound_of(linear, ranges), linear
    for _ in range(2 * len(conditions) + 1):  # subtracting each once or twice is enough
        improved = False
        for condition in conditions:
            for factor in _factors(reduced, condition):
                bound = bound_of(reduced - condition * factor, ranges)
                if bound.evaluate(sample) > best.evaluate(sample) or (
                        numbers and bound.is_constant and not best.is_constant):
                    best, reduced, improved = bound, reduced - condition * factor, True
        if not improved:
            break
    return best


def _tightened(condition: Linear) -> Linear:
    """The same over integers, with coefficients that have no common factor."""
    common = math.gcd(*(c for _, c in condition.terms)) or 1
    return Linear(tuple((s, c // common) for s, c in condition.terms), condition.constant // common)


def _factors(linear: Linear, condition: Linear) -> set[int]:
    """The factors f > 0 for which ``linear - f * condition`` has one symbol less."""
    found = {divmod(linear.factor(s), c) for s, c in condition.terms}
    return {factor for factor, rest in found if factor > 0 and not rest}


def _innermost(linear: Linear, ranges: Ranges) -> str | None:
    """A counter of ``linear`` on which the range of none of its other counters depends; None without counters."""
    present = [s for t, _ in linear.terms for s in _parts(t) if s in ranges]
    for symbol in present:
        if not any(symbol in _outer(other, ranges) for other in present if other != symbol):
            return symbol
    return None


def _outer(counter: str, ranges: Ranges) -> set[str]:
    """The counters that the largest value of ``counter`` depends on, directly or through others."""
    found: set[str] = set()
    pending = [counter]
    while pending:
        for symbol in ranges[pending.pop()].symbols:
            if symbol in ranges and symbol not in found:
                found.add(symbol)
                pending.append(symbol)
    return found


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that the guards check at entry, so that proofs may use them."""

    longest: int | None = None  # R is at most this
    facts: tuple[Linear, ...] = ()  # each is >= 0; over R and parameters (memopt.lifting.execution.parameters)


UNLIMITED = Limits()


def proved(linear: Linear, limits: Limits = UNLIMITED) -> bool:
    """Whether ``linear``, over R and parameters, is >= 0 for all R >= 2 within ``limits``."""
    number = number_at_least(linear, limits)
    return number is not None and number >= 0


def number_at_least(linear: Linear, limits: Limits = UNLIMITED) -> int | None:
    """A constant lower bound of ``linear``, over R and parameters, for R >= 2; None when none is found."""
    linear = _without_grown_trips(linear)
    slope, rest = linear.factor(TRIPS), Linear(tuple(t for t in linear.terms if t[0] != TRIPS), linear.constant)
    if any(TRIPS in q.inside for q in linear.quotients):
        raise Rejected(Reason.NON_AFFINE, f"{linear} depends on rounded iterations")
    if not rest.is_constant:
        found = (number_at_least(linear - f * factor, Limits(limits.longest, limits.facts[:n] + limits.facts[n + 1:]))
                 for n, f in enumerate(limits.facts) for factor in _factors(rest, f))
        return max((number for number in found if number is not None), default=None)
    if slope < 0 and limits.longest is None:
        return None
    return rest.constant + slope * (2 if slope >= 0 or limits.longest is None else max(limits.longest, 2))


def _without_grown_trips(linear: Linear) -> Linear:
    """A lower bound of ``linear``: for positive multiples of R times a stride, twice the stride; R is at least 2."""
    for made in linear.products:
        factor = linear.factor(made)
        if TRIPS in made.factors and factor > 0:
            linear = linear.without(made) + Linear.symbol(made.other(TRIPS), 2 * factor)
    return linear


def is_bit(linear: Linear) -> bool:
    """Whether ``linear`` is the remainder of a division by two: zero or one."""
    return any(linear == q.numerator - Linear.symbol(q, 2) for q in linear.quotients if q.divisor == 2)


def is_remainder(linear: Linear) -> bool:
    """Whether ``linear`` is the remainder of a division by a number."""
    return any(linear == q.numerator - Linear.symbol(q, q.divisor) for q in linear.quotients)
