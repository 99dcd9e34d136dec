"""Code versions for short trip counts become part of the loop for longer ones.

Example: where a row is too short for vectors, compilers run it by shorter vectors or one element at a time, under
conditions such as ``n <= 4``.

In: the items of a loop body. Out: the items with each loop, which runs where ``n > 4``, and the pieces beside it as one
loop without that condition. Sound because for each short length the conditions and trip counts of the pieces are
numbers, and the pieces that then run are proved to be all iterations of the loop in their order.
"""

from __future__ import annotations

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.lifting.demotion.statements import StatementLoop
from memopt.lifting.reroll.isomorphism import conditions, moved, restricted, shape, unconditional
from memopt.lifting.reroll.proofs import Hypotheses, Items, Prover

LOOK = 12  # how many items before and after a loop may be pieces
LENGTHS = 16  # the longest short row: lengths are tried one by one


@dataclass(frozen=True, slots=True)
class _Piece:
    """One iteration of another loop, or that loop: ``items`` for each value of ``counter`` from 0 to ``trips - 1``."""

    items: Items
    conditions: frozenset[Linear]
    trips: Linear
    counter: str = ""

    def at(self, number: int) -> Items:
        return tuple(moved(i, {self.counter: Linear.of(number)}) for i in self.items)


@dataclass(frozen=True, slots=True)
class ShortTrips:
    """Joins loops of a body with their code versions for short trip counts."""

    prover: Prover

    def joined(self, items: Items) -> Items:
        """``items`` with each loop joined to the pieces beside it that run in its place for short rows."""
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
                    and self.prover.plausible(claims) and self.prover.hold(claims)):
                return restricted(bare, rest | {bound + lengths})
        return None

    def _alike(self, one: StatementLoop, pieces: tuple[_Piece, ...], bound: Linear, value: int,
               given: frozenset[Linear], claims: Hypotheses) -> bool:
        """Whether ``pieces`` are the iterations of ``one`` where ``bound`` is ``value``, if the claims hold."""
        unit = [s for s, c in bound.terms if c in (1, -1)]
        if not unit or bound.quotients:
            return False
        rest = (Linear.symbol(unit[0], bound.factor(unit[0])) - bound + value) * bound.factor(unit[0])
        values = {unit[0]: rest}
        number = 0
        for piece in pieces:
            done = self.prover.decides([c.substitute(values) for c in piece.conditions - given],
                                      [g.substitute(values) for g in given])
            trips = piece.trips.substitute(values)
            if done is None or (done and not 0 <= trips.constant <= LENGTHS) or not trips.is_constant:
                return False
            for iteration in range(trips.constant if done else 0):
                there = shape(*(moved(i, {one.counter: Linear.of(number)}) for i in one.items))
                here = shape(*piece.at(iteration))
                claims.zero += [d.substitute(values) for d in here.distance(there)]
                claims.alike += zip(there.scalars, here.scalars, strict=True)
                number += 1
        return one.trips.substitute(values) == Linear.of(number)


def _pieces(one: StatementLoop, items: Items) -> tuple[_Piece, ...]:
    """``items`` as iterations of ``one`` or loops over such; empty when they are something else."""
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
    """The least n such that all ``pieces`` run only where ``-n <= bound <= -1``; 0 if there is none."""
    most = 0
    for piece in pieces:
        above = [(w - bound).constant for w in piece.conditions if (w - bound).is_constant]
        below = [w for w in piece.conditions if (w + bound).is_constant and (w + bound).constant < 0]
        if not above or not below:
            return 0
        most = max(most, min(above))
    return most
