"""Hierarchical access patterns: all addresses of an access, exactly and in order, as runs, runs of runs, and sequences.

Example: ``for (i = 0; i < 35; i++) for (j = 0; j < 67; j++) use(a[i][j]);`` with 8-byte elements in rows of 784 bytes
is the datum ``8x67``, and of it the run ``[8x67,(+248+8x67)*34]``: 248 bytes lie between the end of one row and the
next.

- Datum: accesses that each lie directly behind the one before.
- Run: a pattern that repeats at a constant offset, the distance from the end of one to the start of the next.
- Pair: two patterns, the second one at an offset from the end of the first.

In: each access, given to the kernel ``follow``. Out: the patterns by number, and for each access in each context the
sequence of patterns it is made of; None if they are too many.

Levels are built one on top of the other while the accesses come, in bounded memory. Runs of data are the base patterns
of the literature; runs of runs show nested loops (Matsubara and Sato, Hierarchical memory access pattern analysis,
2014).
"""

from __future__ import annotations

from enum import Enum

import numpy

from memopt.ir.frozen import dataclass
from memopt.traces.core.tables import Array, longer, zeros
from memopt.traces.pattern_levels import (
    BUFFER_WORDS,
    DATUM,
    DONE,
    ENTRIES,
    ENTRY_ROOM,
    IRREGULAR,
    LEVELS,
    MORE_ENTRIES,
    MORE_PATTERNS,
    MORE_ROWS,
    NUMBERS,
    PAIR,
    PATTERN_ROOM,
    PATTERN_WORDS,
    PATTERNS,
    ROW_ROOM,
    ROW_WORDS,
    ROWS,
    RUN,
    SITE_WORDS,
    finish_all,
    rehash,
)


class Kind(Enum):
    """The kinds of patterns; see the module."""

    DATUM = DATUM
    RUN = RUN
    PAIR = PAIR


@dataclass(frozen=True, slots=True)
class Pattern:
    """A datum: ``times`` accesses of ``first`` bytes each.

    A run: the pattern ``first``, then ``times`` more of it, each ``offset`` bytes behind the end of the one before.

    A pair: the pattern ``first``, then the pattern ``times``, ``offset`` bytes behind its end.
    """

    kind: Kind
    first: int
    offset: int
    times: int
    span: int  # bytes from the start of the first access to the end of the last one
    accesses: int
    level: int  # how deep runs are nested in it; 0 for a datum


class Patterns:
    """The patterns of all accesses of one thread; kernels that ``follow`` accesses fill them."""

    def __init__(self, sites: int) -> None:
        self._numbers = numpy.zeros(NUMBERS, numpy.int64)
        self._numbers[ROWS] = LEVELS + 1
        self._patterns, self._table = zeros(1 << 16, PATTERN_WORDS), numpy.zeros(1 << 17, numpy.int64)
        self._sites, self._rows = zeros(sites, SITE_WORDS), zeros(1 << 10, ROW_WORDS)
        self._entries = zeros(1 << 12, 3)
        self._buffers = numpy.zeros(BUFFER_WORDS, numpy.int64), numpy.zeros(BUFFER_WORDS, numpy.int64)
        self._set_room()

    def _set_room(self) -> None:
        self._numbers[[PATTERN_ROOM, ROW_ROOM, ENTRY_ROOM]] = (
            len(self._patterns), len(self._rows), len(self._entries))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays for ``pointers``, in its order."""
        return self._numbers, self._patterns, self._table, self._sites, self._rows, self._entries, *self._buffers

    def more_sites(self) -> None:
        """Doubles the number of sites."""
        self._sites = longer(self._sites)

    def grow(self, more: int) -> None:
        """Doubles what ``follow`` has asked for."""
        if more == MORE_PATTERNS:
            self._patterns, self._table = longer(self._patterns), numpy.zeros(2 * len(self._table), numpy.int64)
            rehash(self._patterns, self._table, self._numbers[PATTERNS])
        elif more == MORE_ROWS:
            self._rows = longer(self._rows)
        elif more == MORE_ENTRIES:
            self._entries = longer(self._entries)
        self._set_room()

    def finish(self, sizes: Array) -> dict[int, tuple[tuple[int, int], ...] | None]:
        """Ends all sites; ``sizes`` are the bytes of an access of each. Returns by site, for those that had accesses,
        address and number of each pattern, in order; None if they are too many.
        """
        site, more = 0, -1
        while more != DONE:
            site, more = finish_all(site, *self.arrays, sizes)
            self.grow(more)
        entries = self._entries[:self._numbers[ENTRIES]]
        entries = entries[numpy.argsort(entries[:, 0], kind="stable")]
        found: dict[int, tuple[tuple[int, int], ...] | None] = dict.fromkeys(
            numpy.nonzero(self._sites[:, IRREGULAR])[0].tolist())
        which, firsts = numpy.unique(entries[:, 0], return_index=True)
        for site, rows in zip(which.tolist(), numpy.split(entries, firsts[1:]), strict=True) if len(which) else ():
            if site not in found:
                found[site] = tuple((address, number) for _, number, address in rows.tolist())
        return found

    def all(self) -> list[Pattern]:
        """All patterns, by number."""
        rows = self._patterns[:self._numbers[PATTERNS]].tolist()
        return [Pattern(Kind(kind), *rest) for kind, *rest, _ in rows]
