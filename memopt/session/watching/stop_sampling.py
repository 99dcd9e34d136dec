"""Sampling by stopping: the instruction pointers of a program that is stopped for a moment.

This is the sampler of systems that allow no perf events. In: a process id, and a context in which the process may be
stopped. Out: one ``Sample`` for each thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from memopt.ir.reasons import Rejected
from runtime.sampling.samples import Sample
from runtime.target.ptrace import TargetEnded
from runtime.target.tracee import attach

LONGEST_SECONDS = 0.05  # to come to a stop; a program that does not run is not sampled


def look(pid: int, attached: Callable[[], AbstractContextManager[None]]) -> Sequence[Sample]:
    """A sample of each thread; none where the program cannot be stopped right now, or at all."""
    try:
        with attached(), attach(pid) as tracee:
            tracee.stop(LONGEST_SECONDS)
            return [Sample(tracee.registers(tid).rip, tid) for tid in tracee.threads]
    except (Rejected, TargetEnded):
        return ()
