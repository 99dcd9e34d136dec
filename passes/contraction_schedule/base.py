"""The pass interface, and the intermediate representation that passes hand on: a region with its schedule so far.

A pass is a frozen dataclass: ``name`` is what ``--print-after`` prints, the fields are its options, and ``run`` returns
a new ``ScheduledRegion`` or raises ``Rejected``. Invariant: ``verify`` holds for the value after every pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from memopt.ir.frozen import dataclass
from memopt.ir.plan import Pack, Plan, RegisterTile, TileLoop
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.ir.region import Region
from memopt.ir.scop import TRIPS, Access, Apply, Read, Scop, Statement
from memopt.machine.description import has_fused_multiply_add
from memopt.models.contraction_cost import Estimate
from memopt.polyhedral.dependences import Dependences
from passes.context import UNKNOWN_TRIPS, Context


@dataclass(frozen=True, slots=True)
class Roles:
    """The role of each dimension in the register tile. ``outer`` dimensions run one iteration at a time around the
    tiles, in their original order."""

    rows: str
    vector: str
    reduction: str
    outer: tuple[str, ...]

    def __str__(self) -> str:
        outer = f"{', '.join(self.outer)} outside, " if self.outer else ""
        return f"{outer}rows {self.rows}, vector {self.vector}, reduction {self.reduction}"


@dataclass(frozen=True, slots=True)
class ScheduledRegion:
    """A region with its schedule so far. Fields that no pass has decided yet are None or empty."""

    region: Region
    statement: Statement
    dependences: Dependences
    # Loops over tiles, outermost first; inside them the point loops, outermost first.
    loops: tuple[TileLoop, ...]
    points: tuple[str, ...]
    # How many trailing ``points`` run as lanes and rows of one register tile.
    parallel: int = 0
    roles: Roles | None = None
    # Elements in one vector of results.
    lanes: int | None = None
    tile: RegisterTile | None = None
    packs: tuple[Pack, ...] = ()
    estimate: Estimate | None = None

    @property
    def scop(self) -> Scop:
        """The statements and arrays of the region."""
        return self.region.scop

    @property
    def operands(self) -> tuple[tuple[int, Access], ...]:
        """The reads other than the accumulator, each with its index among the statement's reads."""
        return tuple((i, r) for i, r in enumerate(self.statement.reads) if r != self.statement.write)

    @property
    def schedule(self) -> str:
        """The schedule as isl prints it: ``{ S0[i, j, k] -> [floor(j/96), i, k, j] }``."""
        instance = ", ".join(d.name for d in self.statement.dimensions)
        dates = [f"floor({t.dimension}/{t.size})" if t.size > 1 else t.dimension for t in self.loops]
        dates += self.points[: len(self.points) - self.parallel]
        return f"{{ {self.statement.name}[{instance}] -> [{', '.join(dates)}] }}"

    def __str__(self) -> str:
        lines = [f"schedule {self.schedule}"]
        if self.parallel:
            lines.append(f"parallel {', '.join(self.points[-self.parallel:])}")
        lines += [f"roles {self.roles}"] if self.roles else []
        lines += [f"lanes {self.lanes}"] if self.lanes else []
        lines += [str(self.tile)] if self.tile else []
        lines += map(str, self.packs)
        lines += [str(self.estimate)] if self.estimate else []
        return "\n".join(lines)


class Pass(Protocol):
    """One step of the pipeline. ``run`` returns a changed copy, or raises ``Rejected`` when the pass does not apply."""

    @property
    def name(self) -> str: ...

    def run(self, state: ScheduledRegion, context: Context) -> ScheduledRegion: ...


def trip_counts(statement: Statement, trips: int, entry: Mapping[str, int]) -> dict[str, int]:
    """The trip count of each dimension at the captured entry, outermost first. ``trips``, ``entry``: as in ``Context``.

    Raises ``Rejected(NO_PLAN)`` for a bound that varies within the nest and for a loop without iterations.
    """
    counts = {statement.dimensions[0].name: trips}
    for dimension in statement.dimensions[1:]:
        bound = dimension.trips
        if bound.symbols & {d.name for d in statement.dimensions} or bound.quotients:
            raise Rejected(Reason.NO_PLAN, f"the bound {bound} of loop {dimension.name} is not constant")
        known = bound.symbols <= entry.keys() | {TRIPS}
        count = bound.evaluate({**entry, TRIPS: trips}) if known else UNKNOWN_TRIPS
        if count < 1:
            raise Rejected(Reason.NO_PLAN, f"loop {dimension.name} has no iterations")
        counts[dimension.name] = count
    return counts


def known_trips(state: ScheduledRegion, dimension: str) -> int | None:
    """The trip count of ``dimension`` where it is a constant; None where it is known at entry only, as that of the
    patched loop."""
    found = next(d.trips for d in state.statement.dimensions if d.name == dimension)
    return found.constant if found.is_constant else None


def verify(state: ScheduledRegion, context: Context) -> None:
    """Raises ``VerifyError`` where ``state`` breaks an invariant of its type: a bug of a pass."""
    for problem in _problems(state, context):
        raise VerifyError(f"{problem} in\n{state}")


def _problems(state: ScheduledRegion, context: Context) -> Iterator[str]:
    names = [d.name for d in state.statement.dimensions]
    if sorted({*state.points, *(t.dimension for t in state.loops)}) != sorted(names):
        yield "the schedule does not cover the dimensions"
    if len(set(state.points)) != len(state.points):
        yield "a point loop appears twice"
    sizes: dict[str, int] = {}
    for loop in state.loops:
        if loop.size < 1 or sizes.get(loop.dimension, loop.size) % loop.size:
            yield f"{loop} does not nest"
        sizes[loop.dimension] = loop.size
    if any(size > 1 and name not in state.points for name, size in sizes.items()):
        yield "the points of a tile are not visited"
    if state.roles and sorted((state.roles.rows, state.roles.vector, state.roles.reduction, *state.roles.outer)) != (
        sorted(names)
    ):
        yield "the roles do not cover the dimensions"
    if state.tile and state.tile.row_count * state.tile.vector_count >= context.isa.registers:
        yield "the register tile does not fit"
    for pack in state.packs:
        if pack.read not in dict(state.operands) or not 0 <= pack.level < len(state.loops):
            yield f"{pack} names no operand or no loop"


def plan_of(state: ScheduledRegion, context: Context) -> Plan:
    """The ``Plan`` that a schedule with a register tile stands for. It fuses multiplications and additions only where
    ``context.fp`` is "fast", the machine has the instruction and the statement adds or subtracts a product."""
    if state.tile is None:
        raise VerifyError("a schedule without a register tile is no plan")
    fuse = context.fp == "fast" and has_fused_multiply_add(context.machine, context.isa) and _has_fusible(state)
    return Plan(context.isa, state.statement.name, state.loops, state.packs, state.tile, fuse)


def _has_fusible(state: ScheduledRegion) -> bool:
    """Whether the statement adds a product to its accumulator or subtracts it."""
    match state.statement.expression:
        case Apply("add", (Read(), Apply("mul")) | (Apply("mul"), Read())) | Apply("sub", (Read(), Apply("mul"))):
            return True
    return False
