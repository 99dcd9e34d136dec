"""Access patterns, and patterns of patterns: all addresses of an access, exactly, in few words.

A datum is a number of accesses one behind the other. A run is a pattern that comes again at a steady offset: the
distance from the end of one to the start of the next. A pair is two patterns at an offset. Runs of data are what the
literature calls base patterns; runs of runs show loops around loops (Matsubara and Sato, Hierarchical memory access
pattern analysis, 2014). Levels are found one on top of the other while the accesses come, in bounded memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy

from memopt.traces.core.compiler import kernel
from memopt.traces.core.tables import Array, longer, pointer, zeros

LONGEST = 8  # sequence of patterns that is recognised when it comes again
MOST_PATTERNS = 1 << 22  # of a thread; accesses that would need more are not regular
MOST_ROWS = 1 << 20
MOST_PARTS = 1 << 12  # of an access; those that are one access alone count twice
_LEVELS = 10
_SEQUENCES = 0b1010001000  # levels at which they are looked for: behind all runs of runs, then again
_DATUM, _RUN, _PAIR = range(3)
_KIND, _FIRST, _OFFSET, _TIMES, _SPAN, _ACCESSES, _LEVEL = range(7)
_PATTERN = 8  # words
# Of a site: the datum that is being made, the number of the last one that was, the row of the lowest level.
_START, _END, _COUNT, _LAST_COUNT, _LAST_DATUM, _LOWEST, _PARTS, _IRREGULAR = range(8)
_SITE = 8
# Of a level: the row of the next one; the run that is being made; what waits for a sequence to come again: how many,
# the length of the sequence that does, how much of it, as what and where it began and ended, how often it came again.
(_NEXT, _OF, _RUN_START, _RUN_END, _RUN_OFFSET, _RUN_COUNT, _WAITING, _PERIOD, _AT, _GROUP, _GROUP_START, _GROUP_END,
 _GROUP_OFFSET, _GROUP_TIMES) = range(14)
_QUEUE = 16
_ROW = _QUEUE + 6 * LONGEST
_BUFFER = 3 * _LEVELS * (2 * LONGEST + 4)
_FRESH = _BUFFER - 6  # where the patterns are that a level has just made
_SPARE_PATTERNS = 1 << 14  # that one access may need, and more
_SPARE_PARTS = _BUFFER // 3

_PATTERNS, _PATTERN_ROOM, _ROWS, _ROW_ROOM, _ENTRIES, _ENTRY_ROOM, _NUMBERS = range(7)
DONE, MORE_PATTERNS, MORE_ROWS, MORE_ENTRIES = range(4)


class Kind(Enum):
    DATUM = _DATUM
    RUN = _RUN
    PAIR = _PAIR


@dataclass(frozen=True, slots=True)
class Pattern:
    """A datum: ``times`` accesses of ``first`` bytes. A run: the pattern ``first``, and ``times`` more of it, each
    ``offset`` behind the end of the one before. A pair: ``first`` and, as far behind it, ``times``.

    ``span``: from the start of its first access to the end of its last one.
    """

    kind: Kind
    first: int
    offset: int
    times: int
    span: int
    accesses: int
    level: int


class Pointers(NamedTuple):
    """numbers: what there is of the others. table: numbers of patterns, plus 1, by what they are."""

    numbers: Any
    patterns: Any
    table: Any
    sites: Any
    rows: Any
    entries: Any
    one: Any
    two: Any


@kernel(forceinline=True)
def _place(kind, first, offset, times, mask):
    mixed = (first * 0x1E3779B97F4A7C15) ^ (offset * 0x42B2AE3D27D4EB4F) ^ (times * 0x165667B19E3779F9) ^ kind
    return (mixed ^ mixed >> 29) * 0x2545F4914F6CDD1D >> 32 & mask


@kernel()
def _pattern(t, kind, first, offset, times):
    """Its number. There is room for it."""
    mask = 2 * t.numbers[_PATTERN_ROOM] - 1
    at = _place(kind, first, offset, times, mask)
    while t.table[at]:
        row = _PATTERN * (t.table[at] - 1)
        if (t.patterns[row + _FIRST] == first and t.patterns[row + _OFFSET] == offset
                and t.patterns[row + _TIMES] == times and t.patterns[row + _KIND] == kind):
            return t.table[at] - 1
        at = (at + 1) & mask
    number = t.numbers[_PATTERNS]
    t.numbers[_PATTERNS] += 1
    t.table[at] = number + 1
    row, inner = _PATTERN * number, _PATTERN * first
    t.patterns[row + _KIND], t.patterns[row + _FIRST] = kind, first
    t.patterns[row + _OFFSET], t.patterns[row + _TIMES] = offset, times
    if kind == _DATUM:
        span, accesses, level = first * times, times, 0
    elif kind == _RUN:
        span = (times + 1) * t.patterns[inner + _SPAN] + times * offset
        accesses, level = (times + 1) * t.patterns[inner + _ACCESSES], t.patterns[inner + _LEVEL] + 1
    else:
        other = _PATTERN * times
        span = t.patterns[inner + _SPAN] + offset + t.patterns[other + _SPAN]
        accesses = t.patterns[inner + _ACCESSES] + t.patterns[other + _ACCESSES]
        level = max(t.patterns[inner + _LEVEL], t.patterns[other + _LEVEL])
    t.patterns[row + _SPAN], t.patterns[row + _ACCESSES], t.patterns[row + _LEVEL] = span, accesses, level
    return number


@kernel()
def _rehash(patterns, table, count):
    mask = len(table) - 1
    for number in range(count):
        at = _place(patterns[number, _KIND], patterns[number, _FIRST], patterns[number, _OFFSET],
                    patterns[number, _TIMES], mask)
        while table[at]:
            at = (at + 1) & mask
        table[at] = number + 1


@kernel(forceinline=True)
def _put(to, place, pattern, start, end):
    to[place], to[place + 1], to[place + 2] = pattern, start, end


@kernel(forceinline=True)
def _copy(source, at, to, place):
    to[place], to[place + 1], to[place + 2] = source[at], source[at + 1], source[at + 2]


@kernel()
def _made(t, row, to, place):
    """The run of a level is over: how many patterns go on, which are at ``place`` then. Two of a kind are no run: any
    two have some offset."""
    of, count = t.rows[row + _OF], t.rows[row + _RUN_COUNT]
    start, end = t.rows[row + _RUN_START], t.rows[row + _RUN_END]
    if count == 2:
        span = t.patterns[_PATTERN * of + _SPAN]
        _put(to, place, of, start, start + span)
        _put(to, place + 3, of, end - span, end)
        return 2
    if count > 2:
        of = _pattern(t, _RUN, of, t.rows[row + _RUN_OFFSET], count - 1)
    _put(to, place, of, start, end)
    return min(count, 1)


@kernel()
def _run(t, row, pattern, start, end, to, place):
    """Another pattern comes to a level: how many go on, which are at ``place`` then."""
    rows, count, made = t.rows, t.rows[row + _RUN_COUNT], 0
    offset = start - rows[row + _RUN_END]
    if count and pattern == rows[row + _OF]:
        if count == 1 or offset == rows[row + _RUN_OFFSET]:
            rows[row + _RUN_OFFSET], rows[row + _RUN_END] = offset, end
            rows[row + _RUN_COUNT] += 1
            return 0
        if count == 2:
            span = t.patterns[_PATTERN * pattern + _SPAN]
            _put(to, place, pattern, rows[row + _RUN_START], rows[row + _RUN_START] + span)
            rows[row + _RUN_START] = rows[row + _RUN_END] - span
            rows[row + _RUN_OFFSET], rows[row + _RUN_END] = offset, end
            return 1
    if count:
        made = _made(t, row, to, place)
    rows[row + _OF], rows[row + _RUN_START], rows[row + _RUN_END], rows[row + _RUN_COUNT] = pattern, start, end, 1
    return made


@kernel()
def _end_group(t, row, to, place):
    """The sequence does not come again, or not all of it: how many patterns go on."""
    rows, period, queue = t.rows, t.rows[row + _PERIOD], row + _QUEUE
    made = _pattern(t, _RUN, rows[row + _GROUP], rows[row + _GROUP_OFFSET], rows[row + _GROUP_TIMES])
    _put(to, place, made, rows[row + _GROUP_START], rows[row + _GROUP_END])
    for index in range(rows[row + _AT]):
        _copy(rows, queue + 3 * (period + index), rows, queue + 3 * index)
    rows[row + _WAITING], rows[row + _PERIOD] = rows[row + _AT], 0
    return 1


@kernel(forceinline=True)
def _follows_as(rows, new, old):
    """Whether two that wait are the same pattern, as far behind the one before them."""
    return rows[new] == rows[old] and rows[new + 1] - rows[new - 1] == rows[old + 1] - rows[old - 1]


@kernel(forceinline=True)
def _again(rows, last, period):
    """Whether the last ``period`` patterns of a queue are those before them once more. Those that are all alike, at one
    offset, will be a run."""
    first = last - 3 * (period - 1)
    for new in range(last, first, -3):
        if not _follows_as(rows, new, new - 3 * period):
            return False
    if rows[first] != rows[first - 3 * period]:
        return False
    for new in range(last - 3, first - 3 * period, -3):
        if not _follows_as(rows, new, last):
            return True
    return rows[first - 3 * period] != rows[last]


@kernel()
def _begin_group(t, row, waiting, period, to, place):
    """How many patterns go on: those before the sequence."""
    rows, queue = t.rows, row + _QUEUE
    before = waiting - 2 * period
    for index in range(before):
        _copy(rows, queue + 3 * index, to, place + 3 * index)
    for index in range(2 * period):
        _copy(rows, queue + 3 * (before + index), rows, queue + 3 * index)
    group = rows[queue]
    for at in range(queue + 3, queue + 3 * period, 3):
        group = _pattern(t, _PAIR, group, rows[at + 1] - rows[at - 1], rows[at])
    second, last = queue + 3 * period, queue + 3 * (2 * period - 1)
    rows[row + _GROUP], rows[row + _GROUP_START], rows[row + _GROUP_END] = group, rows[queue + 1], rows[last + 2]
    rows[row + _GROUP_OFFSET], rows[row + _GROUP_TIMES] = rows[second + 1] - rows[second - 1], 1
    rows[row + _PERIOD], rows[row + _AT], rows[row + _WAITING] = period, 0, 0
    return before


@kernel()
def _sequence(t, row, pattern, start, end, to, place):
    """Another pattern waits for sequences to come again: how many go on."""
    rows, period, queue, on = t.rows, t.rows[row + _PERIOD], row + _QUEUE, 0
    if period:
        at = rows[row + _AT]
        expected = queue + 3 * at
        offset, last = rows[row + _GROUP_OFFSET], rows[row + _GROUP_END]
        if at:
            offset, last = rows[expected + 1] - rows[expected - 1], rows[queue + 3 * (period + at - 1) + 2]
        if pattern == rows[expected] and start - last == offset:
            _put(rows, queue + 3 * (period + at), pattern, start, end)
            rows[row + _AT] = at + 1
            if at + 1 == period:
                rows[row + _GROUP_TIMES] += 1
                rows[row + _GROUP_END], rows[row + _AT] = end, 0
            return 0
        on = _end_group(t, row, to, place)
    waiting = rows[row + _WAITING]
    if waiting == 2 * LONGEST:
        _copy(rows, queue, to, place + 3 * on)
        on += 1
        for at in range(queue, queue + 3 * (waiting - 1)):
            rows[at] = rows[at + 3]
        waiting -= 1
    _put(rows, queue + 3 * waiting, pattern, start, end)
    waiting += 1
    rows[row + _WAITING] = waiting
    for length in range(2, waiting // 2 + 1):
        if _again(rows, queue + 3 * (waiting - 1), length):
            return on + _begin_group(t, row, waiting, length, to, place + 3 * on)
    return on


@kernel(forceinline=True)
def _made_at(level, place):
    """Where a level puts the patterns that it makes: they go on from ``place``, or wait as ``_sequence`` says."""
    return _FRESH if _SEQUENCES >> level & 1 else place


@kernel(forceinline=True)
def _wait(t, row, level, count, to, place):
    """``count`` patterns that a level has made wait, or go on: how many do."""
    if not _SEQUENCES >> level & 1:
        return count
    on = 0
    for fresh in range(_FRESH, _FRESH + 3 * count, 3):
        on += _sequence(t, row, to[fresh], to[fresh + 1], to[fresh + 2], to, place + 3 * on)
    return on


@kernel()
def _empty(t, row, level, to, place):
    """Nothing more comes to a level: how many patterns go on."""
    on = _wait(t, row, level, _made(t, row, to, _made_at(level, place)), to, place)
    t.rows[row + _RUN_COUNT] = 0
    if t.rows[row + _PERIOD]:
        on += _end_group(t, row, to, place + 3 * on)
    for index in range(t.rows[row + _WAITING]):
        _copy(t.rows, row + _QUEUE + 3 * index, to, place + 3 * on)
        on += 1
    t.rows[row + _WAITING] = 0
    return on


@kernel()
def _rise(t, site, pattern, start, end, ends):
    """A datum of a site goes up from level to level as far as it gets; all that waits there too where it ``ends``."""
    row, arrived, now, then = _SITE * site, 1, t.one, t.two
    _put(now, 0, pattern, start, end)
    link, to_row = row + _LOWEST, 0
    for level in range(_LEVELS):
        to_row = t.sites[link] if level == 0 else t.rows[link]
        if to_row == 0 and ends:
            to_row = _ROW * (level + 1)  # all ends share these, which are empty again at once
        elif to_row == 0:
            to_row = _ROW * t.numbers[_ROWS]
            t.numbers[_ROWS] += 1
            if level == 0:
                t.sites[link] = to_row
            else:
                t.rows[link] = to_row
        on = 0
        for index in range(arrived):
            made = _run(t, to_row, now[3 * index], now[3 * index + 1], now[3 * index + 2], then,
                        _made_at(level, 3 * on))
            on += _wait(t, to_row, level, made, then, 3 * on)
        if ends:
            on += _empty(t, to_row, level, then, 3 * on)
        if on == 0:
            return
        arrived, now, then, link = on, then, now, to_row + _NEXT
    for index in range(arrived):
        place = 3 * t.numbers[_ENTRIES]
        t.entries[place], t.entries[place + 1], t.entries[place + 2] = site, now[3 * index], now[3 * index + 1]
        t.numbers[_ENTRIES] += 1
        t.sites[row + _PARTS] += 1 + (t.patterns[_PATTERN * now[3 * index] + _ACCESSES] == 1)
    if t.sites[row + _PARTS] > MOST_PARTS:
        t.sites[row + _IRREGULAR] = 1


@kernel(forceinline=True)
def _room(t):
    """0, or what there must be more of before a datum can go up."""
    numbers = t.numbers
    if numbers[_PATTERNS] + _SPARE_PATTERNS > numbers[_PATTERN_ROOM]:
        return MORE_PATTERNS
    if numbers[_ROWS] + _LEVELS > numbers[_ROW_ROOM]:
        return MORE_ROWS
    if numbers[_ENTRIES] + _SPARE_PARTS > numbers[_ENTRY_ROOM]:
        return MORE_ENTRIES
    return DONE


@kernel()
def _datum(t, site, size, ends):
    """The datum of a site is complete; 0, or what there must be more of first."""
    row = _SITE * site
    start, end, count = t.sites[row + _START], t.sites[row + _END], t.sites[row + _COUNT]
    more = _room(t)
    if more:
        if ((more == MORE_PATTERNS and t.numbers[_PATTERN_ROOM] >= MOST_PATTERNS)
                or (more == MORE_ROWS and t.numbers[_ROW_ROOM] >= MOST_ROWS)):
            t.sites[row + _IRREGULAR] = 1
            return DONE
        return more
    if t.sites[row + _LAST_COUNT] != count:
        t.sites[row + _LAST_DATUM] = _pattern(t, _DATUM, size, 0, count)
        t.sites[row + _LAST_COUNT] = count
    _rise(t, site, t.sites[row + _LAST_DATUM], start, end, ends)
    return DONE


@kernel(forceinline=True)
def follow(t, site, address, size, times):
    """``times`` accesses one behind the other from ``address`` on; 0, or what there must be more of first."""
    sites, row = t.sites, _SITE * site
    if sites[row + _IRREGULAR]:
        return DONE
    count = sites[row + _COUNT]
    if count and address == sites[row + _END]:
        sites[row + _COUNT] = count + times
        sites[row + _END] = address + size * times
        return DONE
    if count:
        low = sites[row + _LOWEST]
        start = sites[row + _START]
        if (count == sites[row + _LAST_COUNT] and low and t.rows[low + _RUN_COUNT] > 1
                and t.rows[low + _OF] == sites[row + _LAST_DATUM]
                and start - t.rows[low + _RUN_END] == t.rows[low + _RUN_OFFSET]):
            t.rows[low + _RUN_COUNT] += 1
            t.rows[low + _RUN_END] = sites[row + _END]
        else:
            more = _datum(t, site, size, False)
            if more:
                return more
    sites[row + _START], sites[row + _END], sites[row + _COUNT] = address, address + size * times, times
    return DONE


@kernel()
def _finish(t, first, count, sizes):
    """All sites from ``first`` on are complete; the one that there must be more room for, and of what."""
    for site in range(first, count):
        row = _SITE * site
        if t.sites[row + _COUNT] and not t.sites[row + _IRREGULAR]:
            more = _datum(t, site, sizes[site], True)
            if more:
                return site, more
            t.sites[row + _COUNT] = 0
    return count, DONE


@kernel()
def _finish_all(first, numbers, patterns, table, sites, rows, entries, one, two, sizes):
    t = pointers(numbers, patterns, table, sites, rows, entries, one, two)
    return _finish(t, first, len(sites), sizes)


@kernel(forceinline=True)
def pointers(numbers, patterns, table, sites, rows, entries, one, two):
    """To the arrays of ``Patterns``, in the order in which it has them."""
    return Pointers(pointer(numbers.ctypes.data), pointer(patterns.ctypes.data), pointer(table.ctypes.data),
                    pointer(sites.ctypes.data), pointer(rows.ctypes.data), pointer(entries.ctypes.data),
                    pointer(one.ctypes.data), pointer(two.ctypes.data))


class Patterns:
    """Those of the accesses of one thread, for kernels that ``follow`` them."""

    def __init__(self, sites: int) -> None:
        self._numbers = numpy.zeros(_NUMBERS, numpy.int64)
        self._numbers[_ROWS] = _LEVELS + 1
        self._patterns, self._table = zeros(1 << 16, _PATTERN), numpy.zeros(1 << 17, numpy.int64)
        self._sites, self._rows = zeros(sites, _SITE), zeros(1 << 10, _ROW)
        self._entries = zeros(1 << 12, 3)
        self._buffers = numpy.zeros(_BUFFER, numpy.int64), numpy.zeros(_BUFFER, numpy.int64)
        self._set_room()

    def _set_room(self) -> None:
        self._numbers[[_PATTERN_ROOM, _ROW_ROOM, _ENTRY_ROOM]] = (
            len(self._patterns), len(self._rows), len(self._entries))

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self._numbers, self._patterns, self._table, self._sites, self._rows, self._entries, *self._buffers

    def more_sites(self) -> None:
        self._sites = longer(self._sites)

    def grow(self, more: int) -> None:
        """``more``: as ``follow`` returned it."""
        if more == MORE_PATTERNS:
            self._patterns, self._table = longer(self._patterns), numpy.zeros(2 * len(self._table), numpy.int64)
            _rehash(self._patterns, self._table, self._numbers[_PATTERNS])
        elif more == MORE_ROWS:
            self._rows = longer(self._rows)
        elif more == MORE_ENTRIES:
            self._entries = longer(self._entries)
        self._set_room()

    def finish(self, sizes: Array) -> dict[int, tuple[tuple[int, int], ...] | None]:
        """By site, of those that had accesses, each of ``sizes`` bytes: address and number of each pattern, one behind
        the other, or None where there are too many."""
        site, more = 0, -1
        while more != DONE:
            site, more = _finish_all(site, *self.arrays, sizes)
            self.grow(more)
        entries = self._entries[:self._numbers[_ENTRIES]]
        entries = entries[numpy.argsort(entries[:, 0], kind="stable")]
        found: dict[int, tuple[tuple[int, int], ...] | None] = dict.fromkeys(
            numpy.nonzero(self._sites[:, _IRREGULAR])[0].tolist())
        which, firsts = numpy.unique(entries[:, 0], return_index=True)
        for site, rows in zip(which.tolist(), numpy.split(entries, firsts[1:]), strict=True) if len(which) else ():
            if site not in found:
                found[site] = tuple((address, number) for _, number, address in rows.tolist())
        return found

    def all(self) -> list[Pattern]:
        """By number."""
        rows = self._patterns[:self._numbers[_PATTERNS]].tolist()
        return [Pattern(Kind(kind), *rest) for kind, *rest, _ in rows]
