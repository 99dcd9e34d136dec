"""Undoes loop peeling: prologues and epilogues that continue the range of a loop beside them become part of it.

Example: ``for (c = 0; c < t; c++) S(c);`` followed by ``S(t);`` is ``for (c = 0; c < t + 1; c++) S(c);``.

In: the items of a loop body. Out: items that do the same, with loops joined to other loops, to single iterations before
or after them, and to the same code under the opposite condition. Sound because the pieces are copies in consecutive
iterations (memopt.lifting.reroll.isomorphism), and what stands between them is proved independent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.lifting.demotion.statements import CellStatement, StatementItem, StatementLoop, statements_of
from memopt.lifting.reroll.isomorphism import (
    Shape,
    commuted,
    conditions,
    moved,
    restored,
    restricted,
    shape,
    unconditional,
)
from memopt.lifting.reroll.proofs import Hypotheses, Items, Prover
from memopt.lifting.reroll.remainders import Remainders
from memopt.lifting.reroll.short_trips import ShortTrips
from memopt.lifting.values.bounds import is_bit

LOOK_BACK = 24  # how many items back the last one may be joined to one
MOST_LEFT = 7  # single iterations after a loop: as many as a compiler emits after one unrolled by eight


@dataclass(frozen=True, slots=True)
class Peeling:
    """Joins items of a body that are pieces of one loop."""

    prover: Prover

    def join(self, items: Items) -> Items:
        """``items`` with those that continue each other's range as one loop."""
        result: list[StatementItem] = []
        for item in items:
            result.append(self._lean(item))
            while (joined := self._last_joined(result)) is not None:
                result = joined
        whole = ShortTrips(self.prover).joined(Remainders(self.prover).joined(tuple(result)))
        return self._aligned(whole) if len(whole) == len(result) else self.join(whole)

    def _lean(self, item: StatementItem) -> StatementItem:
        """A loop without the conditions that hold whenever its trip count is positive."""
        if not isinstance(item, StatementLoop):
            return item
        kept = set(conditions(item))
        for condition in sorted(kept, key=str):
            if self.prover.proves(condition, (*(kept - {condition}), item.trips - 1)):
                kept.remove(condition)
        return unconditional(item, conditions(item) - kept)

    def _last_joined(self, items: list[StatementItem]) -> list[StatementItem] | None:
        """``items`` with the last one, or the last few, joined to an earlier one, if they are independent of the items
        between. None where nothing can be joined."""
        for place in reversed(range(max(0, len(items) - 1 - LOOK_BACK), len(items) - 1)):
            for number in self._lengths(items[place], len(items) - 1 - place):
                between, last = items[place + 1:-number], items[-number:]
                if self._alike(items[place], last) and self._free_to_pass(between, last):
                    joined = self._continued(items[place], tuple(last))
                    if joined is None and number == 1:
                        joined = self._either(items[place], items[-1]) or self._either(items[-1], items[place])
                    if joined is not None:
                        return [*items[:place], joined, *between]
        two = items[-1]
        if isinstance(two, StatementLoop) and 0 < len(two.items) < len(items):
            run = items[-1 - len(two.items):-1]
            joined = self._preceded(tuple(run), two)
            if joined is not None:
                return [*items[:-1 - len(two.items)], joined]
        return None

    @staticmethod
    def _alike(one: StatementItem, last: list[StatementItem]) -> bool:
        """A quick test whether both may be pieces of one loop: they access the same types in the same order."""
        if not any(isinstance(item, StatementLoop) for item in (one, *last)):
            return False
        mine = [(s.elements, len(s.indices)) for s in statements_of(one)]
        theirs = [(s.elements, len(s.indices)) for item in last for s in statements_of(item)]
        return bool(mine) and theirs == mine * (len(theirs) // len(mine))

    @staticmethod
    def _lengths(one: StatementItem, room: int) -> list[int]:
        """How many items may continue ``one``: one (another loop), one iteration of it, or a few iterations where it
        has one statement."""
        inside = len(one.items) if isinstance(one, StatementLoop) else 0
        few = range(2, MOST_LEFT + 1) if inside == 1 else ()
        return [n for n in dict.fromkeys((1, inside, *few)) if 0 < n <= room]

    def _free_to_pass(self, passed: list[StatementItem], items: list[StatementItem]) -> bool:
        return not any(self.prover.conflict(a, b) for a in passed for b in items)

    def _continued(self, one: StatementItem, last: Items) -> StatementItem | None:
        """``one`` and then ``last``, another loop or further iterations, as one loop; None where that is not proved.

        ``last`` may have further conditions, if these hold wherever ``one`` runs any iteration.
        """
        if not isinstance(one, StatementLoop) or not one.items:
            return None
        mine, theirs = conditions(one), conditions(*last)
        if not mine <= theirs:
            return None
        shared = frozenset(c for c in theirs if c in mine or self.prover.proves(c, (*mine, one.trips - 1)))
        core = unconditional(one, mine)
        more, claims = self._as_continuation(core, tuple(unconditional(i, shared) for i in last), shared)
        if more is None or not self.prover.plausible(claims) or not self.prover.hold(claims):
            return None
        trips = one.trips + more
        self.prover.ranges[one.counter] = trips - 1
        return self._lean(restricted(replace(core, trips=trips), shared))

    def _as_continuation(self, one: StatementLoop, last: Items, given: Iterable[Linear] = ()) -> (
            tuple[Linear | None, Hypotheses]):
        """``(n, claims)``: where ``given`` are >= 0 and the claims hold, ``last`` is the next n iterations of ``one``.
        n is None where it is something else."""
        if not self.prover.proves(one.trips, given):
            return None, Hypotheses()
        if len(last) == 1 and isinstance(two := last[0], StatementLoop) and self.prover.proves(two.trips, given):
            claims = Hypotheses()
            onwards = _at(one, Linear.symbol(two.counter) + one.trips)
            if self._same(shape(*onwards), shape(*two.items), claims):
                return two.trips, claims
        return self._left_over(one, last, given)

    def _left_over(self, one: StatementLoop, last: Items, given: Iterable[Linear]) -> tuple[Linear | None, Hypotheses]:
        """The same for ``last`` as single iterations, each under the condition that there are so many."""
        count = len(last) // len(one.items)
        claims = Hypotheses()
        more: Linear | None = None
        for number in range(count):
            run = last[number * len(one.items):(number + 1) * len(one.items)]
            limits = conditions(*run)
            if not self._same(shape(*_at(one, one.trips + number)),
                              shape(*(unconditional(i, limits) for i in run)), claims):
                return None, claims
            if not limits:
                more = Linear.of(1) if count == 1 else None
            else:
                left = min((limit + number + 1 for limit in limits), key=lambda x: (x.constant, str(x)))
                if (more not in (None, left) or (number and more is None)
                        or not all(self.prover.proves(limit, (left - number - 1,)) for limit in limits)):
                    return None, claims
                more = left
        if more is not None and not more.is_constant and not (
                self.prover.proves(more, given) and self.prover.proves(-more + count, given)):
            more = None
        return more, claims

    def _either(self, one: StatementItem, two: StatementItem) -> StatementItem | None:
        """One loop for ``one``, which runs where a condition holds, and the loop ``two``, which runs where it does not;
        None where they are not the same."""
        if not isinstance(two, StatementLoop):
            return None
        mine, theirs = conditions(one), conditions(two)
        here, there = mine - theirs, theirs - mine
        if len(here) != 1 or len(there) != 1 or -next(iter(here)) - 1 not in there:
            return None
        bare, other = unconditional(one, mine), unconditional(two, theirs)
        claims = Hypotheses()
        if isinstance(bare, StatementLoop):
            trips, same = bare.trips, self._same(shape(*_at(other, Linear.symbol(bare.counter))),
                                                 shape(*bare.items), claims)
        else:
            trips, same = Linear.of(1), self._same(shape(*_at(other, Linear())), shape(bare), claims)
        equal = self.prover.proves(trips - other.trips, mine) and self.prover.proves(other.trips - trips, mine)
        if not same or not equal or not self.prover.hold(claims):
            return None
        return self._lean(restricted(other, mine & theirs))

    def _preceded(self, run: Items, two: StatementLoop) -> StatementItem | None:
        """``run``, one iteration, and then ``two`` as one loop. ``run`` may have the condition that a remainder modulo
        two is one; the joined loop then has that remainder more iterations."""
        mine, theirs = conditions(*run), conditions(two)
        odd = next((c for c in mine - theirs if is_bit(c + 1)), None)
        more = Linear.of(1) if odd is None else odd + 1
        shared = mine - {odd}
        everywhere = shared | theirs
        if not (all(self.prover.proves(c, mine) for c in theirs - mine)
                and all(self.prover.proves(c, (*theirs, two.trips - 1)) for c in shared - theirs)
                and self.prover.proves(two.trips, everywhere)):
            return None
        core = unconditional(two, theirs)
        claims = Hypotheses()
        if not self._same(shape(*_at(core, -more)), shape(*(unconditional(i, mine) for i in run)),
                          claims) or not self.prover.hold(claims):
            return None
        trips = two.trips + more
        self.prover.ranges[two.counter] = trips - 1
        onwards = {two.counter: Linear.symbol(two.counter) - more}
        whole = StatementLoop(two.counter, trips, tuple(moved(i, onwards) for i in core.items))
        return self._lean(restricted(whole, everywhere))

    def _same(self, one: Shape, two: Shape, claims: Hypotheses) -> bool:
        if one.key != two.key:
            return False
        claims.zero += two.distance(one)
        claims.alike += zip(one.scalars, two.scalars, strict=True)
        return self.prover.plausible(claims)

    def _aligned(self, items: Items) -> Items:
        """Adjacent items that only the order of their operands keeps from being joined (it decides NaN payloads) stay
        apart, but get the same counters and registers."""
        result = list(items)
        for number in range(1, len(result)):
            result[number] = self._beside(result[number - 1], result[number]) or result[number]
        return tuple(result)

    def _beside(self, one: StatementItem, two: StatementItem) -> StatementItem | None:
        """``two`` as a loop like ``one``, if it continues ``one`` up to the order of operands; else None."""
        kept, other = _innermost(one), _innermost(two)
        if not isinstance(one, StatementLoop) or kept is None or other is None:
            return None
        reordered = commuted(other, kept)
        if reordered is None:
            return None
        more, claims = self._as_continuation(one, (_with_innermost(two, reordered),))
        if more is None or not (more.is_constant and one.trips.is_constant) or not self.prover.hold(claims):
            return None
        self.prover.ranges[one.counter] = Linear.of(max(one.trips.constant, more.constant) - 1)
        onwards = {one.counter: Linear.symbol(one.counter) + one.trips}
        there = _innermost(moved(one, onwards))
        assert there is not None
        continued = _with_innermost(moved(one, onwards), restored(there, other))
        assert isinstance(continued, StatementLoop)
        return replace(continued, trips=more)


def _at(loop: StatementLoop, iteration: Linear) -> Items:
    """The items of ``loop`` in the given iteration."""
    return tuple(moved(item, {loop.counter: iteration}) for item in loop.items)


def _innermost(item: StatementItem) -> CellStatement | None:
    """The statement of a perfect nest with one statement; None for other nests."""
    while isinstance(item, StatementLoop):
        if len(item.items) != 1:
            return None
        item = item.items[0]
    return item


def _with_innermost(item: StatementItem, statement: CellStatement) -> StatementItem:
    if isinstance(item, CellStatement):
        return statement
    return replace(item, items=tuple(_with_innermost(i, statement) for i in item.items))
