"""``memopt profile --exact --memory``: what the trace of a program tells of its dependences, as rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import numpy
from numpy.typing import NDArray

from memopt.analysis.reductions import accumulates
from memopt.session.counts import Written
from memopt.traces.dependences import AccessShape, BlockShape, Dependence, Dependences
from runtime.recording.unit import Unit, Watched


class MemoryWatch:
    """A watcher (runtime.recording.recorder) of all threads, each by itself."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._threads: dict[int, Dependences] = {}
        self._blocks: list[tuple[Unit, Watched]] = []
        self._shapes: list[BlockShape] = []
        self._loops: list[tuple[int | None, int]] = []
        self._of_loop: list[tuple[Unit, int]] = []

    def take(self, tid: int, new: Sequence[Unit], words: NDArray[numpy.uint64]) -> None:
        shapes, loops = len(self._shapes), len(self._loops)
        for unit in new:
            self._add(unit)
        for thread in self._threads.values():
            thread.know(self._shapes[shapes:], self._loops[loops:])
        found = self._threads.get(tid)
        if found is None:
            found = self._threads[tid] = Dependences()
            found.know(self._shapes, self._loops)
        found.feed(words)

    def _add(self, unit: Unit) -> None:
        first, innermost = len(self._loops), unit.nesting.innermost()
        for index, loop in enumerate(unit.nesting.loops):
            self._loops.append((None if loop.parent is None else first + loop.parent, loop.depth))
            self._of_loop.append((unit, index))
        headers = {loop.header for loop in unit.nesting.loops}
        for watched in unit.watched:
            around = innermost.get(watched.start)
            self._blocks.append((unit, watched))
            self._shapes.append(BlockShape(
                None if around is None else first + around, watched.start in headers, watched.start == unit.graph.entry,
                tuple(AccessShape(a.size, a.reads, a.writes, a.repeated) for _, a in watched.accesses)))

    def write(self, connection: sqlite3.Connection, written: Written) -> tuple[str, ...]:
        """Rows of ``dependence``; what is to be said about them."""
        connection.execute("BEGIN")
        connection.executemany(
            f"INSERT INTO dependence VALUES ({', '.join('?' * 11)})",
            (row for thread in self._threads.values() for found in thread.all()
             if (row := self._row(written, found)) is not None))
        connection.executemany("INSERT INTO watched VALUES (?, ?, ?)", (
            (tid, thread.words, thread.complete) for tid, thread in self._threads.items()))
        connection.execute("COMMIT")
        untold = sum(len(unit.untold) for unit in {unit.number: unit for unit, _ in self._blocks}.values())
        lost = sum(not thread.complete for thread in self._threads.values())
        notes = []
        if untold:
            notes.append(f"{untold} instructions access memory by a segment, a gather or in a size of their own: "
                         "their dependences are not known")
        if lost:
            notes.append(f"the memory of {lost} threads was too much to watch it to their ends")
        return tuple(notes)

    def _row(self, written: Written, found: Dependence) -> tuple[object, ...] | None:
        places = []
        for access in (found.source, found.sink):
            unit, watched = self._blocks[access.block]
            address = watched.accesses[access.index][0]
            if access.node not in written.contexts:
                return None
            places.append((written.contexts[access.node], written.static.site(unit, address), unit, address))
        context, loop = None, None
        if found.carrier is not None:
            node, number = found.carrier
            unit, index = self._of_loop[number]
            context, loop = written.contexts.get(node), written.static.loop(unit, index)
        (source_context, source, unit, first), (sink_context, sink, other, second) = places
        reduction = unit is other and source_context == sink_context and accumulates(
            unit.graph.blocks[self._blocks[found.sink.block][1].start].instructions, first, second)
        return (found.kind.name, source_context, source, sink_context, sink, context, loop, found.least, found.most,
                found.count, reduction)
