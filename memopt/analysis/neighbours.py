"""Prologues and epilogues: items that continue the range of a loop beside them become a part of it.

``for c < t: S(c)`` followed by ``S(t)`` is ``for c < t + 1: S(c)``; what stands between the two is proved independent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from memopt.analysis.claims import Claims, Items, Known
from memopt.analysis.copies import Shape, commuted, moved, restored, shape
from memopt.analysis.statements import CellStatement, StatementItem, StatementLoop
from memopt.ir.linear import Linear


@dataclass(frozen=True, slots=True)
class Neighbours:
    known: Known

    def join(self, items: Items) -> Items:
        """Items that continue each other's range as one loop."""
        result: list[StatementItem] = []
        for item in items:
            result.append(item)
            while (joined := self._last_joined(result)) is not None:
                result = joined
        return self._aligned(tuple(result))

    def _last_joined(self, items: list[StatementItem]) -> list[StatementItem] | None:
        """``items`` with the last one, or the last few, joined to a loop before them; what they pass is independent."""
        for place in reversed(range(len(items) - 1)):
            one = items[place]
            if isinstance(one, StatementLoop) and one.items:
                for last in (items[-1:], items[-len(one.items):]):
                    between = items[place + 1:len(items) - len(last)]
                    if place + len(last) < len(items) and self._free_to_pass(between, last):
                        joined = self._continued(one, tuple(last))
                        if joined is not None:
                            return [*items[:place], joined, *between]
        two = items[-1]
        if isinstance(two, StatementLoop) and 0 < len(two.items) < len(items):
            run = items[-1 - len(two.items):-1]
            joined = self._preceded(tuple(run), two)
            if joined is not None:
                return [*items[:-1 - len(two.items)], joined]
        return None

    def _free_to_pass(self, passed: list[StatementItem], items: list[StatementItem]) -> bool:
        return not any(self.known.conflict(a, b) for a in passed for b in items)

    def _continued(self, one: StatementLoop, last: Items) -> StatementLoop | None:
        """``one`` and then ``last``, another loop or one more iteration, as one loop."""
        more, claims = self._as_continuation(one, last)
        if more is None or not self.known.plausible(claims) or not self.known.hold(claims):
            return None
        trips = one.trips + more
        self.known.ranges[one.counter] = trips - 1
        return replace(one, trips=trips)

    def _as_continuation(self, one: StatementLoop, last: Items) -> tuple[Linear | None, Claims]:
        """How often ``last`` repeats what ``one`` does, from where it ends, if the claims hold."""
        claims = Claims()
        if not self._runs(one.trips):
            return None, claims
        if len(last) == 1 and isinstance(two := last[0], StatementLoop) and self._runs(two.trips):
            onwards = {one.counter: Linear.symbol(two.counter) + one.trips}
            if self._same(shape(*(moved(i, onwards) for i in one.items)), shape(*two.items), claims):
                return two.trips, claims
        onwards = {one.counter: one.trips}
        if self._same(shape(*(moved(i, onwards) for i in one.items)), shape(*last), claims):
            return Linear.of(1), claims
        return None, claims

    def _preceded(self, run: Items, two: StatementLoop) -> StatementLoop | None:
        """One iteration and then ``two`` as one loop."""
        claims = Claims()
        before = {two.counter: Linear.of(-1)}
        if not self._runs(two.trips) or not self._same(shape(*(moved(i, before) for i in two.items)), shape(*run),
                                                       claims) or not self.known.hold(claims):
            return None
        self.known.ranges[two.counter] = two.trips
        onwards = {two.counter: Linear.symbol(two.counter) - 1}
        return StatementLoop(two.counter, two.trips + 1, tuple(moved(i, onwards) for i in two.items))

    @staticmethod
    def _runs(trips: Linear) -> bool:
        """Whether a loop of so many iterations is sure to run as often."""
        return trips.is_constant and trips.constant >= 0

    def _same(self, one: Shape, two: Shape, claims: Claims) -> bool:
        if one.key != two.key:
            return False
        claims.zero += two.distance(one)
        claims.alike += zip(one.scalars, two.scalars, strict=True)
        return self.known.plausible(claims)

    def _aligned(self, items: Items) -> Items:
        """Neighbours that would join if it were not for the order of their operands (which decides NaN payloads)
        stay apart, but over the same loops and registers."""
        result = list(items)
        for number in range(1, len(result)):
            result[number] = self._beside(result[number - 1], result[number]) or result[number]
        return tuple(result)

    def _beside(self, one: StatementItem, two: StatementItem) -> StatementItem | None:
        """``two`` as a loop like ``one``, when it continues it in another order of operands."""
        kept, other = _innermost(one), _innermost(two)
        if not isinstance(one, StatementLoop) or kept is None or other is None:
            return None
        reordered = commuted(other, kept)
        if reordered is None:
            return None
        more, claims = self._as_continuation(one, (_with_innermost(two, reordered),))
        if more is None or not self.known.hold(claims):
            return None
        self.known.ranges[one.counter] = Linear.of(max(one.trips.constant, more.constant) - 1)
        onwards = {one.counter: Linear.symbol(one.counter) + one.trips}
        there = _innermost(moved(one, onwards))
        assert there is not None
        continued = _with_innermost(moved(one, onwards), restored(there, other))
        assert isinstance(continued, StatementLoop)
        return replace(continued, trips=more)


def _innermost(item: StatementItem) -> CellStatement | None:
    """The only statement of a perfect nest."""
    while isinstance(item, StatementLoop):
        if len(item.items) != 1:
            return None
        item = item.items[0]
    return item


def _with_innermost(item: StatementItem, statement: CellStatement) -> StatementItem:
    if isinstance(item, CellStatement):
        return statement
    return replace(item, items=tuple(_with_innermost(i, statement) for i in item.items))
