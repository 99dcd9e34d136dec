"""The report of a run for people: a few lines for each hot loop, and the command that is useful next.

In: ``RunReport``. Out: lines without the prefix ``memopt:``, which ``memopt.console.say`` adds.
"""

from __future__ import annotations

import shlex

from memopt.ir.reasons import Reason
from memopt.report.model import LoopReport, Outcome, RunReport

# Reasons that hold for the whole program: the report gives them once, not for each loop.
_WHOLE_PROGRAM = frozenset({Reason.SECCOMP, Reason.PTRACE_FORBIDDEN, Reason.SET_UID, Reason.THIRTY_TWO_BIT})


def lines(report: RunReport, *, verbose: bool = False) -> list[str]:
    """All lines of the report. ``verbose`` adds the time of each stage."""
    body = list(report.notes)
    hot = report.hot_loops
    if hot and not verbose and all(loop.reason in _WHOLE_PROGRAM for loop in hot):
        return [*body, f"{report.program[0]}: {_why(hot[0])}; it runs natively"]
    for loop in hot:
        body += _loop_lines(loop)
    if not hot and not report.processes:
        body.append("no hot loop was found")
    if verbose:
        body += [f"  {stage.name}: {duration(stage.seconds)}" for stage in report.stages]
    for process in report.processes:
        body.append(" ".join(process.program))
        body += [f"  {line}" for line in lines(process, verbose=verbose)[:-1]]
    return [*body, f"next: {_next_command(report, verbose)}"]


def _loop_lines(loop: LoopReport) -> list[str]:
    head = f"{_place(loop)}, {100 * loop.share:.1f} % of the time: "
    if loop.reason is Reason.DRY_RUN:
        return [head + "would be replaced", f"  {loop.plan}", *_speed_lines(loop)]
    if loop.reason is not None:
        return [head + f"left alone, because {_why(loop)}"]
    when = "" if loop.installed_after_seconds is None else f" {duration(loop.installed_after_seconds)} after the start"
    return [head + "replaced" + when, f"  {loop.plan}", *_speed_lines(loop)]


def _why(loop: LoopReport) -> str:
    reason = loop.reason.explain if loop.reason else ""
    return f"{reason} ({loop.detail})" if loop.detail else reason


def _place(loop: LoopReport) -> str:
    name = loop.function or "a loop"
    source = f" ({loop.source})" if loop.source else ""
    return f"{name}{source} at {loop.address:#x}"


def _speed_lines(loop: LoopReport) -> list[str]:
    before, after = loop.seconds_per_iteration_before, loop.seconds_per_iteration_after
    rows = []
    if before is not None and after is not None:
        rows.append(f"  {duration(before)} per outer iteration before, {duration(after)} after: "
                    f"{_times(loop.speedup)} as fast")
    elif loop.shadow_speedup is not None:
        rows.append(f"  {_times(loop.shadow_speedup)} as fast in a trial copy")
    if loop.runs:
        rows.append(f"  entered {_count(loop.runs, 'time')}, {_count(loop.iterations_run, 'outer iteration')}")
    return rows


def _times(ratio: float | None) -> str:
    return "?" if ratio is None else f"{ratio:.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """A time with three significant digits and its unit: ``1.21 s``, ``21.6 ms``, ``170 us``, ``80 ns``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= 0.9995 * size:
            return f"{seconds / size:.3g} {unit}" if seconds < 999.5 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _next_command(report: RunReport, verbose: bool) -> str:
    program = shlex.join(report.program)
    if report.follow:
        return f"memopt exec --follow -- {program}"
    hot = (*report.hot_loops, *(loop for process in report.processes for loop in process.hot_loops))
    if any(x.reason is Reason.DRY_RUN for x in hot):
        return f"memopt exec -- {program}"
    if any(x.outcome is Outcome.REPLACED for x in hot):
        return f"memopt exec --json FILE -- {program}   (the same figures as JSON)"
    if verbose:
        return f"memopt profile -- {program}   (where the time goes)"
    return f"memopt exec --verbose -- {program}   (with the time of each stage)"
