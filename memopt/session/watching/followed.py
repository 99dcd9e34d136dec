"""Processes that memopt did not start itself: they are sampled and improved, but never waited for.

Example: ``memopt exec --follow -- mpirun -n 4 ./solver`` follows the four solvers, which mpirun starts. ``memopt
attach`` follows one process. In: a process id. Out: a ``RunReport`` for each process that was followed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from memopt.ir.reasons import Rejected
from memopt.options import Options
from memopt.report.model import RunReport
from memopt.session.improving.improver import Improver
from memopt.session.measuring.hotness import Hotness
from memopt.session.replacing.history import History
from memopt.session.replacing.known import KnownLoops
from memopt.session.replacing.process import Process
from memopt.session.watching.sampling_rate import SamplingRate
from memopt.session.watching.stop_sampling import look
from runtime.sampling.perf_events import Events
from runtime.sampling.samples import sampler_of
from runtime.target.eligibility import Identity, identity
from runtime.target.proc import descendants, running_seconds

WORTH_SECONDS = 0.1  # of processor time, before a process is looked at
SCAN_SECONDS = 0.05
MOST_FOLLOWED = 64  # at a time


class Followed:
    """One process, known by its identity: after execve it counts as another process."""

    def __init__(self, options: Options, process: Identity, name: tuple[str, ...]) -> None:
        self.process = process
        self.name = name
        self.hotness = Hotness()
        self.sampler = sampler_of(Events(process.pid, on_exec=False), lambda: look(process.pid, self.attached))
        self.pace = SamplingRate(self.sampler, self.hotness, time.monotonic())
        looked_after = Process(process.pid, options, self.attached, time.monotonic(), verify=process.verify)
        if options.snapshot is not None:
            from memopt.session.snapshotting.keeping import keeper_of

            looked_after = keeper_of(options.snapshot).of(looked_after)
        self.improver = Improver(looked_after, history=History(known=KnownLoops(options)))

    @contextmanager
    def attached(self) -> Iterator[None]:
        """A context in which the process may be stopped. Raises Rejected where it is not the same process any more."""
        self.process.verify()
        yield

    def alive(self) -> bool:
        try:
            self.process.verify()
        except Rejected:
            return False
        return True

    def step(self) -> bool:
        """Take the new samples, and let the improver take up a hot loop; True while it works."""
        busy = self.improver.busy
        self.pace.step(time.monotonic(), busy)
        if not busy and self.improver.consider(self.hotness):
            self.pace.news()
        return self.improver.busy

    def finish(self) -> RunReport:
        """The report; the process is not followed any more."""
        self.pace.step(time.monotonic(), True)
        self.sampler.close()
        notes = (self.sampler.note,) if self.sampler.note else ()
        report = self.improver.report(self.hotness, notes, self.name)
        self.improver.keep()
        self.process.close()
        return report


class Follower:
    """The descendants of one program that have used ``WORTH_SECONDS`` of processor time."""

    def __init__(self, options: Options, pid: int) -> None:
        self._options, self._pid = options, pid
        self._followed: list[Followed] = []
        self._ended: list[RunReport] = []
        self._next_scan = 0.0

    def step(self) -> None:
        """Look for new processes now and then, and let each known one take a step."""
        if time.monotonic() >= self._next_scan:
            self._scan()
            self._next_scan = time.monotonic() + SCAN_SECONDS
        for followed in self._followed:
            followed.step()

    def finish(self) -> tuple[RunReport, ...]:
        """A report for each process that was followed, in the order of their ends; then those that are still alive."""
        for followed in self._followed:
            self._retire(followed)
        self._followed.clear()
        return tuple(self._ended)

    def _scan(self) -> None:
        for followed in [f for f in self._followed if not f.alive()]:
            self._followed.remove(followed)
            self._retire(followed)
        known = {f.process.pid for f in self._followed}
        for pid in descendants(self._pid):
            if pid in known or len(self._followed) >= MOST_FOLLOWED or running_seconds(pid) < WORTH_SECONDS:
                continue
            with suppress(Rejected):  # it has just ended
                process = identity(pid)
                self._followed.append(Followed(self._options, process, (f"process {pid}", *_command(pid))))

    def _retire(self, followed: Followed) -> None:
        if not followed.alive():  # else its new code goes on running, and profilers need its names
            followed.improver.close()
        report = followed.finish()
        if report.hot_loops:
            self._ended.append(report)


def _command(pid: int) -> tuple[str, ...]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return tuple(word.decode("utf-8", "replace") for word in file.read().split(b"\0")[:-1])
    except OSError:
        return ()
