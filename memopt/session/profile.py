"""``memopt profile``: a program runs as it is, sampled, and becomes a file of ``memopt.store``.

Invariant: the program is not changed, and stopped only where the system has no perf events; its end is memopt's end,
whatever becomes of the file.
"""

from __future__ import annotations

import shlex
import sqlite3
import time
from collections import Counter
from datetime import UTC, datetime

from memopt.console import say, say_internal
from memopt.ir.reasons import Reason
from memopt.options import Options
from memopt.session.file import create_file
from memopt.session.images import Images
from memopt.session.watch import Session
from runtime import faults
from runtime.jobcontrol import exit_value
from runtime.launch import Target
from runtime.sampling import Sampler

LOOK_SECONDS = 0.025  # between looks at what was sampled: what a library did before it is unloaded must have been seen


class Profiling(Session):
    """One launched program that is only watched."""

    def __init__(self, options: Options, target: Target, sampler: Sampler) -> None:
        super().__init__(options, target, sampler)
        self._began = datetime.now(UTC)
        self._samples: Counter[tuple[int, int]] = Counter()  # by thread and live address
        self._images = Images(target.pid)

    def _watch(self) -> None:
        while self.supervisor.outcome is None:
            faults.point("watch")
            with self.gate:
                self.supervisor.poll(LOOK_SECONDS)
            self._take()
        self._take()

    def _take(self) -> None:
        new = [(sample.tid, sample.address) for sample in self.sampler.read()]
        self._images.see({address for _, address in new})
        self._samples.update(new)

    def _finish(self, notes: tuple[str, ...] = (), reason: Reason | None = None) -> int:
        outcome = self.supervisor.outcome
        assert outcome is not None
        seconds = time.monotonic() - self.target.started
        if self.sampler.note:
            notes = (*notes, self.sampler.note)
        if self.sampler.lost:
            notes = (*notes, f"{self.sampler.lost} samples found no room and are missing")
        if reason is None:
            try:
                connection = create_file(self.options, self._began, seconds, outcome)
                if connection is not None:
                    self._write(connection, seconds, notes)
            except Exception as error:  # noqa: BLE001 - the program's end must still become memopt's
                say_internal("profile", error)
        return exit_value(outcome)

    def _write(self, connection: sqlite3.Connection, seconds: float, notes: tuple[str, ...]) -> None:
        per_sample = self.sampler.interval_ns * 1e-9 or seconds / max(1, self._samples.total())
        self._images.write(connection, self._samples, per_sample)
        connection.close()
        if not self.options.quiet:
            path = self.options.profile or ""
            say("\n".join((*notes, f"{path}: {self._samples.total():,} samples of {seconds:.1f} s",
                           f"next: memopt query {shlex.quote(path)} hot-loops")))

