"""Address streams: bounds, strides, alignment, cache banks and patterns of the addresses of each access.

Example: the load in ``for (i = 0; i < n; i++) sum += a[4 * i];`` (``double``) has the stride 32, ``n - 1`` times.

In: the accesses of a thread's trace. Out: a ``Stream`` for each access in each context, and the patterns that streams
are made of (``patterns.py``). Counts of strides are exact for up to PLACES different strides; beyond that they are the
most frequent ones (``core/frequent.py``).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from memopt.ir.frozen import dataclass
from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import BLOCK, FLAGS, LINE, Access, Words
from memopt.traces.core.frequent import count_value, counted
from memopt.traces.core.reader import Reading, first_site, named
from memopt.traces.core.tables import Array, longer, pointer, zeros
from memopt.traces.pattern_levels import follow, pointers
from memopt.traces.patterns import Pattern, Patterns

PLACES = 4  # different strides that are counted for an access
BANKS, BANK = 8, 8  # how many banks a cache line has, and the bytes of each
# Columns of the row of an access. From _STRIDES on: pairs of stride and count; from _BANKS on: a count for each bank.
_COUNT, _LAST, _BEFORE, _STEADY, _LOWEST, _HIGHEST, _MISALIGNED, _BITS, _STRIDES = range(9)
_BANKS = _STRIDES + 2 * PLACES
_COLUMNS = _BANKS + BANKS
_BLOCK_NOW, _CURRENT = range(2)
_DONE, _MORE_CONTEXTS, _MORE_SITES, _MORE_OF_PATTERNS = range(4)


@dataclass(frozen=True, slots=True)
class Stream:
    """The addresses of one access in one context. An address is that of the first byte."""

    access: Access
    count: int  # how many accesses
    lowest: int  # lowest address
    highest: int  # highest address
    steady: int  # how many accesses had the same stride as the access before
    misaligned: int  # how many addresses are no multiple of the access's size
    strides: dict[int, int]  # how often, by stride in bytes
    alignment: int  # the largest power of two that divides all addresses
    banks: tuple[int, ...]  # how many accesses begin in each eighth of a cache line
    # Address and number of each pattern; in this order they are all accesses. None if there are too many patterns.
    parts: tuple[tuple[int, int], ...] | None


@kernel()
def _banks_of_run(rows, row, address, size, times):
    """Counts the banks of a repeated access. The bank repeats after as many steps as a line has bytes, so these steps
    are counted and the rest is multiplied.
    """
    rounds = times // LINE
    for step in range(min(times, LINE)):
        rows[row + _BANKS + ((address + step * size) // BANK & BANKS - 1)] += rounds + (step < times - rounds * LINE)


@kernel(forceinline=True)
def _access(rows, row, address, size, times):
    """Counts ``times`` accesses of ``size`` bytes, each directly behind the one before, in the columns from ``row`` on.
    """
    if rows[row + _COUNT]:
        stride = address - rows[row + _LAST]
        count_value(rows, row + _STRIDES, row + _BANKS, stride, 1)
        if stride == rows[row + _BEFORE]:
            rows[row + _STEADY] += 1
        rows[row + _BEFORE] = stride
        rows[row + _LOWEST] = min(rows[row + _LOWEST], address)
    else:
        rows[row + _LOWEST] = address
        rows[row + _BEFORE] = -1 << 62
    if times > 1:
        count_value(rows, row + _STRIDES, row + _BANKS, size, times - 1)
        rows[row + _STEADY] += times - 2 + (rows[row + _BEFORE] == size)
        rows[row + _BEFORE] = size
        for later in range(address + size, address + size * min(times, LINE), size):
            rows[row + _BITS] |= later
        _banks_of_run(rows, row, address, size, times)
    else:
        rows[row + _BANKS + (address // BANK & BANKS - 1)] += 1
    rows[row + _BITS] |= address
    last = address + (times - 1) * size
    rows[row + _HIGHEST] = max(rows[row + _HIGHEST], last)
    rows[row + _LAST] = last
    rows[row + _COUNT] += times
    if size & size - 1 == 0 and address & size - 1:
        rows[row + _MISALIGNED] += times


@kernel(nogil=True)
def _feed(all_words, at, state, all_blocks, all_shapes, all_contexts, all_counts, all_last, all_rows, numbers, patterns,
          table, sites, levels, entries, one, two):
    """Reads from the word ``at`` on. Returns where it stopped, and what must grow first, or _DONE; from
    _MORE_OF_PATTERNS on it is that plus what ``follow`` returned. ``numbers`` and the arrays after it are those of
    ``Patterns``.
    """
    t = pointers(numbers, patterns, table, sites, levels, entries, one, two)
    words, count = pointer(all_words.ctypes.data), len(all_words)
    blocks, shapes = pointer(all_blocks.ctypes.data), pointer(all_shapes.ctypes.data)
    contexts, counts, last = (pointer(all_contexts.ctypes.data), pointer(all_counts.ctypes.data),
                              pointer(all_last.ctypes.data))
    rows, places, room = pointer(all_rows.ctypes.data), len(all_contexts), len(all_rows)
    block, current = state[_BLOCK_NOW], state[_CURRENT]
    more = _DONE
    while at < count:
        word = words[at]
        index = word >> 48 & 0xFFFF
        if index == BLOCK:
            if at + 1 == count:
                break
            block = word & 0xFFFFFFFF
            current = first_site(contexts, places, counts, last, block, words[at + 1] & ~FLAGS,
                                 blocks[5 * block + 1])
            if current < 0:
                more = _MORE_CONTEXTS
                break
            if counts[1] > room:
                more = _MORE_SITES
                break
            at += 2
            continue
        if block < 0 or index >= blocks[5 * block + 1]:  # cannot be: a trace begins with a block
            at += 1
            continue
        shape = 3 * (blocks[5 * block] + index)
        repeated, times = shapes[shape + 2], 1
        if repeated:
            if at + 1 == count:
                break
            times = words[at + 1]
        if times > 0:
            lacks = follow(t, current + index, word & 0xFFFFFFFFFFFF, shapes[shape], times)
            if lacks:
                more = _MORE_OF_PATTERNS + lacks
                break
            _access(rows, _COLUMNS * (current + index), word & 0xFFFFFFFFFFFF, shapes[shape], times)
        at += 1 + repeated
    state[_BLOCK_NOW], state[_CURRENT] = block, current
    return at, more


class Streams(Reading):
    """Finds the address streams of one thread."""

    def __init__(self) -> None:
        super().__init__()
        self._state = numpy.array([-1, 0], numpy.int64)
        self._rows = zeros(1 << 12, _COLUMNS)
        self._patterns = Patterns(len(self._rows))

    def feed(self, words: Words) -> None:
        """Reads the next words of the trace. Precondition: their blocks are known."""
        pending = self._pending(words)
        at, more = 0, -1
        while more != _DONE:
            at, more = _feed(pending, at, self._state, self._blocks, self._shapes, self._context_blocks, self._counts,
                             self._last, self._rows, *self._patterns.arrays)
            if more == _MORE_CONTEXTS:
                self._more_contexts()
            elif more > _MORE_OF_PATTERNS:
                self._patterns.grow(more - _MORE_OF_PATTERNS)
            while len(self._rows) < self._counts[1]:
                self._rows = longer(self._rows)
                self._patterns.more_sites()
        self._rest = pending[at:].copy()

    def all(self) -> Iterator[Stream]:
        """Yields the streams, in the order in which their accesses were met first. To be called once, at the end of the
        trace.
        """
        sites = self._sites()
        parts = self._patterns.finish(self._sizes(sites))
        for site in numpy.nonzero(self._rows[:, _COUNT])[0].tolist():
            row = self._rows[site].tolist()
            strides = counted(self._rows[site, _STRIDES:_BANKS])
            yield Stream(named(sites, site), row[_COUNT], row[_LOWEST], row[_HIGHEST], row[_STEADY], row[_MISALIGNED],
                         strides, row[_BITS] & -row[_BITS], tuple(row[_BANKS:]), parts[site])

    def patterns(self) -> list[Pattern]:
        """The patterns by number, for the ``parts`` of streams. To be called after ``all``."""
        return self._patterns.all()

    def _sizes(self, sites: Array) -> Array:
        """By site, the bytes of its access."""
        sizes = numpy.zeros(len(self._rows), numpy.int64)
        for _, block, site in sites.tolist():
            shape, count = self._blocks[block, :2]
            sizes[site:site + count] = self._shapes[shape:shape + count, 0]
        return sizes
