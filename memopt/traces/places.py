"""The places that an access touches, and what follows from it."""

from __future__ import annotations

from typing import Any, NamedTuple

from memopt.traces.activity import TIME
from memopt.traces.carriers import Finding
from memopt.traces.kernels import kernel
from memopt.traces.lines import Lines, bits_between, put_in_cells, touch_line
from memopt.traces.shadow import (
    CELL,
    READERS,
    SHORT,
    WRITER,
    WRITTEN,
    Keeping,
    beginnings,
    begins,
    cut,
    cut_alike,
    is_part,
    join,
    part_at,
    parts_of,
)
from memopt.traces.strips import (
    CELLS,
    IN_CELLS,
    LINES_OF_PAGE,
    NUMBER,
    TOLD,
    Places,
    be_in_cells,
    page_of,
    row_of_page,
    strip_of,
    take_out,
)
from memopt.traces.tables import likely, lowest_bit, pointer, prefetch
from memopt.traces.touching import after_write, touch
from memopt.traces.trace import PAGE


class Tables(NamedTuple):
    """Pointers to 64-bit numbers; a table is made of rows, in columns:

    the first ones as Activity and Reading have them. pages: number, 0, then as in cache. cache: see strips.py.
    cells, of a cache line each: time of the last write (0: none); its site, and in the lower half the chunk of the last
    further readers (0: none); the sites of two readers since then (0: none), the first in the upper half; first and
    last time of the one, and of the other; which further readers there may be, by the low bits of their sites.
    chunks: of further readers, two cache lines each. free: chunks that are not in use. recent: cell and site of one of
    them, where in chunks its last time is. found: source and sink, carrier and kind, bytes, least, most. known: see
    find. strips: see there; free_strips: those that are not in use. tries: of each loop, how many iterations are not
    tried as the first of a run, and what that was before. ahead: see ahead.py. own: where their addresses are, which
    costs less to hand on than each of them.
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
    strips: Any
    free_strips: Any
    tries: Any
    ahead: Any
    callers: Any
    lines: Any
    hints: Any
    own: Any


@kernel(forceinline=True)
def tables_at(d):
    """Those whose addresses are in a row at ``d``."""
    return Tables(pointer(d[0]), pointer(d[1]), pointer(d[2]), pointer(d[3]), pointer(d[4]), pointer(d[5]),
                  pointer(d[6]), pointer(d[7]), pointer(d[8]), pointer(d[9]), pointer(d[10]), pointer(d[11]),
                  pointer(d[12]), pointer(d[13]), pointer(d[14]), pointer(d[15]), pointer(d[16]), pointer(d[17]),
                  pointer(d[18]), pointer(d[19]), pointer(d[20]), pointer(d[21]), pointer(d[22]), pointer(d[23]),
                  pointer(d[24]), pointer(d[25]), d)


@kernel(forceinline=True)
def finding(t):
    return Finding(t.state, t.active, t.rings, t.found, t.known)


@kernel(forceinline=True)
def _keeping(t):
    return Keeping(t.state, t.cells, t.chunks, t.recent, t.free)


@kernel(forceinline=True)
def _lines_of(t):
    return Lines(finding(t), _keeping(t), t.lines, t.hints)


@kernel(forceinline=True)
def places_of(t):
    return Places(t.state, t.pages, t.cache, t.cells, t.chunks, t.recent, t.free, t.strips, t.free_strips)


@kernel(forceinline=True)
def _whole(cells, cell, first, size):
    """The cell that is all of so many of the eight bytes of ``cell``, from ``first`` on, and in no strip; -1 where none
    is."""
    value = cells[CELL * cell + WRITTEN]
    if value >= 0:
        return cell if likely(size == 8) else -1
    if not likely(strip_of(value) < 0):
        return -1
    parts = parts_of(value)
    if not likely(is_part(parts, first, size)):
        return -1
    part = part_at(parts, first)
    return part if likely(strip_of(cells[CELL * part + WRITTEN]) < 0) else -1


@kernel(forceinline=True)
def _cut_at_both(value, first, behind):
    """Whether a word whose cell says ``value`` has parts, and is cut at both bytes, or ends there."""
    ends = 1 << 8 | beginnings(parts_of(value))
    return value < 0 and strip_of(value) < 0 and ends >> first & ends >> behind & 1


@kernel()
def cut_at(tables, cell, address):
    """From now on a place begins at ``address``, whose word has this cell."""
    t = tables_at(tables)
    p, value = places_of(t), t.cells[CELL * cell + WRITTEN]
    if strip_of(value) >= 0:
        take_out(p, cell, address)
    elif value < 0 and not begins(parts_of(value), address & 7):
        part = part_at(parts_of(value), address & 7)
        if strip_of(t.cells[CELL * part + WRITTEN]) >= 0:
            take_out(p, part, address)
    if address & 7:
        cut(_keeping(t), cell, address & 7)


@kernel(forceinline=True)
def _touch_place(t, cell, kind, site, size):
    f = finding(t)
    after_write(f, kind, site, t.cells[CELL * cell + WRITTEN], t.cells[CELL * cell + WRITER] >> 32, size)
    touch(f, _keeping(t), cell, kind, site, t.state[TIME], size)


@kernel()
def _touch_parts(tables, cell, kind, site, address, stop):
    """Several of the parts of ``cell``, or parts that were not told apart before, or what is in a strip."""
    t = tables_at(tables)
    k, first, behind, time = _keeping(t), address & 7, (stop - 1 & 7) + 1, t.state[TIME]
    if not _cut_at_both(t.cells[CELL * cell + WRITTEN], first, behind):
        if first == 0 and address & 63:  # bytes side by side, perhaps
            cut_alike(k, cell, cell - 1, behind)
        cut_at(tables, cell, address)
        if behind < 8:
            cut_at(tables, cell, stop)
    parts = parts_of(t.cells[CELL * cell + WRITTEN])
    if parts < 0:
        _touch_place(t, cell, kind, site, 8)
        return
    rest = beginnings(parts) & (1 << behind) - (1 << first)
    for part in range(part_at(parts, first) + 1, part_at(parts, behind - 1) + 1):
        prefetch(t.cells, CELL * part)
    written = writer = together = 0
    told = 0  # more than once: parts differ in who wrote or has read them
    readers = t.cells[CELL * part_at(parts, first) + READERS]
    while rest:
        byte, rest = lowest_bit(rest), rest & rest - 1
        part, size = part_at(parts, byte), lowest_bit(rest | 1 << behind) - byte
        if strip_of(t.cells[CELL * part + WRITTEN]) >= 0:
            take_out(places_of(t), part, (address & ~7) + byte)
        if t.cells[CELL * part + WRITTEN] != written or t.cells[CELL * part + WRITER] >> 32 != writer:
            after_write(finding(t), kind, site, written, writer, together)
            written, writer, together = t.cells[CELL * part + WRITTEN], t.cells[CELL * part + WRITER] >> 32, 0
            told += 1
        told += t.cells[CELL * part + READERS] != readers
        together += size
        touch(finding(t), k, part, kind, site, time, size)
    after_write(finding(t), kind, site, written, writer, together)
    if kind & 2 and told < 2:  # nobody has told them apart since they were written
        join(k, cell, first, behind, site, time)


@kernel()
def _touch_line(tables, row, kind, site, address, stop):
    """Bytes of a line whose page is at ``row`` of the cache, and that is not in cells; False where it is from now on,
    and they are to be looked for there."""
    t = tables_at(tables)
    lines, at = _lines_of(t), t.cache[row + TOLD] + 2 * (address >> 6 & LINES_OF_PAGE - 1)
    if touch_line(lines, at, kind, site, bits_between(address & 63, (stop - 1 & 63) + 1), t.state[TIME]):
        return True
    _put_in_cells(t, row, address >> 6)
    return False


@kernel(forceinline=True)
def _put_in_cells(t, row, line):
    number = line & LINES_OF_PAGE - 1
    put_in_cells(_lines_of(t), t.cache[row + TOLD] + 2 * number, t.cache[row + CELLS] + 8 * number)
    be_in_cells(places_of(t), line)


@kernel()
def have_cells(tables, first, behind):
    """Words are in cells; False where there must be more room first."""
    t = tables_at(tables)
    line, end = first >> 3, (behind + 7) >> 3
    while line < end:
        row, stop = page_of(places_of(t), line >> 6), min(end, (line | LINES_OF_PAGE - 1) + 1)
        rest = bits_between(line & 63, (stop - 1 & 63) + 1) & ~t.cache[row + IN_CELLS]
        while rest:
            _put_in_cells(t, row, stop - 1 & -LINES_OF_PAGE | lowest_bit(rest))
            rest &= rest - 1
            if t.state[SHORT]:
                return False
        if t.state[SHORT]:
            return False
        line = stop
    return True


@kernel()
def _look_at_words(tables, kind, site, address, size):
    """An access of one word or several ones, in cells or not."""
    t, end = tables_at(tables), address + size
    while address < end:
        row = page_of(places_of(t), address >> 12)
        if not t.cache[row + IN_CELLS] >> (address >> 6 & 63) & 1:
            stop = min(end, (address | 63) + 1)
            if _touch_line(t.own, row, kind, site, address, stop):
                address = stop
                continue
        cell, stop = t.cache[row + CELLS] + ((address & (PAGE - 1)) >> 3), min(end, (address | 7) + 1)
        whole = _whole(t.cells, cell, address & 7, stop - address)
        if likely(whole >= 0):
            _touch_place(t, whole, kind, site, stop - address)
        else:
            _touch_parts(t.own, cell, kind, site, address, stop)
        address = stop


@kernel(forceinline=True)
def look_at_access(t, kind, site, address, size):
    """An access of PIECE bytes at most, for which there is enough of everything."""
    row = row_of_page(address >> 12)
    if likely(t.cache[row + NUMBER] == address >> 12):
        if not t.cache[row + IN_CELLS] >> (address >> 6 & 63) & 1:
            if (address & 63) + size <= 64 and _touch_line(t.own, row, kind, site, address, address + size):
                return
        elif (address & 7) + size <= 8:
            whole = _whole(t.cells, t.cache[row + CELLS] + ((address & (PAGE - 1)) >> 3), address & 7, size)
            if likely(whole >= 0):
                _touch_place(t, whole, kind, site, size)
                return
    _look_at_words(t.own, kind, site, address, size)


@kernel(forceinline=True)
def access(t, kind, site, address, size):
    """An access of PIECE bytes at most; 0, or what there must be more of first."""
    if not likely(t.state[SHORT] == 0):
        return t.state[SHORT]
    look_at_access(t, kind, site, address, size)
    return 0
