"""One hot loop and what became of it, up to its line in the report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from memopt.ir.reasons import Reason
from memopt.machine.tsc import ticks_per_second
from memopt.report.model import LoopReport, Outcome
from memopt.session.improving.service import Service

if TYPE_CHECKING:
    from memopt.ir.code import CompiledRegion
    from memopt.ir.graph import Loop
    from memopt.ir.plan import NestPlan
    from memopt.ir.region import Guard, Sample
    from memopt.session.improving.hotness import Hotness
    from memopt.session.improving.site import Ranges, Site
    from runtime.patching.code_cache import CodeCache
    from runtime.trial.trial import Measurement


@dataclass
class Decision:
    """What became of one loop, before shares are known. In service while ``cache`` is set and ``reason`` is not."""

    address: int
    ranges: Ranges
    site: Site | None = None
    reason: Reason | None = None
    detail: str = ""
    plan: NestPlan | None = None
    measurement: Measurement | None = None
    cache: CodeCache | None = None
    installed_after: float | None = None
    service: Service | None = None
    entry: Sample | None = None  # live-in values that it was made for
    guards: tuple[Guard, ...] = ()  # of the region that was lifted at ``entry``
    loop: Loop | None = None  # the candidate that it is about
    period: int = 1  # as in memopt.ir.region.Region
    compiled: CompiledRegion | None = None  # when another version may come in front of it
    behind: Decision | None = None  # the version that is asked where this one's guard fails
    _source: str | None = None

    @property
    def holds_loops(self) -> bool:
        """Whether there are several others in its loop, of which one may be better off without the rest."""
        if self.loop is None or self.site is None:
            return False
        inside = [x for x in self.site.forest.loops if x.blocks < self.loop.blocks]
        return any(one.blocks.isdisjoint(two.blocks) for one, two in combinations(inside, 2))

    def look_up_source(self) -> None:
        """``file.c:12`` for the report, if there is debug information; looked up once, best while the program runs."""
        if self._source is None:
            from memopt.elf.lines import source_line

            self._source = (self.site and source_line(self.site.path, self.address - self.site.bias)) or ""

    def report(self, hotness: Hotness, started: float) -> LoopReport:
        """``started``: when the program was, on the monotonic clock. May be called while another thread decides."""
        cache, reason = self.cache, self.reason
        ranges = list(self.ranges)
        base = LoopReport(self.address, 0.0, Outcome.KEPT, self.site.function if self.site else "", self._source or "",
                          reason or Reason.INTERNAL, self.detail, self.plan.summary if self.plan else "")
        measured = self.measurement
        if measured is not None:
            base = replace(base, seconds_per_iteration_before=measured.original / self.period,
                           shadow_speedup=measured.speedup)
        if reason is None and cache is not None:
            statistics, placement = cache.read_statistics(), cache.placement
            ranges.append((placement.code, placement.code + placement.code_size))
            iterations = statistics.iterations * self.period
            after = statistics.cycles / ticks_per_second() / iterations if iterations else None
            base = replace(base, outcome=Outcome.REPLACED, reason=None, seconds_per_iteration_after=after,
                           iterations_run=iterations, runs=statistics.runs,
                           installed_after_seconds=self.installed_after,
                           installed_after_first_sample_seconds=self._since_first(hotness, started))
        return replace(base, share=hotness.share(ranges))

    def _since_first(self, hotness: Hotness, started: float) -> float | None:
        first = hotness.first_seen(self.ranges)
        if first is None or self.installed_after is None:
            return None
        return started + self.installed_after - first
