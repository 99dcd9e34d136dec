"""Looks up the shadow cells of one access, splits them where access sizes differ, and records the dependences.

Example: a store of 8 bytes at ``p`` has written one cell. A load of 4 bytes at ``p + 4`` splits the cell into two
parts, depends on the store (RAW, 4 bytes), and is noted as a reader of the second part.

In: kind, site, address and size of the access. Out: counts in the table of dependences; new contents of the cells,
lines or strips that the access touches. Splitting is exact: both parts have the history of the whole.
"""

from __future__ import annotations

from memopt.traces.core.active_loops import TIME
from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import PAGE
from memopt.traces.core.tables import likely, lowest_bit
from memopt.traces.dependences.carrying_loop import Finding
from memopt.traces.dependences.shadow_lines import Lines, bits_between, put_in_cells, touch_line
from memopt.traces.dependences.shadow_memory import (
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
from memopt.traces.dependences.shadow_strips import (
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
from memopt.traces.dependences.state import tables_at
from memopt.traces.dependences.touch import after_write, touch


@kernel(forceinline=True)
def finding(t):
    """The tables that dependences are found with, out of ``Tables``."""
    return Finding(t.state, t.active, t.rings, t.found, t.known)


@kernel(forceinline=True)
def _keeping(t):
    return Keeping(t.state, t.cells, t.chunks, t.recent, t.free)


@kernel(forceinline=True)
def _lines_of(t):
    return Lines(finding(t), _keeping(t), t.lines, t.hints)


@kernel(forceinline=True)
def places_of(t):
    """The tables that places are found with, out of ``Tables``."""
    return Places(t.state, t.pages, t.cache, t.cells, t.chunks, t.recent, t.free, t.strips, t.free_strips)


@kernel(forceinline=True)
def _whole(cells, cell, first, size):
    """The cell that stands for exactly the ``size`` bytes from the byte ``first`` on of the word of ``cell``, and that
    is in no strip; -1 if there is none.
    """
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
    """Whether a word, whose cell has ``value``, is cut into parts so that one begins at ``first``, and one at
    ``behind`` or the word ends there.
    """
    ends = 1 << 8 | beginnings(parts_of(value))
    return value < 0 and strip_of(value) < 0 and ends >> first & ends >> behind & 1


@kernel()
def cut_at(tables, cell, address):
    """Cuts the word of ``cell``, so that a place begins at ``address``. Takes it out of its strip first."""
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
def _tell_apart(tables, cell, address, stop):
    """Cuts the word of ``cell``, so that places begin at ``address`` and at ``stop``. Returns its new column WRITTEN.
    """
    t = tables_at(tables)
    if address & 7 == 0 and address & 63:  # perhaps an array of bytes: its words will be cut alike
        cut_alike(_keeping(t), cell, cell - 1, (stop - 1 & 7) + 1)
    cut_at(tables, cell, address)
    if stop & 7:
        cut_at(tables, cell, stop)
    return t.cells[CELL * cell + WRITTEN]


@kernel()
def _touch_word(tables, cell, kind, site):
    _touch_place(tables_at(tables), cell, kind, site, 8)


@kernel()
def _take_out(tables, part, address):
    take_out(places_of(tables_at(tables)), part, address)


@kernel(forceinline=True)
def _rarely_take_out(t, part, address, byte):
    _take_out(t.own, part, (address & ~7) + byte)


@kernel(forceinline=True)
def _touch_each(t, parts, kind, site, address, first, behind):
    """Touches the parts of a word between two bytes at which it is cut. Parts that were last written together count as
    one for the dependence on that write. Returns whether the parts differed in their writer or readers.
    """
    f, k, cells, time = finding(t), _keeping(t), t.cells, t.state[TIME]
    rest, part = beginnings(parts) & (1 << behind) - (1 << first), part_at(parts, first)
    written = writer = told = 0
    start, readers = first, cells[CELL * part + READERS]
    while rest:
        byte, rest = lowest_bit(rest), rest & rest - 1
        c = CELL * part
        if not likely(strip_of(cells[c + WRITTEN]) < 0):
            _rarely_take_out(t, part, address, byte)
        if cells[c + WRITTEN] != written or cells[c + WRITER] >> 32 != writer:
            after_write(f, kind, site, written, writer, byte - start)
            written, writer, start = cells[c + WRITTEN], cells[c + WRITER] >> 32, byte
            told += 1
        told += cells[c + READERS] != readers
        touch(f, k, part, kind, site, time, lowest_bit(rest | 1 << behind) - byte)
        part += 1
    after_write(f, kind, site, written, writer, behind - start)
    return told > 1


@kernel()
def _write_parts(tables, cell, kind, site, address, stop):
    """Writes the parts of a word between two bytes at which it is cut; ``kind`` may include a read. Joins the parts if
    nothing has distinguished them since they were written.
    """
    t = tables_at(tables)
    first, behind = address & 7, (stop - 1 & 7) + 1
    differed = _touch_each(t, parts_of(t.cells[CELL * cell + WRITTEN]), kind, site, address, first, behind)
    if kind & 2 and not differed:  # nothing has distinguished the parts since they were written
        join(_keeping(t), cell, first, behind, site, t.state[TIME])


@kernel()
def _touch_parts(tables, cell, kind, site, address, stop):
    """Touches several parts of the word of ``cell``, or bytes that have no place of their own yet, or a place in a
    strip.
    """
    t = tables_at(tables)
    first, behind, value = address & 7, (stop - 1 & 7) + 1, t.cells[CELL * cell + WRITTEN]
    if not likely(_cut_at_both(value, first, behind)):
        value = _tell_apart(tables, cell, address, stop)
        if value >= 0:
            _touch_word(tables, cell, kind, site)
            return
    if likely(kind == 1):  # a constant kind: the code for writes is not compiled into this call
        _touch_each(t, parts_of(value), 1, site, address, first, behind)
    else:
        _write_parts(tables, cell, kind, site, address, stop)


@kernel()
def _touch_line(tables, row, kind, site, address, stop):
    """Touches bytes of a line that is not in cells, and whose page is at ``row`` of the cache. Returns False if the
    line had no room left: it is in cells now, and the bytes must be touched there.
    """
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
    """Moves the words from ``first`` to ``behind`` from lines to cells. Returns False if tables must grow first."""
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


@kernel(forceinline=True)
def _rarely_touch_parts(t, cell, kind, site, address, stop):
    _touch_parts(t.own, cell, kind, site, address, stop)


@kernel()
def _look_at_words(tables, kind, site, address, size):
    """Touches the bytes of an access of any number of words, in cells or in lines."""
    t, end = tables_at(tables), address + size
    while address < end:
        row, behind = page_of(places_of(t), address >> 12), min(end, (address | 63) + 1)
        if (not t.cache[row + IN_CELLS] >> (address >> 6 & 63) & 1
                and _touch_line(t.own, row, kind, site, address, behind)):
            address = behind
            continue
        cell = t.cache[row + CELLS] + ((address & (PAGE - 1)) >> 3)
        while address < behind:
            stop = min(behind, (address | 7) + 1)
            whole = _whole(t.cells, cell, address & 7, stop - address)
            if likely(whole >= 0):
                _touch_place(t, whole, kind, site, stop - address)
            else:
                _rarely_touch_parts(t, cell, kind, site, address, stop)
            cell, address = cell + 1, stop


@kernel(forceinline=True)
def _rarely_touch_line(t, row, kind, site, address, stop):
    return _touch_line(t.own, row, kind, site, address, stop)


@kernel(forceinline=True)
def _rarely_look_at_words(t, kind, site, address, size):
    _look_at_words(t.own, kind, site, address, size)


@kernel(forceinline=True)
def look_at_access(t, kind, site, address, size):
    """Touches the bytes of an access of at most PIECE bytes. Precondition: all tables have room."""
    row = row_of_page(address >> 12)
    if likely(t.cache[row + NUMBER] == address >> 12):
        if not t.cache[row + IN_CELLS] >> (address >> 6 & 63) & 1:
            if (address & 63) + size <= 64 and _rarely_touch_line(t, row, kind, site, address, address + size):
                return
        elif (address & 7) + size <= 8:
            cell = t.cache[row + CELLS] + ((address & (PAGE - 1)) >> 3)
            whole = _whole(t.cells, cell, address & 7, size)
            if likely(whole >= 0):
                _touch_place(t, whole, kind, site, size)
            else:
                _rarely_touch_parts(t, cell, kind, site, address, address + size)
            return
    _rarely_look_at_words(t, kind, site, address, size)


@kernel(forceinline=True)
def access(t, kind, site, address, size):
    """Touches the bytes of an access of at most PIECE bytes. Returns what must grow first, or 0."""
    if not likely(t.state[SHORT] == 0):
        return t.state[SHORT]
    look_at_access(t, kind, site, address, size)
    return 0
