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
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

import numpy

from memopt.traces.activity import BLOCK_NOW, CURRENT, DONE, TIME, Activity, begin_block
from memopt.traces.carriers import DEPENDENCE, KNOWN, Finding
from memopt.traces.kernels import kernel
from memopt.traces.reading import named
from memopt.traces.shadow import (
    CELL,
    CHUNK,
    DONE_OF_REPEATED,
    MORE_CELLS,
    MORE_FOUND,
    MORE_PAGES,
    MORE_READERS,
    NEXT_CELL,
    NEXT_CHUNK,
    NUMBERS,
    PAGE_PLACES,
    PAGES,
    PIECE,
    RECENT,
    SHARE,
    SHARE_BITS,
    SHORT,
    Keeping,
    look_for_room,
    split,
)
from memopt.traces.tables import larger, longer, new_table, pointer, slot, zeros
from memopt.traces.touching import touch
from memopt.traces.trace import BLOCK, LINE, PAGE, Access, Words

_CACHE = 1 << 10


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


class _Tables(NamedTuple):
    """Pointers to 64-bit numbers; a table is made of rows, in columns:

    the first ones as Activity and Reading have them. pages: number, 0, first cell. cache: number of a page, first cell.
    cells, of a cache line each: time of the last write (0: none); its site, and in the lower half the chunk of the last
    further readers (0: none); the sites of two readers since then (0: none), the first in the upper half; first and
    last time of the one, and of the other; which further readers there may be, by the low bits of their sites.
    chunks: of further readers, two cache lines each. free: chunks that are not in use. recent: chunk and number in it.
    found: source and sink, carrier and kind, count, least, most. known: see find.
    """

    state: Any
    frames: Any
    active: Any
    rings: Any
    blocks: Any
    shapes: Any
    loops: Any
    context_blocks: Any
    context_loops: Any
    pages: Any
    cache: Any
    cells: Any
    chunks: Any
    found: Any
    last: Any
    counts: Any
    known: Any
    recent: Any
    free: Any


@kernel(forceinline=True)
def _finding(t):
    return Finding(t.state, t.active, t.rings, t.found, t.known)


@kernel(forceinline=True)
def _keeping(t):
    return Keeping(t.state, t.cells, t.chunks, t.recent, t.free)


@kernel()
def _find_page(state, pages, cache, number):
    """Where its cells are, is in the cache from now on."""
    at, line = 3 * slot(pages, 3, state[PAGE_PLACES], number, 0), 2 * (number & (_CACHE - 1))
    if pages[at + 1] == -1:
        pages[at], pages[at + 1], pages[at + 2] = number, 0, state[NEXT_CELL]
        state[NEXT_CELL] += PAGE >> 3 >> state[SHARE_BITS]
        state[PAGES] += 1
        look_for_room(state)
    cache[line], cache[line + 1] = number, pages[at + 2]


@kernel(forceinline=True)
def _whole(cells, cell, address, stop):
    """The cell that is all of the bytes from ``address`` to ``stop`` of the eight of ``cell``, -1 where none is."""
    parts = -1 - cells[CELL * cell]
    if parts < 0:
        return cell if stop - address == 8 else -1
    if parts & 1:
        return (parts >> 1) + (address & 7) if stop - address == 1 else -1
    return (parts >> 1) + (address >> 2 & 1) if stop - address == 4 and address & 3 == 0 else -1


@kernel()
def _touch_parts(t, cell, kind, site, time, address, stop):
    """Several of the parts of ``cell``, or parts that were not told apart before."""
    cells, k = t.cells, _keeping(t)
    if cells[CELL * cell] >= 0:
        fine = 1 if (address | stop) & 3 else 0
        split(k, cell, cell, 1, 8 if fine else 2, fine)
    where = -1 - cells[CELL * cell]
    if not where & 1 and (address | stop) & 3:
        split(k, cell, where >> 1, 2, 8, 1)
        where = -1 - cells[CELL * cell]
    shift = 0 if where & 1 else 2
    for part in range((address & 7) >> shift, ((stop - 1 & 7) >> shift) + 1):
        touch(_finding(t), k, (where >> 1) + part, kind, site, time)


@kernel(forceinline=True)
def _access(t, kind, site, address, size):
    """An access of PIECE bytes at most; 0, or what there must be more of first."""
    state = t.state
    if state[SHORT]:
        return state[SHORT]
    time, end = state[TIME], address + size
    while address < end:
        offset = address & (PAGE - 1)
        if (offset // LINE ^ state[SHARE]) & ((1 << state[SHARE_BITS]) - 1):
            address += LINE - offset % LINE
            continue
        number = address >> 12
        line = 2 * (number & (_CACHE - 1))
        if t.cache[line] != number:
            _find_page(state, t.pages, t.cache, number)
        cell = t.cache[line + 1] + (offset // LINE >> state[SHARE_BITS] << 3) + (offset >> 3 & 7)
        stop = min(end, (address | 7) + 1)
        whole = _whole(t.cells, cell, address, stop)
        if whole >= 0:
            touch(_finding(t), _keeping(t), whole, kind, site, time)
        else:
            _touch_parts(t, cell, kind, site, time, address, stop)
        address = stop
    return 0


@kernel()
def _repeat(t, kind, site, address, size):
    """An access of any size; 0, or what there must be more of before it goes on."""
    while t.state[DONE_OF_REPEATED] < size:
        done = t.state[DONE_OF_REPEATED]
        piece = min(PIECE, size - done)
        more = _access(t, kind, site, address + done, piece)
        if more:
            return more
        t.state[DONE_OF_REPEATED] += piece
    t.state[DONE_OF_REPEATED] = 0
    return 0


@kernel(forceinline=True)
def _go_on(t, words, count, at):
    state = t.state
    while at < count:
        word = words[at]
        if word >> 48 & 0xFFFF == BLOCK:
            if at + 1 == count:
                break
            more = begin_block(t, word & 0xFFFFFFFF, words[at + 1])
            if more:
                return at, more
            at += 2
        block = state[BLOCK_NOW]
        if block < 0:  # cannot be: a trace begins with a block
            at += 1
            continue
        first, number, site = t.blocks[5 * block], t.blocks[5 * block + 1], state[CURRENT]
        while at < count:
            word = words[at]
            index = word >> 48 & 0xFFFF
            if index >= number:
                if index == BLOCK:
                    break
                at += 1  # of another kind
                continue
            row, address = 3 * (first + index), word & 0xFFFFFFFFFFFF
            if t.shapes[row + 2]:
                if at + 1 == count:
                    return at, DONE
                more = _repeat(t, t.shapes[row + 1], site + index, address, t.shapes[row] * words[at + 1])
                at += 1
            else:
                more = _access(t, t.shapes[row + 1], site + index, address, t.shapes[row])
            if more:
                return at - t.shapes[row + 2], more
            at += 1
    return at, DONE


@kernel(nogil=True)
def _feed(words, at, state, frames, active, rings, blocks, shapes, loops, context_blocks, context_loops, pages, cache,
          cells, chunks, found, last, counts, known, recent, free):
    """Go on at the word ``at``: where it stopped, and what there must be more of before it goes on."""
    t = _Tables(pointer(state.ctypes.data), pointer(frames.ctypes.data), pointer(active.ctypes.data),
                pointer(rings.ctypes.data), pointer(blocks.ctypes.data), pointer(shapes.ctypes.data),
                pointer(loops.ctypes.data), pointer(context_blocks.ctypes.data), pointer(context_loops.ctypes.data),
                pointer(pages.ctypes.data), pointer(cache.ctypes.data), pointer(cells.ctypes.data),
                pointer(chunks.ctypes.data), pointer(found.ctypes.data), pointer(last.ctypes.data),
                pointer(counts.ctypes.data), pointer(known.ctypes.data), pointer(recent.ctypes.data),
                pointer(free.ctypes.data))
    look_for_room(t.state)
    return _go_on(t, pointer(words.ctypes.data), len(words), at)


class Dependences(Activity):
    """Those within one thread, found as its trace comes in. ``limit``: bytes of memory that it may take; beyond that
    nothing is watched any more, and ``complete`` is false. ``share``: only in one of every ``shares`` lines of memory,
    a power of two; ``together`` has all."""

    def __init__(self, limit: int = 3 << 30, share: int = 0, shares: int = 1) -> None:
        super().__init__(NUMBERS)
        self._limit = limit
        self._state[[SHARE, SHARE_BITS]] = share, shares.bit_length() - 1
        self.complete = True
        self._state[NEXT_CHUNK] = 1
        self._pages, self._cache = new_table(1 << 12, 3), numpy.full((_CACHE, 2), -1, numpy.int64)
        self._cells = zeros(1 << 20, CELL)
        self._chunks, self._free = zeros(1 << 17, CHUNK), zeros(1 << 17, 1)
        self._recent = numpy.zeros(RECENT, numpy.int64)
        self._found = new_table(1 << 15, DEPENDENCE)
        self._known = numpy.zeros((KNOWN, 8), numpy.int64)

    def feed(self, words: Words) -> None:
        if not self.complete:
            return
        pending = self._pending(words)
        at, more, state = 0, -1, self._state
        while more != DONE:
            tables = (self._frames, self._active, self._rings, self._blocks, self._shapes, self._loops,
                      self._context_blocks, self._context_loops, self._pages, self._cache, self._cells, self._chunks,
                      self._found, self._last, self._counts, self._known, self._recent, self._free)
            self._set_places()
            state[PAGE_PLACES:SHORT] = [len(t) for t in (self._pages, self._cells, self._chunks, self._found)]
            at, more = _feed(pending, at, state, *tables)
            self._grow(more)
            if self._cells.nbytes + self._chunks.nbytes > self._limit:
                self.complete = False
                self._cells, self._chunks = zeros(0, CELL), zeros(0, CHUNK)
                return
        self._rest = pending[at:].copy()

    def _grow(self, more: int) -> None:
        super()._grow(more)
        if more == MORE_PAGES:
            self._pages = larger(self._pages)
        elif more == MORE_CELLS:
            self._cells = longer(self._cells)
        elif more == MORE_READERS:
            self._chunks, self._free = longer(self._chunks), longer(self._free)
        elif more == MORE_FOUND:
            self._found = larger(self._found)
            self._known[:] = 0  # they say where the rows were

    def all(self) -> Iterator[Dependence]:
        """Those found until now, in no order."""
        name = functools.cache(functools.partial(named, self._sites()))
        loops = self._loops_by_number()
        for one, two, count, least, most, *_ in self._found[self._found[:, 1] != -1].tolist():
            yield Dependence(Kind(two & 3), name(one >> 32), name(one & 0xFFFFFFFF), loops.get((two >> 2) - 1), least,
                             most, count)


def together(parts: Sequence[Dependences]) -> Iterator[Dependence]:
    """What was found in all shares of a thread's memory, in no order."""
    if len(parts) == 1:
        yield from parts[0].all()
        return
    merged: dict[tuple[Kind, Access, Access, tuple[int, int] | None], Dependence] = {}
    for found in (dependence for part in parts for dependence in part.all()):
        key = found.kind, found.source, found.sink, found.carrier
        other = merged.get(key, found)
        merged[key] = found if other is found else replace(
            found, least=min(found.least, other.least), most=max(found.most, other.most),
            count=found.count + other.count)
    yield from merged.values()
