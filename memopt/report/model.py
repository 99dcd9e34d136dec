"""What one run did, as a frozen value: the driver fills it in, ``text`` and ``json`` show it.

Invariant: a replaced loop has a plan and no reason; a kept loop has a reason (a dry run's is DRY_RUN, with a plan).
Times are seconds; "per iteration" is per iteration of the outermost replaced loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from memopt.ir.reasons import Reason, VerifyError

HOT_SHARE = 0.02  # a loop below this share of the samples is not worth a line


class Outcome(Enum):
    REPLACED = "replaced"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class LoopReport:
    """One loop. ``address``: its header in the running program. ``function``, ``source``: "" when unknown.

    ``share``: part of all samples, 0 to 1. ``detail``: the place or value behind ``reason``. ``runs`` and
    ``iterations_run`` come from the version's own counters. ``shadow_speedup`` is what the trial copies measured.
    """

    address: int
    share: float
    outcome: Outcome
    function: str = ""
    source: str = ""
    reason: Reason | None = None
    detail: str = ""
    plan: str = ""
    seconds_per_iteration_before: float | None = None
    seconds_per_iteration_after: float | None = None
    installed_after_seconds: float | None = None
    installed_after_first_sample_seconds: float | None = None
    iterations_run: int = 0
    runs: int = 0
    shadow_speedup: float | None = None

    def __post_init__(self) -> None:
        if (self.outcome is Outcome.KEPT) != (self.reason is not None):
            raise VerifyError(f"loop {self.address:#x}: {self.outcome.value} with reason {self.reason}")
        if self.outcome is Outcome.REPLACED and not self.plan:
            raise VerifyError(f"loop {self.address:#x}: replaced without a plan")

    @property
    def speedup(self) -> float | None:
        """Before over after, or None unless both were measured."""
        before, after = self.seconds_per_iteration_before, self.seconds_per_iteration_after
        return before / after if before and after else None


@dataclass(frozen=True, slots=True)
class Stage:
    """A named stage of the driver and how long it took."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class RunReport:
    """``program``: its command line. ``notes``: what the user should know and that belongs to no loop, one line
    each. ``samples``: what the shares are made of, in samples at the shortest interval. ``reason``: why the whole
    program was left alone from its start, which the user has been told by then. ``processes``: what became of the
    processes it started, where they were followed."""

    version: str
    program: tuple[str, ...]
    loops: tuple[LoopReport, ...] = ()
    stages: tuple[Stage, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    samples: int = 0
    reason: Reason | None = None
    processes: tuple[RunReport, ...] = ()

    @property
    def hot_loops(self) -> tuple[LoopReport, ...]:
        """The loops worth a line, hottest first; a replaced loop always is."""
        shown = (x for x in self.loops if x.share >= HOT_SHARE or x.outcome is Outcome.REPLACED)
        return tuple(sorted(shown, key=lambda x: (-x.share, x.address)))
