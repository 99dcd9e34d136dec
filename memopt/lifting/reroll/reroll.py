"""Loop rerolling: unrolled copies, vector lanes, prologues and epilogues become iterations of one loop.

Example: ``for (c = 0; c < t; c++) { S(2*c); T(2*c); S(2*c + 1); T(2*c + 1); }`` becomes
``for (c = 0; c < 2*t; c++) { S(c); T(c); }``.

In: a ``StatementLoop``, the aliasing of its cells, the captured state. Out: an equivalent one with every unrolled or
split inner loop rolled up. Sound because copies are isomorphic (memopt.lifting.reroll.isomorphism), and where rerolling
changes the order of execution, the statements that change places are proved independent. (Vector code runs all lanes of
S before those of T; loops over several accumulators are distributed before they are rolled up.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import replace
from itertools import combinations

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.statements import CellStatement, StatementItem, StatementLoop
from memopt.lifting.reroll.isomorphism import Shape, linears, moved, rebuilt, shape
from memopt.lifting.reroll.peeling import Peeling
from memopt.lifting.reroll.proofs import CapturedState, Hypotheses, Items, Prover
from memopt.lifting.reroll.straight_line import StraightLine


def reroll(loop: StatementLoop, aliasing: Aliasing, captured: CapturedState) -> StatementLoop:
    """The nest with every unrolled or split inner loop rolled up. ``captured`` is told what that relies on.

    The outermost loop keeps its iterations: the patch counts them.
    """
    ranges = dict(aliasing.ranges)
    prover = Prover(replace(aliasing, ranges=ranges), captured, ranges)
    return _Reroller(prover, Peeling(prover), StraightLine(prover)).outermost(loop)


@dataclass(frozen=True, slots=True)
class _Reroller:
    prover: Prover
    peeling: Peeling
    straight_line: StraightLine

    def outermost(self, loop: StatementLoop) -> StatementLoop:
        """The nest rolled up. Straight-line copies come last: before, they may be joined with other iterations'
        copies."""
        rolled = self._inside(loop)
        straight = self._straightened(rolled)
        return self._in_lanes(rolled) if straight == rolled else self._inside(straight)

    def _in_lanes(self, loop: StatementLoop) -> StatementLoop:
        """The outermost loop with its copies, if they make up its whole step, in an inner loop."""
        templates = self._copies(loop, loop.items) if all(isinstance(i, CellStatement) for i in loop.items) else None
        if templates is None:
            return loop
        count, counter = len(templates[0]), self.straight_line.counter()
        self.prover.ranges[counter] = Linear.of(count - 1)
        lanes = tuple(rebuilt(item, tuple(n + Linear.symbol(counter, n.coefficient(loop.counter) // count)
                                          for n in linears(item))) for item in (loop.items[c[0]] for c in templates))
        return replace(loop, items=(StatementLoop(counter, Linear.of(count), lanes),))

    def _inside(self, loop: StatementLoop) -> StatementLoop:
        return replace(loop, items=self.peeling.join(tuple(i for item in loop.items for i in self._item(item))))

    def _straightened(self, loop: StatementLoop) -> StatementLoop:
        items = tuple(self._straightened(i) if isinstance(i, StatementLoop) else i for i in loop.items)
        return replace(loop, items=self.peeling.join(self.straight_line.loops(items)))

    def _item(self, item: StatementItem) -> Items:
        if isinstance(item, CellStatement):
            return (item,)
        loop = replace(item, items=tuple(i for inner in item.items for i in self._item(inner)))
        rolled = self._unrolled(loop)
        if rolled is None:
            joined = replace(loop, items=self.peeling.join(loop.items))
            rolled = (self._unrolled(joined) if joined != loop else None) or (joined,)
        return tuple(replace(r, items=self.peeling.join(r.items)) for r in rolled)

    # -- copies in one iteration --------------------------------------------------------------------------------

    def _unrolled(self, loop: StatementLoop) -> tuple[StatementLoop, ...] | None:
        """The loop rolled up, or several loops, where it has to be distributed for that; None: there is nothing to
        roll up."""
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
        """The loop rolled up, with its body ``items`` split into as many copies as possible; None where they are no
        copies.
        """
        templates = self._copies(loop, items)
        return None if templates is None else self._of_first_copies(loop, items, templates)

    def _copies(self, loop: StatementLoop, items: Items) -> list[list[int]] | None:
        """For each statement of the rolled loop the places of its copies in ``items``, as many copies as possible. None
        where ``items`` are no copies that make up the loop's step, or what that relies on does not hold."""
        shapes = [shape(item) for item in items]
        classes: dict[Hashable, list[int]] = defaultdict(list)
        for number, one in enumerate(shapes):
            classes[one.key].append(number)
        for count in range(min(map(len, classes.values()), default=0), 1, -1):
            if any(len(members) % count for members in classes.values()):
                continue
            templates = self._templates(loop.counter, shapes, list(classes.values()), count)
            if templates is not None and self.prover.keeps_order(items, templates):
                claims = Hypotheses()
                for chain in templates:
                    step = _divided(shapes[chain[0]], loop.counter, count)
                    assert step is not None
                    claims.copies([shapes[n] for n in chain], step)
                if self.prover.plausible(claims) and self.prover.hold(claims):
                    return templates
        return None

    def _templates(self, counter: str, shapes: list[Shape], classes: list[list[int]], count: int) -> (
            list[list[int]] | None):
        """For each statement of the rolled loop its ``count`` copies; sorted by their first copies."""
        templates: list[list[int]] = []
        for members in classes:
            step = _divided(shapes[members[0]], counter, count)
            if step is None:
                return None
            places = {number: self.prover.sampled(shapes[number]) for number in members}
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
        """``count`` of ``rest``, each ``step`` after the one before it; None where there are none."""
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
        self.prover.ranges[counter] = loop.trips * count - 1
        return StatementLoop(counter, loop.trips * count, slower)

    # -- distribution -------------------------------------------------------------------------------------------

    def _distributed(self, items: Items) -> Items:
        """Loop distribution: ``items`` with every loop over several statements as several loops, where dependences
        allow it."""
        result: list[StatementItem] = []
        for item in items:
            if isinstance(item, CellStatement):
                result.append(item)
                continue
            groups = self._separable(item, self._distributed(item.items))
            result += [self._apart(replace(item, items=group), n) for n, group in enumerate(groups)]
        return tuple(result)

    def _separable(self, loop: StatementLoop, items: Items) -> list[Items]:
        """Groups of consecutive ``items`` that may each have a loop of their own: no item conflicts with an item of an
        earlier group in a later iteration."""
        ends = list(range(1, len(items) + 1))  # for each item the least end of a run that holds it
        for (early, first), (late, second) in combinations(enumerate(items), 2):
            if self.prover.conflict_later(loop, second, first):
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
        """The smallest groups of ``items`` such that all copies of an item are in its group, and no two groups conflict
        in any two iterations of ``loop``."""
        keys = [shape(item).key for item in items]
        groups: list[list[int]] = []
        for number, item in enumerate(items):
            near = [g for g in groups if any(keys[n] == keys[number] or self.prover.conflict(
                items[n], item, frozenset((loop.counter,))) for n in g)]
            groups = [g for g in groups if g not in near] + [sorted([number, *(n for g in near for n in g)])]
        return [tuple(items[n] for n in group) for group in sorted(groups)]

    def _apart(self, loop: StatementLoop, number: int) -> StatementLoop:
        """``loop`` as part ``number`` of a distributed loop. All parts but the first get a counter of their own."""
        if not number:
            self.prover.ranges[loop.counter] = loop.trips - 1
            return loop
        counter = f"{loop.counter}~{number}"
        while counter in self.prover.ranges:
            counter += "~"
        self.prover.ranges[counter] = loop.trips - 1
        values = {loop.counter: Linear.symbol(counter)}
        return StatementLoop(counter, loop.trips, tuple(moved(item, values) for item in loop.items))


def _divided(one: Shape, counter: str, count: int) -> tuple[int, ...] | None:
    """The distance of one of ``count`` copies in an iteration from the next, if they make up the loop's step; else
    None."""
    if any(counter in q.numerator.symbols for linear in one.linears for q in linear.quotients):
        return None
    coefficients = tuple(linear.coefficient(counter) for linear in one.linears)
    return None if any(c % count for c in coefficients) else tuple(c // count for c in coefficients)
