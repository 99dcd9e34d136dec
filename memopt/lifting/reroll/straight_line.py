"""Rerolling of straight-line code: a loop that the compiler unrolled completely becomes a loop again.

Example: ``S(0); T(0); S(1); T(1); ...`` becomes ``for (c = 0; c < n; c++) { S(c); T(c); }``.

In: the items of a loop body. Out: the items with each run of at least ``LEAST`` copies as a loop. Sound because items
that change places are proved independent (memopt.lifting.reroll.proofs).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.lifting.demotion.statements import StatementLoop
from memopt.lifting.reroll.isomorphism import Shape, linears, rebuilt, shape
from memopt.lifting.reroll.proofs import Hypotheses, Items, Prover
from memopt.lifting.values.algebra import LOOP_COUNTER

LEAST = 4  # fewer copies are not taken for a loop


@dataclass(frozen=True, slots=True)
class _Chain:
    """Copies, by their places in a body. Each lies ``step`` after the one before it."""

    places: list[int]
    step: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StraightLine:
    """Rolls up straight-line copies in a body."""

    prover: Prover

    def loops(self, items: Items) -> Items:
        """``items`` with each run of copies as a loop."""
        shapes = [shape(item) for item in items] if len(items) >= LEAST else []
        chains: dict[int, list[_Chain]] = defaultdict(list)
        for chain in self._chains(shapes):
            chains[len(chain.places)].append(chain)
        for equal in chains.values():
            for group in dict.fromkeys((tuple(range(len(equal))), *((n,) for n in range(len(equal))))):
                found = self._as_loop(items, shapes, sorted((equal[n] for n in group), key=lambda c: c.places[0]))
                if found is not None:
                    return self.loops(found)
        return items

    def _chains(self, shapes: list[Shape]) -> Iterator[_Chain]:
        classes: dict[Hashable, list[int]] = defaultdict(list)
        for number, one in enumerate(shapes):
            classes[one.key].append(number)
        for members in classes.values():
            if len(members) >= LEAST:
                yield from self._chains_of({n: self.prover.sampled(shapes[n]) for n in members})

    @staticmethod
    def _chains_of(where: dict[int, tuple[int, ...]]) -> Iterator[_Chain]:
        """The longest chains, beginning at the lowest addresses."""
        rest = sorted(where, key=lambda n: (where[n], n))
        while len(rest) >= LEAST:
            first, second = rest[:2]
            step = tuple(b - a for a, b in zip(where[first], where[second], strict=True))
            chain = [first]
            for number in rest[1:]:
                if where[number] == tuple(p + s for p, s in zip(where[chain[-1]], step, strict=True)) and any(step):
                    chain.append(number)
            if len(chain) >= LEAST:
                yield _Chain(chain, step)
            else:
                chain = [first]
            rest = [number for number in rest if number not in chain]

    def _as_loop(self, items: Items, shapes: list[Shape], chains: list[_Chain]) -> Items | None:
        """``items`` with one loop over all ``chains`` in place of their first item; None where that is not proved."""
        templates = [c.places for c in chains]
        members = {n for c in chains for n in c.places}
        start = min(members)
        passed = [(x, n) for n in members for x in range(start, n) if x not in members]
        if any(self.prover.conflict(items[x], items[n]) for x, n in passed) or not self.prover.keeps_order(
                items, templates):
            return None
        claims = Hypotheses()
        for chain in chains:
            claims.copies([shapes[n] for n in chain.places], chain.step)
        if not self.prover.plausible(claims) or not self.prover.hold(claims):
            return None
        count = Linear.of(len(templates[0]))
        counter = self.counter()
        self.prover.ranges[counter] = count - 1
        body = tuple(rebuilt(items[c.places[0]], tuple(
            n + Linear.symbol(counter, s) for n, s in zip(linears(items[c.places[0]]), c.step, strict=True)))
            for c in chains)
        rest = [x for n, x in enumerate(items) if n > start and n not in members]
        return (*items[:start], StatementLoop(counter, count, body), *rest)

    def counter(self) -> str:
        """The counter of one more loop."""
        number = 0
        while f"{LOOP_COUNTER}run{number}" in self.prover.ranges:
            number += 1
        return f"{LOOP_COUNTER}run{number}"
