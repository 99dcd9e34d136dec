"""Accesses of a trace, one after the other: the places they touch, and what follows from it."""

from __future__ import annotations

from typing import Any, NamedTuple

from memopt.traces.activity import BLOCK_NOW, CURRENT, DONE, TIME, begin_block
from memopt.traces.carriers import Finding
from memopt.traces.kernels import kernel
from memopt.traces.shadow import (
    CELL,
    DONE_OF_REPEATED,
    NEXT_CELL,
    PAGE_PLACES,
    PAGES,
    PIECE,
    SHORT,
    Keeping,
    join,
    look_for_room,
    split,
)
from memopt.traces.tables import pointer, slot
from memopt.traces.touching import touch
from memopt.traces.trace import BLOCK, PAGE

CACHE = 1 << 10


class Tables(NamedTuple):
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
def _tables(d):
    """Those whose addresses are in a row at ``d``."""
    return Tables(pointer(d[0]), pointer(d[1]), pointer(d[2]), pointer(d[3]), pointer(d[4]), pointer(d[5]),
                  pointer(d[6]), pointer(d[7]), pointer(d[8]), pointer(d[9]), pointer(d[10]), pointer(d[11]),
                  pointer(d[12]), pointer(d[13]), pointer(d[14]), pointer(d[15]), pointer(d[16]), pointer(d[17]),
                  pointer(d[18]))


@kernel(forceinline=True)
def _finding(t):
    return Finding(t.state, t.active, t.rings, t.found, t.known)


@kernel(forceinline=True)
def _keeping(t):
    return Keeping(t.state, t.cells, t.chunks, t.recent, t.free)


@kernel()
def _find_page(state, pages, cache, number):
    """Where its cells are, is in the cache from now on."""
    at, line = 3 * slot(pages, 3, state[PAGE_PLACES], number, 0), 2 * (number & (CACHE - 1))
    if pages[at + 1] == -1:
        pages[at], pages[at + 1], pages[at + 2] = number, 0, state[NEXT_CELL]
        state[NEXT_CELL] += PAGE >> 3
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
    if kind & 2 and stop - address == 8:
        join(k, cell, site, time)


@kernel(forceinline=True)
def _access(t, kind, site, address, size):
    """An access of PIECE bytes at most; 0, or what there must be more of first."""
    state = t.state
    if state[SHORT]:
        return state[SHORT]
    time, end = state[TIME], address + size
    while address < end:
        number = address >> 12
        line = 2 * (number & (CACHE - 1))
        if t.cache[line] != number:
            _find_page(state, t.pages, t.cache, number)
        cell, stop = t.cache[line + 1] + ((address & (PAGE - 1)) >> 3), min(end, (address | 7) + 1)
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


@kernel(nogil=True)
def look_at(directory, trace, count, at):
    """At ``count`` words of a trace, from the number ``at`` on: where it stopped, and what there must be more of before
    it goes on. ``directory``, ``trace``: addresses; the directory has those of the tables."""
    t, words = _tables(pointer(directory)), pointer(trace)
    state = t.state
    look_for_room(state)
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
