"""``memopt profile --paths``: path profiling: how often each acyclic path of a function was taken.

Example: a function with two ``if`` in a row has four paths, numbered 0 to 3
(``memopt.instrumentation.path_numbering``); path 2 was taken 900 times. In: the traces of all threads, all of the time
(``--exact``) or in windows. Out: rows of ``path`` and ``windows``.

Intermittent profiling (Intermittent path profiling, Utsunomiya University, 1999) unhooks its probes after a quota and
rehooks them at an interval. Here a window of a thread ends when the quota of paths is reached, over all functions. The
counts of a window are weighted: they stand for the time since the window before, by the processor time of both. So
phases of slow paths do not outweigh others. But the time in a window is not the time of its paths alone; where phases
differ in that, shares are off (by a third in a program that compresses, expands and compares in turn).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy
from numpy.typing import NDArray

from memopt.instrumentation.path_numbering import PathNumbers, number_paths
from memopt.ir.reasons import Rejected
from memopt.machine.tsc import ticks_per_second
from memopt.options import Options
from memopt.session.profiling.count_rows import Written
from memopt.traces.paths import PathBlock, Paths
from runtime.launch.jobcontrol import Supervisor
from runtime.recording.intermittent import Intermittent
from runtime.recording.recorder import Recorder
from runtime.recording.translation.unit import Unit


class PathWatch:
    """The watcher (runtime.recording.intermittent) that counts the paths of all threads, each by itself."""

    def __init__(self, beside: bool) -> None:
        """Slow: the reader of paths is compiled or loaded. ``beside``: a piece of a trace is read while the program
        fills the next one; ``counted`` lags behind then."""
        Paths().feed(numpy.zeros(0, numpy.uint64))
        self._worker = ThreadPoolExecutor(1) if beside else None
        self._pending: Future[None] | None = None
        self.begin()

    def _finish(self) -> None:
        """Wait until every piece that was taken is read. Raises what the reader raises."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def begin(self) -> None:
        self._finish()
        self._threads: dict[int, Paths] = {}
        self._blocks: list[PathBlock] = []
        self._units: dict[int, tuple[Unit, PathNumbers | None]] = {}

    def forget(self, tids: Sequence[int]) -> None:
        self._finish()
        for tid in tids:
            self._threads.pop(tid, None)

    def take(self, tid: int, new: Sequence[Unit], nodes: NDArray[numpy.int64], words: NDArray[numpy.uint64]) -> None:
        self._finish()
        known = len(self._blocks)
        for unit in new:
            self._add(unit)
        for paths in self._threads.values():
            paths.know(self._blocks[known:])
        if tid not in self._threads:
            self._threads[tid] = Paths()
            self._threads[tid].know(self._blocks)
        if self._worker is None:
            self._threads[tid].feed(words)
        else:
            self._pending = self._worker.submit(self._threads[tid].feed, words)

    def counted(self, tid: int) -> int:
        return self._threads[tid].paths if tid in self._threads else 0

    def end_window(self, tid: int, weight: float) -> None:
        self._finish()
        if tid in self._threads:
            self._threads[tid].end_window(weight)

    def _add(self, unit: Unit) -> None:
        try:
            numbers = number_paths(unit.graph)
        except Rejected:
            self._units[unit.number] = unit, None
            self._blocks += [PathBlock(unit.number, None, None, ()) for _ in unit.watched]
            return
        self._units[unit.number] = unit, numbers
        place = {watched.start: watched.number for watched in unit.watched}
        edges: dict[int, list[tuple[int, int, int | None]]] = {}
        for (source, target), value in numbers.values.items():
            edges.setdefault(source, []).append((place[target], value, None))
        for (source, target), value in numbers.back.items():
            edges.setdefault(source, []).append((place[target], value, numbers.starts[target]))
        self._blocks += [PathBlock(unit.number, numbers.starts.get(block), numbers.ends.get(block),
                                   tuple(edges.get(block, ()))) for block in place]

    def write(self, connection: sqlite3.Connection, written: Written, recorder: Recorder) -> list[str]:
        """Write the rows of ``path`` and ``windows``; lines for the user about what is missing."""
        assert isinstance(recorder, Intermittent)
        counts: dict[tuple[int, int], float] = {}
        for paths in self._threads.values():
            for number, path, count in paths.all():
                counts[number, path] = counts.get((number, path), 0.0) + count
        connection.execute("BEGIN")
        for (number, path), count in sorted(counts.items(), key=lambda item: -item[1]):
            unit, numbers = self._units[number]
            assert numbers is not None  # paths of functions without numbers are not counted
            function, _, entry = written.static.function(unit)
            bias = unit.graph.entry - entry
            connection.execute("INSERT INTO path VALUES (?, ?, ?, ?, ?, ?)", (
                function, entry, path, numbers.count, count,
                " ".join(f"{block - bias:#x}" for block in numbers.blocks(path))))
        connection.execute("INSERT INTO windows VALUES (?, ?)", (recorder.windows, recorder.inside_seconds))
        connection.execute("COMMIT")
        missed = sum(numbers is None for _, numbers in self._units.values())
        return [f"{missed} functions have too many paths to be numbered"] if missed else []


def intermittent(options: Options, supervisor: Supervisor, watch: PathWatch) -> Intermittent:
    """The recorder of paths that ``options`` ask for."""
    interval = None if options.rehook is None else options.rehook / ticks_per_second()
    return Intermittent(supervisor, watch, options.unhook, interval, options.overhead / 100)
