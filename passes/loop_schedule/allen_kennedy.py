"""Loop distribution and fusion by the recursion of Allen and Kennedy, with a leaf for each statement at its end.

Before: ``for t { for i S0(t, i); for i S1(t, i) }``. After: S0 at (t, 0) with vectors along i, S1 at (t, 1) with
vectors along i.

Statements in one cycle of dependences share a serial loop; that loop carries part of the dependences, and the recursion
looks at the statements again inside it. Other statements run one after the other. They stay inside the loops that they
share in the original (fusion) as long as that costs none of them its vectors.

In: a ``Scop`` and all its dependences. Out: one ``Option`` (a leaf with its dates) for each statement. Legal because
every date that is added keeps the dependences that are left (``carried_dependences.carry``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from itertools import islice, product

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.plan import Date
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Scop, Statement
from memopt.models.loop_cost import average_trips, lanes
from memopt.polyhedral.dependence_pieces import shared_loops
from passes.context import Context
from passes.loop_schedule.blocking import BLOCK, Blocking
from passes.loop_schedule.carried_dependences import DependencePieces, carry, keeps, within
from passes.loop_schedule.components import components
from passes.loop_schedule.leaf_options import Option, Position, cut, options
from passes.loop_schedule.row_alignment import RowAlignment
from passes.loop_schedule.time_tiling import time_tiled

# Loops stay fused as long as a leaf inside the shared loop costs at most this many times what it costs on its own.
FUSION_LOSS = 1.25

# Combinations of serial loops around a cycle of dependences: how many are looked at, and how many of the legal ones are
# scheduled further by default.
MOST_CHOICES = 64
MOST_SERIAL = 4

# Strips of a shared loop: the most vectors in one, and the sizes tried where register tiles go over blocks of rows.
MOST_STRIP = 16
BLOCK_ROWS = (96, 192)

Loops = Mapping[str, str | None]
"""For each statement, by its name: one of its loops, or None for a statement that has none left."""


@dataclass(frozen=True)
class AllenKennedy:
    """The recursion for the statements of ``scop``."""

    scop: Scop
    # All dependences of the statements.
    conflicts: DependencePieces
    context: Context
    # How many serial loops around a cycle of dependences are tried.
    most_serial: int = MOST_SERIAL
    # The serial loops to try first, where they are not those of the original.
    serial: Loops = field(default_factory=dict)
    _known: dict[object, Option] = field(default_factory=dict, compare=False)

    @cached_property
    def _rows(self) -> RowAlignment:
        return RowAlignment.of(self.scop)

    def made(self) -> tuple[Option, ...]:
        """One leaf for each statement, in textual order, all with equally many dates.

        Raises ``Rejected(NO_SCHEDULE)`` when a cycle of dependences has no serial loop around it that keeps them.
        """
        return self._aligned(self._arranged(self._starts(), self.conflicts))

    def time_tiled(self) -> Iterator[tuple[tuple[Option, ...], int]]:
        """The same schedules inside time tiles of several sizes, each with its number of time steps. All tiles count as
        whole."""
        for positions, left, steps in time_tiled(self.scop, self.conflicts, self._starts(), self.context.machine):
            yield self._aligned(self._arranged(positions, left)), steps

    def blocked(self, blocking: Blocking) -> tuple[Option, ...]:
        """The same schedule inside the blocks of ``blocking``, whose pieces must be the statements of ``scop``."""
        date = {s.name: Linear.symbol(BLOCK) for s in self.scop.statements}
        left = carry(self.conflicts, date)
        assert left is not None, "blocks of a loop that keeps all dependences"
        starts = tuple(blocking.start(s, within(left, (s.name,))) for s in self.scop.statements)
        return self._aligned(self._arranged(starts, left))

    def _aligned(self, found: tuple[Option, ...]) -> tuple[Option, ...]:
        """The options in textual order; shorter lists of dates are padded with the date 0."""
        order = {s.name: n for n, s in enumerate(self.scop.statements)}
        most = max(len(o.leaf.dates) for o in found)
        padded = (replace(o, leaf=replace(o.leaf, dates=_padded(o.leaf.dates, most))) for o in found)
        return tuple(sorted(padded, key=lambda o: order[o.leaf.statement]))

    def _starts(self) -> tuple[Position, ...]:
        return tuple(map(self._start, self.scop.statements))

    def _start(self, statement: Statement) -> Position:
        """The statement before its first date: all its dimensions are free."""
        trips = average_trips(statement, self.context.trips)
        place = tuple((n, Linear.symbol(n)) for n in trips)
        return Position(statement, (), tuple(trips.items()), (), place, within(self.conflicts, (statement.name,)))

    def _arranged(self, positions: tuple[Position, ...], left: DependencePieces) -> tuple[Option, ...]:
        """The recursion: ``positions`` of statements with the dependences ``left`` between them become leaves.

        One component of one statement: its best leaf. One component of several: a serial loop around them. Several
        components: they stay in a shared serial loop, share it in strips, or are distributed.
        """
        by_name = {p.statement.name: p for p in positions}
        groups = components((p.statement for p in positions), left)
        if len(groups) == 1:
            if len(positions) == 1:
                return (self._best(positions[0]),)
            return min(self._alternatives(positions, left), key=cycles)
        nests = [tuple(by_name[s.name] for s in g) for g in groups]
        loops = self._shared(positions)
        if loops is not None:
            inside = self._one_by_one(positions, left, loops)
            if inside is not None and self._fusible(positions, inside[0]):
                return self._arranged(*inside)
            fused = self._strips(nests, left, loops)
            if all(len(n) == 1 for n in nests):
                return fused
            return min(fused, self._sequence(nests, left), key=cycles)
        return self._sequence(nests, left)

    def _best(self, position: Position) -> Option:
        """The cheapest leaf at a position."""
        key = position.statement.name, position.dates, position.free
        if key not in self._known:
            self._known[key] = options(self.scop, position, self.context)[0]
        return self._known[key]

    def _shared(self, positions: tuple[Position, ...]) -> Loops | None:
        """The outermost loop of the original that encloses all statements and is still free; None where there is
        none."""
        statements = [p.statement for p in positions]
        for level in range(min(shared_loops(statements[0], s) for s in statements)):
            loops = {p.statement.name: p.statement.dimensions[level].name for p in positions}
            if all(loops[p.statement.name] in dict(p.free) for p in positions):
                return loops
        return None

    def _alternatives(self, positions: tuple[Position, ...], left: DependencePieces) -> list[tuple[Option, ...]]:
        """One schedule for each serial loop that can enclose all of them. Raises ``Rejected(NO_SCHEDULE)`` when there
        is none."""
        found = []
        for inside in self._serial(positions, left):
            try:
                found.append(self._arranged(*inside))
            except Rejected as refusal:
                if refusal.reason is not Reason.NO_SCHEDULE:
                    raise
        if not found:
            raise Rejected(Reason.NO_SCHEDULE, "no loop can enclose all statements that depend on each other")
        return found

    def _serial(self, positions: tuple[Position, ...], left: DependencePieces) -> Iterator[tuple[
            tuple[Position, ...], DependencePieces]]:
        """Positions and dependences inside a serial loop around all statements: first the original loop (or
        ``self.serial``), then combinations that take another loop of some statements. The latter turns a dot product
        into updates, as in triangular solvers."""
        original, rows = self._shared(positions), False
        preferred = {p.statement.name: self.serial.get(p.statement.name) for p in positions}
        if all(preferred[p.statement.name] in dict(p.free) for p in positions):
            original, rows = preferred, True
        choices: list[list[str | None]] = [[n for n, _ in p.free] or [None] for p in positions]
        tried = 0
        if original is not None:
            inside = self._one_by_one(positions, left, original, rows)
            if inside is not None:
                tried += 1
                yield inside
        for chosen in islice(product(*choices), MOST_CHOICES):
            loops = {p.statement.name: c for p, c in zip(positions, chosen, strict=True)}
            if loops == original or tried >= self.most_serial:
                continue
            inside = self._one_by_one(positions, left, loops, rows=True)
            if inside is not None and len(inside[1]) < len(left):
                tried += 1
                yield inside

    def _one_by_one(self, positions: tuple[Position, ...], left: DependencePieces, loops: Loops,
                    rows: bool = False) -> tuple[
            tuple[Position, ...], DependencePieces] | None:
        """The positions behind one more date, and the dependences it leaves; None where the date violates a dependence.

        The date of a statement is the loop named for it, or with ``rows`` the row that this loop is at. A statement
        without a loop gets the date 0.
        """
        named = {p.statement.name: (p.statement, loops[p.statement.name]) for p in positions}
        dates = {n: Linear() if d is None else self._rows.date(s, d) if rows else Linear.symbol(d)
                 for n, (s, d) in named.items()}
        remaining = carry(left, dates)
        if remaining is None:
            return None
        inside = []
        for p in positions:
            name, loop = p.statement.name, loops[p.statement.name]
            own = within(remaining, (name,))
            if loop is None:
                inside.append(replace(p, dates=(*p.dates, Date(Linear())), left=own))
            else:
                inside.append(p.at(loop, dates[name], dict(p.free)[loop], own))
        return tuple(inside), remaining

    def _fusible(self, positions: tuple[Position, ...], inside: tuple[Position, ...]) -> bool:
        """Whether every statement keeps its speed (within ``FUSION_LOSS``) and a free loop when the shared loop is
        serial."""
        return all(p.free for p in inside) and all(
            self._best(p).cycles <= FUSION_LOSS * self._best(q).cycles for p, q in zip(inside, positions, strict=True))

    def _strips(self, nests: list[tuple[Position, ...]], left: DependencePieces, loops: Loops) -> tuple[Option, ...]:
        """The shared loop strip-mined: inside a strip the components run one after the other. Without strips (plain
        distribution) where the data of the whole loop stay in a cache, or strips would violate a dependence."""
        names = {s: d for s, d in loops.items() if d is not None}
        size = self._strip_size(nests, names)
        count = max(dict(p.free)[names[p.statement.name]] for n in nests for p in n)
        if (self.serial or size >= count) and not self._needs_room(nests, names):
            return self._sequence(nests, left)
        if not keeps(left, {s: Linear.symbol(d) for s, d in names.items()}):
            return self._sequence(nests, left)
        sizes = {min(size, MOST_STRIP * self._width(nests))}
        if any(len(p.free) > 2 for n in nests for p in n):  # register tiles over blocks pay where there are many rows
            sizes |= set(BLOCK_ROWS)
        fused = min((self._sequence([tuple(cut(p, names[p.statement.name], rows) for p in n) for n in nests], left)
                     for rows in sorted(sizes)), key=cycles)
        # Beside a deeper nest it hardly matters that the data of a shallow one are fetched again: take the cheaper one.
        if len({len(p.free) for n in nests for p in n}) == 1 or self._needs_room(nests, names):
            return fused
        return min(self._sequence(nests, left), fused, key=cycles)

    def _needs_room(self, nests: list[tuple[Position, ...]], names: Mapping[str, str]) -> bool:
        """Whether distribution would have to keep private values for every iteration of the patched loop, whose number
        is not known."""
        private = {a.name for a in self.scop.arrays if a.private}
        used = {a.array for n in nests for p in n for a in (p.statement.write, *p.statement.reads)}
        return bool(private & used) and any(
            names[p.statement.name] == p.statement.dimensions[0].name for n in nests for p in n)

    def _strip_size(self, nests: list[tuple[Position, ...]], names: Mapping[str, str]) -> int:
        """Iterations of a strip whose data stay in half of L2: a multiple of the vector length, at least one vector."""
        positions = [p for n in nests for p in n]
        width = self._width(nests)
        inner = max((c for p in positions for n, c in p.free if n != names[p.statement.name]), default=1)
        data = 8 * inner * len({a.array for p in positions for a in (p.statement.write, *p.statement.reads)})
        return max(width, self.context.machine.level(2).share // 2 // max(data, 1) // width * width)

    def _width(self, nests: list[tuple[Position, ...]]) -> int:
        """Lanes of the statement with most of them."""
        return max(lanes(self.scop, p.statement, self.context.isa) for n in nests for p in n)

    def _sequence(self, nests: list[tuple[Position, ...]], left: DependencePieces) -> tuple[Option, ...]:
        """Loop distribution: the components one after the other, by a constant date that numbers them."""
        found: list[Option] = []
        for number, nest in enumerate(nests):
            later = tuple(replace(p, dates=(*p.dates, Date(Linear.of(number)))) for p in nest)
            found += self._arranged(later, within(left, (p.statement.name for p in later)))
        return tuple(found)


def cycles(found: tuple[Option, ...]) -> float:
    """Estimated cycles of a schedule: the sum over its leaves."""
    return sum(o.cycles for o in found)


def _padded(dates: tuple[Date, ...], length: int) -> tuple[Date, ...]:
    return (*dates, *(Date(Linear.of(0)) for _ in range(length - len(dates))))
