"""The result of one run of ``memopt exec`` or ``memopt attach``, as frozen values.

The driver fills in a ``RunReport``; ``text`` and ``json`` show it. Times are seconds. "Per iteration" means per
iteration of the outermost replaced loop.

Invariant: a replaced loop has a plan and no reason; a kept loop has a reason. In a dry run the reason is DRY_RUN, and
the loop has a plan as well.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from memopt.elf.lines import SourceLine
from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, VerifyError

HOT_SHARE = 0.02  # the report for people leaves out kept loops with a smaller share of the samples


class Outcome(Enum):
    """The outcome for a loop."""

    REPLACED = "replaced"
    KEPT = "kept"


class Code(NamedTuple):
    """Where code is: the address ``link`` (link-time, as objdump shows it) of the file ``image``."""

    image: str
    link: int


class Statement(NamedTuple):
    """A statement of the program's source: ``line 12: `s += a[k] * x[col[k]];```. ``text`` is "" where it cannot be
    read."""

    source: SourceLine
    text: str


@dataclass(frozen=True, slots=True)
class Tried:
    """A loop of a nest that was tried, and why it was left alone."""

    address: int  # of its header in the running program
    function: str
    source: SourceLine | None
    reason: Reason
    detail: str = ""
    statement: Statement | None = None  # where in the source ``detail`` is
    code: Code | None = None  # None if it is in no file


@dataclass(frozen=True, slots=True)
class LoopReport:
    """One hot loop: what was done with it, and how fast it is. A time or ratio is None if it was not measured."""

    address: int  # of its header in the running program
    share: float  # of all samples, 0 to 1
    outcome: Outcome
    function: str = ""  # "" if unknown
    source: SourceLine | None = None
    reason: Reason | None = None
    detail: str = ""  # the place or value behind ``reason``
    statement: Statement | None = None  # where in the source ``detail`` is
    tried: tuple[Tried, ...] = ()  # the loops that were left alone before the decision, from the outermost inwards
    code: Code | None = None  # None if it is in no file
    plan: str = ""  # the transformation, in words
    seconds_per_iteration_before: float | None = None
    seconds_per_iteration_after: float | None = None
    installed_after_seconds: float | None = None  # from the start of the program
    installed_after_first_sample_seconds: float | None = None  # from the first sample in the loop
    iterations_run: int = 0  # outer iterations that the version ran, by its own counter
    runs: int = 0  # entries that the version ran, by its own counter
    shadow_speedup: float | None = None  # measured in trial copies of the process
    planned_before: bool = False  # the plan is that of an earlier run
    in_service: bool = False  # both times per iteration were measured in service; else both in trial copies

    def __post_init__(self) -> None:
        if (self.outcome is Outcome.KEPT) != (self.reason is not None):
            raise VerifyError(f"loop {self.address:#x}: {self.outcome.value} with reason {self.reason}")
        if self.outcome is Outcome.REPLACED and not self.plan:
            raise VerifyError(f"loop {self.address:#x}: replaced without a plan")

    @property
    def speedup(self) -> float | None:
        """Seconds per iteration before, divided by those after; None unless both were measured."""
        before, after = self.seconds_per_iteration_before, self.seconds_per_iteration_after
        return before / after if before and after else None


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the driver, and the time it took."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Account:
    """Where the processor time of a process went, in seconds: the parts are all of it.

    Loops that were not looked at were not hot enough (``cool``), or the program ended first (``late``)."""

    improved: float = 0.0  # in loops that were replaced, before and after
    left: float = 0.0  # in loops that were looked at and left alone
    cool: float = 0.0
    late: float = 0.0
    no_loop: float = 0.0
    kernel: float = 0.0  # in system calls and page faults
    started: float = 0.0  # by processes that it started, which are not followed

    @property
    def total(self) -> float:
        return self.improved + self.left + self.cool + self.late + self.no_loop + self.kernel + self.started


@dataclass(frozen=True, slots=True)
class RunReport:
    """The result of one run, or of one process of it."""

    version: str  # of memopt
    program: tuple[str, ...]  # its command line
    loops: tuple[LoopReport, ...] = ()
    stages: tuple[Stage, ...] = ()
    notes: tuple[str, ...] = ()  # messages for the user that belong to no loop, one line each
    seconds: float = 0.0  # elapsed
    samples: int = 0  # the total behind the shares, in samples at the shortest interval
    reason: Reason | None = None  # why the whole program was left alone from its start; the user has been told
    processes: tuple[RunReport, ...] = ()  # the processes that the program started, with --follow
    account: Account = Account()
    seconds_without: float | None = None  # elapsed, had memopt not been there: an estimate
    own_seconds: float | None = None  # processor time of memopt and of its trial copies
    follow: bool = False  # most of the time went to processes that the program started, and --follow was not given

    @property
    def hot_loops(self) -> tuple[LoopReport, ...]:
        """The loops that the report for people shows, hottest first: replaced ones, and those above ``HOT_SHARE``."""
        shown = (x for x in self.loops if x.share >= HOT_SHARE or x.outcome is Outcome.REPLACED)
        return tuple(sorted(shown, key=lambda x: (-x.share, x.address)))
