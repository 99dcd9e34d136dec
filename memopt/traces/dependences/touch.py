"""Applies a read or write to one shadow cell: records its dependences, and updates writer and readers of the cell.

A read depends on the last write (RAW). A write depends on the last write (WAW) and on all reads since then (WAR), and
makes the cell forget its readers.

In: cell, kind (1 read, 2 write, 3 both), site, time, size in bytes. Out: counts in the table of dependences.
"""

from __future__ import annotations

from memopt.traces.core.active_loops import TIME
from memopt.traces.core.compiler import kernel
from memopt.traces.dependences.carrying_loop import RAW, WAR, WAR_OF_FIRST, WAW, find, key_of
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
    """Records the WAR dependences of a write at ``site`` on the reads at ``source``, whose first and last times are
    given. If the same access reads and writes (``source == site``), its own read just now is no dependence.
    """
    if source == site and kind & 1:  # the last read is that of the same access
        if first != f.state[TIME]:
            find(f, key_of(which, source, site), first, first, size)
    else:
        find(f, key_of(which, source, site), first, last, size)


@kernel()
def _write_after_further(f, k, kind, site, chunk, size):
    """Records the WAR dependences on the readers in a list of chunks, and frees the chunks."""
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
    """Records the dependences on the last write of so many bytes, at the time ``written`` (0: none) by ``writer``."""
    if written:
        if kind & 1:
            find(f, key_of(RAW, writer, site), written, written, size)
        if kind & 2:
            find(f, key_of(WAW, writer, site), written, written, size)


@kernel(forceinline=True)
def _be_read(k, cell, site, time):
    """Notes a read of a cell. Returns its column READERS."""
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
    """Applies a read or write to a cell of ``size`` bytes: notes the read, records the WAR dependences, notes the
    write. Precondition: ``after_write`` has recorded the dependences on the last write.
    """
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
