"""Shadow memory by the cache line: keeps 64 bytes as a list of entries, as long as lists are less work than cells.

Example: each load of 64 bytes, at any address, is one entry, even where stores of 8 bytes have cut the words.

An entry is either the bytes that one access has written, or bytes that accesses of one instruction have read, with the
times. A byte belongs to at most one entry of a writer. It may belong to several entries of one reading instruction;
their times then count together.

In: bytes of a line (a mask of 64 bits), kind, site and time of an access. Out: counts in the table of dependences. A
line that gets too many entries moves to cells (``put_in_cells``), which then know the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from memopt.traces.core.compiler import kernel
from memopt.traces.core.tables import count_bits, lowest_bit
from memopt.traces.dependences.carrying_loop import RAW, WAR, WAW, Finding, find, key_of
from memopt.traces.dependences.shadow_memory import (
    CELL,
    CUTS,
    FREE_LINES,
    LINE,
    MAY_READ,
    NEXT_LINE,
    READERS,
    WRITER,
    WRITTEN,
    Keeping,
    look_for_room,
    read_before,
    room_for_parts,
)
from memopt.traces.dependences.touch import write_after_read

# The description of a line: 0 if nothing is known of it. Otherwise, from the lowest bit on: how many entries of
# writers; how many of readers; how often the room for four entries was doubled; whether it MIXES: an instruction has
# bytes in several of its entries; where the entries are. At that place stand first the bytes of each entry, a bit each
# (writers from the front on, readers from the end on), then the site of each, then the times of each: when it wrote, or
# read first and last. Behind the description stands a filter: which sites may be those of readers, by their low bits.
_LEAST, _MOST_ROOM = 4, 4
_COUNT_BITS, _ROOM_AT, _MIXES_AT, _PLACE_AT = 7, 14, 18, 20
_COUNT, _READER = (1 << _COUNT_BITS) - 1, 1 << _COUNT_BITS
HINTS = 1 << 13
_WORDS = 0x0101010101010101  # the bytes of a line at which a word begins
_WORTH = 2  # parts of words an entry must touch on average, so that lines pay


class Lines(NamedTuple):
    """The tables that lines are kept in. hints: by line, site and bytes, which reader of the line it was last time."""

    finding: Finding
    keeping: Keeping
    lines: Any
    hints: Any


@kernel(forceinline=True)
def bits_between(first, behind):
    """A mask of 64 bits that has those from ``first`` up to ``behind`` set: bytes of a line, or lines of a page."""
    return (-1 if behind - first == 64 else (1 << behind - first) - 1) << first


@kernel(forceinline=True)
def writers_in(value):
    """How many entries of writers a line has."""
    return value & _COUNT


@kernel(forceinline=True)
def readers_in(value):
    """How many entries of readers a line has."""
    return value >> _COUNT_BITS & _COUNT


@kernel(forceinline=True)
def room_in(value):
    """How many entries a line has room for."""
    return _LEAST << (value >> _ROOM_AT & 7)


@kernel(forceinline=True)
def row_of(value):
    """Where the entries of a line begin."""
    return LINE * (value >> _PLACE_AT)


@kernel(forceinline=True)
def _site_of(row, room, entry):
    """Where the site of an entry stands."""
    return row + room + entry


@kernel(forceinline=True)
def _times_of(row, room, entry):
    """Where the time stands at which an entry wrote, or read first; behind it when it read last."""
    return row + 2 * (room + entry)


@kernel()
def _new_line(k, lines, room):
    """A line without entries."""
    state = k.state
    place = state[FREE_LINES + room]
    if place:
        state[FREE_LINES + room] = lines[LINE * place]
    else:
        place = state[NEXT_LINE]
        state[NEXT_LINE] += 1 << room
        look_for_room(state)
    return place << _PLACE_AT | room << _ROOM_AT


@kernel()
def _give_up(k, lines, value):
    free = FREE_LINES + (value >> _ROOM_AT & 7)
    lines[row_of(value)] = k.state[free]
    k.state[free] = value >> _PLACE_AT


@kernel(forceinline=True)
def _move(lines, source, room, entry, target, other_room, other):
    lines[target + other] = lines[source + entry]
    lines[_site_of(target, other_room, other)] = lines[_site_of(source, room, entry)]
    one, two = _times_of(source, room, entry), _times_of(target, other_room, other)
    lines[two], lines[two + 1] = lines[one], lines[one + 1]


@kernel()
def _grown(k, lines, value):
    """The same line with room for twice as many entries."""
    new = _new_line(k, lines, (value >> _ROOM_AT & 7) + 1)
    one, two, count, writers = row_of(value), row_of(new), room_in(value), writers_in(value)
    for entry in range(writers):
        _move(lines, one, count, entry, two, 2 * count, entry)
    for reader in range(readers_in(value)):
        _move(lines, one, count, count - 1 - reader, two, 2 * count, 2 * count - 1 - reader)
    _give_up(k, lines, value)
    return new | value & (1 << _ROOM_AT) - 1 | value & 1 << _MIXES_AT


@kernel(forceinline=True)
def _set(lines, row, room, entry, mask, site, time):
    lines[row + entry], lines[_site_of(row, room, entry)] = mask, site
    at = _times_of(row, room, entry)
    lines[at] = lines[at + 1] = time


@kernel(forceinline=True)
def _new_reader(lines, value, hint, hints, site, mask, time):
    """Adds an entry of a reader. Returns the new description of the line."""
    room, readers = room_in(value), readers_in(value)
    _set(lines, row_of(value), room, room - 1 - readers, mask, site, time)
    hints[hint] = readers
    return value + _READER


@kernel()
def _look_for_reader(lines, value, hint, hints, site, mask, time):
    """Notes a read by ``site`` of the bytes ``mask``, in its entry or a new one. Returns the new description of the
    line.
    """
    row, room, readers = row_of(value), room_in(value), readers_in(value)
    behind = others = 0
    for entry in range(room - readers, room):  # without branches, so that LLVM vectorises it
        bytes_of_it = lines[row + entry] if lines[_site_of(row, room, entry)] == site else 0
        behind = max(behind, entry + 1 if bytes_of_it == mask else 0)
        others |= bytes_of_it & mask
    if behind:
        lines[_times_of(row, room, behind - 1) + 1] = time
        hints[hint] = room - behind
        return value
    return _new_reader(lines, value, hint, hints, site, mask, time) | (others != 0) << _MIXES_AT


@kernel(forceinline=True)
def _read(t, at, value, site, mask, time):
    """Records the dependences of a read, and notes it. Returns the new description of the line at ``at``."""
    lines, f, row, room = t.lines, t.finding, row_of(value), room_in(value)
    rest = mask
    for entry in range(writers_in(value)):
        both = lines[row + entry] & rest
        if both:
            written = lines[_times_of(row, room, entry)]
            find(f, key_of(RAW, lines[_site_of(row, room, entry)], site), written, written, count_bits(both))
            rest ^= both
            if not rest:
                break
    hint = (13 * at + 61 * site + 7 * mask ^ mask >> 29) & HINTS - 1
    reader = t.hints[hint]
    entry = room - 1 - reader
    if (reader < readers_in(value) and lines[row + entry] == mask
            and lines[_site_of(row, room, entry)] == site):
        lines[_times_of(row, room, entry) + 1] = time
        return value
    if lines[at + 1] >> (site & 63) & 1:
        return _look_for_reader(lines, value, hint, t.hints, site, mask, time)
    lines[at + 1] |= 1 << (site & 63)
    return _new_reader(lines, value, hint, t.hints, site, mask, time)


@kernel()
def _write_after_mixed(t, value, reader, kind, site, mask):
    """Records the WAR dependences of a write of the bytes ``mask`` on the reads by the instruction of ``reader``, if
    bytes are in several of its entries: for each byte these count together. Takes the bytes out of the entries before
    it.
    """
    lines, row, room = t.lines, row_of(value), room_in(value)
    own = _times_of(row, room, room - 1 - reader)
    source, rest = lines[_site_of(row, room, room - 1 - reader)], mask
    while rest:
        together, first, last = rest, lines[own], lines[own + 1]
        byte = lowest_bit(rest)
        for other in range(reader):
            entry = room - 1 - other
            one = _times_of(row, room, entry)
            if lines[_site_of(row, room, entry)] == source:
                if lines[row + entry] >> byte & 1:
                    together &= lines[row + entry]
                    first, last = min(first, lines[one]), max(last, lines[one + 1])
                else:
                    together &= ~lines[row + entry]
        for other in range(reader):
            entry = room - 1 - other
            if lines[_site_of(row, room, entry)] == source:
                lines[row + entry] &= ~together
        write_after_read(t.finding, WAR, kind, site, source, first, last, count_bits(together))
        rest &= ~together


@kernel()
def _write(t, at, value, kind, site, mask, time):
    """Records the dependences of a write, takes its bytes out of all entries, and adds its own. Returns the new
    description of the line.
    """
    lines, f, row, room = t.lines, t.finding, row_of(value), room_in(value)
    writers, readers = writers_in(value), readers_in(value)
    for entry in range(writers - 1, -1, -1):
        both = lines[row + entry] & mask
        if both:
            written = lines[_times_of(row, room, entry)]
            find(f, key_of(WAW, lines[_site_of(row, room, entry)], site), written, written, count_bits(both))
            lines[row + entry] ^= both
            if not lines[row + entry]:
                writers -= 1
                _move(lines, row, room, writers, row, room, entry)
    for reader in range(readers - 1, -1, -1):
        entry = room - 1 - reader
        both = lines[row + entry] & mask
        if both:
            if value >> _MIXES_AT & 1:
                _write_after_mixed(t, value, reader, kind, site, both)
            else:
                one = _times_of(row, room, entry)
                write_after_read(f, WAR, kind, site, lines[_site_of(row, room, entry)], lines[one], lines[one + 1],
                                 count_bits(both))
            lines[row + entry] ^= both
        if not lines[row + entry]:
            readers -= 1
            _move(lines, row, room, room - 1 - readers, row, room, entry)
    if not readers:
        lines[at + 1] = 0
    _set(lines, row, room, writers, mask, site, time)
    return value >> _ROOM_AT << _ROOM_AT | readers << _COUNT_BITS | writers + 1


@kernel(forceinline=True)
def _is_used(value, entry):
    return entry < writers_in(value) or entry >= room_in(value) - readers_in(value)


@kernel()
def _pays(lines, value):
    """Whether cells would be far more work: compares the number of entries with the number of parts of words that
    accesses like theirs would touch, where words are cut as the entries cut them.
    """
    row, room, begins, parts = row_of(value), room_in(value), _WORDS, 0
    for entry in range(room):
        if _is_used(value, entry):
            begins |= lines[row + entry] ^ lines[row + entry] << 1
    for entry in range(room):
        if _is_used(value, entry):
            parts += count_bits(lines[row + entry] & begins)
    return parts > _WORTH * (writers_in(value) + readers_in(value))


@kernel(forceinline=True)
def touch_line(t, at, kind, site, mask, time):
    """Reads or writes bytes of the line at ``at``, which is not in cells. Returns False, and has done nothing, if the
    line would have to grow and cells are better.
    """
    value = t.lines[at]
    if not value:
        value = _new_line(t.keeping, t.lines, 0)
    elif writers_in(value) + readers_in(value) + 2 > room_in(value):
        if value >> _ROOM_AT & 7 == _MOST_ROOM or not _pays(t.lines, value):
            return False
        value = _grown(t.keeping, t.lines, value)
    if kind & 1:
        value = _read(t, at, value, site, mask, time)
    if kind & 2:
        value = _write(t, at, value, kind, site, mask, time)
    t.lines[at] = value
    return True


@kernel()
def _fill(t, value, cell, byte):
    """Puts all that is known of a byte of a line into an empty cell."""
    k, lines, row, room = t.keeping, t.lines, row_of(value), room_in(value)
    cells, c = k.cells, CELL * cell
    cells[c + WRITTEN] = cells[c + WRITER] = cells[c + READERS] = cells[c + MAY_READ] = 0
    for entry in range(writers_in(value)):
        if lines[row + entry] >> byte & 1:
            cells[c + WRITTEN] = lines[_times_of(row, room, entry)]
            cells[c + WRITER] = lines[_site_of(row, room, entry)] << 32
    for reader in range(readers_in(value)):
        entry = room - 1 - reader
        if lines[row + entry] >> byte & 1:
            one = _times_of(row, room, entry)
            read_before(k, cell, lines[_site_of(row, room, entry)], lines[one], lines[one + 1])


@kernel()
def put_in_cells(t, at, cell):
    """Moves a line into its cells, which begin with ``cell``, cut as its entries require."""
    k, value = t.keeping, t.lines[at]
    if not value:
        return
    row, room = row_of(value), room_in(value)
    for word in range(8):
        cuts = 0
        for entry in range(room):
            if _is_used(value, entry):
                part = t.lines[row + entry] >> 8 * word & 255
                cuts |= (part ^ part << 1) >> 1
        cuts &= CUTS
        if not cuts:
            _fill(t, value, cell + word, 8 * word)
            continue
        count = 1 + count_bits(cuts)
        parts = room_for_parts(k, (count > 2) + (count > 4)) | cuts
        part, rest = parts >> 9, cuts << 1 | 1
        while rest:
            _fill(t, value, part, 8 * word + lowest_bit(rest))
            part, rest = part + 1, rest & rest - 1
        k.cells[CELL * (cell + word) + WRITTEN] = -1 - parts
    _give_up(k, t.lines, value)
    look_for_room(k.state)
