"""What rerolling relies on: which items touch the same bytes, which numbers are equal in the captured state.

A claim is checked at the captured values first; only when all else fits is it made to hold, by a guard or by lifting
again with an equation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Protocol

from memopt.ir.linear import Linear
from memopt.ir.reasons import Rejected
from memopt.ir.scop import Scalar
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.scalar_expansion import is_private
from memopt.lifting.demotion.statements import CellStatement, StatementItem, StatementLoop, statements_of
from memopt.lifting.reroll.isomorphism import Shape, counters, moved
from memopt.lifting.values.algebra import LOOP_COUNTER
from memopt.lifting.values.bounds import proved, sign_where
from memopt.lifting.values.extensions import WIDE

Items = tuple[StatementItem, ...]
Cell = tuple[Linear, int]  # address, bytes
_LATER = f"{LOOP_COUNTER}later"  # how many iterations later, less one


class CapturedState(Protocol):
    """What the captured state says, and what may be relied on: the region's guards."""

    def always(self, distance: Linear, expected: int) -> bool:
        """Is ``distance``, over live-in symbols, always ``expected``? What is so at the captured
        values may be taken for always so here, and made so when the lift starts again."""

    def alike(self, one: Scalar, two: Scalar) -> bool:
        """Whether two live-in operands hold the same bits in the captured state."""

    def equate(self, one: Scalar, two: Scalar) -> None:
        """From now on the region relies on ``alike``."""

    def bits(self, cell: Cell) -> int | None:
        """What the cell holds; None when a guard could not look at it."""

    def same_cells(self, one: Cell, two: Cell) -> None:
        """From now on the region relies on the two holding the same at entry, and on the second, which it no longer
        reads, lying apart from all that it writes."""


@dataclass
class Hypotheses:
    """What must hold for items to be copies: linear expressions that are zero, live-in operands that are equal."""

    zero: list[Linear] = field(default_factory=list)
    alike: list[tuple[Scalar, Scalar]] = field(default_factory=list)

    def copies(self, shapes: Sequence[Shape], step: tuple[int, ...]) -> None:
        """Each of ``shapes``, which have one form, lies ``step`` further than the one before."""
        for number, copy in enumerate(shapes):
            distance = copy.distance(shapes[0])
            self.zero += [d - s * number for d, s in zip(distance, step, strict=True)]
            self.alike += zip(shapes[0].scalars, copy.scalars, strict=True)


@dataclass(frozen=True, slots=True)
class Prover:
    """``ranges`` are those of ``aliasing``, and grow with loops that are rolled up or joined. ``aliasing.sample`` has
    the captured value of each live-in symbol: copies often reach the same array through different registers."""

    aliasing: Aliasing
    captured: CapturedState
    ranges: dict[str, Linear]

    def conflict(self, one: StatementItem, two: StatementItem, free: frozenset[str] = frozenset()) -> bool:
        """Whether the two may touch a byte in common, one of them writing; loops around them at the same iteration,
        but for those of ``free``."""
        apart = counters(one) | counters(two) | free
        return any(self.aliasing.overlap_across(apart, a, 8 * size, b, 8 * other)
                   for x in statements_of(one) for y in statements_of(two)
                   for number, (a, size) in enumerate(_cells(x)) for place, (b, other) in enumerate(_cells(y))
                   if not (number and place))

    def conflict_later(self, loop: StatementLoop, one: StatementItem, two: StatementItem) -> bool:
        """Whether ``two`` may touch, in a later iteration of ``loop``, what ``one`` touches in this one."""
        self.ranges[_LATER] = loop.trips - 2
        later = Linear.symbol(loop.counter) + Linear.symbol(_LATER) + 1
        return self.conflict(one, moved(two, {loop.counter: later}))

    def sampled(self, one: Shape) -> tuple[int, ...]:
        """The linears in iteration 0 of all loops at the captured values, without what has no number there."""
        known = self.aliasing.sample
        return tuple(Linear(tuple(t for t in linear.terms if not t[0].startswith((LOOP_COUNTER, WIDE))),
                            linear.constant).evaluate(known) for linear in one.linears)

    def keeps_order(self, items: Items, templates: list[list[int]]) -> bool:
        """Whether the first of all ``templates``, then the second of all, and so on, does what ``items`` in their
        order do, within one iteration: what changes places touches nothing in common."""
        order = [n for copy in range(len(templates[0])) for n in (chain[copy] for chain in templates)]
        return not any(earlier > later and self.conflict(items[later], items[earlier])
                       for earlier, later in combinations(order, 2))

    def proves(self, linear: Linear, given: Iterable[Linear] = ()) -> bool:
        """Whether ``linear`` is >= 0 in all iterations in which all of ``given`` are."""
        if linear.is_constant:
            return linear.constant >= 0
        try:
            return proved(sign_where(linear, self.ranges, given, self.aliasing.sample), self.aliasing.limits)
        except Rejected:
            return False

    def decides(self, wanted: Collection[Linear], given: Collection[Linear]) -> bool | None:
        """Whether all of ``wanted`` are >= 0 wherever ``given`` are; None where that is not always the same."""
        if any(self.proves(-w - 1, given) for w in wanted):
            return False
        return True if all(self.proves(w, given) for w in wanted) else None

    def plausible(self, claims: Hypotheses) -> bool:
        """Whether they hold in the captured state, whatever the iteration."""
        known = self.aliasing.sample
        return (all(z.symbols <= known.keys() and z.evaluate(known) == 0 and not is_private(z) for z in claims.zero)
                and all(one == two or self.captured.alike(one, two) for one, two in claims.alike))

    def hold(self, claims: Hypotheses) -> bool:
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
