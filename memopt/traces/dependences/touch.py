"""What follows from an access to one place: dependences on what was done there before, and what is kept of it."""

from __future__ import annotations

from memopt.traces.core.active_loops import TIME
from memopt.traces.core.compiler import kernel
from memopt.traces.dependences.carrier import RAW, WAR, WAR_OF_FIRST, WAW, find, key_of
from memopt.traces.dependences.shadow_memory import (
    CELL,
    CHUNK,
    FIRST,
    LAST,
    LOW,
    MAY_READ,
    READERS,
    SECOND_FIRST,
    SECOND_LAST,
    TIMES,
    WRITER,
    WRITTEN,
    free_chunk,
    further_reader,
    site_in,
)


@kernel(forceinline=True)
def write_after_read(f, which, kind, site, source, first, last, size):
    """A write at ``site`` after the reads at ``source``."""
    if source == site and kind & 1:  # it has just read what it writes
        if first != f.state[TIME]:
            find(f, key_of(which, source, site), first, first, size)
    else:
        find(f, key_of(which, source, site), first, last, size)


@kernel()
def _write_after_further(f, k, kind, site, chunk, size):
    """Also gives up the chunks."""
    chunks = k.chunks
    while chunk:
        for number in range(chunks[CHUNK * chunk] & 15):
            times = CHUNK * chunk + TIMES + 2 * number
            write_after_read(f, WAR, kind, site, site_in(chunks, chunk, number), chunks[times], chunks[times + 1],
                         size)
        chunk = free_chunk(k, chunk)


@kernel(forceinline=True)
def _rarely_write_after_further(f, k, kind, site, cell, size):
    _write_after_further(f, k, kind, site, k.cells[CELL * cell + WRITER] & LOW, size)
    k.cells[CELL * cell + MAY_READ] = 0


@kernel(forceinline=True)
def after_write(f, kind, site, written, writer, size):
    """So many bytes, that ``writer`` was the last one to write at this time if not 0, are read, written or both."""
    if written:
        if kind & 1:
            find(f, key_of(RAW, writer, site), written, written, size)
        if kind & 2:
            find(f, key_of(WAW, writer, site), written, written, size)


@kernel(forceinline=True)
def _be_read(k, cell, site, time):
    """A place is read; who has read it since it was written, as in its column READERS."""
    cells, c = k.cells, CELL * cell
    readers = cells[c + READERS]
    if readers >> 32 == site:
        cells[c + LAST] = time
    elif readers & LOW == site:
        cells[c + SECOND_LAST] = time
    elif readers == 0:
        readers = site << 32
        cells[c + READERS], cells[c + FIRST], cells[c + LAST] = readers, time, time
    elif readers & LOW == 0:
        readers |= site
        cells[c + READERS], cells[c + SECOND_FIRST], cells[c + SECOND_LAST] = readers, time, time
    else:
        further_reader(k, cell, site, time)
    return readers


@kernel(forceinline=True)
def touch(f, k, cell, kind, site, time, size):
    """A place of so many bytes is read, written or both, after what ``after_write`` finds."""
    cells, c = k.cells, CELL * cell
    readers = _be_read(k, cell, site, time) if kind & 1 else cells[c + READERS]
    if kind & 2:
        if readers:
            write_after_read(f, WAR_OF_FIRST, kind, site, readers >> 32, cells[c + FIRST], cells[c + LAST], size)
            if readers & LOW:
                write_after_read(f, WAR, kind, site, readers & LOW, cells[c + SECOND_FIRST], cells[c + SECOND_LAST],
                                 size)
                if cells[c + WRITER] & LOW:
                    _rarely_write_after_further(f, k, kind, site, cell, size)
        cells[c + WRITTEN], cells[c + WRITER], cells[c + READERS] = time, site << 32, 0
