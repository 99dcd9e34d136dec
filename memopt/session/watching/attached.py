"""``memopt attach``: improve a process that runs already, or restore its original code (``--undo``).

Example: ``memopt attach 4711`` watches process 4711 until no new hot loop has turned up for 1.5 s, replaces what can be
replaced, and ends. In: ``Options`` with a process id. Out: the report, and memopt's exit code. The process is never
waited for or signalled. When memopt ends, nothing of it stays in the process but versions: those that are installed,
and the pages of those that were (runtime/patching/install.py).
"""

from __future__ import annotations

import os
import time

from memopt.console import say
from memopt.ir.reasons import Rejected
from memopt.options import Options
from memopt.report.model import Outcome
from memopt.session.watching.followed import Followed
from memopt.session.watching.launched import EAGER_SECONDS, publish
from runtime.target.eligibility import check_process, check_traceable, identity
from runtime.target.ptrace import TargetEnded

PATIENCE = 1.5  # seconds without a new hot loop until memopt leaves
FAILED = 1


def attach(options: Options) -> int:
    """The exit code: 0 if the process could be watched (improved or not), 1 if not. Precondition: ``options.pid`` is
    set.
    """
    assert options.pid is not None
    try:
        if options.undo:
            check_traceable(options.pid)  # threads, handlers and confinement are no obstacle
            return undo(options.pid)
        check_process(options.pid)
        return improve(options, options.pid)
    except Rejected as rejected:
        say(f"process {options.pid} is left alone: {rejected}")
    except TargetEnded:
        say(f"process {options.pid} has ended")
    return FAILED


def improve(options: Options, pid: int) -> int:
    """Watch ``pid`` until no new hot loop turns up, and replace what can be replaced."""
    followed = Followed(options, identity(pid), (f"process {pid}",))
    last_find = time.monotonic()
    while time.monotonic() - last_find < PATIENCE and os.path.exists(f"/proc/{pid}"):
        time.sleep(EAGER_SECONDS)
        if followed.step():
            last_find = time.monotonic()
    report = followed.finish()
    publish(options, report)
    if any(loop.outcome is Outcome.REPLACED for loop in report.loops) and not options.quiet:
        say(f"next: memopt attach --undo {pid}   (take the new code out again)")
    return 0


def undo(pid: int) -> int:
    """Put the original code back wherever memopt has replaced it."""
    from runtime.patching import perf_map
    from runtime.patching.install import find_versions, remove
    from runtime.target.tracee import attach as trace

    versions = find_versions(pid)
    restored = sum(version.in_force for version in versions)
    if not versions:
        say(f"process {pid} runs no code of memopt's")
        return 0
    process = identity(pid)
    with trace(pid) as tracee:
        tracee.stop()
        process.verify()
        remains = [remove(tracee, version) for version in versions]  # those behind others, too
    process.close()
    perf_map.delete(pid)
    running, stays = sum(r.running for r in remains), sum(r.bytes for r in remains) >> 10
    say((f"process {pid} runs its original code again, {restored} loops restored" if restored
         else f"process {pid} runs no code of memopt's")
        + f"; {stays} KiB of former code stay until it ends"
        + (f", {running} of {len(versions)} versions in the middle of a run" if running else ""))
    return 0
