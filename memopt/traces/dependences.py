"""Data dependences through memory between instructions in their contexts, told apart by the loop that carries them.

For each place in memory the last write and the reads since then are kept, each with its time; a time is the number of a
run of a block. A dependence is carried by the outermost active loop that has begun a new iteration since its source
(Sato, Inoguchi and Nakamura, Whole program data dependence profiling to unveil parallel regions in dynamic execution,
2012); its distance is the number of iterations begun since. Exact to the byte: a place is as small as the accesses in
its page need.

Of the reads by one instruction between two writes, the first and the last are kept, so the distances of the WAR
dependences between are within those reported.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

import numpy

from memopt.traces.activity import DONE, Activity
from memopt.traces.block_calls import (
    CALLS,
    DISPATCH,
    END,
    ENOUGH,
    HEADERS,
    INTERPRET_AT,
    LAST_AHEAD,
    MORE_CODE,
    NEAR,
    NO_MORE,
    POSITION,
    ROUTINES,
    RUNS,
    TABLES,
    addresses,
    interpret_all,
)
from memopt.traces.block_code import MOST_WORDS, BlockCode
from memopt.traces.carriers import DEPENDENCE, KNOWN
from memopt.traces.places import CACHE
from memopt.traces.reading import named
from memopt.traces.routine_code import DIRECTORY
from memopt.traces.shadow import (
    CELL,
    CHUNK,
    MORE_CELLS,
    MORE_FOUND,
    MORE_PAGES,
    MORE_READERS,
    NEXT_CHUNK,
    NUMBERS,
    PAGE_PLACES,
    RECENT,
    SHORT,
    look_for_room,
)
from memopt.traces.tables import Array, extended, larger, longer, new_table, zeros
from memopt.traces.trace import Access, BlockShape, Words

OFTEN = 2000  # runs after which a block is worth code of its own
_NEVER_AGAIN = -1 << 62


class Kind(Enum):
    """By what comes first and what comes after it."""

    RAW = 0
    WAR = 1
    WAW = 2


@dataclass(frozen=True, slots=True)
class Dependence:
    """``carrier``: node and number of the loop, None where it is within one iteration of all loops around both;
    ``least`` and ``most`` of the distances in iterations, 0 without carrier."""

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

    def __init__(self, limit: int = 3 << 30) -> None:
        super().__init__(NUMBERS)
        self._limit = limit
        self.complete = True
        self._state[NEXT_CHUNK] = 1
        self._pages, self._cache = new_table(1 << 12, 3), numpy.full((CACHE, 2), -1, numpy.int64)
        self._cells = zeros(1 << 20, CELL)
        self._chunks, self._free = zeros(1 << 17, CHUNK), zeros(1 << 17, 1)
        self._recent = numpy.zeros(RECENT, numpy.int64)
        self._found = new_table(1 << 15, DEPENDENCE)
        self._known = numpy.zeros((KNOWN, 8), numpy.int64)
        self._of_blocks: list[BlockShape] = []
        self._directory = numpy.zeros(DIRECTORY, numpy.int64)
        self._directory[CALLS:ROUTINES] = addresses()
        self._directory[ENOUGH] = OFTEN
        self._code: BlockCode | None = None
        with suppress(OSError):  # then the kernels do it alone
            self._code = BlockCode(self._directory)
        self._dispatch, self._runs = numpy.zeros(0, numpy.int64), numpy.zeros(0, numpy.int64)
        self._headers = numpy.full((0, 2), -1, numpy.int64)
        self._near = numpy.full((CACHE, 2), -1, numpy.int64)

    def know(self, blocks: Sequence[BlockShape], loops: Sequence[tuple[int | None, int]]) -> None:
        super().know(blocks, loops)
        self._of_blocks += blocks
        self._dispatch = numpy.append(self._dispatch, numpy.full(len(blocks), self._directory[INTERPRET_AT]))
        self._runs = numpy.append(self._runs, numpy.zeros(len(blocks), numpy.int64))
        self._headers = extended(self._headers, [(-1, -1)] * len(blocks))

    def feed(self, words: Words) -> None:
        if not self.complete:
            return
        pending = self._pending(words) if len(self._rest) else words
        start = pending.ctypes.data
        directory, position, more = self._directory, start, DONE
        directory[END] = start + 8 * len(pending)
        directory[LAST_AHEAD] = directory[END] - 8 * MOST_WORDS
        while more != NO_MORE:
            self._set_places()
            run = interpret_all if self._code is None else self._code.run
            more = run(directory.ctypes.data, position)
            position = int(directory[POSITION])
            self._grow(more)
            if self._cells.nbytes + self._chunks.nbytes > self._limit:
                self.complete = False
                self._cells, self._chunks = zeros(0, CELL), zeros(0, CHUNK)
                return
        self._rest = pending[(position - start) // 8:].view(numpy.int64).copy()

    def _set_places(self) -> None:
        super()._set_places()
        self._state[PAGE_PLACES:SHORT] = [len(t) for t in (self._pages, self._cells, self._chunks, self._found)]
        tables: tuple[Array, ...] = (
            self._state, self._frames, self._active, self._rings, self._blocks, self._shapes, self._loops,
            self._context_blocks, self._context_loops, self._pages, self._cache, self._cells, self._chunks,
            self._found, self._last, self._counts, self._known, self._recent, self._free)
        self._directory[:TABLES] = [table.ctypes.data for table in tables]
        self._directory[[DISPATCH, NEAR, RUNS, HEADERS]] = (
            self._dispatch.ctypes.data, self._near.ctypes.data, self._runs.ctypes.data, self._headers.ctypes.data)
        look_for_room(self._state)

    def _grow(self, more: int) -> None:
        super()._grow(more)
        if more == MORE_PAGES:
            self._pages = larger(self._pages)
        elif more == MORE_CELLS:
            self._cells = longer(self._cells)
            self._near[:] = -1
        elif more == MORE_READERS:
            self._chunks, self._free = longer(self._chunks), longer(self._free)
        elif more == MORE_FOUND:
            self._found = larger(self._found)
            self._known[:] = 0  # they say where the rows were
        elif more == MORE_CODE:
            self._write_code()

    def _write_code(self) -> None:
        """For the blocks that have run often, and have none."""
        assert self._code is not None
        often = numpy.flatnonzero(self._runs >= OFTEN / 2).tolist()
        self._runs[often] = _NEVER_AGAIN
        made = self._code.add([(n, *self._blocks[n, 2:5].tolist(), self._of_blocks[n].accesses) for n in often],
                              [(parent, depth) for parent, depth in self._loops.tolist()])
        for number, address in made.items():
            self._dispatch[number] = address

    @property
    def blocks_with_code(self) -> int:
        return int((self._dispatch != self._directory[INTERPRET_AT]).sum())

    def all(self) -> Iterator[Dependence]:
        """Those found until now, in no order."""
        name = functools.cache(functools.partial(named, self._sites()))
        loops = self._loops_by_number()
        for one, two, count, least, most, *_ in self._found[self._found[:, 1] != -1].tolist():
            yield Dependence(Kind(two & 3), name(one >> 32), name(one & 0xFFFFFFFF), loops.get((two >> 2) - 1), least,
                             most, count)
