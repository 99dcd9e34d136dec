"""Short rows done apart: pieces that are done when a row has one of a few lengths join the loop for longer ones.

Where a row is too short for vectors, compilers do it by shorter vectors or one by one, under conditions of its own.
For each length the conditions and trip counts of these pieces are numbers: where that makes them all iterations of
the loop, in their order, the loop has that length as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from memopt.ir.linear import Linear
from memopt.lifting.demotion.statements import StatementLoop
from memopt.lifting.reroll.isomorphism import conditions, moved, restricted, shape, unconditional
from memopt.lifting.reroll.proofs import Hypotheses, Items, Prover

LOOK = 12  # items before a loop, and after it, that may be pieces
LENGTHS = 16  # that are tried one by one


@dataclass(frozen=True, slots=True)
class _Piece:
    """``items``, one iteration of another loop; or ``turns`` times, for ``counter`` from 0 on."""

    items: Items
    conditions: frozenset[Linear]
    turns: Linear
    counter: str = ""

    def at(self, number: int) -> Items:
        return tuple(moved(i, {self.counter: Linear.of(number)}) for i in self.items)


@dataclass(frozen=True, slots=True)
class ShortTrips:
    known: Prover

    def joined(self, items: Items) -> Items:
        """``items`` with every loop that does what pieces beside it do for short rows."""
        for place, item in enumerate(items):
            if isinstance(item, StatementLoop) and item.items and conditions(item):
                for start in range(max(0, place - LOOK), min(len(items), place + LOOK) + 1):
                    first, last = (start, place) if start < place else (place + 1, start)
                    pieces = _pieces(item, items[first:last])
                    whole = self._whole(item, pieces) if pieces else None
                    if whole is not None:
                        low, high = min(first, place), max(last, place + 1)
                        return self.joined((*items[:low], whole, *items[high:]))
        return items

    def _whole(self, one: StatementLoop, pieces: tuple[_Piece, ...]) -> StatementLoop | None:
        for bound in sorted(conditions(one), key=str):
            lengths = _lengths(bound, pieces)
            rest = conditions(one) - {bound}
            bare = unconditional(one, conditions(one))
            claims = Hypotheses()
            if (0 < lengths <= LENGTHS and all(rest <= p.conditions for p in pieces)
                    and all(self._alike(bare, pieces, bound, -n, rest, claims) for n in range(1, lengths + 1))
                    and self.known.plausible(claims) and self.known.hold(claims)):
                return restricted(bare, rest | {bound + lengths})
        return None

    def _alike(self, one: StatementLoop, pieces: tuple[_Piece, ...], bound: Linear, value: int,
               given: frozenset[Linear], claims: Hypotheses) -> bool:
        """Whether ``pieces`` do the iterations of ``one`` where ``bound`` is ``value``, if the claims hold."""
        unit = [s for s, c in bound.terms if c in (1, -1)]
        if not unit or bound.quotients:
            return False
        rest = (Linear.symbol(unit[0], bound.factor(unit[0])) - bound + value) * bound.factor(unit[0])
        values = {unit[0]: rest}
        number = 0
        for piece in pieces:
            done = self.known.decides([c.substitute(values) for c in piece.conditions - given],
                                      [g.substitute(values) for g in given])
            turns = piece.turns.substitute(values)
            if done is None or (done and not 0 <= turns.constant <= LENGTHS) or not turns.is_constant:
                return False
            for turn in range(turns.constant if done else 0):
                there = shape(*(moved(i, {one.counter: Linear.of(number)}) for i in one.items))
                here = shape(*piece.at(turn))
                claims.zero += [d.substitute(values) for d in here.distance(there)]
                claims.alike += zip(there.scalars, here.scalars, strict=True)
                number += 1
        return one.trips.substitute(values) == Linear.of(number)


def _pieces(one: StatementLoop, items: Items) -> tuple[_Piece, ...]:
    """``items`` as iterations of loops like ``one``; none when they are something else."""
    form, size = shape(*(unconditional(i, conditions(one)) for i in one.items)).form, len(one.items)
    found: list[_Piece] = []
    while items:
        run = items[:size]
        known = conditions(*run)
        bare = tuple(unconditional(i, known) for i in run)
        if len(run) == size and shape(*bare).form == form:
            found.append(_Piece(bare, known, Linear.of(1)))
            items = items[size:]
            continue
        core = unconditional(items[0], conditions(items[0]))
        if not isinstance(core, StatementLoop) or shape(*core.items).form != form:
            return ()
        found.append(_Piece(core.items, conditions(items[0]), core.trips, core.counter))
        items = items[1:]
    return tuple(found)


def _lengths(bound: Linear, pieces: tuple[_Piece, ...]) -> int:
    """The least n for which all ``pieces`` are done only where ``bound`` is from -n to -1; 0: there is none."""
    most = 0
    for piece in pieces:
        above = [(w - bound).constant for w in piece.conditions if (w - bound).is_constant]
        below = [w for w in piece.conditions if (w + bound).is_constant and (w + bound).constant < 0]
        if not above or not below:
            return 0
        most = max(most, min(above))
    return most
