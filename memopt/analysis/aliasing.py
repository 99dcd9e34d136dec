"""May two accesses of a nest touch the same byte?

Addresses over different live-in symbols are taken as different arrays: the region builder proves or guards that.
Where two footprints only stay apart as long as the outer loop does not run too often, that is noted as an
assumption, which the region builder turns into a guard too. Everything else is decided from the loop bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from memopt.analysis.algebra import LOOP_COUNTER
from memopt.ir.linear import Linear
from memopt.ir.region import Interval


@dataclass(frozen=True, slots=True)
class Aliasing:
    """``ranges`` gives each counter's largest value, ``sample`` the captured live-in values and R."""

    ranges: Mapping[str, Linear]
    sample: Mapping[str, int]
    assumed: dict[tuple[Interval, Interval], None] = field(default_factory=dict)

    def overlap(self, first: Linear, first_bits: int, second: Linear, second_bits: int) -> bool:
        """Whether two cells may share a byte in some iteration, counters of equal name being equal."""
        difference = first - second
        if not all(symbol.startswith(LOOP_COUNTER) for symbol in difference.symbols):
            return False
        low = high = difference.constant
        for symbol, coefficient in difference.terms:
            largest = self._largest(symbol)
            if largest is None or not largest.is_constant:
                return not self._apart(first, first_bits, second, second_bits)
            low += min(0, coefficient * largest.constant)
            high += max(0, coefficient * largest.constant)
        return low < second_bits // 8 and high > -(first_bits // 8)

    def overlap_across(self, counters: Iterable[str], first: Linear, first_bits: int, second: Linear,
                       second_bits: int) -> bool:
        """The same for two iterations that may differ in ``counters``."""
        other = {counter: Linear.symbol(counter + "'") for counter in counters}
        return self.overlap(first, first_bits, second.substitute(other), second_bits)

    def _largest(self, counter: str) -> Linear | None:
        return self.ranges.get(counter.rstrip("'"))

    def _apart(self, first: Linear, first_bits: int, second: Linear, second_bits: int) -> bool:
        """Whether the two footprints over all iterations are disjoint at the captured values: then it is assumed."""
        one, two = self._footprint(first, first_bits), self._footprint(second, second_bits)
        if (one.high - two.low).evaluate(self.sample) > 0 and (two.high - one.low).evaluate(self.sample) > 0:
            return False
        self.assumed[one, two] = None
        return True

    def _footprint(self, pointer: Linear, bits: int) -> Interval:
        low = high = pointer
        for symbol, coefficient in pointer.terms:
            if symbol.startswith(LOOP_COUNTER):
                largest = self._largest(symbol)
                reach = (Linear() if largest is None else largest) * coefficient
                low = low.without(symbol) + (reach if coefficient < 0 else 0)
                high = high.without(symbol) + (reach if coefficient > 0 else 0)
        return Interval(low, high + bits // 8)
