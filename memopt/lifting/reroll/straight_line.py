"""Straight-line copies: a loop that the compiler unrolled completely is a loop again.

``S(0), T(0), S(1), T(1), ...`` is ``for c < n: S(c), T(c)``. Statements that come to stand elsewhere are proved
independent of those that they pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from memopt.ir.linear import Linear
from memopt.lifting.demotion.statements import StatementLoop
from memopt.lifting.reroll.isomorphism import Shape, linears, rebuilt, shape
from memopt.lifting.reroll.proofs import Hypotheses, Items, Prover
from memopt.lifting.values.algebra import LOOP_COUNTER

LEAST = 4  # copies that are taken for a loop


@dataclass(frozen=True, slots=True)
class _Chain:
    """Places of copies in a body; each lies ``step`` further than the one before."""

    places: list[int]
    step: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StraightLine:
    known: Prover

    def loops(self, items: Items) -> Items:
        """``items`` with every run of copies as a loop."""
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
                yield from self._chains_of({n: self.known.sampled(shapes[n]) for n in members})

    @staticmethod
    def _chains_of(where: dict[int, tuple[int, ...]]) -> Iterator[_Chain]:
        """Longest runs from the lowest addresses on."""
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
        """One loop over all of ``chains``, where the first of their items stands."""
        templates = [c.places for c in chains]
        members = {n for c in chains for n in c.places}
        start = min(members)
        passed = [(x, n) for n in members for x in range(start, n) if x not in members]
        if any(self.known.conflict(items[x], items[n]) for x, n in passed) or not self.known.keeps_order(
                items, templates):
            return None
        claims = Hypotheses()
        for chain in chains:
            claims.copies([shapes[n] for n in chain.places], chain.step)
        if not self.known.plausible(claims) or not self.known.hold(claims):
            return None
        count = Linear.of(len(templates[0]))
        counter = self.counter()
        self.known.ranges[counter] = count - 1
        body = tuple(rebuilt(items[c.places[0]], tuple(
            n + Linear.symbol(counter, s) for n, s in zip(linears(items[c.places[0]]), c.step, strict=True)))
            for c in chains)
        rest = [x for n, x in enumerate(items) if n > start and n not in members]
        return (*items[:start], StatementLoop(counter, count, body), *rest)

    def counter(self) -> str:
        """A name for one more loop."""
        number = 0
        while f"{LOOP_COUNTER}run{number}" in self.known.ranges:
            number += 1
        return f"{LOOP_COUNTER}run{number}"
