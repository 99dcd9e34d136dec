"""Profitability: whether the plan is expected to pay, decided before any code is generated for it.

The trial run has the last word. This pass saves it from nests that cannot win.
"""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected
from memopt.models.contraction_cost import estimate
from passes.context import Context
from passes.contraction_schedule.base import ScheduledRegion, plan_of, trip_counts


@dataclass(frozen=True, slots=True)
class Profitability:
    """The pass: sets ``estimate``. Raises ``Rejected``: ``TOO_SHORT`` below ``least_work``, ``NO_PLAN`` below
    ``least_gain``."""

    least_gain: float = 1.3  # original over planned time
    least_work: float = 2.0  # microseconds of original work in each entry of the nest
    name = "profitability"

    def run(self, state: ScheduledRegion, context: Context) -> ScheduledRegion:
        """Estimates original and planned time of one entry with ``context.trips`` iterations."""
        trips = trip_counts(state.statement, context.trips, context.entry)
        plan = plan_of(state, context)
        expected = estimate(state.scop, state.statement, plan, trips, context.machine)
        if expected.original_microseconds < self.least_work:
            raise Rejected(Reason.TOO_SHORT, f"each entry takes {expected.original_microseconds:.2g} us")
        if expected.gain < self.least_gain:
            raise Rejected(Reason.NO_PLAN, str(expected))
        return replace(state, estimate=expected)
