"""The kernels that build access patterns while the accesses come: levels of runs and sequences, one on the other.

Example: of the addresses 0, 8, 16, 784, 792, 800, 1568, ... the lowest level makes data of three accesses each, the
next one a run of these data at an offset of 760 bytes.

In: each access of a site, given to ``follow``. Out: rows of patterns, levels and entries in the arrays that
``Pointers`` names (``patterns.py`` holds them), or the array that has to grow first. Memory is bounded: a site that
would need more is irregular.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from memopt.traces.core.compiler import kernel
from memopt.traces.core.tables import pointer

LONGEST = 8  # patterns of a sequence that is recognised when it repeats
MOST_PATTERNS = 1 << 22  # of a thread; a site that would need more is irregular
MOST_ROWS = 1 << 20  # rows of levels of a thread; likewise
MOST_PARTS = 1 << 12  # patterns that a site is made of; one that is a single access counts twice
LEVELS = 10
_SEQUENCES = 0b1010001000  # the levels (3, 7, 9) that look for repeating sequences; those below make runs of runs
DATUM, RUN, PAIR = range(3)
_KIND, _FIRST, _OFFSET, _TIMES, _SPAN, _ACCESSES, _LEVEL = range(7)
PATTERN_WORDS = 8  # words of a row
# Columns of a site: start, end and accesses of the datum that is being made; accesses and number of the datum before
# it; the row of the site's lowest level, 0 for none; how many patterns it is made of; whether it is irregular.
_START, _END, _COUNT, _LAST_COUNT, _LAST_DATUM, _LOWEST, _PARTS, IRREGULAR = range(8)
SITE_WORDS = 8
# Columns of a level: the row of the level above; the run that is being made (its pattern, start, end, offset, how many
# times); the queue of patterns that wait for a sequence to repeat: how many wait, the length of the sequence that
# repeats (0: none), how much of its next repetition has come, its pattern, start, end, offset, how often it has
# repeated.
(_NEXT, _OF, _RUN_START, _RUN_END, _RUN_OFFSET, _RUN_COUNT, _WAITING, _PERIOD, _AT, _GROUP, _GROUP_START, _GROUP_END,
 _GROUP_OFFSET, _GROUP_TIMES) = range(14)
_QUEUE = 16
ROW_WORDS = _QUEUE + 6 * LONGEST
BUFFER_WORDS = 3 * LEVELS * (2 * LONGEST + 4)
_FRESH = BUFFER_WORDS - 6  # where a level that looks for sequences puts the patterns it has just made
_SPARE_PATTERNS = 1 << 14  # more than one access may need
_SPARE_PARTS = BUFFER_WORDS // 3

PATTERNS, PATTERN_ROOM, ROWS, ROW_ROOM, ENTRIES, ENTRY_ROOM, NUMBERS = range(7)
DONE, MORE_PATTERNS, MORE_ROWS, MORE_ENTRIES = range(4)


class Pointers(NamedTuple):
    """Pointers to the arrays of ``Patterns``. numbers: how many rows of the others are in use. table: a hash table that
    maps the content of a pattern to its number plus 1.
    """

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
    """The number of the pattern with this content; a new one if it was not met before. Precondition: there is room
    for it.
    """
    mask = 2 * t.numbers[PATTERN_ROOM] - 1
    at = _place(kind, first, offset, times, mask)
    while t.table[at]:
        row = PATTERN_WORDS * (t.table[at] - 1)
        if (t.patterns[row + _FIRST] == first and t.patterns[row + _OFFSET] == offset
                and t.patterns[row + _TIMES] == times and t.patterns[row + _KIND] == kind):
            return t.table[at] - 1
        at = (at + 1) & mask
    number = t.numbers[PATTERNS]
    t.numbers[PATTERNS] += 1
    t.table[at] = number + 1
    row, inner = PATTERN_WORDS * number, PATTERN_WORDS * first
    t.patterns[row + _KIND], t.patterns[row + _FIRST] = kind, first
    t.patterns[row + _OFFSET], t.patterns[row + _TIMES] = offset, times
    if kind == DATUM:
        span, accesses, level = first * times, times, 0
    elif kind == RUN:
        span = (times + 1) * t.patterns[inner + _SPAN] + times * offset
        accesses, level = (times + 1) * t.patterns[inner + _ACCESSES], t.patterns[inner + _LEVEL] + 1
    else:
        other = PATTERN_WORDS * times
        span = t.patterns[inner + _SPAN] + offset + t.patterns[other + _SPAN]
        accesses = t.patterns[inner + _ACCESSES] + t.patterns[other + _ACCESSES]
        level = max(t.patterns[inner + _LEVEL], t.patterns[other + _LEVEL])
    t.patterns[row + _SPAN], t.patterns[row + _ACCESSES], t.patterns[row + _LEVEL] = span, accesses, level
    return number


@kernel()
def rehash(patterns, table, count):
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
    """Ends the run of a level and puts it at ``place``, for the level above. Returns how many patterns these are. Two
    patterns alone are no run, since any two have some offset: both go on as they are.
    """
    of, count = t.rows[row + _OF], t.rows[row + _RUN_COUNT]
    start, end = t.rows[row + _RUN_START], t.rows[row + _RUN_END]
    if count == 2:
        span = t.patterns[PATTERN_WORDS * of + _SPAN]
        _put(to, place, of, start, start + span)
        _put(to, place + 3, of, end - span, end)
        return 2
    if count > 2:
        of = _pattern(t, RUN, of, t.rows[row + _RUN_OFFSET], count - 1)
    _put(to, place, of, start, end)
    return min(count, 1)


@kernel()
def _run(t, row, pattern, start, end, to, place):
    """Adds a pattern to the run of a level. Patterns that go on to the level above are put at ``place``; returns how
    many these are.
    """
    rows, count, made = t.rows, t.rows[row + _RUN_COUNT], 0
    offset = start - rows[row + _RUN_END]
    if count and pattern == rows[row + _OF]:
        if count == 1 or offset == rows[row + _RUN_OFFSET]:
            rows[row + _RUN_OFFSET], rows[row + _RUN_END] = offset, end
            rows[row + _RUN_COUNT] += 1
            return 0
        if count == 2:
            span = t.patterns[PATTERN_WORDS * pattern + _SPAN]
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
    """The sequence stops repeating, perhaps in the middle: its repetitions go on as one run, the rest waits. Returns
    how many patterns go on.
    """
    rows, period, queue = t.rows, t.rows[row + _PERIOD], row + _QUEUE
    made = _pattern(t, RUN, rows[row + _GROUP], rows[row + _GROUP_OFFSET], rows[row + _GROUP_TIMES])
    _put(to, place, made, rows[row + _GROUP_START], rows[row + _GROUP_END])
    for index in range(rows[row + _AT]):
        _copy(rows, queue + 3 * (period + index), rows, queue + 3 * index)
    rows[row + _WAITING], rows[row + _PERIOD] = rows[row + _AT], 0
    return 1


@kernel(forceinline=True)
def _follows_as(rows, new, old):
    """Whether two waiting patterns are the same one, and at the same offset from the one before each."""
    return rows[new] == rows[old] and rows[new + 1] - rows[new - 1] == rows[old + 1] - rows[old - 1]


@kernel(forceinline=True)
def _again(rows, last, period):
    """Whether the last ``period`` patterns of a queue repeat the ``period`` patterns before them. False if all of them
    are alike, at one offset: these become a run anyway.
    """
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
    """Begins a repeating sequence with the last ``2 * period`` patterns that wait. The patterns before it go on;
    returns how many.
    """
    rows, queue = t.rows, row + _QUEUE
    before = waiting - 2 * period
    for index in range(before):
        _copy(rows, queue + 3 * index, to, place + 3 * index)
    for index in range(2 * period):
        _copy(rows, queue + 3 * (before + index), rows, queue + 3 * index)
    group = rows[queue]
    for at in range(queue + 3, queue + 3 * period, 3):
        group = _pattern(t, PAIR, group, rows[at + 1] - rows[at - 1], rows[at])
    second, last = queue + 3 * period, queue + 3 * (2 * period - 1)
    rows[row + _GROUP], rows[row + _GROUP_START], rows[row + _GROUP_END] = group, rows[queue + 1], rows[last + 2]
    rows[row + _GROUP_OFFSET], rows[row + _GROUP_TIMES] = rows[second + 1] - rows[second - 1], 1
    rows[row + _PERIOD], rows[row + _AT], rows[row + _WAITING] = period, 0, 0
    return before


@kernel()
def _sequence(t, row, pattern, start, end, to, place):
    """Adds a pattern to the queue in which repeating sequences are looked for. Returns how many patterns go on."""
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
    """Where a level puts the patterns that it makes: directly at ``place``, or in front of its queue if it looks for
    sequences.
    """
    return _FRESH if _SEQUENCES >> level & 1 else place


@kernel(forceinline=True)
def _wait(t, row, level, count, to, place):
    """Passes the ``count`` patterns that a level has just made through its queue, if it has one. Returns how many go
    on.
    """
    if not _SEQUENCES >> level & 1:
        return count
    on = 0
    for fresh in range(_FRESH, _FRESH + 3 * count, 3):
        on += _sequence(t, row, to[fresh], to[fresh + 1], to[fresh + 2], to, place + 3 * on)
    return on


@kernel()
def _empty(t, row, level, to, place):
    """Ends a level at the end of the trace. Returns how many patterns go on."""
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
    """Moves a datum of a site up, level by level, until a level keeps it. If the trace ``ends``, all that waits in the
    levels moves up with it. Data that pass the last level become parts of the result.
    """
    row, arrived, now, then = SITE_WORDS * site, 1, t.one, t.two
    _put(now, 0, pattern, start, end)
    link, to_row = row + _LOWEST, 0
    for level in range(LEVELS):
        to_row = t.sites[link] if level == 0 else t.rows[link]
        if to_row == 0 and ends:
            to_row = ROW_WORDS * (level + 1)  # sites that end share these rows, which are empty again at once
        elif to_row == 0:
            to_row = ROW_WORDS * t.numbers[ROWS]
            t.numbers[ROWS] += 1
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
        place = 3 * t.numbers[ENTRIES]
        t.entries[place], t.entries[place + 1], t.entries[place + 2] = site, now[3 * index], now[3 * index + 1]
        t.numbers[ENTRIES] += 1
        t.sites[row + _PARTS] += 1 + (t.patterns[PATTERN_WORDS * now[3 * index] + _ACCESSES] == 1)
    if t.sites[row + _PARTS] > MOST_PARTS:
        t.sites[row + IRREGULAR] = 1


@kernel(forceinline=True)
def _room(t):
    """The table that must grow before a datum can move up (MORE_PATTERNS, ...), or DONE."""
    numbers = t.numbers
    if numbers[PATTERNS] + _SPARE_PATTERNS > numbers[PATTERN_ROOM]:
        return MORE_PATTERNS
    if numbers[ROWS] + LEVELS > numbers[ROW_ROOM]:
        return MORE_ROWS
    if numbers[ENTRIES] + _SPARE_PARTS > numbers[ENTRY_ROOM]:
        return MORE_ENTRIES
    return DONE


@kernel()
def _datum(t, site, size, ends):
    """Ends the datum of a site. Returns what must grow first, or DONE. A site for which tables have reached their
    limits becomes irregular.
    """
    row = SITE_WORDS * site
    start, end, count = t.sites[row + _START], t.sites[row + _END], t.sites[row + _COUNT]
    more = _room(t)
    if more:
        if ((more == MORE_PATTERNS and t.numbers[PATTERN_ROOM] >= MOST_PATTERNS)
                or (more == MORE_ROWS and t.numbers[ROW_ROOM] >= MOST_ROWS)):
            t.sites[row + IRREGULAR] = 1
            return DONE
        return more
    if t.sites[row + _LAST_COUNT] != count:
        t.sites[row + _LAST_DATUM] = _pattern(t, DATUM, size, 0, count)
        t.sites[row + _LAST_COUNT] = count
    _rise(t, site, t.sites[row + _LAST_DATUM], start, end, ends)
    return DONE


@kernel(forceinline=True)
def follow(t, site, address, size, times):
    """Adds ``times`` accesses of ``size`` bytes, each directly behind the one before, from ``address`` on. Returns what
    must grow before it can do so (``Patterns.grow``), or DONE.
    """
    sites, row = t.sites, SITE_WORDS * site
    if sites[row + IRREGULAR]:
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
    """Ends the sites from ``first`` on. Returns the site at which it stopped, and what must grow first, or DONE."""
    for site in range(first, count):
        row = SITE_WORDS * site
        if t.sites[row + _COUNT] and not t.sites[row + IRREGULAR]:
            more = _datum(t, site, sizes[site], True)
            if more:
                return site, more
            t.sites[row + _COUNT] = 0
    return count, DONE


@kernel()
def finish_all(first, numbers, patterns, table, sites, rows, entries, one, two, sizes):
    t = pointers(numbers, patterns, table, sites, rows, entries, one, two)
    return _finish(t, first, len(sites), sizes)


@kernel(forceinline=True)
def pointers(numbers, patterns, table, sites, rows, entries, one, two):
    """Pointers to the arrays of ``Patterns``, in the order of ``Patterns.arrays``."""
    return Pointers(pointer(numbers.ctypes.data), pointer(patterns.ctypes.data), pointer(table.ctypes.data),
                    pointer(sites.ctypes.data), pointer(rows.ctypes.data), pointer(entries.ctypes.data),
                    pointer(one.ctypes.data), pointer(two.ctypes.data))
