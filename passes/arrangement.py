"""A loop plan for any group of statements: distribution, fusion and a leaf for each.

The recursion is Allen and Kennedy's: statements in a dependence circle share a serial loop, which carries part of
the dependences, and are looked at again inside it; the others run one after the other, inside the loops that they
share in the original as long as that costs none of them its vectors.

Before: ``for t { for i S0(t, i); for i S1(t, i) }``. After: S0 at (t, 0) vectors i, S1 at (t, 1) vectors i.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

from memopt.analysis.conflicts import shared_loops
from memopt.ir.linear import Linear
from memopt.ir.plan import Date
from memopt.ir.scop import Scop, Statement
from memopt.models.loop_cost import average_trips, lanes
from passes.base import Context
from passes.grouping import components
from passes.leaves import Option, Position, options
from passes.ordering import Conflicts, carry, keeps, within

# A leaf inside shared loops may cost this much more than on its own before the loops are distributed.
FUSION_LOSS = 1.25


@dataclass(frozen=True)
class Arrangement:
    """Leaves for ``scop``'s statements; ``conflicts`` are all their dependences."""

    scop: Scop
    conflicts: Conflicts
    context: Context

    def made(self) -> tuple[Option, ...]:
        """One leaf for each statement, all with equally many dates, in textual order."""
        found = self._arranged(tuple(map(self._start, self.scop.statements)), self.conflicts, 0)
        order = {s.name: n for n, s in enumerate(self.scop.statements)}
        most = max(len(o.leaf.dates) for o in found)
        padded = (replace(o, leaf=replace(o.leaf, dates=_padded(o.leaf.dates, most))) for o in found)
        return tuple(sorted(padded, key=lambda o: order[o.leaf.statement]))

    def _start(self, statement: Statement) -> Position:
        trips = average_trips(statement, self.context.trips)
        place = tuple((n, Linear.symbol(n)) for n in trips)
        return Position(statement, (), tuple(trips.items()), (), place, within(self.conflicts, (statement.name,)))

    def _arranged(self, positions: tuple[Position, ...], left: Conflicts, level: int) -> tuple[Option, ...]:
        """``level``: loops of the original that have been decided on, outside of what is left."""
        by_name = {p.statement.name: p for p in positions}
        groups = components((p.statement for p in positions), left)
        if len(groups) == 1:
            if len(positions) == 1:
                return (self._best(positions[0]),)
            return self._serial(positions, left, level)
        nests = [tuple(by_name[s.name] for s in g) for g in groups]
        if self._share(positions, level):
            if self._fusible(positions, left, level):
                return self._serial(positions, left, level)
            return self._strips(nests, left, level)
        return self._sequence(nests, left, level)

    def _best(self, position: Position) -> Option:
        return options(self.scop, position, self.context)[0]

    def _share(self, positions: tuple[Position, ...], level: int) -> bool:
        """Whether loop number ``level`` is one loop around all statements, and still free."""
        statements = [p.statement for p in positions]
        if min(shared_loops(statements[0], s) for s in statements) <= level:
            return False
        return all(p.statement.dimensions[level].name in dict(p.free) for p in positions)

    def _serial(self, positions: tuple[Position, ...], left: Conflicts, level: int) -> tuple[Option, ...]:
        """The original loop around all of them, one iteration at a time."""
        inside = self._one_by_one(positions, left, level)
        return self._arranged(inside[0], inside[1], level + 1)

    def _one_by_one(
        self, positions: tuple[Position, ...], left: Conflicts, level: int
    ) -> tuple[tuple[Position, ...], Conflicts]:
        dates = {p.statement.name: Linear.symbol(p.statement.dimensions[level].name) for p in positions}
        remaining = carry(left, dates)
        assert remaining is not None, "the original order of a shared loop keeps its dependences"
        return tuple(
            p.at(p.statement.dimensions[level].name, dates[p.statement.name],
                 dict(p.free)[p.statement.dimensions[level].name], within(remaining, (p.statement.name,)))
            for p in positions), remaining

    def _fusible(self, positions: tuple[Position, ...], left: Conflicts, level: int) -> bool:
        """Whether every statement keeps its speed when the shared loop is serial."""
        inside, _ = self._one_by_one(positions, left, level)
        return all(p.free for p in inside) and all(
            self._best(p).cycles <= FUSION_LOSS * self._best(q).cycles for p, q in zip(inside, positions, strict=True))

    def _strips(self, nests: list[tuple[Position, ...]], left: Conflicts, level: int) -> tuple[Option, ...]:
        """The shared loop in strips; inside a strip the groups run one after the other."""
        names = {p.statement.name: p.statement.dimensions[level].name for n in nests for p in n}
        if not keeps(left, {s: Linear.symbol(d) for s, d in names.items()}):
            return self._sequence(nests, left, level)
        size = self._strip_size(nests, level)
        cut = [tuple(_cut(p, names[p.statement.name], size) for p in n) for n in nests]
        return self._sequence(cut, left, level)

    def _strip_size(self, nests: list[tuple[Position, ...]], level: int) -> int:
        """Iterations whose data stay in half of L2, whole vectors."""
        positions = [p for n in nests for p in n]
        width = max(lanes(self.scop, p.statement, self.context.isa) for p in positions)
        inner = max((_volume(p, level) for p in positions), default=1)
        data = 8 * inner * len({a.array for p in positions for a in (p.statement.write, *p.statement.reads)})
        fitting = self.context.machine.level(2).share // 2 // max(data, 1)
        return max(width, min(16 * width, fitting // width * width))

    def _sequence(self, nests: list[tuple[Position, ...]], left: Conflicts, level: int) -> tuple[Option, ...]:
        found: list[Option] = []
        for number, nest in enumerate(nests):
            later = tuple(replace(p, dates=(*p.dates, Date(Linear.of(number)))) for p in nest)
            found += self._arranged(later, within(left, (p.statement.name for p in later)), level)
        return tuple(found)

    @cached_property
    def private(self) -> frozenset[str]:
        return frozenset(a.name for a in self.scop.arrays if a.private)


def _cut(position: Position, name: str, size: int) -> Position:
    """``name`` in tiles of ``size``, still free inside a tile."""
    count = dict(position.free)[name]
    outer = name + "/"
    place = tuple((d, Linear.build({outer: size, name: 1}) if d == name else x) for d, x in position.place)
    return replace(position, dates=(*position.dates, Date(Linear.symbol(name), size)),
                   levels=(*position.levels, (outer, ceil(count / size))),
                   free=tuple((n, min(c, size) if n == name else c) for n, c in position.free), place=place)


def _volume(position: Position, level: int) -> int:
    """Iterations of the loops inside loop ``level``, or one line of them where they form a volume."""
    counts = dict(position.free)
    inside = [counts[d.name] for d in position.statement.dimensions[level + 1:] if d.name in counts]
    return max(inside, default=1)


def _padded(dates: tuple[Date, ...], length: int) -> tuple[Date, ...]:
    return (*dates, *(Date(Linear.of(0)) for _ in range(length - len(dates))))
