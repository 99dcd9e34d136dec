"""``memopt profile``: a sampling profiler; the samples of a program and its child processes are written to a database.

Example: 60 % of the samples of thread 4711 lie at link-time address 0x1150 of ./dgemm. In: the launched program and its
sampler. Out: the rows of ``memopt.store``, and the program's exit code. The program is not changed, and is stopped only
where the system has no perf events. memopt ends when the program ends, even if the file cannot be written. Modules that
are needed only then are imported while the program runs.
"""

from __future__ import annotations

import importlib
import math
import shlex
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from memopt.console import say, say_internal
from memopt.ir.reasons import Reason
from memopt.options import Options
from memopt.session.profiling.images import Located, MappedCode, Processes
from memopt.session.watching.launched import YIELD_SECONDS, Session
from runtime import faults
from runtime.launch.jobcontrol import exit_value
from runtime.launch.launch import Target
from runtime.sampling.perf_events import INTERVAL_NS
from runtime.sampling.samples import Sample, Sampler

if TYPE_CHECKING:
    import sqlite3

    from memopt.session.improving.improver import Improver
    from memopt.session.profiling.affine import Survey

# (seconds since the start, nanoseconds between samples until then): a sample costs 25 microseconds on a virtual
# machine.
_INTERVALS = (1.0, INTERVAL_NS), (4.0, 2 * INTERVAL_NS), (math.inf, 4 * INTERVAL_NS)
LOOK_SECONDS = 0.025  # from one reading of the samples to the next: the buffer must hold those of many processes
# Modules that are needed at the end, a few milliseconds each. They import the others.
_FOR_THE_END = ("memopt.store.schema", "capstone", "memopt.machine.detect", "memopt.session.profiling.profile_file",
                "memopt.session.profiling.static_rows")


class Profiling(Session):
    """The session of one launched program that is only watched."""

    def __init__(self, options: Options, target: Target, sampler: Sampler) -> None:
        super().__init__(options, target, sampler)
        self._began = datetime.now(UTC)
        self._processes = Processes(target.pid)
        self._samples: Counter[Located] = Counter()
        self._weights: Counter[Located] = Counter()  # the same, in nanoseconds
        self._places: set[MappedCode] = set()  # where something was sampled
        self._threads: dict[int, tuple[int, int | None, str | None]] = {}  # process, its parent, its program
        self._lost = 0
        self._weight = sampler.interval_ns  # of the samples read next: they were taken before a change of the interval
        self._survey: Survey | None = None
        self._affine = options.mode == "affine"

    def _watch(self) -> None:
        ready = list(reversed(_FOR_THE_END))
        while self.supervisor.outcome is None:
            faults.point("watch")
            with self.gate:
                self.supervisor.poll(YIELD_SECONDS if self._busy() else LOOK_SECONDS)
            time.sleep(0)  # let the thread beside this one have the gate
            self._take()
            if ready:
                importlib.import_module(ready.pop())
            if self._affine and not self._busy():
                self._consider()
        self._take(last=True)

    def _take(self, *, last: bool = False) -> None:
        new, lost = self.sampler.read_all(last=last), self.sampler.lost
        for happened in new:
            if isinstance(happened, Sample):
                self._note(happened)
            else:
                self._processes.learn(happened)
        if self._affine:
            self.hotness.add(s.address for s in new if isinstance(s, Sample) and not s.child)
        if lost > self._lost:
            self._lost = lost
            self._processes.doubt()
        self._weight = self.sampler.interval_ns
        interval = next(ns for until, ns in _INTERVALS if time.monotonic() - self.target.started < until)
        if self.sampler.interval_ns not in (0, interval):
            self.sampler.set_interval(interval)

    def _note(self, sample: Sample) -> None:
        images = self._processes.of(sample.child)
        place = images.place(sample.address)
        if place is None:
            images.see(sample.address)
            place = images.place(sample.address)
        located = Located(sample.tid, None, sample.address)
        if place is not None:
            located = Located(sample.tid, place.path, sample.address - place.bias)
            self._places.add(place)
        self._samples[located] += 1
        self._weights[located] += self._weight
        self._threads[sample.tid] = images.pid, images.parent if sample.child else None, images.first or None

    def _new_improver(self) -> Improver:
        from memopt.session.profiling.affine import Survey
        from memopt.session.replacing.process import Process
        from runtime.trial.copy_cost import CopyBudget

        self._survey = Survey()
        process = Process(self.target.pid, self.options, self.attached, self.target.started,
                          copies=CopyBudget(spent=-math.inf))  # the user wants to know, whatever it costs
        return self._survey.improver(process, self.worker)

    def _finish(self, notes: tuple[str, ...] = (), reason: Reason | None = None) -> int:
        outcome = self.supervisor.outcome
        assert outcome is not None
        seconds = time.monotonic() - self.target.started
        if self._busy():
            self.worker.give_up()
        if self.sampler.note:
            notes = (*notes, self.sampler.note)
        if self.sampler.lost:
            notes = (*notes, f"{self.sampler.lost} records of samples and processes found no room and are missing")
        if reason is None:
            try:
                from memopt.session.profiling.profile_file import create_file

                connection = create_file(self.options, self._began, seconds, outcome)
                if connection is not None:
                    self._write(connection, seconds, notes)
            except Exception as error:  # noqa: BLE001 - the program's end must still become memopt's
                say_internal("profile", error)
        return exit_value(outcome)

    def _write(self, connection: sqlite3.Connection, seconds: float, notes: tuple[str, ...]) -> None:
        from memopt.session.profiling.static_rows import write_samples

        each = seconds / max(1, self._samples.total())  # where the system does not say
        program = self._processes.program
        write_samples(connection, self._places.union(program.places), program.first, {
            located: (count, self._weights[located] * 1e-9 or count * each)
            for located, count in self._samples.items()})
        connection.executemany("INSERT INTO thread VALUES (?, ?, ?, ?)", (
            (tid, *seen) for tid, seen in sorted(self._threads.items())))
        if self._survey is not None and self.improver is not None:
            notes = (*notes, *self._write_nests(connection, self._survey, self.improver))
        connection.close()
        if not self.options.quiet:
            path = self.options.profile or ""
            say("\n".join((*notes, f"{path}: {self._samples.total():,} samples of {seconds:.1f} s",
                           f"next: memopt query {shlex.quote(path)} hot-loops")))

    def _write_nests(self, connection: sqlite3.Connection, survey: Survey, improver: Improver) -> list[str]:
        """Write the nests of ``--affine``; lines for the user about all hot loops."""
        from memopt.session.profiling.affine import write
        from memopt.session.replacing.decision import Refused

        left_out = write(connection, self._processes.program, survey.nests)
        found = (f"{d.site.function or 'a loop'} at {d.address:#x}: "
                 + ("an affine nest" if d.reason is Reason.DRY_RUN else f"not understood, {d.reason.value}")
                 for d in improver.decisions if d.site is not None and isinstance(d, Refused))
        last = improver.unfinished
        ended = [] if last is None or last.site is None else [
            f"{last.site.function or 'a loop'} at {last.address:#x}: the program ended before it was understood"]
        return [*found, *ended, *left_out]
