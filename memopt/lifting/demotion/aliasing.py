"""Alias analysis of a nest: may two accesses touch the same byte?

Example: in ``for (i = 0; i < 100; i++) a[i] = a[i + 100];`` the cells ``a + 8*i`` and ``a + 8*i + 800`` do not overlap,
neither in one iteration nor across iterations. ``a[i + 1]`` would overlap ``a[i]`` across iterations only.

In: two addresses (Linear, in bytes) with their widths in bits, and the ranges of the counters. Out: False only if they
cannot overlap. The answer comes from the loop bounds, with two exceptions. Addresses over different live-in symbols are
taken for different arrays; the region builder proves that or guards it. Two footprints that stay apart only while the
outer loop does not run too often are noted in ``assumed``, of which the region builder makes guards, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear, Quotient
from memopt.ir.reasons import Rejected
from memopt.ir.region import Interval
from memopt.ir.scop import TRIPS
from memopt.lifting.execution.parameters import is_parameter
from memopt.lifting.values.algebra import LOOP_COUNTER
from memopt.lifting.values.bounds import UNLIMITED, Limits, Ranges, greatest, least, number_at_least, proved, sign_where
from memopt.lifting.values.budget import Budget


@dataclass(frozen=True, slots=True)
class Aliasing:
    """Answers whether cells overlap, for one nest. Widths are in bits."""

    ranges: Ranges  # counter -> its largest value
    sample: Mapping[str, int]  # captured live-in values and R
    limits: Limits = UNLIMITED  # bounds of live-in symbols that the guards make sure of
    # Pairs of footprints taken to be disjoint, as they are at the captured values: each becomes a guard.
    assumed: dict[tuple[Interval, Interval], None] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)  # checked at each question

    def overlap(self, first: Linear, first_bits: int, second: Linear, second_bits: int) -> bool:
        """Whether two cells may overlap in one and the same iteration (a counter has one value in both addresses)."""
        return self._overlap(first, first_bits, second, second_bits, self.ranges)

    def overlap_where(self, given: tuple[Linear, ...], first: Linear, first_bits: int, second: Linear,
                      second_bits: int) -> bool:
        """``overlap``, but only in iterations in which all of ``given`` are >= 0."""
        if not self.overlap(first, first_bits, second, second_bits):
            return False
        difference = first - second
        if not given or difference.is_constant or not self._known(difference):
            return True
        return not any(self._never_negative(beyond, given)
                       for beyond in (difference - second_bits // 8, -difference - first_bits // 8))

    def _known(self, difference: Linear) -> bool:
        """Whether all symbols of ``difference`` have bounds: counters, parameters, R and quotients of these."""
        return all(s in self.ranges or s == TRIPS or is_parameter(s) or isinstance(s, Quotient)
                   for s in difference.symbols)

    def _never_negative(self, linear: Linear, given: tuple[Linear, ...]) -> bool:
        try:
            return proved(sign_where(linear, self.ranges, given, self.sample), self.limits)
        except Rejected:  # a rounded trip count of unknown size
            return False

    def overlap_across(self, counters: Iterable[str], first: Linear, first_bits: int, second: Linear,
                       second_bits: int) -> bool:
        """``overlap`` for two iterations that may differ in ``counters`` and agree in all others."""
        other = {counter: Linear.symbol(counter + "'") for counter in counters}
        ranges = {c + "'": self.ranges[c].substitute(other) for c in other if c in self.ranges}
        return self._overlap(first, first_bits, second.substitute(other), second_bits, {**self.ranges, **ranges})

    def _overlap(self, first: Linear, first_bits: int, second: Linear, second_bits: int, ranges: Ranges) -> bool:
        self.budget.check()
        difference = first - second
        if difference.is_constant:
            return -(first_bits // 8) < difference.constant < second_bits // 8
        counters = {s for s in difference.symbols if s.startswith(LOOP_COUNTER)}
        if any(not is_parameter(s) for s in difference.symbols - counters - {TRIPS}):
            return False
        if any(s not in ranges and not isinstance(s, Quotient) for s in counters):
            return True
        low, high = (self._bound(side, ranges) for side in (difference, -difference))
        if low is not None and high is not None:
            return self._attains(difference, max(low, 1 - first_bits // 8), min(-high, second_bits // 8 - 1))
        if (low or 0) >= second_bits // 8 or (high or 0) >= first_bits // 8:
            return False
        try:
            return not self._assume_disjoint(first, first_bits, second, second_bits, ranges)
        except Rejected:  # a rounded trip count of unknown size
            return True

    def _bound(self, linear: Linear, ranges: Ranges) -> int | None:
        try:
            return number_at_least(least(linear, ranges), self.limits)
        except Rejected:  # as above; the other side may have a bound
            return None

    @staticmethod
    def _attains(difference: Linear, low: int, high: int) -> bool:
        """Whether ``difference`` may take a value from ``low`` to ``high``, both included, by the gcd test."""
        step = math.gcd(*(c for _, c in difference.terms))
        return low <= high and (not step or low + (difference.constant - low) % step <= high) and (
            step != 0 or low <= difference.constant <= high)

    def _assume_disjoint(self, first: Linear, first_bits: int, second: Linear, second_bits: int,
                         ranges: Ranges) -> bool:
        """Whether the footprints over all iterations are disjoint at the captured values; notes that as assumed."""
        one, two = _footprint(first, first_bits, ranges), _footprint(second, second_bits, ranges)
        if (one.high - two.low).evaluate(self.sample) > 0 and (two.high - one.low).evaluate(self.sample) > 0:
            return False
        self.assumed[one, two] = None
        return True


def _footprint(pointer: Linear, bits: int, ranges: Ranges) -> Interval:
    """The interval of addresses that an access touches in all iterations."""
    return Interval(least(pointer, ranges), greatest(pointer, ranges) + bits // 8)
