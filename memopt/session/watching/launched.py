"""The session of ``memopt exec``: one program that memopt has launched, from its start to its end and its report.

Two threads. The main thread looks after the program (signals, job control, samples) and is never busy for long. The
improver's thread takes one hot address at a time through the stages (memopt.session.replacing.stages).

In: the launched program, its sampler, ``Options``. Out: the report, and the program's exit code. If the improver fails,
the program runs on natively; memopt ends when the program ends. The program is only stopped while ``gate`` is held, and
the main thread waits for it only while it holds ``gate``: so no thread takes the other's wait status.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from memopt import __version__
from memopt.console import say, say_internal
from memopt.ir.reasons import Reason, Rejected
from memopt.options import Options
from memopt.session.improving.worker import Worker
from memopt.session.measuring.hotness import Hotness
from memopt.session.watching.sampling_rate import SamplingRate
from runtime import faults
from runtime.launch.identify import Note
from runtime.launch.jobcontrol import exit_value
from runtime.launch.launch import Target
from runtime.sampling.samples import Sample, Sampler

if TYPE_CHECKING:
    from memopt.report.model import RunReport
    from memopt.session.improving.improver import Improver
    from memopt.session.replacing.known import KnownLoops
    from memopt.session.snapshotting.keeping import Keeper
    from memopt.session.watching.followed import Follower
    from memopt.session.watching.started import Started

YIELD_SECONDS = 0.002  # between looks at the program while the improver may want to stop it
EAGER_SECONDS = 0.03  # between looks at processes that memopt did not start itself
NICE = 10
STARTED_AFTER_SECONDS = 0.5  # of the program, until it is looked for processes that it has started
IN_TURN = 1.1  # processes that took so much longer together than the run did not run in turn
LOOK_UP_SECONDS = 0.01  # of the program, until it is looked up what earlier runs have found
EXPECTED_SECONDS = 0.005  # between looks while the program may come to a loop with a plan of an earlier run
WORTH_SAMPLES = 10  # until the improver is made ready: many programs end before they need one


class Session:
    """One launched program, and the loop of the main thread that looks after it."""

    def __init__(self, options: Options, target: Target, sampler: Sampler) -> None:
        self.options, self.target, self.sampler = options, target, sampler
        self.supervisor = target.supervisor
        self.hotness = Hotness()
        self.pace = SamplingRate(sampler, self.hotness, time.monotonic())
        self.gate = threading.Lock()
        self.over = False  # the main thread only waits for the program from now on, without the gate
        self.worker = Worker()
        self.improver: Improver | None = None
        self.keeper: Keeper | None = None
        self._prepared = self._looked_up = False
        self._known: KnownLoops | None = None
        self.follower: Follower | None = None
        self.started: Started | None = None
        if options.follow:
            from memopt.session.watching.followed import Follower

            self.follower = Follower(options, target.pid)

    def leave_alone(self, note: Note) -> int:
        """Wait for a program that cannot be improved, after one line that says why."""
        self.sampler.close()
        if not self.options.quiet:
            say(str(note))
        while self.supervisor.outcome is None:
            self.supervisor.poll(None)
        return self._finish((str(note),), note.reason)

    def watch(self) -> int:
        """Look after the program until it ends, and hand hot addresses to the improver.

        This runs at a low priority: where all processors are busy, memopt must not take the program's share of them.
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
        while self.supervisor.outcome is None:
            faults.point("watch")
            busy = self._busy()
            calm = self.pace.look_after_seconds if self.follower is None else EAGER_SECONDS
            if not self._looked_up or (self.improver is not None and self.improver.expecting):
                calm = min(calm, EXPECTED_SECONDS)
            with self.gate:
                self.supervisor.poll(YIELD_SECONDS if busy else calm)
            if busy:  # let the improver have the gate
                time.sleep(0)
            if self.follower is not None:
                self.follower.step()
            self._look_at_started()
            busy = self._busy()
            self.pace.step(time.monotonic(), busy)
            if not busy and self._consider():
                self.pace.news()

    def _look_at_started(self) -> None:
        """Look at the processes that the program has started: not at once, many programs end before that is of use."""
        now = time.monotonic()
        if self.started is None and now - self.target.started >= STARTED_AFTER_SECONDS:
            from memopt.session.watching.started import Started

            self.started = Started(self.target.pid)
        if self.started is not None:
            self.started.step(now)

    def _busy(self) -> bool:
        return self.improver is not None and self.worker.busy

    def _consider(self) -> bool:
        """Let the improver take up the next hot loop; False where there is none. At first the improver itself is made,
        in its thread: at once where earlier runs have left plans for the program, else when there are samples."""
        if self.improver is not None:
            return self.improver.consider(self.hotness)
        if self.worker.busy:
            return False
        if not self._looked_up:
            if time.monotonic() - self.target.started >= LOOK_UP_SECONDS:
                self._looked_up = True
                if self.options.cache:
                    self.worker.start(self._look_up)
        elif not self._prepared and self.hotness.samples.total() >= WORTH_SAMPLES:
            self._prepared = True
            self.worker.start(self._prepare)
        return False

    def _look_up(self) -> None:
        try:
            from memopt.session.replacing.known import KnownLoops

            self._known = KnownLoops(self.options)
            if self._known.expect(self.target.executable.image):
                from memopt.session.replacing.stages import get_ready

                self._prepared = True
                self._prepare()
                get_ready()
        except Exception as error:  # noqa: BLE001 - then it is as if there were no cache
            say_internal("plans", error)

    def _prepare(self) -> None:
        try:
            from memopt.report import files, json, text  # noqa: F401 - needed at the end, imported while there is time

            self.improver = self._new_improver()
        except Exception as error:  # noqa: BLE001 - the program runs on, only never improved
            say_internal("start", error)

    def _new_improver(self) -> Improver:
        from memopt.session.improving.improver import Improver
        from memopt.session.replacing.history import History
        from memopt.session.replacing.process import Process

        process = Process(self.target.pid, self.options, self.attached, self.target.started)
        if self.options.snapshot is not None:
            from memopt.session.snapshotting.keeping import keeper_of

            self.keeper = keeper_of(self.options.snapshot)
            process = self.keeper.of(process)
        history = History() if self._known is None else History(known=self._known)
        return Improver(process, self.worker, history=history)

    def look(self) -> Sequence[Sample]:
        """Samples by stopping the program, for a system without perf events. The caller does not hold the gate."""
        from memopt.session.watching.stop_sampling import look

        return look(self.target.pid, self.attached)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """A context in which the improver may stop the program: the main thread does not wait for it meanwhile. Raises
        Rejected(ENDED)."""
        from runtime.target.ptrace import TargetEnded

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
        if self._busy():
            self.worker.give_up()
        if self.sampler.note:
            notes = (*notes, self.sampler.note)
        started = "" if self.started is None or self.follower is not None else self.started.note()
        if started:
            notes = (*notes, started)
        try:
            report = self._report(notes)
            processes = self.follower.finish() if self.follower is not None else ()
            publish(self.options, replace(self._with_costs(report, processes), reason=reason, processes=processes,
                                          follow=bool(started)))
        except Exception as error:  # noqa: BLE001 - the program's end must still become memopt's
            say_internal("report", error)
        if self.improver is not None:
            self.improver.close()
            self.improver.keep()
        return self._with_snapshot(exit_value(outcome))

    def _with_snapshot(self, value: int) -> int:
        """The exit value ``value`` of the program; 1 in place of 0 where a snapshot was to be written, and is not."""
        asked = self.options.snapshot
        if asked is None or asked.mismatch or (self.keeper is not None and self.keeper.written):
            return value
        why = self.keeper.wanted if self.keeper is not None else "the program ended too early"
        say(f"no snapshot was written: {why}")
        return value or 1

    def _with_costs(self, report: RunReport, processes: Sequence[RunReport]) -> RunReport:
        """``report`` with the time that no sample of the program tells of. Without any samples there is no account."""
        from memopt.session.watching.started import Started
        from runtime.trial.shadow import Shadow

        account, of_samples, without = report.account, report.account.total, report.seconds_without
        kernel, started = (self.started or Started(self.target.pid)).account(of_samples, self.supervisor.usage)
        if of_samples or started:
            started = max(0.0, started - sum(p.account.total for p in processes))
            account = replace(account, kernel=kernel, started=started)
        if without is not None:
            without += _gained(processes, report.seconds)
        return replace(report, account=account, seconds_without=without,
                       own_seconds=time.process_time() + Shadow.spent)

    def _report(self, notes: tuple[str, ...]) -> RunReport:
        if self.improver is not None:
            return self.improver.report(self.hotness, notes, self.options.arguments)
        from memopt.report.model import RunReport

        elapsed = time.monotonic() - self.target.started
        return RunReport(__version__, self.options.arguments, (), (), notes, elapsed, self.hotness.samples.total(),
                         seconds_without=elapsed)


def _gained(processes: Sequence[RunReport], elapsed: float) -> float:
    """Seconds by which ``processes`` made the run shorter: all of theirs if they ran one after the other, as those of a
    script do; else those of the one that gained most."""
    gains = [p.seconds_without - p.seconds for p in processes if p.seconds_without is not None]
    in_turn = sum(p.seconds for p in processes) <= IN_TURN * elapsed
    return sum(gains) if in_turn else max(gains, default=0.0)


def publish(options: Options, report: RunReport) -> None:
    """Write the report to standard error or to the files that the user named. A file that cannot be written costs one
    line, nothing else."""
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
