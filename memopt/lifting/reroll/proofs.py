"""Proofs of rerolling: which items touch the same bytes, which bounds hold, which captured values are equal.

Example: the two copies in ``a[i] += x; b[i + 1] += y;`` are iterations of one loop if a == b and x == y. These two
equations are ``Hypotheses``. They are tested at the captured values first, and made to hold only if everything else
fits.

In: the aliasing of cells, the ranges of counters, ``CapturedState``. Out: yes or no. Sound because hypotheses are made
to hold by a guard (``equate``) or by lifting again under an equation (``always``), and everything else is proved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from itertools import combinations
from typing import Protocol

from memopt.ir.frozen import dataclass
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
_LATER = f"{LOOP_COUNTER}later"  # a symbol: how many iterations later, minus one


class CapturedState(Protocol):
    """Answers about the captured state, and ways to rely on them: memopt.lifting.scop.evidence.Evidence."""

    def always(self, distance: Linear, expected: int) -> bool:
        """Whether ``distance``, over live-in symbols, is ``expected`` at every entry. If this holds at the captured
        values only, the answer is yes as well, and the next attempt at lifting assumes the equation.
        """

    def alike(self, one: Scalar, two: Scalar) -> bool:
        """Whether two live-in operands hold the same bits in the captured state."""

    def equate(self, one: Scalar, two: Scalar) -> None:
        """Makes the region rely on ``alike``, by a guard."""

    def bits(self, cell: Cell) -> int | None:
        """The captured contents of the cell; None where a guard could not read it."""

    def same_cells(self, one: Cell, two: Cell) -> None:
        """Makes the region rely on the two cells holding the same bits at entry, and on the second, which it no longer
        reads, being none of the cells that it writes."""


@dataclass
class Hypotheses:
    """The conditions under which items are copies: linear expressions are zero, pairs of live-in operands are equal."""

    zero: list[Linear] = field(default_factory=list)
    alike: list[tuple[Scalar, Scalar]] = field(default_factory=list)

    def copies(self, shapes: Sequence[Shape], step: tuple[int, ...]) -> None:
        """Adds that each of ``shapes``, which have one form, lies ``step`` after the one before it."""
        for number, copy in enumerate(shapes):
            distance = copy.distance(shapes[0])
            self.zero += [d - s * number for d, s in zip(distance, step, strict=True)]
            self.alike += zip(shapes[0].scalars, copy.scalars, strict=True)


@dataclass(frozen=True, slots=True)
class Prover:
    """Answers questions about items. ``ranges`` are those of ``aliasing``, and grow as loops are made. The captured
    values in ``aliasing.sample`` matter, since copies often access one array through several registers."""

    aliasing: Aliasing
    captured: CapturedState
    ranges: dict[str, Linear]

    def conflict(self, one: StatementItem, two: StatementItem, free: frozenset[str] = frozenset()) -> bool:
        """Whether the two may access a common byte, and one of them writes it. The loops around them are in the same
        iteration, except those with counters in ``free``."""
        apart = counters(one) | counters(two) | free
        return any(self.aliasing.overlap_across(apart, a, 8 * size, b, 8 * other)
                   for x in statements_of(one) for y in statements_of(two)
                   for number, (a, size) in enumerate(_cells(x)) for place, (b, other) in enumerate(_cells(y))
                   if not (number and place))

    def conflict_later(self, loop: StatementLoop, one: StatementItem, two: StatementItem) -> bool:
        """Whether ``two``, in a later iteration of ``loop``, may conflict with ``one`` in this one: a loop-carried
        dependence."""
        self.ranges[_LATER] = loop.trips - 2
        later = Linear.symbol(loop.counter) + Linear.symbol(_LATER) + 1
        return self.conflict(one, moved(two, {loop.counter: later}))

    def sampled(self, one: Shape) -> tuple[int, ...]:
        """The linears at the captured values, in iteration 0 of all loops, without deferred extensions."""
        known = self.aliasing.sample
        return tuple(Linear(tuple(t for t in linear.terms if not t[0].startswith((LOOP_COUNTER, WIDE))),
                            linear.constant).evaluate(known) for linear in one.linears)

    def keeps_order(self, items: Items, templates: list[list[int]]) -> bool:
        """Whether ``items`` may be reordered within one iteration: the first copy of each of ``templates``, then the
        second of each, and so on. No two items that change places conflict."""
        order = [n for copy in range(len(templates[0])) for n in (chain[copy] for chain in templates)]
        return not any(earlier > later and self.conflict(items[later], items[earlier])
                       for earlier, later in combinations(order, 2))

    def proves(self, linear: Linear, given: Iterable[Linear] = ()) -> bool:
        """Whether ``linear`` is proved >= 0 in all iterations in which all of ``given`` are."""
        if linear.is_constant:
            return linear.constant >= 0
        try:
            return proved(sign_where(linear, self.ranges, given, self.aliasing.sample), self.aliasing.limits)
        except Rejected:
            return False

    def decides(self, wanted: Collection[Linear], given: Collection[Linear]) -> bool | None:
        """True: all of ``wanted`` are >= 0 wherever all of ``given`` are. False: never. None: neither is proved."""
        if any(self.proves(-w - 1, given) for w in wanted):
            return False
        return True if all(self.proves(w, given) for w in wanted) else None

    def plausible(self, claims: Hypotheses) -> bool:
        """Whether ``claims`` hold in the captured state, in all iterations."""
        known = self.aliasing.sample
        return (all(z.symbols <= known.keys() and z.evaluate(known) == 0 and not is_private(z) for z in claims.zero)
                and all(one == two or self.captured.alike(one, two) for one, two in claims.alike))

    def hold(self, claims: Hypotheses) -> bool:
        """Whether ``claims`` hold at every entry; makes them hold by guards and equations where they are plausible."""
        if not all(self.captured.always(z, 0) for z in claims.zero):
            return False
        for one, two in claims.alike:
            if one != two:
                self.captured.equate(one, two)
        return True


def _cells(statement: CellStatement) -> list[tuple[Linear, int]]:
    """Address and bytes of each access, the write first."""
    return [(a, e.size) for a, e in zip(statement.accesses, statement.elements, strict=True)]
