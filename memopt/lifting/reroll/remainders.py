"""Remainder iterations of a vectorised loop become part of that loop again, by a case split on the remainder.

Example: after ``4 * (n / 4)`` iterations up to three are left. Compilers run them as one shorter vector and single
iterations, each under a condition on ``n % 4``.

In: the items of a loop body. Out: the items with each such loop and its remainder pieces as one loop. Sound because for
each remainder r, ``n`` is ``4 * q + r``: that decides all these conditions, and the pieces that then run are proved to
be the next r iterations in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear, Quotient
from memopt.lifting.demotion.statements import StatementLoop, statements_of
from memopt.lifting.reroll.isomorphism import conditions, moved, restricted, shape, unconditional
from memopt.lifting.reroll.proofs import Hypotheses, Items, Prover

LARGEST = 16  # the largest divisor: copies in one iteration


@dataclass(frozen=True, slots=True)
class Remainders:
    """Joins loops of a body with their remainder iterations."""

    prover: Prover

    def joined(self, items: Items) -> Items:
        """``items`` with each loop joined to the remainder pieces after it."""
        for place, item in enumerate(items):
            if isinstance(item, StatementLoop) and item.items:
                for count in self._lengths(item, items[place + 1:]):
                    whole = self._whole(item, items[place + 1:place + 1 + count])
                    if whole is not None:
                        return self.joined((*items[:place], whole, *items[place + 1 + count:]))
        return items

    @staticmethod
    def _lengths(one: StatementLoop, rest: Items) -> Iterator[int]:
        """How many items of ``rest`` may be iterations of ``one``, the largest number first."""
        mine = [s.elements for s in statements_of(one)]
        size, longest = len(one.items), 0
        while longest + size <= len(rest) and mine == [
                s.elements for item in rest[longest:longest + size] for s in statements_of(item)]:
            longest += size
        yield from range(longest, 0, -size)

    def _whole(self, one: StatementLoop, rest: Items) -> StatementLoop | None:
        for rounded in one.trips.quotients:
            if one.trips.factor(rounded) == rounded.divisor <= LARGEST:
                pieces = tuple(rest[n:n + len(one.items)] for n in range(0, len(rest), len(one.items)))
                whole = self._for_all_remainders(one, pieces, rounded)
                if whole is not None:
                    return whole
        return None

    def _for_all_remainders(self, one: StatementLoop, pieces: tuple[Items, ...], rounded: Quotient) -> (
            StatementLoop | None):
        mine = conditions(one)
        common = frozenset.intersection(*(conditions(*piece) for piece in pieces))
        shared = mine | {c for c in common if self.prover.proves(c, (*mine, one.trips - 1))}
        if not mine <= common or not self.prover.proves(one.trips, shared):
            return None
        claims, bare = Hypotheses(), unconditional(one, mine)
        least = None
        for remainder in range(rounded.divisor):
            count = self._further(bare, pieces, shared, rounded, remainder, claims)
            if count is None or (least is not None and count != least + remainder):
                return None
            least = count if least is None else least
        if least is None or not self.prover.plausible(claims) or not self.prover.hold(claims):
            return None
        trips = one.trips + rounded.numerator - Linear.symbol(rounded, rounded.divisor) + least
        self.prover.ranges[one.counter] = trips - 1
        return restricted(replace(bare, trips=trips), shared)

    def _further(self, one: StatementLoop, pieces: tuple[Items, ...], shared: frozenset[Linear], rounded: Quotient,
                 remainder: int, claims: Hypotheses) -> int | None:
        """How many iterations of ``one`` the ``pieces`` are, for one remainder, if the claims hold; None where they are
        something else or a condition is not decided."""
        count = 0
        for piece in pieces:
            theirs = conditions(*piece)
            done = self.prover.decides([_given(c, rounded, remainder) for c in theirs - shared], shared)
            if done is None:
                return None
            if not done:
                continue
            there = shape(*(moved(item, {one.counter: one.trips + count}) for item in one.items))
            here = shape(*(unconditional(item, theirs) for item in piece))
            if here.form != there.form:
                return None
            claims.zero += [_given(d, rounded, remainder) for d in here.distance(there)]
            claims.alike += zip(there.scalars, here.scalars, strict=True)
            count += 1
        return count


def _given(linear: Linear, rounded: Quotient, remainder: int) -> Linear:
    """``linear``, given that the numerator of ``rounded`` modulo its divisor is ``remainder``."""
    numerator, divisor = rounded.numerator, rounded.divisor
    for other in linear.quotients:
        further = other.numerator - numerator
        if other != rounded and further.is_constant and not divisor % other.divisor:
            value = Linear.symbol(rounded, divisor // other.divisor) + (remainder + further.constant) // other.divisor
            linear = linear + (value - Linear.symbol(other)) * linear.factor(other)
    often, rest = divmod(linear.factor(rounded), divisor)
    if rest:
        return linear
    return linear + (numerator - remainder - Linear.symbol(rounded, divisor)) * often
