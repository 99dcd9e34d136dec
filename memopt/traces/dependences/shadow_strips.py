"""Shadow memory in compressed form: keeps places at a constant distance, with one history, as one strip.

Example: after ``for (i = 0; i < n; i++) a[i] = 0;`` the cells of ``a`` are one strip, written by one store at the times
``t0 + i * dt``.

A strip knows what a cell knows (``shadow_memory.py``), once for all of its places: each time is a first time and what
it grows by from place to place. The cells of a strip only say which strip they are in. Single places are taken out
again where they are asked for (``take_out``).

In: cells, or strips that an access of a steady run has changed. Out: strips, cut and joined. Joining is exact: the
history of the second strip must continue that of the first one.

The module also has the table of pages, through which all cells are looked up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import PAGE
from memopt.traces.core.tables import likely, prefetch, slot
from memopt.traces.dependences.shadow_memory import (
    CELL,
    CHUNK,
    FIRST,
    FREE_STRIPS,
    IN_STRIP,
    LAST,
    LINE,
    LOW,
    MAY_READ,
    NEXT_CELL,
    NEXT_LINE,
    NEXT_STRIP,
    PAGE_PLACES,
    PAGES,
    READERS,
    SECOND_FIRST,
    SECOND_LAST,
    TIMES,
    WRITER,
    WRITTEN,
    Keeping,
    free_chunk,
    look_for_room,
    new_reader,
    next_chunk,
    part_at,
    parts_of,
    site_in,
)

CACHE = 1 << 10  # pages in the cache of pages
WORDS_OF_PAGE, LINES_OF_PAGE = PAGE >> 3, PAGE >> 6

# Columns of a page: its number, its first cell, which of its lines are in cells (a bit each), and where the
# descriptions of the other lines are (shadow_lines.py).
CACHE_ROW, PAGE_ROW = 4, 5
NUMBER, CELLS, IN_CELLS, TOLD = range(CACHE_ROW)

# Columns of a strip: the address of its first place, the distance between two places, how many places; the site that
# wrote it last (0: none), when, and what that time grows by; how many readers since then; how many bytes each place has
# (a word or a part of one). Then the sites of the readers, and for each reader the times of its first and last read,
# each with what it grows by.
READER, MOST_READERS = 4, 40
PLACE, STEP, COUNT, SITE, WHEN, GROWS, READ, SIZE, R_SITE = range(9)
OF_READERS = R_SITE + MOST_READERS
STRIP = OF_READERS + READER * MOST_READERS
R_FIRST, R_FIRST_GROWS, R_LAST, R_LAST_GROWS = range(READER)

_WORTH_KEEPING = 4  # places that a strip needs to be kept


class Places(NamedTuple):
    """The tables that places are found with, and strips kept in."""

    state: Any
    pages: Any
    cache: Any
    cells: Any
    chunks: Any
    recent: Any
    free: Any
    strips: Any
    free_strips: Any


@kernel(forceinline=True)
def _keeping(p):
    return Keeping(p.state, p.cells, p.chunks, p.recent, p.free)


@kernel()
def find_page(state, pages, cache, number):
    """Puts a page into the cache of pages; a new page gets its cells first."""
    at, row = PAGE_ROW * slot(pages, PAGE_ROW, state[PAGE_PLACES], number, 0), row_of_page(number)
    if pages[at + 1] == -1:
        pages[at], pages[at + 1], pages[at + 2], pages[at + 3] = number, 0, state[NEXT_CELL], 0
        pages[at + 4] = LINE * state[NEXT_LINE]
        state[NEXT_CELL] += WORDS_OF_PAGE
        state[NEXT_LINE] += 2 * LINES_OF_PAGE // LINE
        state[PAGES] += 1
        look_for_room(state)
    cache[row + NUMBER], cache[row + CELLS] = number, pages[at + 2]
    cache[row + IN_CELLS], cache[row + TOLD] = pages[at + 3], pages[at + 4]


@kernel(forceinline=True)
def row_of_page(number):
    """Where a page would stand in the cache."""
    return CACHE_ROW * (number & (CACHE - 1))


@kernel(forceinline=True)
def page_of(p, number):
    """Where a page stands in the cache; puts it there if needed."""
    row = row_of_page(number)
    if not likely(p.cache[row + NUMBER] == number):
        find_page(p.state, p.pages, p.cache, number)
    return row


@kernel()
def be_in_cells(p, line):
    """Notes that a line is in cells. ``line``: its number, counted from the address 0 on."""
    row = page_of(p, line >> 6)
    p.cache[row + IN_CELLS] |= 1 << (line & 63)
    p.pages[PAGE_ROW * slot(p.pages, PAGE_ROW, p.state[PAGE_PLACES], line >> 6, 0) + 3] = p.cache[row + IN_CELLS]


@kernel(forceinline=True)
def cell_of(p, word):
    """The cell of a word."""
    return p.cache[page_of(p, word >> 9) + CELLS] + (word & (WORDS_OF_PAGE - 1))


@kernel(forceinline=True)
def cell_at(p, address, size):
    """The cell of a place that is a word or a part of one."""
    cell = cell_of(p, address >> 3)
    if size == 8:
        return cell
    return part_at(parts_of(p.cells[CELL * cell + WRITTEN]), address & 7)


@kernel(forceinline=True)
def strip_of(value):
    """The strip of a cell with ``value`` in its column WRITTEN; below 0 if it is in none."""
    return IN_STRIP - value if value <= IN_STRIP else -1


@kernel(forceinline=True)
def _cell_near(p, word):
    """The cell of a word if its page is in the cache, else -1."""
    row = row_of_page(word >> 9)
    return p.cache[row + CELLS] + (word & (WORDS_OF_PAGE - 1)) if p.cache[row + NUMBER] == word >> 9 else -1


@kernel(forceinline=True)
def fetch_cell(p, word):
    """Prefetches the cell of a word."""
    cell = _cell_near(p, word)
    if cell >= 0:
        prefetch(p.cells, CELL * cell)


@kernel(forceinline=True)
def fetch_strip(p, word):
    """Prefetches the strip of a word, if it is in one."""
    cell = _cell_near(p, word)
    if cell >= 0:
        strip = strip_of(p.cells[CELL * cell + WRITTEN])
        if strip >= 0:
            for column in (PLACE, R_SITE, OF_READERS):  # each in a cache line of its own
                prefetch(p.strips, STRIP * strip + column)


@kernel()
def _new_strip(p):
    """A strip that is not in use."""
    state = p.state
    if state[FREE_STRIPS]:
        state[FREE_STRIPS] -= 1
        return p.free_strips[state[FREE_STRIPS]]
    state[NEXT_STRIP] += 1
    look_for_room(state)
    return state[NEXT_STRIP] - 1


@kernel()
def _give_up(p, strip):
    p.free_strips[p.state[FREE_STRIPS]] = strip
    p.state[FREE_STRIPS] += 1


@kernel()
def _mark(p, strip, first, count):
    """Makes the cells of ``count`` places of a strip, from the number ``first`` on, refer to it."""
    row = STRIP * strip
    place, step, size = p.strips[row + PLACE] + first * p.strips[row + STEP], p.strips[row + STEP], p.strips[row + SIZE]
    for _ in range(count):
        p.cells[CELL * cell_at(p, place, size) + WRITTEN] = IN_STRIP - strip
        place += step


@kernel(forceinline=True)
def _move_times(strips, row, by):
    """Makes the place of the number ``by`` the first one, as far as times are concerned."""
    strips[row + WHEN] += by * strips[row + GROWS]
    for reader in range(strips[row + READ]):
        at = row + OF_READERS + READER * reader
        strips[at + R_FIRST] += by * strips[at + R_FIRST_GROWS]
        strips[at + R_LAST] += by * strips[at + R_LAST_GROWS]


@kernel()
def cut(p, strip, first):
    """Cuts a strip in front of the place of the number ``first``, which is not 0. Returns the strip in front and the
    strip behind.
    """
    strips, row, new = p.strips, STRIP * strip, _new_strip(p)
    made, count = STRIP * new, strips[row + COUNT]
    for column in range(R_SITE + strips[row + READ]):
        strips[made + column] = strips[row + column]
    for column in range(OF_READERS, OF_READERS + READER * strips[row + READ]):
        strips[made + column] = strips[row + column]
    if 2 * first <= count:
        front, behind = new, strip
    else:
        front, behind = strip, new
    strips[STRIP * front + COUNT], strips[STRIP * behind + COUNT] = first, count - first
    strips[STRIP * behind + PLACE] += first * strips[row + STEP]
    _move_times(strips, STRIP * behind, first)
    _mark(p, new, 0, strips[made + COUNT])
    return front, behind


@kernel()
def isolate(p, strip, first, count):
    """Cuts a strip so that ``count`` of its places, from the number ``first`` on, are one by themselves. Returns that
    one.
    """
    if first:
        _, strip = cut(p, strip, first)
    if count < p.strips[STRIP * strip + COUNT]:
        strip, _ = cut(p, strip, count)
    return strip


@kernel()
def write_back(p, strip):
    """Writes what a strip knows into its cells, and frees the strip."""
    strips, cells, row = p.strips, p.cells, STRIP * strip
    for place in range(strips[row + COUNT]):
        cell = cell_at(p, strips[row + PLACE] + place * strips[row + STEP], strips[row + SIZE])
        c = CELL * cell
        cells[c + READERS] = cells[c + MAY_READ] = cells[c + WRITTEN] = cells[c + WRITER] = 0
        if strips[row + SITE]:
            cells[c + WRITTEN] = strips[row + WHEN] + place * strips[row + GROWS]
            cells[c + WRITER] = strips[row + SITE] << 32
        for reader in range(strips[row + READ]):
            at = row + OF_READERS + READER * reader
            first = strips[at + R_FIRST] + place * strips[at + R_FIRST_GROWS]
            last = strips[at + R_LAST] + place * strips[at + R_LAST_GROWS]
            if reader == 0:
                cells[c + READERS], cells[c + FIRST], cells[c + LAST] = strips[row + R_SITE] << 32, first, last
            elif reader == 1:
                cells[c + READERS] |= strips[row + R_SITE + 1]
                cells[c + SECOND_FIRST], cells[c + SECOND_LAST] = first, last
            else:
                new_reader(_keeping(p), cell, strips[row + R_SITE + reader], first, last)
    _give_up(p, strip)


@kernel()
def take_out(p, cell, address):
    """Takes the place of ``cell``, which has the byte at ``address``, out of its strip."""
    strip = strip_of(p.cells[CELL * cell + WRITTEN])
    row = STRIP * strip
    write_back(p, isolate(p, strip, (address - p.strips[row + PLACE]) // p.strips[row + STEP], 1))


@kernel(forceinline=True)
def _reads(strips, row, reader, place, site, first, last):
    """Whether a reader of the strip continues at the place of this number, with these times. The place of the number 1
    sets what times grow by.
    """
    at = row + OF_READERS + READER * reader
    if strips[row + R_SITE + reader] != site:
        return False
    if place == 1:
        strips[at + R_FIRST_GROWS] = first - strips[at + R_FIRST]
        strips[at + R_LAST_GROWS] = last - strips[at + R_LAST]
        return True
    return (strips[at + R_FIRST] + place * strips[at + R_FIRST_GROWS] == first
            and strips[at + R_LAST] + place * strips[at + R_LAST_GROWS] == last)


@kernel()
def _begin(p, strip, cell):
    """Makes a strip of one place out of ``cell``. The chunks of the cell are not freed yet."""
    strips, cells, chunks, row, c = p.strips, p.cells, p.chunks, STRIP * strip, CELL * cell
    strips[row + SITE], strips[row + WHEN], strips[row + GROWS] = cells[c + WRITER] >> 32, cells[c + WRITTEN], 0
    readers, count = cells[c + READERS], 0
    if readers:
        strips[row + R_SITE] = readers >> 32
        strips[row + OF_READERS + R_FIRST], strips[row + OF_READERS + R_LAST] = cells[c + FIRST], cells[c + LAST]
        count = 1
        if readers & LOW:
            at = row + OF_READERS + READER
            strips[row + R_SITE + 1] = readers & LOW
            strips[at + R_FIRST], strips[at + R_LAST] = cells[c + SECOND_FIRST], cells[c + SECOND_LAST]
            count = 2
            chunk = cells[c + WRITER] & LOW
            while chunk:
                for number in range(chunks[CHUNK * chunk] & 15):
                    at, times = row + OF_READERS + READER * count, CHUNK * chunk + TIMES + 2 * number
                    strips[row + R_SITE + count] = site_in(chunks, chunk, number)
                    strips[at + R_FIRST], strips[at + R_LAST] = chunks[times], chunks[times + 1]
                    count += 1
                chunk = next_chunk(chunks[CHUNK * chunk])
    for reader in range(count):
        at = row + OF_READERS + READER * reader
        strips[at + R_FIRST_GROWS] = strips[at + R_LAST_GROWS] = 0
    strips[row + READ] = count


@kernel()
def _goes_on(p, strip, cell, place):
    """Whether ``cell`` continues a strip as the place of this number. The place of the number 1 sets what times grow
    by.
    """
    strips, cells, chunks, row, c = p.strips, p.cells, p.chunks, STRIP * strip, CELL * cell
    readers, count = cells[c + READERS], strips[row + READ]
    if cells[c + WRITTEN] < 0 or cells[c + WRITER] >> 32 != strips[row + SITE]:
        return False
    if place == 1:
        strips[row + GROWS] = cells[c + WRITTEN] - strips[row + WHEN]
    elif strips[row + WHEN] + place * strips[row + GROWS] != cells[c + WRITTEN]:
        return False
    if not readers:
        return count == 0
    if count == 0 or not _reads(strips, row, 0, place, readers >> 32, cells[c + FIRST], cells[c + LAST]):
        return False
    if not readers & LOW:
        return count == 1
    if count == 1 or not _reads(strips, row, 1, place, readers & LOW, cells[c + SECOND_FIRST],
                                cells[c + SECOND_LAST]):
        return False
    chunk, reader = cells[c + WRITER] & LOW, 2
    while chunk:
        for number in range(chunks[CHUNK * chunk] & 15):
            times = CHUNK * chunk + TIMES + 2 * number
            if reader == count or not _reads(strips, row, reader, place, site_in(chunks, chunk, number),
                                             chunks[times], chunks[times + 1]):
                return False
            reader += 1
        chunk = next_chunk(chunks[CHUNK * chunk])
    return reader == count


@kernel()
def readers_of(p, cell):
    """How many readers a cell has."""
    cells, chunks, c = p.cells, p.chunks, CELL * cell
    readers = cells[c + READERS]
    count = (readers != 0) + (readers & LOW != 0)
    chunk = cells[c + WRITER] & LOW
    while chunk:
        count += chunks[CHUNK * chunk] & 15
        chunk = next_chunk(chunks[CHUNK * chunk])
    return count


@kernel()
def _forget(p, cell):
    """Empties a cell whose history a strip has now."""
    chunk = p.cells[CELL * cell + WRITER] & LOW
    while chunk:
        chunk = free_chunk(_keeping(p), chunk)
    p.cells[CELL * cell + WRITER] = 0


@kernel()
def gather(p, place, size, step, most):
    """Makes a strip of at most ``most`` places from ``place`` on, which are in no strip; as many as have one history.
    The cells do not refer to it yet.
    """
    strip = _new_strip(p)
    row, cell = STRIP * strip, cell_at(p, place, size)
    p.strips[row + PLACE], p.strips[row + SIZE], p.strips[row + STEP] = place, size, step
    _begin(p, strip, cell)
    _forget(p, cell)
    count = 1
    while count < most:
        cell = cell_at(p, place + count * step, size)
        if not _goes_on(p, strip, cell, count):
            break
        _forget(p, cell)
        count += 1
    if count == 1:  # the second place may have set what times grow by, and then not continued
        p.strips[row + GROWS] = 0
        for reader in range(p.strips[row + READ]):
            at = row + OF_READERS + READER * reader
            p.strips[at + R_FIRST_GROWS] = p.strips[at + R_LAST_GROWS] = 0
    p.strips[row + COUNT] = count
    return strip


@kernel()
def _joins(p, front, behind):
    """Whether the strip ``behind`` lies next to ``front`` and continues its history."""
    strips, one, two = p.strips, STRIP * front, STRIP * behind
    count = strips[one + COUNT]
    if (strips[one + SITE] != strips[two + SITE] or strips[one + READ] != strips[two + READ]
            or strips[one + STEP] != strips[two + STEP] or strips[one + SIZE] != strips[two + SIZE]
            or strips[one + PLACE] + count * strips[one + STEP] != strips[two + PLACE]):
        return False
    if strips[one + SITE] and (strips[one + GROWS] != strips[two + GROWS]
                               or strips[one + WHEN] + count * strips[one + GROWS] != strips[two + WHEN]):
        return False
    for reader in range(strips[one + READ]):
        a, b = one + OF_READERS + READER * reader, two + OF_READERS + READER * reader
        if (strips[one + R_SITE + reader] != strips[two + R_SITE + reader]
                or strips[a + R_FIRST_GROWS] != strips[b + R_FIRST_GROWS]
                or strips[a + R_LAST_GROWS] != strips[b + R_LAST_GROWS]
                or strips[a + R_FIRST] + count * strips[a + R_FIRST_GROWS] != strips[b + R_FIRST]
                or strips[a + R_LAST] + count * strips[a + R_LAST_GROWS] != strips[b + R_LAST]):
            return False
    return True


@kernel()
def settle(p, strip, before, whole, marked):
    """Joins a strip that has changed to the one before it, or keeps it, or writes it back to its cells. Returns the
    strip, or below 0 if there is none any more.

    ``whole``: it has all places that it could have, so it is kept although it is short. ``marked``: its cells refer to
    it.
    """
    strips, row = p.strips, STRIP * strip
    count = strips[row + COUNT]
    if before >= 0 and _joins(p, before, strip):
        one = STRIP * before
        if strips[one + COUNT] >= count or not marked:
            strips[one + COUNT] += count
            _mark(p, before, strips[one + COUNT] - count, count)
            _give_up(p, strip)
            return before
        more = strips[one + COUNT]
        strips[row + PLACE] = strips[one + PLACE]
        _move_times(strips, row, -more)
        strips[row + COUNT] += more
        _mark(p, strip, 0, more)
        _give_up(p, before)
        return strip
    if marked:
        return strip
    if whole or count >= _WORTH_KEEPING:
        _mark(p, strip, 0, count)
        return strip
    write_back(p, strip)
    return -1
