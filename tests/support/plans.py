"""The plan of a region that is one contraction, from first pass to last."""

from __future__ import annotations

from memopt.ir.isa import Isa
from memopt.ir.plan import Plan
from memopt.ir.region import Region
from memopt.machine.description import Machine
from passes.context import UNKNOWN_TRIPS, Context
from passes.contraction_schedule.base import plan_of
from passes.contraction_schedule.pipeline import PIPELINE, Observer, schedule


def plan(
    region: Region,
    machine: Machine,
    isa: Isa,
    fp: str = "exact",
    *,
    trips: int | None = None,
    observer: Observer | None = None,
) -> Plan:
    """The plan for ``region`` on ``machine`` with ``isa``; raises ``Rejected`` with the reason there is none.

    ``fp``: "exact" or "fast". ``trips``: the patched loop's trip count that was seen, for the profitability model
    alone; without it the loop is taken as long.
    """
    context = Context(machine, isa, fp, UNKNOWN_TRIPS if trips is None else max(trips, 1))
    return plan_of(schedule(region, context, PIPELINE, observer), context)
