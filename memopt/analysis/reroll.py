"""Undo unrolling and vectorisation: lanes, unrolled copies, prologues and epilogues become pieces of one domain.

``for c < t: S(2c), T(2c), S(2c + 1), T(2c + 1)`` is ``for c < 2t: S(c), T(c)``, and ``for c < t: S(c)`` followed by
``S(t)`` is ``for c < t + 1: S(c)``. Where that changes the order of execution (vector code runs all lanes of S before
those of T, loops over several accumulators are distributed first), what changes places is proved independent.
What is a copy of what: memopt.analysis.copies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Protocol

from memopt.analysis.algebra import LOOP_COUNTER
from memopt.analysis.aliasing import Aliasing
from memopt.analysis.copies import (
    Shape,
    commuted,
    counters,
    linears,
    moved,
    rebuilt,
    restored,
    shape,
    statements,
)
from memopt.analysis.statements import CellStatement, StatementItem, StatementLoop
from memopt.ir.linear import Linear
from memopt.ir.scop import Scalar

_LATER = f"{LOOP_COUNTER}later"  # how many iterations later, less one
Items = tuple[StatementItem, ...]


class Captured(Protocol):
    """What the captured state says, and what may be relied on: the region's guards."""

    def always(self, distance: Linear, expected: int) -> bool:
        """Is ``distance``, over live-in symbols, always ``expected``? May raise Specialise to make it so."""

    def alike(self, one: Scalar, two: Scalar) -> bool:
        """Whether two live-in operands hold the same bits in the captured state."""

    def equate(self, one: Scalar, two: Scalar) -> None:
        """From now on the region relies on ``alike``."""


def reroll(loop: StatementLoop, aliasing: Aliasing, captured: Captured) -> StatementLoop:
    """The nest with every unrolled or split inner loop rolled up.

    The outermost loop keeps its iterations: they are what the patch counts. ``aliasing.sample`` has the captured
    value of each live-in symbol: copies often reach the same array through different registers.
    """
    ranges = dict(aliasing.ranges)
    return _Reroller(replace(aliasing, ranges=ranges), captured, ranges).outermost(loop)


@dataclass
class _Claims:
    """What must hold for items to be copies: linear expressions that are zero, live-in operands that are equal."""

    zero: list[Linear] = field(default_factory=list)
    alike: list[tuple[Scalar, Scalar]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Reroller:
    aliasing: Aliasing
    captured: Captured
    ranges: dict[str, Linear]  # those of ``aliasing``: rolled and joined loops have more iterations

    def outermost(self, loop: StatementLoop) -> StatementLoop:
        return replace(loop, items=self._join(tuple(i for item in loop.items for i in self._item(item))))

    def _item(self, item: StatementItem) -> Items:
        if isinstance(item, CellStatement):
            return (item,)
        loop = replace(item, items=tuple(i for inner in item.items for i in self._item(inner)))
        rolled = self._unrolled(loop)
        if rolled is None:
            joined = replace(loop, items=self._join(loop.items))
            rolled = (self._unrolled(joined) if joined != loop else None) or (joined,)
        return tuple(replace(r, items=self._join(r.items)) for r in rolled)

    # -- copies in one iteration --------------------------------------------------------------------------------

    def _unrolled(self, loop: StatementLoop) -> tuple[StatementLoop, ...] | None:
        """The loop rolled up, or the loops, when its statements have to be parted for that; None: nothing to roll."""
        for items in dict.fromkeys((loop.items, self._distributed(loop.items))):
            rolled = self._rolled(loop, items)
            if rolled is not None:
                return (rolled,)
        parts = self._parted(loop, self._distributed(loop.items))
        if len(parts) < 2:
            return None
        found = [self._rolled(loop, part) for part in parts]
        if not any(found):
            return None
        return tuple(self._apart(new or replace(loop, items=part), number)
                     for number, (new, part) in enumerate(zip(found, parts, strict=True)))

    def _rolled(self, loop: StatementLoop, items: Items) -> StatementLoop | None:
        """``items``, all that the loop does, as as many copies as possible."""
        shapes = [shape(item) for item in items]
        classes: dict[Hashable, list[int]] = defaultdict(list)
        for number, one in enumerate(shapes):
            classes[one.key].append(number)
        for count in range(min(map(len, classes.values()), default=0), 1, -1):
            if any(len(members) % count for members in classes.values()):
                continue
            templates = self._templates(loop.counter, shapes, list(classes.values()), count)
            if templates is not None and self._keeps_order(items, templates):
                claims = self._copied(loop.counter, shapes, templates)
                if claims is not None and self._hold(claims):
                    return self._of_first_copies(loop, items, templates)
        return None

    def _templates(self, counter: str, shapes: list[Shape], classes: list[list[int]], count: int) -> (
            list[list[int]] | None):
        """For each statement of the rolled loop its ``count`` copies, the first copies in their textual order."""
        templates: list[list[int]] = []
        for members in classes:
            step = _divided(shapes[members[0]], counter, count)
            if step is None:
                return None
            places = {number: self._sampled(shapes[number]) for number in members}
            rest = list(members)
            while rest:
                chain = self._chain(places, rest, step, count)
                if chain is None:
                    return None
                rest = [number for number in rest if number not in chain]
                templates.append(chain)
        return sorted(templates, key=lambda chain: chain[0])

    @staticmethod
    def _chain(places: dict[int, tuple[int, ...]], rest: list[int], step: tuple[int, ...], count: int) -> (
            list[int] | None):
        """``count`` of ``rest``, each ``step`` further than the one before."""
        for first in rest:
            chain = [first]
            while len(chain) < count:
                wanted = tuple(p + s for p, s in zip(places[chain[-1]], step, strict=True))
                following = next((n for n in rest if places[n] == wanted and n not in chain), None)
                if following is None:
                    break
                chain.append(following)
            if len(chain) == count:
                return chain
        return None

    def _sampled(self, one: Shape) -> tuple[int, ...]:
        """The linears in iteration 0 of all loops at the captured values."""
        known = self.aliasing.sample
        return tuple(Linear(tuple(t for t in linear.terms if not t[0].startswith(LOOP_COUNTER)),
                            linear.constant).evaluate(known) for linear in one.linears)

    def _copied(self, counter: str, shapes: list[Shape], templates: list[list[int]]) -> _Claims | None:
        claims = _Claims()
        for chain in templates:
            first = shapes[chain[0]]
            step = _divided(first, counter, len(chain))
            assert step is not None
            for number, copy in enumerate(chain):
                expected = tuple(Linear.of(s * number) for s in step)
                distance = shapes[copy].distance(first)
                claims.zero += [d - e for d, e in zip(distance, expected, strict=True)]
                claims.alike += zip(first.scalars, shapes[copy].scalars, strict=True)
        return claims if self._plausible(claims) else None

    def _keeps_order(self, items: Items, templates: list[list[int]]) -> bool:
        """What would run in another order than the text says touches nothing in common, within one iteration."""
        order = [n for copy in range(len(templates[0])) for n in (chain[copy] for chain in templates)]
        return not any(earlier > later and self._conflict(items[later], items[earlier])
                       for earlier, later in combinations(order, 2))

    def _of_first_copies(self, loop: StatementLoop, items: Items, templates: list[list[int]]) -> StatementLoop:
        count, counter = len(templates[0]), loop.counter
        first = (items[chain[0]] for chain in templates)
        slower = tuple(rebuilt(item, tuple(n.without(counter) + Linear.symbol(counter, n.coefficient(counter) // count)
                                           for n in linears(item))) for item in first)
        self.ranges[counter] = loop.trips * count - 1
        return StatementLoop(counter, loop.trips * count, slower)

    # -- distribution -------------------------------------------------------------------------------------------

    def _distributed(self, items: Items) -> Items:
        """``items`` with every loop over several statements as several loops, where dependences allow it."""
        result: list[StatementItem] = []
        for item in items:
            if isinstance(item, CellStatement):
                result.append(item)
                continue
            groups = self._separable(item, self._distributed(item.items))
            result += [self._apart(replace(item, items=group), n) for n, group in enumerate(groups)]
        return tuple(result)

    def _separable(self, loop: StatementLoop, items: Items) -> list[Items]:
        """Runs of ``items`` that may go through all iterations one after the other: nothing later in the text touches
        in one iteration what something earlier in the text touches in a later one."""
        ends = list(range(1, len(items) + 1))  # for each item the least end of a run that holds it
        for (early, first), (late, second) in combinations(enumerate(items), 2):
            if self._conflict_later(loop, second, first):
                for number in range(early, late):
                    ends[number] = max(ends[number], late + 1)
        groups, start, end = [], 0, 0
        for number in range(len(items)):
            end = max(end, ends[number])
            if end == number + 1:
                groups.append(items[start:end])
                start = end
        return groups

    def _parted(self, loop: StatementLoop, items: Items) -> list[Items]:
        """The least groups of ``items`` that hold all possible copies together, and no two of which touch anything
        in common in any two iterations of ``loop``."""
        keys = [shape(item).key for item in items]
        groups: list[list[int]] = []
        for number, item in enumerate(items):
            near = [g for g in groups if any(keys[n] == keys[number] or self._conflict(
                items[n], item, frozenset((loop.counter,))) for n in g)]
            groups = [g for g in groups if g not in near] + [sorted([number, *(n for g in near for n in g)])]
        return [tuple(items[n] for n in group) for group in sorted(groups)]

    def _apart(self, loop: StatementLoop, number: int) -> StatementLoop:
        """One of several loops with one counter; all but the first get one of their own."""
        if not number:
            self.ranges[loop.counter] = loop.trips - 1
            return loop
        counter = f"{loop.counter}~{number}"
        while counter in self.ranges:
            counter += "~"
        self.ranges[counter] = loop.trips - 1
        values = {loop.counter: Linear.symbol(counter)}
        return StatementLoop(counter, loop.trips, tuple(moved(item, values) for item in loop.items))

    # -- dependences --------------------------------------------------------------------------------------------

    def _conflict(self, one: StatementItem, two: StatementItem, free: frozenset[str] = frozenset()) -> bool:
        """Whether the two may touch a byte in common, one of them writing; loops around them at the same iteration,
        but for those of ``free``."""
        apart = counters(one) | counters(two) | free
        return any(self.aliasing.overlap_across(apart, a, 8 * size, b, 8 * other)
                   for x in statements(one) for y in statements(two)
                   for number, (a, size) in enumerate(_cells(x)) for place, (b, other) in enumerate(_cells(y))
                   if not (number and place))

    def _conflict_later(self, loop: StatementLoop, one: StatementItem, two: StatementItem) -> bool:
        """Whether ``two`` may touch, in a later iteration of ``loop``, what ``one`` touches in this one."""
        self.ranges[_LATER] = loop.trips - 2
        later = Linear.symbol(loop.counter) + Linear.symbol(_LATER) + 1
        return self._conflict(one, moved(two, {loop.counter: later}))

    # -- neighbours ---------------------------------------------------------------------------------------------

    def _join(self, items: Items) -> Items:
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
        return not any(self._conflict(a, b) for a in passed for b in items)

    def _continued(self, one: StatementLoop, last: Items) -> StatementLoop | None:
        """``one`` and then ``last``, another loop or one more iteration, as one loop."""
        more, claims = self._as_continuation(one, last)
        if more is None or not self._plausible(claims) or not self._hold(claims):
            return None
        trips = one.trips + more
        self.ranges[one.counter] = trips - 1
        return replace(one, trips=trips)

    def _as_continuation(self, one: StatementLoop, last: Items) -> tuple[Linear | None, _Claims]:
        """How often ``last`` repeats what ``one`` does, from where it ends, if the claims hold."""
        claims = _Claims()
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
        claims = _Claims()
        before = {two.counter: Linear.of(-1)}
        if not self._runs(two.trips) or not self._same(shape(*(moved(i, before) for i in two.items)), shape(*run),
                                                       claims) or not self._hold(claims):
            return None
        self.ranges[two.counter] = two.trips
        onwards = {two.counter: Linear.symbol(two.counter) - 1}
        return StatementLoop(two.counter, two.trips + 1, tuple(moved(i, onwards) for i in two.items))

    @staticmethod
    def _runs(trips: Linear) -> bool:
        """Whether a loop of so many iterations is sure to run as often."""
        return trips.is_constant and trips.constant >= 0

    def _same(self, one: Shape, two: Shape, claims: _Claims) -> bool:
        if one.key != two.key:
            return False
        claims.zero += two.distance(one)
        claims.alike += zip(one.scalars, two.scalars, strict=True)
        return self._plausible(claims)

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
        if more is None or not self._hold(claims):
            return None
        self.ranges[one.counter] = Linear.of(max(one.trips.constant, more.constant) - 1)
        onwards = {one.counter: Linear.symbol(one.counter) + one.trips}
        there = _innermost(moved(one, onwards))
        assert there is not None
        continued = _with_innermost(moved(one, onwards), restored(there, other))
        assert isinstance(continued, StatementLoop)
        return replace(continued, trips=more)

    # -- claims -------------------------------------------------------------------------------------------------

    def _plausible(self, claims: _Claims) -> bool:
        """Whether they hold in the captured state, whatever the iteration."""
        known = self.aliasing.sample
        return (all(z.symbols <= known.keys() and z.evaluate(known) == 0 for z in claims.zero)
                and all(one == two or self.captured.alike(one, two) for one, two in claims.alike))

    def _hold(self, claims: _Claims) -> bool:
        """Whether they always hold, if need be by guards."""
        if not all(self.captured.always(z, 0) for z in claims.zero):
            return False
        for one, two in claims.alike:
            if one != two:
                self.captured.equate(one, two)
        return True


def _cells(statement: CellStatement) -> list[tuple[Linear, int]]:
    """Address and bytes of each access, the write first."""
    return [(a, e.size) for a, e in zip(statement.accesses, statement.elements, strict=True)]


def _divided(one: Shape, counter: str, count: int) -> tuple[int, ...] | None:
    """How far one of ``count`` copies in an iteration is from the next, when all of them make up the loop's step."""
    coefficients = tuple(linear.coefficient(counter) for linear in one.linears)
    return None if any(c % count for c in coefficients) else tuple(c // count for c in coefficients)


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
