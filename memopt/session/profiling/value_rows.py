"""``memopt profile --values``: the rows of values at the entries and exits of functions and loops.

Example: ``f(x, n)`` was entered 1000 times, with n = 512 in 990 of them; its loop had 512 trips. In: the traces of all
threads, piece by piece. Out: rows of ``value`` (arguments, trip counts, cycles), their frequent values and
distributions, and of ``trips``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import numpy
from numpy.typing import NDArray

from memopt.instrumentation.value_probes import Point
from memopt.session.profiling.count_rows import Written
from memopt.traces.values import AMOUNTS, Value, Values
from runtime.recording.recorder import Recorder
from runtime.recording.translation.unit import Unit

_MOST_ALIGNED = 1 << 62  # numbers in tables are signed


class ValueWatch:
    """The watcher (runtime.recording.recorder) that reads the values of all threads, each by itself."""

    def __init__(self) -> None:
        self.begin()

    def forget(self, tids: Sequence[int]) -> None:
        for tid in tids:
            self._threads.pop(tid, None)

    def begin(self) -> None:
        self._threads: dict[int, Values] = {}
        self._points: list[tuple[Unit, Point]] = []

    def take(self, tid: int, new: Sequence[Unit], nodes: NDArray[numpy.int64], words: NDArray[numpy.uint64]) -> None:
        known = len(self._points)
        self._points += [(unit, point) for unit in new for point in unit.points]
        for values in self._threads.values():
            values.know_points([point for _, point in self._points[known:]])
        if tid not in self._threads:
            self._threads[tid] = Values()
            self._threads[tid].know_points([point for _, point in self._points])
        self._threads[tid].feed(words)

    def write(self, connection: sqlite3.Connection, written: Written, _: Recorder) -> tuple[str, ...]:
        """Write the rows of ``value``, of the tables behind it, and of ``trips``."""
        connection.execute("BEGIN")
        for tid, values in self._threads.items():
            for value in values.all():
                self._write(connection, written, written.of(tid).get(value.node), value)
        connection.execute("COMMIT")
        return ()

    def _write(self, connection: sqlite3.Connection, written: Written, context: int | None, found: Value) -> None:
        unit, _ = self._points[found.point]
        loop = None if found.loop is None else written.static.loop(unit, found.loop)
        if context is None or (loop is None and found.loop is not None):
            return
        amount, divides = found.name in AMOUNTS, min(found.bits & -found.bits, _MOST_ALIGNED)
        number = connection.execute(f"INSERT INTO value VALUES (NULL, {', '.join('?' * 9)})", (
            context, loop, found.name, found.count, found.least, found.most, found.total if amount else None,
            None if amount or not found.bits else divides, found.changes)).lastrowid
        connection.executemany("INSERT INTO frequent VALUES (?, ?, ?)", (
            (number, value, count) for value, count in found.frequent.items()))
        connection.executemany("INSERT INTO distribution VALUES (?, ?, ?)", (
            (number, least, count) for least, count in found.classes.items()))
        if found.name == "trips":
            connection.executemany("INSERT INTO trips VALUES (?, ?, ?, ?)", (
                (context, loop, least, count) for least, count in found.classes.items()))
