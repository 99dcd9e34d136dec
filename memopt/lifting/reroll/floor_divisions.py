"""Trip counts and bounds that contain a floor division, made affine.

Example: ``for (j = 0; j < 4 * (n / 4); j++)`` is what is left of a loop over n elements that was unrolled by four.

In: a ``StatementLoop``. Out: one with the same iterations in the same order and fewer floor divisions, in two steps:

1. ``trimmed`` cuts a loop where a bound without a floor division is: ``4 * (n / 4)`` is at least ``n - 3``, so it
   becomes a loop of ``n - 3`` iterations and another of up to three. The first is as plain as the source was. The
   second, with the statements for the remainder beside it, has a complicated domain but little work.
2. ``without_quotients`` replaces the floor divisions that are left over. Pieces of a row whose operand orders differ
   stay apart, and the boundary between them is a quotient. A domain has no quotients, but ``q = n / d`` rounded down is
   the one number with ``0 <= n - d * q < d``: a loop over all numbers that it can be, with that as a condition, runs
   once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear, Quotient
from memopt.ir.reasons import Reason, Rejected
from memopt.lifting.demotion.statements import CellStatement, StatementItem, StatementLoop
from memopt.lifting.reroll.isomorphism import linears, moved, rebuilt, restricted
from memopt.lifting.values.algebra import LOOP_COUNTER
from memopt.lifting.values.bounds import Limits, Ranges, greatest, least, number_at_least, proved, sign

WORTH = 8  # a loop is cut if its affine part has at least this many iterations for each one that may be left


def trimmed(loop: StatementLoop, limits: Limits, sample: Mapping[str, int]) -> StatementLoop:
    """``loop`` with the same iterations in the same order. Inner loops whose trip count has a floor division are cut
    where an affine bound is, if that pays at the captured values ``sample``."""
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
        """How many iterations there are at most after the ``plain`` ones; None where cutting does not pay."""
        if plain == trips or plain.quotients:
            return None
        try:
            left = greatest(trips - plain, around)
            many = greatest(plain, around).evaluate(self.sample)
        except Rejected:
            return None
        return left if left.is_constant and many >= WORTH * left.constant else None


def _at_least(linear: Linear) -> Linear:
    """A lower bound of ``linear`` without the quotients that are multiplied by a multiple of their divisor."""
    for rounded in linear.quotients:
        often, rest = divmod(linear.factor(rounded), rounded.divisor)
        if not rest:
            bound = rounded.numerator * often - max(0, often) * (rounded.divisor - 1)
            return _at_least(Linear(tuple(t for t in linear.terms if t[0] != rounded), linear.constant) + bound)
    return linear


def without_quotients(loop: StatementLoop, limits: Limits) -> StatementLoop:
    """``loop`` with each quotient as the counter of a loop that runs one iteration, where ``limits`` hold. Raises
    Rejected(NON_AFFINE) where a quotient has no bound."""
    return _Rounding(limits).inside(loop, {})


@dataclass(frozen=True, slots=True)
class _Rounding:
    limits: Limits
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def inside(self, loop: StatementLoop, around: Ranges) -> StatementLoop:
        ranges = {**around, loop.counter: loop.trips - 1}
        return replace(loop, items=tuple(self._item(item, ranges) for item in loop.items))

    def _item(self, item: StatementItem, around: Ranges) -> StatementItem:
        """``item`` inside such a loop for each of its quotients: a statement that has it, or a loop whose trip count
        has it."""
        item = _of_rests(item) if isinstance(item, CellStatement) else item
        own = (item.trips,) if isinstance(item, StatementLoop) else item.linears
        found = sorted({q for n in own for q in _nested(n)
                        if {s for s in q.numerator.symbols if s.startswith(LOOP_COUNTER)} <= around.keys()})
        if not found:
            return self.inside(item, around) if isinstance(item, StatementLoop) else item
        rounded = found[0]
        first, count = self._values(rounded, around)
        counter = f"{LOOP_COUNTER}quotient{next(self.numbers)}"
        value = Linear.symbol(counter) + first
        rest = rounded.numerator - value * rounded.divisor
        inside = rebuilt(item, tuple(n.substitute({rounded: value}) for n in linears(item)))
        chosen = restricted(inside, (rest, -rest + (rounded.divisor - 1)))
        return self.inside(StatementLoop(counter, count, (chosen,)), around)

    def _values(self, rounded: Quotient, around: Ranges) -> tuple[Linear, Linear]:
        """A lower bound of ``rounded``, and how many numbers there are from it to an upper bound. A quotient lies
        between its numerator and zero."""
        for numerator, first in ((rounded.numerator, Linear()), (-rounded.numerator, rounded.numerator)):
            if proved(sign(numerator, around), self.limits):
                return first, numerator + 1
        low = number_at_least(least(rounded.numerator, around), self.limits)
        high = number_at_least(-greatest(rounded.numerator, around), self.limits)
        if low is None or high is None:
            raise Rejected(Reason.NON_AFFINE, f"{rounded.numerator} is divided by {rounded.divisor} and rounded")
        least_value = low // rounded.divisor
        return Linear.of(least_value), Linear.of(-high // rounded.divisor - least_value + 1)


def _of_rests(statement: CellStatement) -> CellStatement:
    """``statement`` with ``floor(n / d)`` replaced by ``(n - (d - 1)) / d`` in its accesses, where its conditions say
    that the remainder is the largest one, d - 1.
    """
    for condition in statement.conditions:
        for q in condition.quotients:
            exact = q.numerator - (q.divisor - 1)  # divisor * q
            if condition == exact - Linear.symbol(q, q.divisor):
                statement = statement.moved(tuple(
                    n if number >= len(statement.linears) - len(statement.conditions) else _replaced(n, q, exact)
                    for number, n in enumerate(statement.linears)))
    return statement


def _replaced(linear: Linear, rounded: Quotient, exact: Linear) -> Linear:
    """``linear`` with ``exact`` in place of ``divisor * rounded``."""
    often, rest = divmod(linear.factor(rounded), rounded.divisor)
    return linear if rest else linear + exact * often - Linear.symbol(rounded, often * rounded.divisor)


def _nested(linear: Linear) -> set[Quotient]:
    """The quotients in ``linear``, and those in their numerators."""
    return set(linear.quotients).union(*(_nested(q.numerator) for q in linear.quotients))
