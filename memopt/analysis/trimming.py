"""Loops that end at a multiple of their unrolling, cut where a bound without a quotient is.

``4 * (n / 4)``, n the length of a row, is at least ``n - 3``: a loop that runs so often becomes one of ``n - 3``
iterations and another of up to three. The first is as plain as the source was; what is left of a row, with the
statements for the remainder beside it, is little work, however involved its domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from memopt.analysis.bounds import Limits, Ranges, greatest, proved, sign
from memopt.analysis.copies import moved, restricted
from memopt.analysis.statements import CellStatement, StatementItem, StatementLoop
from memopt.ir.linear import Linear
from memopt.ir.reasons import Rejected

WORTH = 8  # iterations of the plain part for each one that may be left


def trimmed(loop: StatementLoop, limits: Limits, sample: Mapping[str, int]) -> StatementLoop:
    """``loop`` with the same iterations in the same order, its inner loops cut where that is worth while for the
    captured values ``sample``."""
    return _Trimming(limits, sample).inside(loop, {})


@dataclass(frozen=True, slots=True)
class _Trimming:
    limits: Limits
    sample: Mapping[str, int]

    def inside(self, loop: StatementLoop, around: Ranges) -> StatementLoop:
        ranges = {**around, loop.counter: loop.trips - 1}
        return replace(loop, items=tuple(i for item in loop.items for i in self._item(item, ranges)))

    def _item(self, item: StatementItem, around: Ranges) -> tuple[StatementItem, ...]:
        if isinstance(item, CellStatement):
            return (item,)
        plain = _at_least(item.trips)
        left = self._left(item.trips, plain, around)
        if left is None:
            return (self.inside(item, around),)
        counter = f"{item.counter}~rest"
        onwards = plain if left == Linear.of(1) else Linear.symbol(counter) + plain
        conditions = [item.trips - onwards - 1]
        if not proved(sign(plain, around), self.limits):
            conditions.append(onwards)
        rest = tuple(restricted(moved(i, {item.counter: onwards}), conditions) for i in item.items)
        again = self.inside(StatementLoop(counter, left, rest), around)
        return (self.inside(replace(item, trips=plain), around), *(again.items if left == Linear.of(1) else (again,)))

    def _left(self, trips: Linear, plain: Linear, around: Ranges) -> Linear | None:
        """How many iterations there are at most besides ``plain``; None: it is not worth while to part them."""
        if plain == trips or plain.quotients:
            return None
        try:
            left = greatest(trips - plain, around)
            many = greatest(plain, around).evaluate(self.sample)
        except Rejected:
            return None
        return left if left.is_constant and many >= WORTH * left.constant else None


def _at_least(linear: Linear) -> Linear:
    """A lower bound that is without those quotients that are multiplied by their divisor."""
    for rounded in linear.quotients:
        often, rest = divmod(linear.factor(rounded), rounded.divisor)
        if not rest:
            bound = rounded.numerator * often - max(0, often) * (rounded.divisor - 1)
            return _at_least(Linear(tuple(t for t in linear.terms if t[0] != rounded), linear.constant) + bound)
    return linear
