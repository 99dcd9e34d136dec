"""Where the program is now, by stopping it for a moment: samples where the system allows no perf events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from memopt.ir.reasons import Rejected
from runtime.sampling.samples import Sample
from runtime.target.ptrace import TargetEnded
from runtime.target.tracee import attach

LONGEST_SECONDS = 0.05  # to come to a stop; a program that does not run is not sampled


def look(pid: int, attached: Callable[[], AbstractContextManager[None]]) -> Sequence[Sample]:
    """The instruction pointer of each thread; none where the program cannot be stopped right now, or at all."""
    try:
        with attached(), attach(pid) as tracee:
            tracee.stop(LONGEST_SECONDS)
            return [Sample(tracee.registers(tid).rip, tid) for tid in tracee.threads]
    except (Rejected, TargetEnded):
        return ()
