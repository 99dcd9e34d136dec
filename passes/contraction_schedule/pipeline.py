"""The pass pipeline for contractions: the passes in their order, and the way from a region to a plan.

A contraction is one statement that accumulates products, as ``C[i][j] += A[i][k] * B[k][j]``. In: a ``Region`` (or
several: the statements of a distributed nest). Out: a ``Plan`` with tiles, register tile and packed operands, or
``Rejected`` with the reason.

Sound because the last pass is a second legality check, which shares no code with the other passes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from memopt.ir.frozen import dataclass
from memopt.ir.plan import NestPlan
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region
from memopt.polyhedral.dependences import dependences
from passes.context import Context
from passes.contraction_schedule.base import Pass, ScheduledRegion, plan_of, trip_counts, verify
from passes.contraction_schedule.distribution import ONCE
from passes.contraction_schedule.interchange import Interchange
from passes.contraction_schedule.packing import Packing
from passes.contraction_schedule.profitability import Profitability
from passes.contraction_schedule.register_tile import RegisterTile, Vectorize
from passes.contraction_schedule.tiling import Tiling
from passes.legality.contractions import check


@dataclass(frozen=True, slots=True)
class Legality:
    """The last pass: returns the schedule unchanged, or raises ``Rejected(NO_SCHEDULE)``."""

    name = "legality"

    def run(self, state: ScheduledRegion, context: Context) -> ScheduledRegion:
        """Asks ``passes.legality.contractions`` about the finished plan."""
        check(state.scop, plan_of(state, context))
        return state


PIPELINE: tuple[Pass, ...] = (
    Interchange(),
    Vectorize(),
    RegisterTile(),
    Tiling(),
    Packing(),
    Profitability(),
    Legality(),
)

Observer = Callable[[str, ScheduledRegion], None]
"""Called after each pass with its name and what it returned (``--print-after``)."""


def plan_nest(regions: tuple[Region, ...], context: Context, observer: Observer | None = None) -> NestPlan:
    """The plans of all statements of a distributed nest (passes.contraction_schedule.distribution), in order.

    The statement with most iterations decides whether the nest pays, which takes a reduction that reuses operands; the
    others only need a legal plan. Raises ``Rejected`` where a statement has none, or the largest one does not pay.
    """
    largest = max(regions, key=lambda r: _volume(r, context))
    if any(d.name == ONCE for d in largest.scop.statements[0].dimensions):
        raise Rejected(Reason.NO_PLAN, "nothing is accumulated over a loop")
    unconditional = tuple(p for p in PIPELINE if not isinstance(p, Profitability))
    return NestPlan(tuple(
        plan_of(schedule(r, context, PIPELINE if r is largest else unconditional, observer), context) for r in regions))


def _volume(region: Region, context: Context) -> int:
    """Iterations of the region's statement, the patched loop taken at ``context.trips``."""
    return prod(trip_counts(region.scop.statements[0], context.trips, context.entry).values())


def schedule(
    region: Region, context: Context, passes: tuple[Pass, ...] = PIPELINE, observer: Observer | None = None
) -> ScheduledRegion:
    """``region`` after ``passes``; the value is verified after each of them. ``observer`` sees the value after each."""
    state = initial(region, context)
    for each in passes:
        state = each.run(state, context)
        verify(state, context)
        if observer is not None:
            observer(each.name, state)
    return state


def initial(region: Region, context: Context) -> ScheduledRegion:
    """The value before the first pass: the nest in its original order, without tiles. Raises ``Rejected(NO_PLAN)``
    unless the nest has one statement, with constant bounds but for the patched loop."""
    if len(region.scop.statements) != 1:
        raise Rejected(Reason.NO_PLAN, f"the nest has {len(region.scop.statements)} statements; a contraction has one")
    statement = region.scop.statements[0]
    trip_counts(statement, context.trips, context.entry)  # rejects a domain that is no box before isl sees it
    points = tuple(d.name for d in statement.dimensions)
    return ScheduledRegion(region, statement, dependences(region.scop), loops=(), points=points)
