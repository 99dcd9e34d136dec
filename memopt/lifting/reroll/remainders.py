"""Remainders by cases: what a vectorised loop leaves over is done in pieces, each for some of the remainders.

After ``4 * (n / 4)`` iterations up to three are left. Compilers do them by a shorter vector and by single iterations,
each under conditions of its own. Given the remainder r, ``n`` is ``4 * q + r``, and all these conditions are decided.
Where the pieces that are then done are the next r iterations in their order, whatever r, loop and pieces are one loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from memopt.ir.linear import Linear, Quotient
from memopt.lifting.demotion.statements import StatementLoop, statements_of
from memopt.lifting.reroll.isomorphism import conditions, moved, restricted, shape, unconditional
from memopt.lifting.reroll.proofs import Hypotheses, Items, Prover

LARGEST = 16  # copies in one iteration


@dataclass(frozen=True, slots=True)
class Remainders:
    known: Prover

    def joined(self, items: Items) -> Items:
        """``items`` with every loop that the pieces after it complete."""
        for place, item in enumerate(items):
            if isinstance(item, StatementLoop) and item.items:
                for count in self._lengths(item, items[place + 1:]):
                    whole = self._whole(item, items[place + 1:place + 1 + count])
                    if whole is not None:
                        return self.joined((*items[:place], whole, *items[place + 1 + count:]))
        return items

    @staticmethod
    def _lengths(one: StatementLoop, rest: Items) -> Iterator[int]:
        """How many of ``rest`` may be iterations of ``one``, most first."""
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
        shared = mine | {c for c in common if self.known.proves(c, (*mine, one.trips - 1))}
        if not mine <= common or not self.known.proves(one.trips, shared):
            return None
        claims, bare = Hypotheses(), unconditional(one, mine)
        least = None
        for remainder in range(rounded.divisor):
            count = self._further(bare, pieces, shared, rounded, remainder, claims)
            if count is None or (least is not None and count != least + remainder):
                return None
            least = count if least is None else least
        if least is None or not self.known.plausible(claims) or not self.known.hold(claims):
            return None
        trips = one.trips + rounded.numerator - Linear.symbol(rounded, rounded.divisor) + least
        self.known.ranges[one.counter] = trips - 1
        return restricted(replace(bare, trips=trips), shared)

    def _further(self, one: StatementLoop, pieces: tuple[Items, ...], shared: frozenset[Linear], rounded: Quotient,
                 remainder: int, claims: Hypotheses) -> int | None:
        """How many iterations ``pieces`` go on after ``one`` if the claims hold; None: something else."""
        count = 0
        for piece in pieces:
            theirs = conditions(*piece)
            done = self.known.decides([_given(c, rounded, remainder) for c in theirs - shared], shared)
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
    """``linear`` where the numerator of ``rounded`` is ``remainder`` more than a multiple of its divisor."""
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
