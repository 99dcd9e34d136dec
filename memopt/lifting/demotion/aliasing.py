"""May two accesses of a nest touch the same byte?

Addresses over different live-in symbols are taken as different arrays: the region builder proves or guards that.
Where two footprints only stay apart as long as the outer loop does not run too often, that is noted as an
assumption, which the region builder turns into a guard too. Everything else is decided from the loop bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from memopt.ir.linear import Linear, Quotient
from memopt.ir.reasons import Rejected
from memopt.ir.region import Interval
from memopt.ir.scop import TRIPS
from memopt.lifting.execution.parameters import is_parameter
from memopt.lifting.values.algebra import LOOP_COUNTER
from memopt.lifting.values.bounds import UNLIMITED, Limits, Ranges, greatest, least, number_at_least, proved, sign_where


@dataclass(frozen=True, slots=True)
class Aliasing:
    """``ranges`` gives each counter's largest value, ``sample`` the captured live-in values and R; ``limits`` are
    what guards keep to. Whoever asks often calls ``go_on``, which raises Rejected when the lift has taken too long."""

    ranges: Ranges
    sample: Mapping[str, int]
    limits: Limits = UNLIMITED
    assumed: dict[tuple[Interval, Interval], None] = field(default_factory=dict)
    go_on: Callable[[], None] = lambda: None

    def overlap(self, first: Linear, first_bits: int, second: Linear, second_bits: int) -> bool:
        """Whether two cells may share a byte in some iteration, counters of equal name being equal."""
        return self._overlap(first, first_bits, second, second_bits, self.ranges)

    def overlap_where(self, given: tuple[Linear, ...], first: Linear, first_bits: int, second: Linear,
                      second_bits: int) -> bool:
        """The same, in iterations in which all of ``given`` are >= 0."""
        if not self.overlap(first, first_bits, second, second_bits):
            return False
        difference = first - second
        if not given or difference.is_constant or not self._known(difference):
            return True
        return not any(self._never_negative(beyond, given)
                       for beyond in (difference - second_bits // 8, -difference - first_bits // 8))

    def _known(self, difference: Linear) -> bool:
        """Whether it is over what has bounds: counters, parameters and R."""
        return all(s in self.ranges or s == TRIPS or is_parameter(s) or isinstance(s, Quotient)
                   for s in difference.symbols)

    def _never_negative(self, linear: Linear, given: tuple[Linear, ...]) -> bool:
        try:
            return proved(sign_where(linear, self.ranges, given, self.sample), self.limits)
        except Rejected:  # a rounded trip count of unknown size
            return False

    def overlap_across(self, counters: Iterable[str], first: Linear, first_bits: int, second: Linear,
                       second_bits: int) -> bool:
        """The same for two iterations that may differ in ``counters``."""
        other = {counter: Linear.symbol(counter + "'") for counter in counters}
        ranges = {c + "'": self.ranges[c].substitute(other) for c in other if c in self.ranges}
        return self._overlap(first, first_bits, second.substitute(other), second_bits, {**self.ranges, **ranges})

    def _overlap(self, first: Linear, first_bits: int, second: Linear, second_bits: int, ranges: Ranges) -> bool:
        self.go_on()
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
            return self._meets(difference, max(low, 1 - first_bits // 8), min(-high, second_bits // 8 - 1))
        if (low or 0) >= second_bits // 8 or (high or 0) >= first_bits // 8:
            return False
        try:
            return not self._apart(first, first_bits, second, second_bits, ranges)
        except Rejected:  # a rounded trip count of unknown size
            return True

    def _bound(self, linear: Linear, ranges: Ranges) -> int | None:
        try:
            return number_at_least(least(linear, ranges), self.limits)
        except Rejected:  # as above; the other side may have a bound
            return None

    @staticmethod
    def _meets(difference: Linear, low: int, high: int) -> bool:
        """Whether ``difference`` may be a number from ``low`` to ``high``, both included."""
        step = math.gcd(*(c for _, c in difference.terms))
        return low <= high and (not step or low + (difference.constant - low) % step <= high) and (
            step != 0 or low <= difference.constant <= high)

    def _apart(self, first: Linear, first_bits: int, second: Linear, second_bits: int, ranges: Ranges) -> bool:
        """Whether the two footprints over all iterations are disjoint at the captured values: then it is assumed."""
        one, two = _footprint(first, first_bits, ranges), _footprint(second, second_bits, ranges)
        if (one.high - two.low).evaluate(self.sample) > 0 and (two.high - one.low).evaluate(self.sample) > 0:
            return False
        self.assumed[one, two] = None
        return True


def _footprint(pointer: Linear, bits: int, ranges: Ranges) -> Interval:
    return Interval(least(pointer, ranges), greatest(pointer, ranges) + bits // 8)
