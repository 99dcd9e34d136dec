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
from collections.abc import Iterator
from contextlib import contextmanager

from memopt.analysis.hotness import Hotness
from memopt.console import say
from memopt.ir.reasons import Reason, Rejected
from memopt.options import Options
from memopt.report.model import RunReport
from memopt.session.improve import Improver
from runtime import faults
from runtime.identify import Note, identify
from runtime.jobcontrol import exit_value
from runtime.launch import Target, launch, release_inherited_files
from runtime.ptrace import TargetEnded
from runtime.sampling import Sampler, open_sampler

EAGER_SECONDS = 0.004  # between looks at the program while something may still be gained
CALM_SECONDS = 0.05
CALM_INTERVAL_NS = 10_000_000  # between samples once every hot loop is settled
SETTLED_AFTER = 3.0  # seconds without a new hot loop


def run(options: Options) -> int:
    """``memopt exec``: exit code of the program, or minus the signal it died by. Raises ``CannotRun``."""
    executable = identify(options.arguments[0], os.environ.get("PATH"))
    samplers: list[Sampler] = []
    target = launch(executable, options.arguments, prepare=lambda pid: samplers.append(open_sampler(pid, on_exec=True)))
    release_inherited_files()
    session = Session(options, target, samplers[0])
    if executable.note is not None:
        return session.leave_alone(executable.note)
    return session.watch()


class Session:
    """One launched program."""

    def __init__(self, options: Options, target: Target, sampler: Sampler) -> None:
        self.options, self.target, self.sampler = options, target, sampler
        self.supervisor = target.supervisor
        self.hotness = Hotness()
        self.gate = threading.Lock()
        self.improver = Improver(options, target.pid, self.attached, target.started)

    def leave_alone(self, note: Note) -> int:
        """Nothing to be done for this program: one line, then only wait."""
        self.sampler.close()
        if not self.options.quiet:
            say(str(note))
        while self.supervisor.outcome is None:
            self.supervisor.poll(None)
        return self._finish((str(note),))

    def watch(self) -> int:
        """Look after the program until it ends; hand hot addresses to the improver."""
        last_find = time.monotonic()
        calm = False
        while self.supervisor.outcome is None:
            with self.gate:
                self.supervisor.poll(CALM_SECONDS if calm else EAGER_SECONDS)
            self.hotness.add(sample.address for sample in self.sampler.read())
            if self.improver.busy:
                last_find = time.monotonic()
                continue
            settled = self.improver.take_settled()
            if settled:
                self.hotness.settle(settled)
            address = self.hotness.hottest()
            if address is not None:
                last_find = time.monotonic()
                if calm:
                    self.sampler.set_interval(self.sampler.interval_ns)
                calm = False
                self.improver.start(address)
            elif not calm and time.monotonic() - last_find > SETTLED_AFTER:
                calm = True
                self.sampler.set_interval(CALM_INTERVAL_NS)
        self.hotness.add(sample.address for sample in self.sampler.read())
        return self._finish(self.improver.notes)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """The improver may stop the target inside; the main thread does not wait for it meanwhile."""
        with self.gate:
            if self.supervisor.outcome is not None:
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

    def _finish(self, notes: tuple[str, ...]) -> int:
        outcome = self.supervisor.outcome
        assert outcome is not None
        if self.sampler.note:
            notes = (*notes, self.sampler.note)
        publish(self.options, self.improver.report(self.hotness, notes, self.options.arguments))
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
        elif not options.quiet and (report.loops or report.notes or options.verbose):
            say("\n".join(text))
    except ReportError as error:
        say(str(error))
