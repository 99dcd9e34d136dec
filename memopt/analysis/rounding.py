"""Rounded trip counts that are left over, as loops of one iteration.

Pieces of a row whose operand orders differ stay apart, and where one ends and the other begins is a quotient. A
domain has no quotients, but ``q = n / d`` rounded down is the one number with ``0 <= n - d * q < d``: a loop over all
numbers that it can be, with that as a condition, runs once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from memopt.analysis.algebra import LOOP_COUNTER
from memopt.analysis.bounds import Limits, Ranges, greatest, least, number_at_least, proved, sign
from memopt.analysis.copies import conditional, linears, rebuilt
from memopt.analysis.statements import StatementItem, StatementLoop
from memopt.ir.linear import Linear, Quotient
from memopt.ir.reasons import Reason, Rejected

Items = tuple[StatementItem, ...]


def without_quotients(loop: StatementLoop, limits: Limits) -> StatementLoop:
    """``loop`` with an iteration of a loop of its own for each quotient, where ``limits`` hold. Raises
    Rejected(NON_AFFINE) when nothing says how large one can be."""
    return _Rounding(limits).inside(loop, {})


@dataclass(frozen=True, slots=True)
class _Rounding:
    limits: Limits

    def inside(self, loop: StatementLoop, around: Ranges) -> StatementLoop:
        return replace(loop, items=self._items(loop.items, {**around, loop.counter: loop.trips - 1}))

    def _items(self, items: Items, around: Ranges) -> Items:
        found = sorted({q for item in items for n in linears(item) for q in _nested(n)
                        if {s for s in q.numerator.symbols if s.startswith(LOOP_COUNTER)} <= around.keys()})
        if not found:
            return tuple(self.inside(i, around) if isinstance(i, StatementLoop) else i for i in items)
        rounded = found[0]
        using = [n for n, item in enumerate(items) if any(rounded in _nested(x) for x in linears(item))]
        before, items, after = items[:using[0]], items[using[0]:using[-1] + 1], items[using[-1] + 1:]
        first, count = self._values(rounded, around)
        counter = f"{LOOP_COUNTER}quotient{len(around)}"
        value = Linear.symbol(counter) + first
        rest = rounded.numerator - value * rounded.divisor
        inside = (rebuilt(i, tuple(n.substitute({rounded: value}) for n in linears(i))) for i in items)
        chosen = tuple(conditional(i, (rest, -rest + (rounded.divisor - 1))) for i in inside)
        once = self.inside(StatementLoop(counter, count, chosen), around)
        return (*self._items(before, around), once, *self._items(after, around))

    def _values(self, rounded: Quotient, around: Ranges) -> tuple[Linear, Linear]:
        """A number it is not less than, and how many there are from there on up to one that it is not greater than:
        a quotient lies between its numerator and zero."""
        for numerator, first in ((rounded.numerator, Linear()), (-rounded.numerator, rounded.numerator)):
            if proved(sign(numerator, around), self.limits):
                return first, numerator + 1
        low = number_at_least(least(rounded.numerator, around), self.limits)
        high = number_at_least(-greatest(rounded.numerator, around), self.limits)
        if low is None or high is None:
            raise Rejected(Reason.NON_AFFINE, f"{rounded.numerator} is divided by {rounded.divisor} and rounded")
        least_value = low // rounded.divisor
        return Linear.of(least_value), Linear.of(-high // rounded.divisor - least_value + 1)


def _nested(linear: Linear) -> set[Quotient]:
    """The quotients in ``linear``, and those inside of them."""
    return set(linear.quotients).union(*(_nested(q.numerator) for q in linear.quotients))
