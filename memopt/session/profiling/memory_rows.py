"""``memopt profile --memory``: the rows of dependences, access patterns, working sets and reuse distances.

Example: ``s += a[i]`` in a loop gives a flow dependence of ``s`` with distance 1, carried by the loop, and an access
pattern of ``a`` with stride 8. In: the traces of all threads, piece by piece (``MemoryWatch.take``). Out: rows of
``watched`` and the tables behind it. The readers of traces (``memopt.traces``) find these facts; here they get the
names of contexts, loops and instructions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy
from numpy.typing import NDArray

from memopt.ir.frozen import dataclass
from memopt.session.profiling.count_rows import Written
from memopt.session.profiling.dependence_rows import Carrier, DependenceRows, Place, Placed
from memopt.session.profiling.objects import Objects
from memopt.session.profiling.recurrence_rows import LoopRecurrences
from memopt.traces import notation
from memopt.traces.allocations import Allocations
from memopt.traces.allocators import allocates
from memopt.traces.core.format import LINE, PAGE, Access, AccessShape, BlockShape
from memopt.traces.core.reader import Reading
from memopt.traces.dependences.dependences import Dependences, Kind
from memopt.traces.reuse_distance import Reuse, Reuses
from memopt.traces.streams import BANK, Stream, Streams
from memopt.traces.working_sets import WorkingSet, WorkingSets
from runtime.recording.process import Process
from runtime.recording.recorder import Recorder
from runtime.recording.translation.unit import Unit, Watched


@dataclass(frozen=True, slots=True)
class _Readers:
    """The readers of one thread's trace; None: not asked for."""

    dependences: Dependences
    streams: Streams | None
    sets: WorkingSets | None
    allocations: Allocations | None
    reuses: Reuses | None

    def all(self) -> list[Reading]:
        readers = (self.dependences, self.streams, self.sets, self.allocations, self.reuses)
        return [reader for reader in readers if reader is not None]

class MemoryWatch:
    """The watcher (runtime.recording.recorder) that feeds the readers of all threads, each by itself.

    A piece of a trace is read while the program fills the next one. Each kind of reader has a thread of its own: numba
    releases the interpreter lock. When ``take`` returns, the piece before has been read: there are two at most.
    """

    def __init__(self, dependences: bool, reuse: bool) -> None:
        """``dependences``: find dependences only. ``reuse``: find reuse distances, too."""
        self._alone, self._reuse = dependences, reuse
        self._workers = [ThreadPoolExecutor(1) for _ in self._new_readers().all()]
        self._pending: list[Future[None]] = []
        self.begin()

    def forget(self, tids: Sequence[int]) -> None:
        self._finish()
        for tid in tids:
            self._threads.pop(tid, None)

    def begin(self) -> None:
        self._finish()
        self._threads: dict[int, _Readers] = {}
        self._units: list[Unit] = []
        self._blocks: list[tuple[Unit, Watched]] = []
        self._shapes: list[BlockShape] = []
        self._loops: list[tuple[int | None, int]] = []
        self._of_loop: list[tuple[Unit, int]] = []

    def _finish(self) -> None:
        """Wait until every piece that was taken is read. Raises what the readers raise."""
        pending, self._pending = self._pending, []
        for future in pending:
            future.result()

    def take(self, tid: int, new: Sequence[Unit], nodes: NDArray[numpy.int64], words: NDArray[numpy.uint64]) -> None:
        shapes, loops = len(self._shapes), len(self._loops)
        before = self._pending
        if new or tid not in self._threads:  # the readers are not to be told while they read
            self._finish()
        for unit in new:
            self._add(unit)
        for readers in self._threads.values() if new else ():
            for reader in readers.all():
                reader.know(self._shapes[shapes:], self._loops[loops:])
        found = self._threads.get(tid)
        if found is None:
            found = self._threads[tid] = self._new_readers()
            for reader in found.all():
                reader.know(self._shapes, self._loops)
        self._pending = [worker.submit(reader.take, nodes, words)
                         for worker, reader in zip(self._workers, found.all(), strict=True)]
        for future in before:  # what they read is about to be overwritten
            future.result()

    def _new_readers(self) -> _Readers:
        if self._alone:
            return _Readers(Dependences(), None, None, None, None)
        return _Readers(Dependences(), Streams(), WorkingSets(), Allocations(), Reuses() if self._reuse else None)

    def _add(self, unit: Unit) -> None:
        self._units.append(unit)
        first, innermost = len(self._loops), unit.nesting.innermost
        for index, loop in enumerate(unit.nesting.loops):
            self._loops.append((None if loop.parent is None else first + loop.parent, loop.depth))
            self._of_loop.append((unit, index))
        headers = {loop.header for loop in unit.nesting.loops}
        for watched in unit.watched:
            around = innermost.get(watched.start)
            self._blocks.append((unit, watched))
            self._shapes.append(BlockShape(
                None if around is None else first + around, watched.start in headers,
                bool(headers) and watched.start == unit.graph.entry,
                tuple(AccessShape(a.size, a.reads, a.writes, a.repeated) for _, a in watched.accesses),
                allocates(unit.name) if watched.start == unit.graph.entry else 0))

    def write(self, connection: sqlite3.Connection, written: Written, recorder: Recorder) -> tuple[str, ...]:
        """Write the rows of ``watched`` and of the tables behind it; lines for the user about what is missing."""
        self._finish()
        connection.execute("BEGIN")
        self._write_dependences(connection, written, recorder)
        for process in recorder.processes.values():
            self._write_process(connection, written, process)
        connection.execute("COMMIT")
        untold = sum(len(unit.untold) for unit in {unit.number: unit for unit, _ in self._blocks}.values())
        lost = sum(not readers.dependences.complete for readers in self._threads.values())
        notes = []
        if untold:
            notes.append(f"{untold} instructions access memory by a segment, a gather or in a size of their own: "
                         "their dependences are not known")
        if lost:
            notes.append(f"the memory of {lost} threads was too much to watch it to their ends")
        return tuple(notes)

    def _write_dependences(self, connection: sqlite3.Connection, written: Written, recorder: Recorder) -> None:
        """Write the rows of ``dependence`` and ``carried``."""
        placed = [one for process in recorder.processes.values() for tid in process.threads if tid in self._threads
                  for one in self._placed(self._threads[tid].dependences, written.of(tid))]
        flow = [one for one in placed if one.kind is Kind.RAW]
        last: dict[int, int] = dict(connection.execute("SELECT id, last FROM context"))
        shared = {place.address for one in flow for place, other in ((one.source, one.sink), (one.sink, one.source))
                  if place.context < other.context <= last[place.context]}
        reads: dict[tuple[int, int], list[Placed]] = {}
        for one in flow:
            reads.setdefault((one.source.context, one.source.address), []).append(one)
        exchanges: dict[int, list[Placed]] = {}
        for one in placed:
            if one.kind is not Kind.WAW:
                for number in {one.source.unit.number, one.sink.unit.number}:
                    exchanges.setdefault(number, []).append(one)
        recurrences = LoopRecurrences(connection, written.static, self._units, frozenset(shared))
        rows = DependenceRows(written.static, last, recurrences, reads, exchanges)
        connection.executemany(f"INSERT INTO dependence VALUES ({', '.join('?' * 12)})", rows.all(placed))
        rows.write_carried(connection, self._units)

    def _placed(self, dependences: Dependences, contexts: Mapping[int, int]) -> Iterator[Placed]:
        """The dependences of a thread whose contexts have rows."""
        def place(access: Access) -> Place:
            unit, watched = self._blocks[access.block]
            return Place(unit, watched.accesses[access.index][0], contexts[access.node])

        for one in dependences.all():
            if one.source.node in contexts and one.sink.node in contexts:
                carrier = None
                if one.carrier is not None:
                    carrier = Carrier(*self._of_loop[one.carrier[1]], contexts.get(one.carrier[0]))
                yield Placed(one.kind, place(one.source), place(one.sink), carrier, one.least, one.most, one.count)

    def _write_process(self, connection: sqlite3.Connection, written: Written, process: Process) -> None:
        threads = {tid: self._threads[tid] for tid in process.threads if tid in self._threads}
        objects = Objects(process.texts, process.mapped.values(), process.stacks)
        objects.know((allocation, written.of(tid).get(allocation.node))
                     for tid, readers in threads.items() if readers.allocations is not None
                     for allocation in readers.allocations.all())
        for tid, readers in threads.items():
            contexts = written.of(tid)
            connection.execute("INSERT INTO watched VALUES (?, ?, ?)", (
                tid, readers.dependences.words, readers.dependences.complete))
            numbers = {} if readers.streams is None else self._write_streams(
                connection, written, contexts, readers.streams, objects)
            for reuse in () if readers.reuses is None else readers.reuses.all():
                self._write_reuse(connection, numbers, reuse)
            for found_set in () if readers.sets is None else readers.sets.all():
                self._write_set(connection, written, contexts, found_set)

    def _write_reuse(self, connection: sqlite3.Connection, numbers: Mapping[Access, int], reuse: Reuse) -> None:
        number = numbers.get(reuse.access)
        if number is not None:
            least = (0, *(1 << n for n in range(len(reuse.counts) - 1)))
            connection.executemany("INSERT INTO reuse VALUES (?, ?, ?)", (
                (number, lines, count) for lines, count in ((None, reuse.cold), *zip(least, reuse.counts, strict=True))
                if count))

    def _write_streams(self, connection: sqlite3.Connection, written: Written, contexts: Mapping[int, int],
                       streams: Streams, objects: Objects) -> dict[Access, int]:
        """Write the accesses and their patterns; the numbers of the accesses."""
        numbers: dict[Access, int] = {}
        (first,) = connection.execute("SELECT COALESCE(max(id) + 1, 0) FROM pattern").fetchone()
        used: set[int] = set()
        for stream in streams.all():
            number = self._write_stream(connection, written, contexts, stream)
            if number is not None:
                numbers[stream.access] = number
                shape = self._shapes[stream.access.block].accesses[stream.access.index]
                leads = objects.of(stream.lowest, stream.highest + shape.size)
                if leads is not None:
                    name = leads.name if leads.context is None else _caller(connection, leads.context)
                    connection.execute("INSERT INTO object VALUES (?, ?, ?, ?, ?)", (
                        number, leads.kind, name, leads.offset, leads.context))
            if number is not None and stream.parts is not None:
                used.update(pattern for _, pattern in stream.parts)
                connection.executemany("INSERT INTO part VALUES (?, ?, ?, ?)", (
                    (number, at, address, first + pattern) for at, (address, pattern) in enumerate(stream.parts)))
        patterns = streams.patterns()

        def named(number: int) -> str:
            return f"[ID{first + number}]"

        connection.executemany("INSERT INTO pattern VALUES (?, ?, ?, ?, ?, ?)", (
            (first + number, patterns[number].level, notation.written(patterns, number, named),
             notation.affine(patterns, number), patterns[number].accesses, patterns[number].span)
            for number in sorted(notation.needed(patterns, used))))
        return numbers

    def _write_stream(self, connection: sqlite3.Connection, written: Written, contexts: Mapping[int, int],
                      stream: Stream) -> int | None:
        """Write one access; its number, or None where its context has no row."""
        access = stream.access
        unit, watched = self._blocks[access.block]
        address, shape = watched.accesses[access.index]
        context, place = contexts.get(access.node), written.static.site(unit, address)
        if context is None:
            return None
        number = connection.execute(f"INSERT INTO access VALUES (NULL, {', '.join('?' * 11)})", (
            context, place, "RW"[not shape.reads:1 + shape.writes], shape.size, stream.count, stream.lowest,
            stream.highest, stream.steady, stream.misaligned,
            None if stream.parts is None else len(stream.parts), stream.alignment)).lastrowid
        connection.executemany("INSERT INTO stride VALUES (?, ?, ?)", (
            (number, stride, count) for stride, count in stream.strides.items()))
        connection.executemany("INSERT INTO bank VALUES (?, ?, ?)", (
            (number, BANK * bank, count) for bank, count in enumerate(stream.banks) if count))
        return number

    def _write_set(self, connection: sqlite3.Connection, written: Written, contexts: Mapping[int, int],
                   found: WorkingSet) -> None:
        unit, index = self._of_loop[found.loop]
        context, loop = contexts.get(found.node), written.static.loop(unit, index)
        if context is not None and loop is not None:
            connection.executemany(f"INSERT INTO working_set VALUES ({', '.join('?' * 9)})", (
                (context, loop, at_end, point.iterations, point.entries, LINE * point.lines, LINE * point.most_lines,
                 PAGE * point.pages, PAGE * point.most_pages)
                for at_end, points in ((0, found.curve), (1, (found.end,))) for point in points))
            connection.executemany("INSERT INTO trips VALUES (?, ?, ?, ?)", (
                (context, loop, least, entries) for least, entries in found.trips.items()))


def _caller(connection: sqlite3.Connection, context: int) -> str | None:
    """The name of the function that has called the code of ``context``. Functions that only jump on to it are passed
    over: the dynamic linker, and the stubs of its procedure linkage table."""
    at: int | None = context
    while at is not None:
        name, mnemonic, at = connection.execute("""
            SELECT f.name, i.mnemonic, p.id FROM context c LEFT JOIN context p ON p.id = c.parent
            LEFT JOIN function f ON f.id = p.function
            LEFT JOIN block b ON b.function = f.id AND c.site >= b.start AND c.site < b.end
            LEFT JOIN instruction i ON i.block = b.id AND i.address = c.site WHERE c.id = ?""", (at,)).fetchone()
        if mnemonic is not None and "call" in mnemonic:
            return str(name)
    return None
