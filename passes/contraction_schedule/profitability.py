"""Profitability: whether the plan is expected to pay, before any code is made for it.

The trial run has the last word; this keeps it from being asked about nests that cannot win.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from memopt.ir.reasons import Reason, Rejected
from memopt.models.contraction_cost import estimate
from passes.context import Context
from passes.contraction_schedule.base import ScheduledRegion, plan_of, trip_counts


@dataclass(frozen=True, slots=True)
class Profitability:
    """``least_gain``: original over planned time. ``least_work``: microseconds of original work for each entry."""

    least_gain: float = 1.3
    least_work: float = 2.0
    name = "profitability"

    def run(self, state: ScheduledRegion, context: Context) -> ScheduledRegion:
        trips = trip_counts(state.statement, context.trips)
        plan = plan_of(state, context)
        expected = estimate(state.scop, state.statement, plan, trips, context.machine)
        if expected.original_microseconds < self.least_work:
            raise Rejected(Reason.TOO_SHORT, f"{expected.original_microseconds:.2g} us for each entry")
        if expected.gain < self.least_gain:
            raise Rejected(Reason.NO_PLAN, str(expected))
        return replace(state, estimate=expected)
