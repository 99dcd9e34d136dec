"""Data dependences through memory between instructions in their contexts, told apart by the loop that carries them.

For each place in memory the last write and the reads since then are kept, each with its time; a time is the number of a
run of a block. A dependence is carried by the outermost active loop that has begun a new iteration since its source
(Sato, Inoguchi and Nakamura, Whole program data dependence profiling to unveil parallel regions in dynamic execution,
2012); its distance is the number of iterations begun since. Exact to the byte: a place is as small as the accesses to
its word need.

Of the reads by one instruction between two writes, the first and the last are kept, so the distances of the WAR
dependences between are within those reported.
"""

from __future__ import annotations

import functools
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

import numpy

from memopt.traces.core.active_loops import DONE, NEVER, Activity
from memopt.traces.core.format import Access, BlockShape, Words
from memopt.traces.core.reader import named
from memopt.traces.core.tables import Array, addresses, bring_in, extended, larger, longer, new_table, zeros
from memopt.traces.dependences.carrier import DEPENDENCE, KNOWN, KNOWN_ROW, count_known
from memopt.traces.dependences.prefetch import OF_AHEAD, Worth
from memopt.traces.dependences.scan import look_at
from memopt.traces.dependences.shadow_memory import (
    CELL,
    CHUNK,
    CHUNKS_AT_ONCE,
    DUE,
    FREE_CHUNKS,
    FREE_STRIPS,
    FULL,
    LINE,
    LINES_AT_ONCE,
    MORE_CELLS,
    MORE_FOUND,
    MORE_LINES,
    MORE_PAGES,
    MORE_READERS,
    MORE_STRIPS,
    NEXT_CELL,
    NEXT_CHUNK,
    NEXT_LINE,
    NEXT_STRIP,
    NUMBERS,
    PAGE_PLACES,
    SHORT,
    STRIPS_AT_ONCE,
    TOGETHER,
    WEIGHT,
)
from memopt.traces.dependences.shadow_strips import CACHE, CACHE_ROW, PAGE_ROW, STRIP
from memopt.traces.dependences.state import (
    ADDRESSES,
    LENGTH,
    OF_CACHE,
    OF_FRAMES,
    OF_KNOWN,
    STATE,
    put,
    room,
)
from memopt.traces.dependences.steady_iterations import run_tables

# Numbers in use, and how long each is.
_TAKEN = ((NEXT_CELL, CELL), (NEXT_CHUNK, CHUNK), (NEXT_STRIP, STRIP), (NEXT_LINE, LINE))


class Kind(Enum):
    """By what comes first and what comes after it."""

    RAW = 0
    WAR = 1
    WAW = 2


@dataclass(frozen=True, slots=True)
class Dependence:
    """``carrier``: node and number of the loop, None where it is within one iteration of all loops around both;
    ``least`` and ``most`` of the distances in iterations, 0 without carrier; ``count``: how many bytes, divided by the
    size of the smaller access."""

    kind: Kind
    source: Access
    sink: Access
    carrier: tuple[int, int] | None
    least: int
    most: int
    count: int


class Dependences(Activity):
    """Those within one thread, found as its trace comes in. ``limit``: bytes of memory that it may take; beyond that
    nothing is watched any more, and ``complete`` is false."""

    def __init__(self, limit: int = 3 << 30, runs: bool = True) -> None:
        """``runs``: iterations that are alike are looked at together."""
        super().__init__(NUMBERS)
        self._limit, self._runs = limit, runs
        self.complete = True
        self._block = zeros(LENGTH, 1)[:, 0]
        self._active, self._state = put(self._block, 0, self._active), put(self._block, STATE, self._state)
        self._frames = put(self._block, OF_FRAMES, self._frames)
        self._known = room(self._block, OF_KNOWN, KNOWN, KNOWN_ROW)
        room(self._block, OF_CACHE, CACHE, CACHE_ROW)[:] = -1
        self._state[[NEXT_CHUNK, NEXT_LINE, WEIGHT]] = 1
        self._pages = new_table(1 << 12, PAGE_ROW)
        self._cells = self._room(1 << 20, CELL)
        self._chunks = self._room(2 * CHUNKS_AT_ONCE, CHUNK)
        self._strips = self._room(2 * STRIPS_AT_ONCE, STRIP)
        self._lines = self._room(2 * LINES_AT_ONCE, LINE)
        self._free, self._free_strips = zeros(len(self._chunks), 1), zeros(len(self._strips), 1)
        self._found = new_table(1 << 17, DEPENDENCE)
        self._taken: dict[int, tuple[int, int]] = {}  # rows, and how many there is memory for
        self._tries = numpy.zeros((0, 2), numpy.int64)
        self._ahead, self._worth = numpy.zeros(OF_AHEAD, numpy.int64), Worth()
        self._run = run_tables()
        self._directory_of_run = addresses(self._run)

    def _room(self, least: int, columns: int) -> Array:
        """For as many rows as the limit allows, in memory that is not there before it is used; where addresses are few,
        for the least, which grow."""
        if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
            with suppress(MemoryError):
                return zeros(self._limit // (8 * columns) + least, columns)
        return zeros(least, columns)

    def know(self, blocks: Sequence[BlockShape], loops: Sequence[tuple[int | None, int]]) -> None:
        super().know(blocks, loops)
        self._tries = extended(self._tries, [(0 if self._runs else 1 << 62, 0)] * len(loops))

    def feed(self, words: Words) -> None:
        if not self.complete:
            return
        pending = self._pending(words)
        at, more, began = 0, -1, time.thread_time()
        self._state[DUE] = 0 if self._worth else NEVER
        self._bring_in()
        while more != DONE:
            self._set_places()
            at, more = look_at(self._block.ctypes.data, self._directory_of_run.ctypes.data, pending.ctypes.data,
                               len(pending), at)
            self._grow(more)
            if self._state[FULL] or 8 * sum(self._state[next_one] * width for next_one, width in _TAKEN) > self._limit:
                self.complete = False
                self._cells, self._chunks, self._strips = zeros(0, CELL), zeros(0, CHUNK), zeros(0, STRIP)
                self._lines = zeros(0, LINE)
                return
        self._rest = pending[at:].copy()
        self._worth.learn(len(words), time.thread_time() - began)

    def _bring_in(self) -> None:
        """What will be taken of the tables that are filled from the front on, by what was taken for the last piece."""
        for number, table in ((NEXT_CHUNK, self._chunks), (NEXT_LINE, self._lines)):
            taken = int(self._state[number])
            before, there = self._taken.get(number, (0, 0))
            wanted = taken + 2 * (taken - before)
            if wanted > there:
                bring_in(table, max(taken, there), wanted)
            self._taken[number] = taken, max(there, wanted)

    def _set_places(self) -> None:
        super()._set_places()
        self._state[PAGE_PLACES:SHORT] = [len(t) for t in (
            self._pages, self._cells, self._chunks, self._found, self._strips, self._lines)]
        tables: tuple[Array, ...] = (
            self._rings, self._blocks, self._shapes, self._loops, self._context_blocks, self._context_loops,
            self._pages, self._cells, self._chunks, self._found, self._last, self._counts, self._free, self._strips,
            self._free_strips, self._tries, self._ahead, self._callers, self._lines)
        self._block[ADDRESSES:ADDRESSES + len(tables)] = addresses(tables)

    def _grow(self, more: int) -> None:
        super()._grow(more)
        if more == MORE_PAGES:
            self._pages = larger(self._pages)
        elif more == MORE_CELLS:
            self._cells = longer(self._cells, self._state[NEXT_CELL])
        elif more == MORE_READERS:
            self._chunks = longer(self._chunks, self._state[NEXT_CHUNK])
            self._free = longer(self._free, self._state[FREE_CHUNKS])
        elif more == MORE_FOUND:
            count_known(self._found, self._known)  # they say where the rows were
            self._found = larger(self._found)
        elif more == MORE_STRIPS:
            self._strips = longer(self._strips, self._state[NEXT_STRIP])
            self._free_strips = longer(self._free_strips, self._state[FREE_STRIPS])
        elif more == MORE_LINES:
            self._lines = longer(self._lines, self._state[NEXT_LINE])

    @property
    def together(self) -> int:
        """Words of the trace that were looked at in runs."""
        return int(self._state[TOGETHER])

    def all(self) -> Iterator[Dependence]:
        """Those found until now, in no order."""
        count_known(self._found, self._known)
        name = functools.cache(functools.partial(named, self._sites()))
        size = functools.cache(self._size)
        loops = self._loops_by_number()
        for one, two, met, least, most, *_ in self._found[self._found[:, 1] != -1].tolist():
            source, sink = name(one >> 32), name(one & 0xFFFFFFFF)
            yield Dependence(Kind(two & 3), source, sink, loops.get((two >> 2) - 1), least, most,
                             -(-met // min(size(source), size(sink))))

    def _size(self, access: Access) -> int:
        """In bytes; of one that is repeated, each time."""
        return int(self._shapes[self._blocks[access.block, 0] + access.index, 0])
