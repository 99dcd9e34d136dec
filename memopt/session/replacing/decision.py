"""The decision about a hot loop: a version of it is installed, or it is refused for a typed reason.

Example: ``Installed`` for the loop at 0x401150 of a matrix product; ``Refused(reason=Reason.CALL)`` for a loop that
calls a function which is not understood. Out: the loop's line in the report (``loop_report``). A version that is taken
out again is refused from then on; its ``Installed`` is replaced by a ``Refused``.
"""

from __future__ import annotations

from dataclasses import field
from itertools import combinations
from typing import TYPE_CHECKING

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason
from memopt.report.model import LoopReport, Outcome, Statement, Tried
from memopt.session.measuring.verdict import Service

if TYPE_CHECKING:
    from memopt.elf.lines import SourceLine
    from memopt.ir.code import CompiledRegion
    from memopt.ir.graph import Loop
    from memopt.ir.plan import NestPlan
    from memopt.ir.reasons import Rejected
    from memopt.ir.region import Guard, Sample
    from memopt.plans.entries import Entry
    from memopt.session.measuring.hotness import Hotness
    from memopt.session.replacing.site import Ranges, Site
    from memopt.x86.displacement import Displacement
    from runtime.patching.code_cache import CodeCache
    from runtime.trial.trial import Measurement

TRANSIENT = frozenset({Reason.THREADS, Reason.NOT_REACHED, Reason.SHADOW_INCONCLUSIVE, Reason.BLOCKED,
                       Reason.TOO_SHORT, Reason.NO_MEMORY, Reason.CODE_CHANGED})  # a later attempt may succeed

# Refusals that say nothing about the loop: no other loop is tried after them. DRY_RUN: it would have been replaced.
AT_ONCE = frozenset({Reason.ENDED, Reason.DRY_RUN, Reason.COPY_COSTS})


@dataclass
class Findings:
    """The findings of the stages about a loop, up to the stage that refuses it."""

    entry: Sample | None = None  # live-in values that the loop was lifted for
    guards: tuple[Guard, ...] = ()  # of the region that was lifted at ``entry``
    plan: NestPlan | None = None  # of the version that was validated
    measurement: Measurement | None = None  # by the trial of that version


@dataclass(frozen=True, eq=False)
class Refused:
    """A loop that stays as it is."""

    address: int  # its header, or the hot address where there is no loop
    ranges: Ranges  # the code that was decided about
    site: Site | None  # None: not even the code around the address was found
    reason: Reason
    detail: str = ""
    plan: NestPlan | None = None  # of the version that was made, or taken out
    measurement: Measurement | None = None
    period: int = 1  # as in memopt.ir.region.Region
    source: SourceLine | None = None
    statement: Statement | None = None  # where in the source ``detail`` is
    tried: tuple[Tried, ...] = ()  # the loops that were left alone before


@dataclass(frozen=True, eq=False)
class Installed:
    """A version that is in the process. Where another one is in front of it, it runs where that one's guard fails."""

    address: int  # the loop's header
    ranges: Ranges  # the code that was decided about
    site: Site
    loop: Loop  # the candidate of ``site`` that was replaced
    cache: CodeCache
    compiled: CompiledRegion
    displaced: Displacement  # the instructions under the patch
    moved: bool  # the original loop was copied: no other version can come in front of this one
    entry: Sample  # live-in values that it was made for
    measurement: Measurement | None  # None: there was no trial
    installed_after: float  # seconds from the start of the process
    service: Service
    behind: Installed | None = None  # the version that is asked where this one's guard fails
    stored: Entry | None = None  # its entry in the plan cache
    planned_before: bool = False  # its plan is that of an earlier run
    source: SourceLine | None = None
    tried: tuple[Tried, ...] = ()  # the loops around it that were left alone before

    @property
    def period(self) -> int:
        return self.compiled.region.period

    @property
    def holds_loops(self) -> bool:
        """Whether there are several loops in this one, side by side: one of them may gain more when it is replaced
        alone.
        """
        inside = [x for x in self.site.forest.loops if x.blocks < self.loop.blocks]
        return any(one.blocks.isdisjoint(two.blocks) for one, two in combinations(inside, 2))

    def refused(self, reason: Reason, detail: str) -> Refused:
        """The refusal that takes the place of this version in the report once it is taken out."""
        return Refused(self.address, self.ranges, self.site, reason, detail, self.compiled.plan, self.measurement,
                       self.period, self.source, tried=self.tried)


Decision = Refused | Installed


@dataclass
class Attempt:
    """A hot address while it is worked on. ``decision``: the outcome, from when there is one."""

    address: int
    ranges: Ranges
    site: Site | None = None
    decision: Decision | None = None
    source: SourceLine | None = None
    tried: dict[int, Tried] = field(default_factory=dict)  # the loops that were left alone so far, smaller: further out

    @property
    def left_alone(self) -> tuple[Tried, ...]:
        """The loops that were left alone so far, from the outermost inwards."""
        return tuple(found for _, found in sorted(self.tried.items()))

    def refused(self, reason: Reason, detail: str, findings: Findings, statement: Statement | None = None) -> Refused:
        return Refused(self.address, self.ranges, self.site, reason, detail, findings.plan, findings.measurement,
                       source=self.source, statement=statement, tried=self.left_alone)


def more_telling(first: Rejected, second: Rejected) -> Rejected:
    """The one of two loops' refusals (the outer loop's first) that is reported."""
    if first.reason in TRANSIENT:
        return second
    # A loop that calls functions stands around the nest; it is not the nest.
    return second if first.reason is Reason.CALL and second.reason not in TRANSIENT else first


def loop_report(decision: Decision, hotness: Hotness, started: float) -> LoopReport:
    """The loop's part of the report. ``started``: when the program was started, on the monotonic clock."""
    site, measured, ranges, source = decision.site, decision.measurement, decision.ranges, decision.source
    code = None if site is None else site.code_at(decision.address)
    before = None if measured is None else measured.original / decision.period
    speedup = None if measured is None else measured.speedup
    function = site.function if site else ""
    match decision:
        case Refused(plan=plan):
            return LoopReport(decision.address, hotness.share(ranges), Outcome.KEPT, function, source, decision.reason,
                              decision.detail, decision.statement, decision.tried, code, plan.summary if plan else "",
                              before, shadow_speedup=speedup)
        case Installed(cache=cache):
            statistics, placement = cache.read_statistics(), cache.placement
            ranges = (*ranges, (placement.code, placement.code + placement.code_size))
            iterations = statistics.iterations * decision.period
            inside = hotness.seconds(placement.code, placement.code + placement.code_size)
            served = decision.service.speeds(statistics, inside)
            after = None if measured is None else measured.version / decision.period
            if served is not None:
                before, after = (seconds / decision.period for seconds in served)
            first = hotness.first_seen(decision.ranges)
            return LoopReport(
                decision.address, hotness.share(ranges), Outcome.REPLACED, function, source,
                tried=decision.tried, code=code, plan=decision.compiled.plan.summary,
                seconds_per_iteration_before=before, seconds_per_iteration_after=after,
                installed_after_seconds=decision.installed_after,
                installed_after_first_sample_seconds=None if first is None else (
                    started + decision.installed_after - first),
                iterations_run=iterations, runs=statistics.runs, shadow_speedup=speedup,
                in_service=served is not None, planned_before=decision.planned_before)
