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
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy

from memopt.traces.activity import (
    ACTIVE,
    BLOCK_NOW,
    CURRENT,
    DONE,
    FAR,
    MORE_OWN,
    OWN,
    TIME,
    Activity,
    begin_block,
)
from memopt.traces.kernels import kernel
from memopt.traces.reading import named
from memopt.traces.tables import larger, longer, new_table, pointer, slot, zeros
from memopt.traces.trace import BLOCK, Access, Words

_PAGE = 4096
_CACHE = 1 << 10

(_PAGES, _NEXT_CELL, _NEXT_READER, _FREE_READER, _FREE_READERS, _FOUND, _DONE_OF_REPEATED, _PAGE_PLACES, _CELL_ROOM,
 _READER_ROOM, _FOUND_PLACES, _NUMBERS) = range(OWN, OWN + 12)
_MORE_PAGES, _MORE_CELLS, _MORE_READERS, _MORE_FOUND = range(MORE_OWN, MORE_OWN + 4)
_PIECE = 4096  # bytes of a repeated access that are looked at in one go
_CELLS_OF_PIECE = 2 * _PAGE // 8 + 16  # at most
_READERS_OF_PIECE = _PIECE + 16 * 64
_LOW = (1 << 32) - 1
_COPIED = 64  # readers of a place that is split; its parts forget more


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

    the first ones as Activity and Reading have them. pages: number, 0, first cell. cache:
    number of a page, first cell. cells, of a cache line each: time of the last write (0: none); its site, and in the
    lower half the first of the further readers (0: none); the sites of two readers since then (0: none), the first in
    the upper half; first and last time of the one, and of the other; or, for a place of eight bytes whose parts are
    told apart, only a number below 0: see _split. readers: site, first time, last time, next. found:
    source and sink, carrier and kind, count, least, most. last: node, first site of a block.
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
    readers: Any
    found: Any
    last: Any
    counts: Any


@kernel(forceinline=True)
def _distance(rings, first, iteration, time):
    """Iterations begun since ``time``, one at least; the ring at ``first`` has when each began."""
    low, high = max(1, iteration - FAR + 1), iteration  # the one at high began after time
    if rings[first + (low & (FAR - 1))] > time:
        return FAR
    begun = rings[first + (high & (FAR - 1))]
    each = begun - rings[first + ((high - 1) & (FAR - 1))]
    middle = min(high - 1, max(low, high - 1 - (begun - time - 1) // each))  # they often take as long as each other
    step = 1
    while low < high - 1:
        if rings[first + (middle & (FAR - 1))] > time:
            high = middle
            middle = max(low, middle - step)
        else:
            low = middle
            middle = min(high - 1, middle + step)
        step *= 2
        if middle <= low or middle >= high:
            middle = (low + high) >> 1
    return iteration - low


@kernel(forceinline=True)
def _find(t, kind, source, sink, time):
    """A dependence on what happened at ``time``."""
    count = t.state[ACTIVE]
    carrier, distance = -1, 0
    if count and time < t.active[5 * (count - 1) + 2]:
        for level in range(count):
            if time < t.active[5 * level + 1]:
                break
            if time < t.active[5 * level + 2]:
                carrier, iteration = t.active[5 * level + 3], t.active[5 * level + 4]
                distance = 1
                if time < t.rings[FAR * level + ((iteration - 1) & (FAR - 1))]:
                    distance = _distance(t.rings, FAR * level, iteration, time)
                break
    one, two = source << 32 | sink, (carrier + 1) << 2 | kind
    at = 8 * slot(t.found, 8, t.state[_FOUND_PLACES], one, two)
    if t.found[at + 1] == -1:
        t.state[_FOUND] += 1
        t.found[at], t.found[at + 1], t.found[at + 3], t.found[at + 4] = one, two, distance, distance
    t.found[at + 2] += 1
    t.found[at + 3] = min(t.found[at + 3], distance)
    t.found[at + 4] = max(t.found[at + 4], distance)


@kernel()
def _new_reader(t, cell, site, first, last):
    reader = t.state[_FREE_READER]
    if reader:
        t.state[_FREE_READER] = t.readers[4 * reader + 3]
        t.state[_FREE_READERS] -= 1
    else:
        reader = t.state[_NEXT_READER]
        t.state[_NEXT_READER] += 1
    writer = t.cells[8 * cell + 1]
    t.readers[4 * reader], t.readers[4 * reader + 1], t.readers[4 * reader + 2] = site, first, last
    t.readers[4 * reader + 3] = writer & _LOW
    t.cells[8 * cell + 1] = writer & ~_LOW | reader


@kernel()
def _split(t, cell, old, count, parts, fine):
    """From now on the ``parts`` of ``cell`` are told apart, which were ``count`` cells from ``old`` on: eight where
    ``fine``, else two. The cell says where they are."""
    new = t.state[_NEXT_CELL]
    t.state[_NEXT_CELL] += parts
    for part in range(parts):
        source, target = old + part * count // parts, new + part
        for word in range(8):
            t.cells[8 * target + word] = t.cells[8 * source + word]
        t.cells[8 * target + 1] &= ~_LOW
        reader = t.cells[8 * source + 1] & _LOW
        for _ in range(_COPIED):
            if not reader:
                break
            _new_reader(t, target, t.readers[4 * reader], t.readers[4 * reader + 1], t.readers[4 * reader + 2])
            reader = t.readers[4 * reader + 3]
    t.cells[8 * cell] = -1 - (new << 1 | fine)


@kernel()
def _further_reader(t, cell, site):
    """The third or a later one since the last write."""
    reader, time = t.cells[8 * cell + 1] & _LOW, t.state[TIME]
    while reader and t.readers[4 * reader] != site:
        reader = t.readers[4 * reader + 3]
    if reader:
        t.readers[4 * reader + 2] = time
    else:
        _new_reader(t, cell, site, time, time)


@kernel(forceinline=True)
def _write_after(t, kind, site, source, first, last):
    """A write at ``site`` after the reads at ``source``."""
    own = source == site and kind & 1  # it has just read what it writes
    if not own or first != t.state[TIME]:
        _find(t, 1, source, site, first)
    if not own and last != first:
        _find(t, 1, source, site, last)


@kernel()
def _write_after_further(t, kind, site, reader):
    while reader:
        _write_after(t, kind, site, t.readers[4 * reader], t.readers[4 * reader + 1], t.readers[4 * reader + 2])
        following = t.readers[4 * reader + 3]
        t.readers[4 * reader + 3] = t.state[_FREE_READER]
        t.state[_FREE_READER] = reader
        t.state[_FREE_READERS] += 1
        reader = following


@kernel(forceinline=True)
def _touch(t, cell, kind, site):
    """A place is read, written or both."""
    c, time = 8 * cell, t.state[TIME]
    written, writer = t.cells[c], t.cells[c + 1]
    if kind & 1:
        if written:
            _find(t, 0, writer >> 32, site, written)
        readers = t.cells[c + 2]
        if readers >> 32 == site:
            t.cells[c + 4] = time
        elif readers & _LOW == site:
            t.cells[c + 6] = time
        elif readers == 0:
            t.cells[c + 2], t.cells[c + 3], t.cells[c + 4] = site << 32, time, time
        elif readers & _LOW == 0:
            t.cells[c + 2], t.cells[c + 5], t.cells[c + 6] = readers | site, time, time
        else:
            _further_reader(t, cell, site)
    if kind & 2:
        if written:
            _find(t, 2, writer >> 32, site, written)
        readers = t.cells[c + 2]
        if readers:
            _write_after(t, kind, site, readers >> 32, t.cells[c + 3], t.cells[c + 4])
            if readers & _LOW:
                _write_after(t, kind, site, readers & _LOW, t.cells[c + 5], t.cells[c + 6])
            _write_after_further(t, kind, site, t.cells[c + 1] & _LOW)
        t.cells[c], t.cells[c + 1], t.cells[c + 2] = time, site << 32, 0


@kernel(forceinline=True)
def _access(t, kind, site, address, size):
    """An access of _PIECE bytes at most; 0, or what there must be more of first."""
    state = t.state
    if state[_FREE_READERS] + state[_READER_ROOM] - state[_NEXT_READER] < _READERS_OF_PIECE:
        return _MORE_READERS
    if state[_NEXT_CELL] + _CELLS_OF_PIECE > state[_CELL_ROOM]:
        return _MORE_CELLS
    if 2 * (state[_FOUND] + _PAGE) > state[_FOUND_PLACES]:
        return _MORE_FOUND
    if 2 * (state[_PAGES] + 2) > state[_PAGE_PLACES]:
        return _MORE_PAGES
    end = address + size
    while address < end:
        number = address >> 12
        line = 2 * (number & (_CACHE - 1))
        if t.cache[line] != number:
            at = 3 * slot(t.pages, 3, state[_PAGE_PLACES], number, 0)
            if t.pages[at + 1] == -1:
                t.pages[at], t.pages[at + 1], t.pages[at + 2] = number, 0, state[_NEXT_CELL]
                state[_NEXT_CELL] += _PAGE >> 3
                state[_PAGES] += 1
            t.cache[line], t.cache[line + 1] = number, t.pages[at + 2]
        cell = t.cache[line + 1] + ((address & (_PAGE - 1)) >> 3)
        stop = min(end, (address | 7) + 1)
        if t.cells[8 * cell] >= 0:
            if (stop - address) & 7 == 0:
                _touch(t, cell, kind, site)
                address = stop
                continue
            fine = 1 if (address | stop) & 3 else 0
            _split(t, cell, cell, 1, 8 if fine else 2, fine)
        where = -1 - t.cells[8 * cell]
        if not where & 1 and (address | stop) & 3:
            _split(t, cell, where >> 1, 2, 8, 1)
            where = -1 - t.cells[8 * cell]
        shift = 0 if where & 1 else 2
        for part in range((address & 7) >> shift, ((stop - 1 & 7) >> shift) + 1):
            _touch(t, (where >> 1) + part, kind, site)
        address = stop
    return 0


@kernel()
def _repeat(t, kind, site, address, size):
    """An access of any size; 0, or what there must be more of before it goes on."""
    while t.state[_DONE_OF_REPEATED] < size:
        done = t.state[_DONE_OF_REPEATED]
        piece = min(_PIECE, size - done)
        more = _access(t, kind, site, address + done, piece)
        if more:
            return more
        t.state[_DONE_OF_REPEATED] += piece
    t.state[_DONE_OF_REPEATED] = 0
    return 0


@kernel(forceinline=True)
def _go_on(t, words, count, at):
    while at < count:
        word = words[at]
        index = word >> 48 & 0xFFFF
        if index == BLOCK:
            if at + 1 == count:
                break
            more = begin_block(t, word & 0xFFFFFFFF, words[at + 1])
            if more:
                return at, more
            at += 2
            continue
        block = t.state[BLOCK_NOW]
        if block < 0 or index >= t.blocks[5 * block + 1]:  # cannot be: a trace begins with a block
            at += 1
            continue
        row = 3 * (t.blocks[5 * block] + index)
        size, kind, address = t.shapes[row], t.shapes[row + 1], word & 0xFFFFFFFFFFFF
        site, repeated = t.state[CURRENT] + index, t.shapes[row + 2]
        if repeated:
            if at + 1 == count:
                break
            more = _repeat(t, kind, site, address, size * words[at + 1])
        else:
            more = _access(t, kind, site, address, size)
        if more:
            return at, more
        at += 1 + repeated
    return at, DONE


@kernel(nogil=True)
def _feed(words, at, state, frames, active, rings, blocks, shapes, loops, context_blocks, context_loops, pages, cache,
          cells, readers, found, last, counts):
    """Go on at the word ``at``: where it stopped, and what there must be more of before it goes on."""
    t = _Tables(pointer(state.ctypes.data), pointer(frames.ctypes.data), pointer(active.ctypes.data),
                pointer(rings.ctypes.data), pointer(blocks.ctypes.data), pointer(shapes.ctypes.data),
                pointer(loops.ctypes.data), pointer(context_blocks.ctypes.data), pointer(context_loops.ctypes.data),
                pointer(pages.ctypes.data), pointer(cache.ctypes.data), pointer(cells.ctypes.data),
                pointer(readers.ctypes.data), pointer(found.ctypes.data), pointer(last.ctypes.data),
                pointer(counts.ctypes.data))
    return _go_on(t, pointer(words.ctypes.data), len(words), at)


class Dependences(Activity):
    """Those within one thread, found as its trace comes in. ``limit``: bytes of memory that it may take; beyond that
    nothing is watched any more, and ``complete`` is false."""

    def __init__(self, limit: int = 3 << 30) -> None:
        super().__init__(_NUMBERS)
        self._limit = limit
        self.complete = True
        self._state[_NEXT_READER] = 1
        self._pages, self._cache = new_table(1 << 12, 3), numpy.full((_CACHE, 2), -1, numpy.int64)
        self._cells = zeros(1 << 20, 8)
        self._readers = zeros(1 << 20, 4)
        self._found = new_table(1 << 15, 8)

    def feed(self, words: Words) -> None:
        if not self.complete:
            return
        pending = self._pending(words)
        at, more, state = 0, -1, self._state
        while more != DONE:
            tables = (self._frames, self._active, self._rings, self._blocks, self._shapes, self._loops,
                      self._context_blocks, self._context_loops, self._pages, self._cache, self._cells, self._readers,
                      self._found, self._last, self._counts)
            self._set_places()
            state[_PAGE_PLACES:_NUMBERS] = [len(t) for t in (self._pages, self._cells, self._readers, self._found)]
            at, more = _feed(pending, at, state, *tables)
            self._grow(more)
            if self._cells.nbytes + self._readers.nbytes > self._limit:
                self.complete = False
                self._cells, self._readers = zeros(0, 8), zeros(0, 4)
                return
        self._rest = pending[at:].copy()

    def _grow(self, more: int) -> None:
        super()._grow(more)
        if more == _MORE_PAGES:
            self._pages = larger(self._pages)
        elif more == _MORE_CELLS:
            self._cells = longer(self._cells)
        elif more == _MORE_READERS:
            self._readers = longer(self._readers)
        elif more == _MORE_FOUND:
            self._found = larger(self._found)

    def all(self) -> Iterator[Dependence]:
        """Those found until now, in no order."""
        name = functools.cache(functools.partial(named, self._sites()))
        loops = self._loops_by_number()
        for one, two, count, least, most, *_ in self._found[self._found[:, 1] != -1].tolist():
            yield Dependence(Kind(two & 3), name(one >> 32), name(one & 0xFFFFFFFF), loops.get((two >> 2) - 1), least,
                             most, count)
