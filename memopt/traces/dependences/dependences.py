"""Data dependences through memory (RAW, WAR, WAW) between accesses in their contexts, by the loop that carries them.

Example: in ``for (i = 1; i < n; i++) a[i] = a[i - 1] + 1;`` the store is the source and the load the sink of a RAW
dependence that the loop carries at the distance 1.

In: words of a thread's trace. Out: a ``Dependence`` for each kind, source, sink and carrying loop.

Shadow memory has for each place the last write and the reads since then, with their times; a time is the number of a
run of a block. The outermost active loop that has begun a new iteration since the source carries the dependence (Sato,
Inoguchi and Nakamura, Whole program data dependence profiling to unveil parallel regions in dynamic execution, 2012).
The distance is the number of iterations begun since. Exact to the byte: a place is as small as the accesses to its word
need.

Of the reads by one instruction between two writes, only the first and the last are kept. The WAR dependences on the
reads in between have distances between the least and the most that are reported.
"""

from __future__ import annotations

import functools
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum

import numpy

from memopt.ir.frozen import dataclass
from memopt.traces.core.active_loops import DONE, NEVER, Activity
from memopt.traces.core.format import Access, BlockShape, Words
from memopt.traces.core.reader import named
from memopt.traces.core.tables import Array, addresses, bring_in, extended, larger, longer, new_table, zeros
from memopt.traces.dependences.carrying_loop import DEPENDENCE, KNOWN, KNOWN_ROW, count_known
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

# For each table that counts against the limit: the state that has the number of rows in use, and their length.
_TAKEN = ((NEXT_CELL, CELL), (NEXT_CHUNK, CHUNK), (NEXT_STRIP, STRIP), (NEXT_LINE, LINE))


class Kind(Enum):
    """The kind of a dependence: read after write (flow), write after read (anti), write after write (output)."""

    RAW = 0
    WAR = 1
    WAW = 2


@dataclass(frozen=True, slots=True)
class Dependence:
    """A data dependence between two accesses in their contexts, and how often it occurred."""

    kind: Kind
    source: Access
    sink: Access
    # Node and number of the carrying loop; None if it lies within one iteration of all loops around both.
    carrier: tuple[int, int] | None
    least: int  # distance in iterations; 0 without carrier
    most: int
    count: int  # how many bytes, divided by the size of the smaller access


class Dependences(Activity):
    """Finds the dependences within one thread.

    ``limit``: bytes of memory that the tables may take. Beyond that no further words are read, and ``complete`` is
    False.
    """

    def __init__(self, limit: int = 3 << 30, runs: bool = True) -> None:
        """``runs``: whether steady iterations are processed together; otherwise every word is read by itself."""
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
        self._taken: dict[int, tuple[int, int]] = {}  # by state: rows in use, and rows that have memory
        self._tries = numpy.zeros((0, 2), numpy.int64)
        self._ahead, self._worth = numpy.zeros(OF_AHEAD, numpy.int64), Worth()
        self._run = run_tables()
        self._directory_of_run = addresses(self._run)

    def _room(self, least: int, columns: int) -> Array:
        """A table for as many rows as the limit allows, in memory that is allocated when it is touched. If the address
        space is limited, a table of ``least`` rows, which grows.
        """
        if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
            with suppress(MemoryError):
                return zeros(self._limit // (8 * columns) + least, columns)
        return zeros(least, columns)

    def know(self, blocks: Sequence[BlockShape], loops: Sequence[tuple[int | None, int]]) -> None:
        """Adds blocks and loops, which continue the numbering."""
        super().know(blocks, loops)
        self._tries = extended(self._tries, [(0 if self._runs else 1 << 62, 0)] * len(loops))

    def feed(self, words: Words) -> None:
        """Reads the next words of the trace; nothing more once the limit of memory is reached. Precondition: their
        blocks are known.
        """
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
        """Allocates memory for the tables that fill from the front, twice as much as the last words needed: the next
        ones will probably need no more.
        """
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
            count_known(self._found, self._known)  # the cache refers to rows, which are about to move
            self._found = larger(self._found)
        elif more == MORE_STRIPS:
            self._strips = longer(self._strips, self._state[NEXT_STRIP])
            self._free_strips = longer(self._free_strips, self._state[FREE_STRIPS])
        elif more == MORE_LINES:
            self._lines = longer(self._lines, self._state[NEXT_LINE])

    @property
    def together(self) -> int:
        """How many words of the trace were processed in steady runs."""
        return int(self._state[TOGETHER])

    def all(self) -> Iterator[Dependence]:
        """Yields the dependences found until now, in no order."""
        count_known(self._found, self._known)
        name = functools.cache(functools.partial(named, self._sites()))
        size = functools.cache(self._size)
        loops = self._loops_by_number()
        for one, two, met, least, most, *_ in self._found[self._found[:, 1] != -1].tolist():
            source, sink = name(one >> 32), name(one & 0xFFFFFFFF)
            yield Dependence(Kind(two & 3), source, sink, loops.get((two >> 2) - 1), least, most,
                             -(-met // min(size(source), size(sink))))

    def _size(self, access: Access) -> int:
        """The size of an access in bytes; of one that is repeated, the size of each."""
        return int(self._shapes[self._blocks[access.block, 0] + access.index, 0])
