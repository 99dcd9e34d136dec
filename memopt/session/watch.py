"""The driver: one program from launch to report. It reads as the list of stages in ARCHITECTURE.md.

Two threads. The main thread looks after the program (signals, job control, samples) and is never busy for long.
The improver thread takes one hot address at a time through find, capture, lift, schedule, generate, validate and
install. Invariant: whatever fails in the improver, the program runs on natively and its end is memopt's end; the
target is only ever stopped while ``gate`` is held, and the main thread only waits for it while holding ``gate``.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.analysis.hotness import Hotness
from memopt.console import say, say_internal
from memopt.ir.reasons import Reason, Rejected
from memopt.options import Options
from memopt.report.model import RunReport
from memopt.session.improve import Improver
from runtime import faults
from runtime.identify import Note
from runtime.jobcontrol import exit_value
from runtime.launch import Target
from runtime.ptrace import TargetEnded
from runtime.sampling import INTERVAL_NS, Sample, Sampler

if TYPE_CHECKING:
    from memopt.session.followed import Follower

YIELD_SECONDS = 0.002  # between looks at the program while the improver may want to stop it
EAGER_SECONDS = 0.03  # while something may still be gained
CALM_SECONDS = 0.4
CALM_INTERVAL_NS = 10_000_000  # between samples once every hot loop is settled
NICE = 10
SETTLED_AFTER = 1.5  # seconds without a new hot loop


class Session:
    """One launched program."""

    def __init__(self, options: Options, target: Target, sampler: Sampler) -> None:
        self.options, self.target, self.sampler = options, target, sampler
        self.supervisor = target.supervisor
        self.hotness = Hotness()
        self.gate = threading.Lock()
        self.over = False  # the main thread only waits for the program from now on, without the gate
        self.improver = Improver(options, target.pid, self.attached, target.started)
        self.follower: Follower | None = None
        if options.follow:
            from memopt.session.followed import Follower

            self.follower = Follower(options, target.pid)

    def leave_alone(self, note: Note) -> int:
        """Nothing to be done for this program: one line, then only wait."""
        self.sampler.close()
        if not self.options.quiet:
            say(str(note))
        while self.supervisor.outcome is None:
            self.supervisor.poll(None)
        return self._finish((str(note),), note.reason)

    def watch(self) -> int:
        """Look after the program until it ends; hand hot addresses to the improver.

        At a low priority: where all processors are busy, memopt must not take the program's share of them.
        """
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), NICE))
        try:
            self._watch()
        except BaseException:
            with self.gate:
                self.over = True
            raise
        return self._finish()

    def _watch(self) -> None:
        last_find = time.monotonic()
        calm = False
        while self.supervisor.outcome is None:
            faults.point("watch")
            busy = self.improver.busy
            with self.gate:
                self.supervisor.poll(YIELD_SECONDS if busy else CALM_SECONDS if calm else EAGER_SECONDS)
            if busy:  # let the improver have the gate
                time.sleep(0)
            if self.follower is not None:
                self.follower.step()
            self.hotness.add(sample.address for sample in self.sampler.read())
            if self.improver.busy:
                last_find = time.monotonic()
                continue
            if self.improver.consider(self.hotness):
                if calm:
                    self.sampler.set_interval(INTERVAL_NS)
                calm = False
            elif not calm and self.follower is None and time.monotonic() - last_find > SETTLED_AFTER:
                calm = True
                self.sampler.set_interval(CALM_INTERVAL_NS)
        self.hotness.add(sample.address for sample in self.sampler.read())

    def look(self) -> Sequence[Sample]:
        """What the sampler falls back on where perf events are refused; the caller does not hold the gate."""
        from memopt.session.looking import look

        return look(self.target.pid, self.attached)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """The improver may stop the target inside; the main thread does not wait for it meanwhile."""
        with self.gate:
            if self.over or self.supervisor.outcome is not None:
                raise Rejected(Reason.ENDED)
            self.supervisor.traced = True
            try:
                yield
            except TargetEnded as ended:
                if ended.status is not None:
                    self.supervisor.note_exit(ended.status)
                raise
            finally:
                self.supervisor.traced = False

    def _finish(self, notes: tuple[str, ...] = (), reason: Reason | None = None) -> int:
        outcome = self.supervisor.outcome
        assert outcome is not None
        if self.sampler.note:
            notes = (*notes, self.sampler.note)
        try:
            report = self.improver.report(self.hotness, notes, self.options.arguments)
            processes = self.follower.finish() if self.follower is not None else ()
            publish(self.options, replace(report, reason=reason, processes=processes))
        except Exception as error:  # noqa: BLE001 - the program's end must still become memopt's
            say_internal("report", error)
        self.improver.close()
        return exit_value(outcome)


def publish(options: Options, report: RunReport) -> None:
    """The report to stderr or the files the user named; what cannot be written costs one line, nothing else."""
    from memopt.report import json
    from memopt.report.files import ReportError, write
    from memopt.report.text import lines

    try:
        faults.point("report")
        text = lines(report, verbose=options.verbose)
        if options.json is not None:
            write(options.json, json.render(report))
        if options.report is not None:
            write(options.report, "".join(f"{line}\n" for line in text))
        elif not options.quiet and report.reason is None and (
                report.loops or report.processes or report.notes or options.verbose):
            say("\n".join(text))
    except ReportError as error:
        say(str(error))
