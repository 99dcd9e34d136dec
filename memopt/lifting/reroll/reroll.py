"""Undo unrolling and vectorisation: lanes, unrolled copies, prologues and epilogues become pieces of one domain.

``for c < t: S(2c), T(2c), S(2c + 1), T(2c + 1)`` is ``for c < 2t: S(c), T(c)``. Where that changes the order of
execution (vector code runs all lanes of S before those of T, loops over several accumulators are distributed first),
what changes places is proved independent. What is a copy of what: memopt.lifting.reroll.isomorphism.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from itertools import combinations

from memopt.ir.linear import Linear
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.statements import CellStatement, StatementItem, StatementLoop
from memopt.lifting.reroll.isomorphism import Shape, linears, moved, rebuilt, shape
from memopt.lifting.reroll.peeling import Peeling
from memopt.lifting.reroll.proofs import CapturedState, Hypotheses, Items, Prover
from memopt.lifting.reroll.straight_line import StraightLine


def reroll(loop: StatementLoop, aliasing: Aliasing, captured: CapturedState) -> StatementLoop:
    """The nest with every unrolled or split inner loop rolled up.

    The outermost loop keeps its iterations: they are what the patch counts.
    """
    ranges = dict(aliasing.ranges)
    known = Prover(replace(aliasing, ranges=ranges), captured, ranges)
    return _Reroller(known, Peeling(known), StraightLine(known)).outermost(loop)


@dataclass(frozen=True, slots=True)
class _Reroller:
    known: Prover
    neighbours: Peeling
    runs: StraightLine

    def outermost(self, loop: StatementLoop) -> StatementLoop:
        """Copies that no loop's step accounts for last: together with those of other iterations they may be more."""
        rolled = self._inside(loop)
        straight = self._straightened(rolled)
        return self._in_lanes(rolled) if straight == rolled else self._inside(straight)

    def _in_lanes(self, loop: StatementLoop) -> StatementLoop:
        """The outermost loop with the copies that make up its step in a loop of their own."""
        templates = self._copies(loop, loop.items) if all(isinstance(i, CellStatement) for i in loop.items) else None
        if templates is None:
            return loop
        count, counter = len(templates[0]), self.runs.counter()
        self.known.ranges[counter] = Linear.of(count - 1)
        lanes = tuple(rebuilt(item, tuple(n + Linear.symbol(counter, n.coefficient(loop.counter) // count)
                                          for n in linears(item))) for item in (loop.items[c[0]] for c in templates))
        return replace(loop, items=(StatementLoop(counter, Linear.of(count), lanes),))

    def _inside(self, loop: StatementLoop) -> StatementLoop:
        return replace(loop, items=self.neighbours.join(tuple(i for item in loop.items for i in self._item(item))))

    def _straightened(self, loop: StatementLoop) -> StatementLoop:
        items = tuple(self._straightened(i) if isinstance(i, StatementLoop) else i for i in loop.items)
        return replace(loop, items=self.neighbours.join(self.runs.loops(items)))

    def _item(self, item: StatementItem) -> Items:
        if isinstance(item, CellStatement):
            return (item,)
        loop = replace(item, items=tuple(i for inner in item.items for i in self._item(inner)))
        rolled = self._unrolled(loop)
        if rolled is None:
            joined = replace(loop, items=self.neighbours.join(loop.items))
            rolled = (self._unrolled(joined) if joined != loop else None) or (joined,)
        return tuple(replace(r, items=self.neighbours.join(r.items)) for r in rolled)

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
        templates = self._copies(loop, items)
        return None if templates is None else self._of_first_copies(loop, items, templates)

    def _copies(self, loop: StatementLoop, items: Items) -> list[list[int]] | None:
        """The copies, as many as possible, of each statement that all of ``items`` are made of."""
        shapes = [shape(item) for item in items]
        classes: dict[Hashable, list[int]] = defaultdict(list)
        for number, one in enumerate(shapes):
            classes[one.key].append(number)
        for count in range(min(map(len, classes.values()), default=0), 1, -1):
            if any(len(members) % count for members in classes.values()):
                continue
            templates = self._templates(loop.counter, shapes, list(classes.values()), count)
            if templates is not None and self.known.keeps_order(items, templates):
                claims = Hypotheses()
                for chain in templates:
                    step = _divided(shapes[chain[0]], loop.counter, count)
                    assert step is not None
                    claims.copies([shapes[n] for n in chain], step)
                if self.known.plausible(claims) and self.known.hold(claims):
                    return templates
        return None

    def _templates(self, counter: str, shapes: list[Shape], classes: list[list[int]], count: int) -> (
            list[list[int]] | None):
        """For each statement of the rolled loop its ``count`` copies, the first copies in their textual order."""
        templates: list[list[int]] = []
        for members in classes:
            step = _divided(shapes[members[0]], counter, count)
            if step is None:
                return None
            places = {number: self.known.sampled(shapes[number]) for number in members}
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

    def _of_first_copies(self, loop: StatementLoop, items: Items, templates: list[list[int]]) -> StatementLoop:
        count, counter = len(templates[0]), loop.counter
        first = (items[chain[0]] for chain in templates)
        slower = tuple(rebuilt(item, tuple(n.without(counter) + Linear.symbol(counter, n.coefficient(counter) // count)
                                           for n in linears(item))) for item in first)
        self.known.ranges[counter] = loop.trips * count - 1
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
            if self.known.conflict_later(loop, second, first):
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
            near = [g for g in groups if any(keys[n] == keys[number] or self.known.conflict(
                items[n], item, frozenset((loop.counter,))) for n in g)]
            groups = [g for g in groups if g not in near] + [sorted([number, *(n for g in near for n in g)])]
        return [tuple(items[n] for n in group) for group in sorted(groups)]

    def _apart(self, loop: StatementLoop, number: int) -> StatementLoop:
        """One of several loops with one counter; all but the first get one of their own."""
        if not number:
            self.known.ranges[loop.counter] = loop.trips - 1
            return loop
        counter = f"{loop.counter}~{number}"
        while counter in self.known.ranges:
            counter += "~"
        self.known.ranges[counter] = loop.trips - 1
        values = {loop.counter: Linear.symbol(counter)}
        return StatementLoop(counter, loop.trips, tuple(moved(item, values) for item in loop.items))


def _divided(one: Shape, counter: str, count: int) -> tuple[int, ...] | None:
    """How far one of ``count`` copies in an iteration is from the next, when all of them make up the loop's step."""
    if any(counter in q.numerator.symbols for linear in one.linears for q in linear.quotients):
        return None
    coefficients = tuple(linear.coefficient(counter) for linear in one.linears)
    return None if any(c % count for c in coefficients) else tuple(c // count for c in coefficients)
