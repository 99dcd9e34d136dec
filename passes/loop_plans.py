"""Loop plans for the statements of a region, best first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from memopt.analysis.conflicts import conflicts
from memopt.analysis.polyhedra import budget
from memopt.ir.linear import Linear
from memopt.ir.plan import LoopPlan
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Array, Scop, Statement
from memopt.models.loop_cost import average_trips, original_cycles
from passes.arrangement import Arrangement, cycles
from passes.base import Context
from passes.blocking import STEPS, blockings
from passes.leaves import Option, latency
from passes.ordering import Conflicts, carry, within
from passes.rebasing import rebase
from passes.splitting import split
from passes.storage import store

LEAST_GAIN = 1.1
BLOCKED_SERIAL = 1  # serial loops that are tried inside blocks


def loop_plans(scop: Scop, context: Context) -> Iterator[LoopPlan]:
    """Candidates for all of ``scop``'s statements, best first; their legality is not checked here.

    Raises ``Rejected(NO_PLAN)`` when nothing is to be gained, ``Rejected(NO_SCHEDULE)`` when the dependences are too
    many to look at.
    """
    scop, rebases = rebase(_with_extents(scop, context))
    with budget():
        pairs = conflicts(scop)
        before = sum(original_cycles(scop, s, _latency(s, pairs), average_trips(s, context.trips), context.machine)
                     for s in scop.statements)
        whole = Arrangement(scop, pairs, context)
        candidates = [_Candidate(scop, whole.made())]
        candidates += [_Candidate(scop, found, name) for found, name in whole.time_tiled()]
        pieces = split(scop, pairs)
        if pieces is not None:
            candidates.append(_Candidate(pieces, Arrangement(pieces, conflicts(pieces), context).made()))
        for blocking in blockings(scop, pairs, context.trips):
            inside = Arrangement(blocking.scop, conflicts(blocking.scop), context, BLOCKED_SERIAL, blocking.loops)
            candidates.append(_Candidate(blocking.scop, inside.blocked(blocking), f"blocks of {STEPS}"))
    candidates.sort(key=lambda c: c.cycles)
    if before < LEAST_GAIN * candidates[0].cycles:
        raise Rejected(Reason.NO_PLAN, f"expected {before / candidates[0].cycles:.2f} times as fast")
    refusals: list[Rejected] = []
    made = 0
    for candidate in candidates:
        if before >= LEAST_GAIN * candidate.cycles:
            try:
                yield replace(candidate.plan(context), rebases=rebases)
                made += 1
            except Rejected as refusal:
                refusals.append(refusal)
    if not made:
        raise refusals[0]


@dataclass(frozen=True, slots=True)
class _Candidate:
    scop: Scop
    found: tuple[Option, ...]
    name: str = ""

    @property
    def cycles(self) -> float:
        return cycles(self.found)

    def plan(self, context: Context) -> LoopPlan:
        leaves = tuple(o.leaf for o in self.found)
        stored = store(self.scop, self.scop.statements, {leaf.statement: leaf for leaf in leaves}, None)
        summary = ", ".join(filter(None, (self.name, _summary(self.found, context))))
        return LoopPlan(context.isa, self.scop.statements, leaves, stored, self._trial_iterations, summary)

    @property
    def _trial_iterations(self) -> int:
        """Iterations of the patched loop that make a full tile and a ragged one, where it is part of one."""
        return 3 + max(_span(s, o) for s, o in zip(self.scop.statements, self.found, strict=True))


def _with_extents(scop: Scop, context: Context) -> Scop:
    """``scop`` with strides for private arrays, row by row as they are likely to be stored: for the cost model."""
    return replace(scop, arrays=tuple(_extended(scop, a, context) if a.private else a for a in scop.arrays))


def _extended(scop: Scop, array: Array, context: Context) -> Array:
    extents = [1] * len(array.strides)
    for statement in scop.statements:
        trips = average_trips(statement, context.trips)
        for access in (statement.write, *statement.reads):
            if access.array == array.name:
                spans = [sum(abs(c) * trips.get(n, 1) for n, c in s.terms) for s in access.subscripts]
                extents = [max(a, b, 1) for a, b in zip(extents, spans, strict=True)]
    strides = [array.element.size]
    for extent in reversed(extents[1:]):
        strides.insert(0, strides[0] * extent)
    return replace(array, strides=tuple(strides))


def _latency(statement: Statement, pairs: Conflicts) -> float:
    """Cycles that an iteration of the innermost original loop waits for the one before it."""
    left: Conflicts | None = within(pairs, (statement.name,))
    for dimension in statement.dimensions[:-1]:
        left = carry(left or (), {statement.name: Linear.symbol(dimension.name)})
    return latency(statement, left or (), statement.dimensions[-1].name)


def _span(statement: Statement, option: Option) -> int:
    outer, leaf = Linear.symbol(statement.dimensions[0].name), option.leaf
    tiles = {leaf.rows: leaf.row_count, leaf.vector: option.width * leaf.vector_count}
    steps = [d.divisor for d in leaf.dates if d.expression == outer]
    return max(tiles.get(statement.dimensions[0].name, 1), *steps, 1)


def _summary(found: tuple[Option, ...], context: Context) -> str:
    """``vectors along j, rows i, avx512`` for the statement that costs most."""
    largest = max(found, key=lambda o: o.cycles).leaf
    parts = [f"vectors along {largest.vector}" if largest.vector else "one element at a time"]
    if largest.rows and largest.row_count > 1:
        parts.append(f"{largest.row_count} rows of {largest.rows} at once")
    if len(found) > 1:
        parts.append(f"{len(found)} statements")
    return ", ".join((*parts, context.isa.value))
