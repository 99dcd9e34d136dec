"""Shadow memory: a cell for each word, or part of a word, with the last write and the reads since then, with times.

Example: after ``*(long *)p = 1; x = *(int *)p;`` the word at ``p`` has two parts. Both have the store as their writer;
only the first one has the load as a reader.

For each reader, the times of its first and of its last read since the write are kept. Two readers fit in the cell;
further ones are in a list of chunks. The cell of a word that is cut says at which bytes, and where the cells of its
parts are.

In: cells, sites and times. Out: the tables, and kernels that cut words, join parts, and keep further readers. Tables do
not grow within a kernel: ``look_for_room`` notes beforehand which one must grow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from memopt.traces.core.active_loops import MORE_OWN, OWN
from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import PAGE
from memopt.traces.core.tables import count_bits

# The state, beside that of Activity. NEXT_...: the first row of a table that was never used. ..._ROOM, ..._PLACES: how
# long a table is. SHORT: the table that must grow before another access is processed. WEIGHT: how often a dependence
# that is found counts. TOGETHER: words read in steady runs. FULL: a table ran out within a step, so that further
# dependences would be lost. FREE_PAIRS, FREE_FOURS, FREE_EIGHTS: free cells for so many parts (0: none), linked by the
# column WRITER. FREE_LINES: the same for lines, by how often their room was doubled. DUE: the word of the trace at
# which to prefetch again, see prefetch.py.
(PAGES, NEXT_CELL, NEXT_CHUNK, FREE_CHUNKS, FOUND, DONE_OF_REPEATED, NEXT_STRIP, FREE_STRIPS, WEIGHT, TOGETHER,
 PAGE_PLACES, CELL_ROOM, CHUNK_ROOM, FOUND_PLACES, STRIP_ROOM, LINE_ROOM, SHORT, FULL, FREE_PAIRS, FREE_FOURS,
 FREE_EIGHTS, NEXT_LINE, DUE, FREE_LINES) = range(OWN, OWN + 24)
NUMBERS = FREE_LINES + 5
MORE_PAGES, MORE_CELLS, MORE_READERS, MORE_FOUND, MORE_STRIPS, MORE_LINES = range(MORE_OWN, MORE_OWN + 6)
PIECE = 4096  # bytes of a repeated access that are processed at a time
LOW = (1 << 32) - 1
_COPIED = 64  # readers of a part that is cut in two: so many always have room, more of them nearly always

# Tables grow only between steps. A step is: all of a steady run that strips handle; or one of its iterations,
# access by access; or a piece of a repeated access. So much room is needed before each step. By strips, each place may
# have to be taken out of a strip of another step, which makes that strip two, and its MOST_READERS readers go to
# chunks. Access by access, each of the two words that one of MOST_UNITS touches may be cut twice, with _COPIED readers
# each, for which there are _RESERVED chunks.
MOST_AT_ONCE = 1 << 16  # places of steady iterations, each as often as it is accessed
CHUNKS_AT_ONCE = 16 * MOST_AT_ONCE
_RESERVED = 2 * MOST_AT_ONCE
STRIPS_AT_ONCE = MOST_AT_ONCE + (MOST_AT_ONCE >> 1)
_CELLS_AT_ONCE = 8 * MOST_AT_ONCE + 3 * PAGE
_FOUND_AT_ONCE = MOST_AT_ONCE >> 1
LINES_AT_ONCE = 1 << 14

# Columns of a cell (see ``state.Tables``). WRITTEN is below 0 if the word is cut (``parts_of``) or in a strip
# (IN_STRIP).
CELL = 8
WRITTEN, WRITER, READERS, FIRST, LAST, SECOND_FIRST, SECOND_LAST, MAY_READ = range(CELL)

# Columns of a chunk of further readers: a head (its cell, the next chunk, how many readers it has); their sites; their
# first and last times.
CHUNK, OF_CHUNK = 16, 6
_SITES, TIMES = 1, 4
_CHUNK_NUMBERS = (1 << 28) - 1

LINE = 16  # the entries of a line take a multiple of so many numbers

IN_STRIP = -(1 << 50)  # minus the number of its strip: in place of the time of the last write
CUTS = (1 << 7) - 1  # a bit for each byte from the second on at which a part of a word can begin

RECENT = 1 << 11  # rows of a cache of further readers, by cell and site


class Keeping(NamedTuple):
    """The tables that readers are kept in."""

    state: Any
    cells: Any
    chunks: Any
    recent: Any
    free: Any


@kernel(forceinline=True)
def _chunks_left(state):
    return state[FREE_CHUNKS] + state[CHUNK_ROOM] - state[NEXT_CHUNK]


@kernel()
def look_for_room(state):
    """Notes in SHORT which table must grow before the next access, or 0."""
    short = 0
    if _chunks_left(state) < CHUNKS_AT_ONCE:
        short = MORE_READERS
    elif state[NEXT_CELL] + _CELLS_AT_ONCE > state[CELL_ROOM]:
        short = MORE_CELLS
    elif 2 * (state[FOUND] + _FOUND_AT_ONCE) > state[FOUND_PLACES]:
        short = MORE_FOUND
    elif state[FREE_STRIPS] + state[STRIP_ROOM] - state[NEXT_STRIP] < STRIPS_AT_ONCE:
        short = MORE_STRIPS
    elif state[NEXT_LINE] + LINES_AT_ONCE > state[LINE_ROOM]:
        short = MORE_LINES
    elif 2 * (state[PAGES] + 2) > state[PAGE_PLACES]:
        short = MORE_PAGES
    state[SHORT] = short


@kernel(forceinline=True)
def site_in(chunks, chunk, number):
    """The site of a reader in a chunk."""
    return chunks[CHUNK * chunk + _SITES + (number >> 1)] >> ((number & 1) << 5) & LOW


@kernel(forceinline=True)
def next_chunk(head):
    """The next chunk of a list, out of the head of a chunk; 0 if there is none."""
    return head >> 4 & _CHUNK_NUMBERS


@kernel(forceinline=True)
def _near(cell, site):
    """The place of a reader of a cell in ``recent``."""
    return 2 * (cell + 61 * site & (RECENT - 1))


@kernel(forceinline=True)
def _note(k, cell, site, last):
    """Notes where the last time of a further reader stands."""
    row = _near(cell, site)
    k.recent[row], k.recent[row + 1] = cell << 32 | site, last


@kernel(forceinline=True)
def _forget_recent(k, chunk):
    """Removes the readers of a chunk from ``recent``."""
    head = k.chunks[CHUNK * chunk]
    for number in range(head & 15):
        site = site_in(k.chunks, chunk, number)
        row = _near(head >> 32, site)
        if k.recent[row] == head >> 32 << 32 | site:
            k.recent[row] = 0


@kernel(forceinline=True)
def free_chunk(k, chunk):
    """Frees a chunk, and returns the next one of its list."""
    _forget_recent(k, chunk)
    following = next_chunk(k.chunks[CHUNK * chunk])
    k.chunks[CHUNK * chunk] = -1
    k.free[k.state[FREE_CHUNKS]] = chunk
    k.state[FREE_CHUNKS] += 1
    return following


@kernel()
def new_reader(k, cell, site, first, last):
    """Adds a further reader to a cell that has two."""
    state, cells, chunks = k.state, k.cells, k.chunks
    writer = cells[CELL * cell + WRITER]
    chunk = writer & LOW
    head = chunks[CHUNK * chunk]
    if not chunk or head & 15 == OF_CHUNK:
        head = cell << 32 | chunk << 4
        if state[FREE_CHUNKS]:
            state[FREE_CHUNKS] -= 1
            chunk = k.free[state[FREE_CHUNKS]]
        else:
            chunk = state[NEXT_CHUNK]
            state[NEXT_CHUNK] += 1
        cells[CELL * cell + WRITER] = writer & ~LOW | chunk
        look_for_room(state)
    number = head & 15
    row = CHUNK * chunk
    chunks[row] = head + 1
    if number & 1:
        chunks[row + _SITES + (number >> 1)] = chunks[row + _SITES + (number >> 1)] & LOW | site << 32
    else:
        chunks[row + _SITES + (number >> 1)] = site
    chunks[row + TIMES + 2 * number], chunks[row + TIMES + 2 * number + 1] = first, last
    cells[CELL * cell + MAY_READ] |= 1 << (site & 63)
    _note(k, cell, site, row + TIMES + 2 * number + 1)


@kernel()
def _look_for_reader(k, cell, site, time):
    """Notes a read by the third or a later reader, which is not in ``recent``."""
    chunks = k.chunks
    if k.cells[CELL * cell + MAY_READ] >> (site & 63) & 1:
        chunk = k.cells[CELL * cell + WRITER] & LOW
        while chunk:
            for number in range(chunks[CHUNK * chunk] & 15):
                if site_in(chunks, chunk, number) == site:
                    last = CHUNK * chunk + TIMES + 2 * number + 1
                    _note(k, cell, site, last)
                    chunks[last] = time
                    return
            chunk = next_chunk(chunks[CHUNK * chunk])
    new_reader(k, cell, site, time, time)


@kernel(forceinline=True)
def _rarely_look_for_reader(k, cell, site, time):
    _look_for_reader(k, cell, site, time)


@kernel(forceinline=True)
def further_reader(k, cell, site, time):
    """Notes a read by the third or a later reader of a cell since its last write."""
    row = _near(cell, site)
    if k.recent[row] == cell << 32 | site:
        k.chunks[k.recent[row + 1]] = time
    else:
        _rarely_look_for_reader(k, cell, site, time)


@kernel()
def read_before(k, cell, site, first, last):
    """Adds the reads of ``site`` from ``first`` to ``last`` to the readers of a cell; it may be among them already."""
    cells, c = k.cells, CELL * cell
    readers = cells[c + READERS]
    if readers == 0:
        cells[c + READERS], cells[c + FIRST], cells[c + LAST] = site << 32, first, last
    elif readers >> 32 == site:
        cells[c + FIRST], cells[c + LAST] = min(first, cells[c + FIRST]), max(last, cells[c + LAST])
    elif readers & LOW == 0:
        cells[c + READERS], cells[c + SECOND_FIRST], cells[c + SECOND_LAST] = readers | site, first, last
    elif readers & LOW == site:
        cells[c + SECOND_FIRST] = min(first, cells[c + SECOND_FIRST])
        cells[c + SECOND_LAST] = max(last, cells[c + SECOND_LAST])
    else:
        chunk, chunks = cells[c + WRITER] & LOW, k.chunks
        while chunk:
            for number in range(chunks[CHUNK * chunk] & 15):
                if site_in(chunks, chunk, number) == site:
                    times = CHUNK * chunk + TIMES + 2 * number
                    chunks[times], chunks[times + 1] = min(first, chunks[times]), max(last, chunks[times + 1])
                    return
            chunk = next_chunk(chunks[CHUNK * chunk])
        new_reader(k, cell, site, first, last)


@kernel(forceinline=True)
def parts_of(value):
    """The parts of a word whose cell has ``value`` in its column WRITTEN; below 0 if it is not cut.

    From the lowest bit on: the bytes at which it is cut (seven bits); the number of parts that there is room for (two,
    shifted by the next two bits); where their cells are. Precondition: the cell is in no strip; its parts may be.
    """
    return -1 - value


@kernel(forceinline=True)
def beginnings(parts):
    """The bytes of a word at which a part begins, a bit each."""
    return (parts & CUTS) << 1 | 1


@kernel(forceinline=True)
def begins(parts, byte):
    """Whether a part of a word begins at ``byte``."""
    return beginnings(parts) >> byte & 1


@kernel(forceinline=True)
def is_part(parts, first, size):
    """Whether the ``size`` bytes of a word from ``first`` on are one of its parts."""
    bounds = 1 << 8 | beginnings(parts)
    return bounds >> first & (2 << size) - 1 == 1 << size | 1


@kernel(forceinline=True)
def part_at(parts, byte):
    """The cell of the part that has the byte ``byte`` of a word."""
    return (parts >> 9) + count_bits(parts & (1 << byte) - 1)


@kernel()
def room_for_parts(k, room):
    """Allocates cells for ``2 << room`` parts. Returns the description of the parts, without cuts."""
    state = k.state
    new = state[FREE_PAIRS + room]
    if new:
        state[FREE_PAIRS + room] = k.cells[CELL * new + WRITER]
    else:
        new = state[NEXT_CELL]
        state[NEXT_CELL] += 2 << room
        look_for_room(state)
    return new << 9 | room << 7


@kernel(forceinline=True)
def _give_up(k, parts):
    """Frees the cells of parts. Precondition: they have no further readers."""
    first, free = parts >> 9, FREE_PAIRS + (parts >> 7 & 3)
    k.cells[CELL * first + WRITER] = k.state[free]
    k.state[free] = first


@kernel()
def _move(k, source, target):
    """Moves all that is known of a place to another cell."""
    for column in range(CELL):
        k.cells[CELL * target + column] = k.cells[CELL * source + column]
    chunk = k.cells[CELL * source + WRITER] & LOW
    while chunk:
        head = k.chunks[CHUNK * chunk]
        _forget_recent(k, chunk)
        k.chunks[CHUNK * chunk] = target << 32 | head & LOW
        chunk = next_chunk(head)


@kernel()
def _copy(k, source, target):
    """Copies all that is known of a place to another cell."""
    state, cells, chunks = k.state, k.cells, k.chunks
    for column in range(CELL):
        cells[CELL * target + column] = cells[CELL * source + column]
    cells[CELL * target + WRITER] &= ~LOW
    cells[CELL * target + MAY_READ] = 0
    chunk, copied = cells[CELL * source + WRITER] & LOW, 0
    while chunk:
        if copied >= _COPIED and _chunks_left(state) < _RESERVED:
            state[FULL] = 1
            return
        for number in range(chunks[CHUNK * chunk] & 15):
            times = CHUNK * chunk + TIMES + 2 * number
            new_reader(k, target, site_in(chunks, chunk, number), chunks[times], chunks[times + 1])
        copied += OF_CHUNK
        chunk = next_chunk(chunks[CHUNK * chunk])


@kernel()
def cut(k, cell, byte):
    """Cuts the word of ``cell``, so that a part begins at ``byte``, which is not the first one. Both halves keep the
    history. Precondition: what is cut is in no strip.
    """
    cells, old = k.cells, parts_of(k.cells[CELL * cell + WRITTEN])
    if old < 0:
        old = room_for_parts(k, 0)
        _move(k, cell, part_at(old, 0))
    elif begins(old, byte):
        return
    first, source, count = part_at(old, 0), part_at(old, byte), 1 + count_bits(old & CUTS)
    parts = old
    if count == 2 << (old >> 7 & 3):
        parts = room_for_parts(k, 1 + (old >> 7 & 3)) | old & CUTS
    further = part_at(parts, 0) - first
    for part in range(first + count - 1, first - 1, -1):
        if part > source or further:
            _move(k, part, part + further + (part > source))
    if further:
        _give_up(k, old)
    _copy(k, source + further, source + further + 1)
    cells[CELL * cell + WRITTEN] = -1 - (parts | 1 << byte - 1)


@kernel()
def cut_alike(k, cell, like, byte):
    """Cuts the word of ``cell`` like that of ``like``, if that one is cut at ``byte`` and this one is not cut at all. A
    word with further readers stays as it is.
    """
    cells, c, value = k.cells, CELL * cell, k.cells[CELL * like + WRITTEN]
    if not IN_STRIP < value < 0 or cells[c + WRITTEN] < 0 or cells[c + WRITER] & LOW:
        return
    cuts = parts_of(value) & CUTS
    if not begins(cuts, byte):
        return
    count = 1 + count_bits(cuts)
    parts = room_for_parts(k, (count > 2) + (count > 4)) | cuts
    for part in range(part_at(parts, 0), part_at(parts, 0) + count):
        _copy(k, cell, part)
    cells[c + WRITTEN] = -1 - parts


@kernel()
def join(k, cell, first, behind, site, time):
    """Joins the parts of a word from the byte ``first`` up to ``behind``: they were written together."""
    cells, c = k.cells, CELL * cell
    parts = parts_of(cells[c + WRITTEN])
    if behind - first == 8:
        _give_up(k, parts)
        cells[c + WRITTEN], cells[c + WRITER], cells[c + READERS], cells[c + MAY_READ] = time, site << 32, 0, 0
        return
    cuts = (1 << behind - 1) - (1 << first) & parts
    joined, end = count_bits(cuts), (parts >> 9) + count_bits(parts & CUTS) + 1
    for part in range(part_at(parts, first) + joined + 1, end):
        _move(k, part, part - joined)
    cells[c + WRITTEN] = -1 - (parts ^ cuts)
