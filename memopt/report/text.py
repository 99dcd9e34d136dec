"""The report of a run for people: a few lines for each hot loop, and the command that is useful next.

In: ``RunReport``. Out: lines without the prefix ``memopt:``, which ``memopt.console.say`` adds.
"""

from __future__ import annotations

import os
import re
import shlex

from memopt.ir.reasons import Reason
from memopt.report.model import LoopReport, Outcome, RunReport, Tried

# Reasons that hold for the whole program: the report gives them once, not for each loop.
_WHOLE_PROGRAM = frozenset({Reason.SECCOMP, Reason.PTRACE_FORBIDDEN, Reason.SET_UID, Reason.THIRTY_TWO_BIT,
                            Reason.SIGSEGV_HANDLER})

_LONGEST_NAME = 60  # characters
LEAST_ACCOUNT = 0.1  # seconds of processor time, below which samples say too little
_CODE_ADDRESS = re.compile(r"(?:\b(?:at|in|by|of) (?:the (?:block|loop|branch|jump) at )?)?0x[0-9a-f]+")
# Numbers of registers and addresses, which say nothing about the source.
_OPAQUE = re.compile(r"\b(?:0x[0-9a-f]{3,}|[re]?[abcd]x|[re]?[sd]i|[re][sb]p|r\d+[dwb]?|[xyz]mm\d+|m\[)")


def lines(report: RunReport, *, verbose: bool = False) -> list[str]:
    """All lines of the report. ``verbose`` adds the time of each stage, and addresses and registers."""
    whole = None if verbose else _whole_program(report)
    body = _body(report, verbose)
    return body if whole is not None else [*body, f"next: {_next_command(report, verbose)}"]


def _body(report: RunReport, verbose: bool) -> list[str]:
    body = list(report.notes)
    whole = None if verbose else _whole_program(report)
    if whole is not None:
        return [*body, f"{report.program[0]}: {_why(whole, verbose)}; it runs natively"]
    for loop in report.hot_loops:
        body += _loop_lines(loop, verbose)
    if not report.hot_loops and not report.processes:
        body.append("no hot loop was found")
    if verbose:
        body += [f"  {stage.name}: {duration(stage.seconds)}" for stage in report.stages]
    for process in report.processes:
        body.append(" ".join(process.program))
        body += [f"  {line}" for line in _body(process, verbose)]
    return body + _account(report)


def _whole_program(report: RunReport) -> LoopReport | None:
    """A hot loop whose reason holds for the whole program, if no loop has another one."""
    hot = report.hot_loops
    whole = next((loop for loop in hot if loop.reason in _WHOLE_PROGRAM), None)
    reasons = {loop.reason for loop in hot} - {Reason.NOT_HOT, Reason.ENDED}
    return whole if whole is not None and reasons == {whole.reason} else None


def _account(report: RunReport) -> list[str]:
    """Where the time went, how long the run would have taken without memopt, and what memopt took."""
    account, rows = report.account, []
    if account.total >= LEAST_ACCOUNT:
        parts = ((account.improved, "in loops that were replaced"), (account.left, "in loops that were left alone"),
                 (account.cool, "in loops that were not hot enough to be looked at"),
                 (account.late, "in loops that were not looked at before the end"),
                 (account.no_loop, "in no loop"), (account.kernel, "in the kernel"),
                 (account.started, "in processes that it started"))
        shown = [(100 * seconds / account.total, words) for seconds, words in parts]
        rows.append(f"of {duration(account.total)} of processor time: " + ", ".join(
            f"{percent:.1f} % {words}" for percent, words in shown if percent >= 0.05))
    if report.seconds_without is not None and report.own_seconds is not None:
        rows.append(f"the run took {duration(report.seconds)}, about {duration(report.seconds_without)} without memopt"
                    f"; {duration(report.own_seconds)} of processor time were memopt's own")
    return rows


def _loop_lines(loop: LoopReport, verbose: bool) -> list[str]:
    head = f"{_place(loop, verbose)}, {100 * loop.share:.1f} % of the time: "
    tried = [f"  {_place(x, verbose)}: {_why(x, verbose)}" for x in loop.tried]
    if loop.reason is Reason.DRY_RUN:
        return [head + "would be replaced", f"  {loop.plan}", *_speed_lines(loop), *_around(tried)]
    if loop.reason is not None and len(tried) > 1:
        return [head + "left alone", *tried]
    if loop.reason is not None:
        return [head + f"left alone, because {_why(loop, verbose)}"]
    when = "" if loop.installed_after_seconds is None else f" {duration(loop.installed_after_seconds)} after the start"
    when += ", by the plan of an earlier run" if loop.planned_before else ""
    return [head + "replaced" + when, f"  {loop.plan}", *_speed_lines(loop), *_around(tried)]


def _around(tried: list[str]) -> list[str]:
    return ["  left alone around it:", *(f"  {line}" for line in tried)] if tried else []


def _why(loop: LoopReport | Tried, verbose: bool) -> str:
    """Why a loop was left alone, in the words of its source. Registers and addresses are shown only on demand."""
    if loop.reason is None:
        return ""
    detail, where = loop.detail, ""
    if loop.statement is not None:
        source, text = loop.statement
        same = loop.source is not None and source.file == loop.source.file
        where = (f"line {source.line}" if same else str(source)) + (f": `{text}`" if text else "")
        detail = _CODE_ADDRESS.sub("", detail).strip()
    if verbose:
        parts = (where, loop.detail)
    else:
        parts = (where, "" if _OPAQUE.search(detail) else detail)
    shown = ": ".join(filter(None, parts))
    return f"{loop.reason.explain} ({shown})" if shown else loop.reason.explain


def _place(loop: LoopReport | Tried, verbose: bool) -> str:
    """``spmv at spmv.c:10``, or ``dgemm_ in libblas.so.3 at 0x4f370`` (as objdump shows it); with the address in the
    process where that is asked for, or nothing else is known."""
    name = _short(loop.function) or "a loop"
    if loop.source is not None:
        place = f"{name} at {loop.source}"
    elif loop.code is not None:
        place = f"{name} in {os.path.basename(loop.code.image)} at {loop.code.link:#x}"
    else:
        return f"{name} at {loop.address:#x}"
    return f"{place}, {loop.address:#x}" if verbose else place


def _short(name: str) -> str:
    """A long C++ name without its arguments: ``covariance`` for ``covariance(std::vector<...> const&, int)``."""
    if len(name) <= _LONGEST_NAME:
        return name
    kept, depth = "", 0
    for character in name:
        depth -= character in ">)" and depth > 0
        kept += "" if depth or character in "<>()" else character
        depth += character in "<("
    return kept.removesuffix(" const") or name


def _speed_lines(loop: LoopReport) -> list[str]:
    before, after = loop.seconds_per_iteration_before, loop.seconds_per_iteration_after
    rows = []
    if before is not None and after is not None:
        rows.append(f"  {duration(before)} per outer iteration before, {duration(after)} after: "
                    f"{_times(loop.speedup)} as fast" + ("" if loop.in_service else " in a trial copy"))
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
