"""The plan of an earlier run in the place of the stage schedule: found by the region's text, proved for the region.

In: a lifted nest. Out: a candidate, as ``compilation.schedule`` makes them; or Rejected, after which the nest goes the
long way. The text of a plan comes from a file: it is read, checked and proved like the work of a stranger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.session.replacing.history import History
from memopt.session.replacing.process import Process

if TYPE_CHECKING:
    from memopt.ir.code import CompiledRegion
    from memopt.ir.graph import Loop
    from memopt.ir.region import Region
    from memopt.lifting.lift import Lifted
    from memopt.plans.entries import Entry
    from memopt.session.replacing.known import Known
    from memopt.session.replacing.site import LoopCode, Site
    from memopt.x86.displacement import Displacement
    from passes.planning import Candidate


@dataclass(frozen=True, slots=True)
class Nest:
    """A loop that was captured and lifted, with room for its patch. ``loop``: the candidate of ``site``; ``code``: as
    seen from its header; ``trips``: iterations to plan for."""

    site: Site
    loop: Loop
    code: LoopCode
    lifted: Lifted
    displaced: Displacement
    trips: int

    @property
    def work(self) -> float:
        """Statement instances in an average iteration."""
        from memopt.ir.scop import TRIPS
        from memopt.models.work import Work

        return Work(self.lifted.region.scop, {**self.lifted.entry, TRIPS: max(self.trips, 1)}).mean


def known_plan(process: Process, nest: Nest, history: History) -> Known | None:
    """The stored plan for the nest's region. None where its sizes have changed in this run: then it was lifted with
    entries that earlier runs did not have."""
    if history.entries(nest.code.loop.header):
        return None
    with process.timer.stage("schedule"):
        return history.known.plan(process, nest.site, nest.lifted.region, nest.work)


def prove(process: Process, region: Region, known: Known) -> Candidate:
    """The stored plan, proved for ``region``. Raises Rejected where that is not possible, whatever the reason."""
    from memopt.ir.cursor import ParseError
    from memopt.ir.parse import parse_plan
    from memopt.ir.plan import NestPlan
    from memopt.machine.description import usable_isas
    from memopt.polyhedral.isl import patience
    from memopt.session.replacing.compilation import PLAN_SECONDS
    from memopt.session.replacing.stage_times import processor_limit
    from passes.planning import proved_again

    with process.timer.stage("schedule"), patience(processor_limit(PLAN_SECONDS)):
        usable = usable_isas(process.machine())
        isa = process.options.isa or usable[0]
        try:
            plan = parse_plan(known.plan.plan)
            if not isinstance(plan, NestPlan) or isa not in usable:
                raise Rejected(Reason.NO_SCHEDULE, "the stored plan is none for a nest on this machine")
            made = proved_again(region, plan, isa, process.options.fp)
        except (ParseError, VerifyError, LookupError, ValueError) as error:
            raise Rejected(Reason.NO_SCHEDULE, f"the stored plan is none for this nest: {error}") from error
        process.print_after("plan", plan)
        return made


def keep(process: Process, nest: Nest, history: History, compiled: CompiledRegion) -> Entry | None:
    """Note an installed version for later runs, unless its nest was lifted with entries of this run alone."""
    if history.entries(nest.code.loop.header):
        return None
    return history.known.installed(process, nest.site, compiled, nest.work, history.findings.measurement)
