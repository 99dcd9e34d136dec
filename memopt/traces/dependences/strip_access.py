"""What follows when all places of a strip meet an access of a run of alike iterations.

Times are linear along a strip, and so is the iteration that meets a place: where the first and the last place depend on
what came before in the same way, all between them do.
"""

from __future__ import annotations

from memopt.traces.core.active_loops import BEFORE, BEGAN, ENTERED, FAR, ITERATION, NUMBER, ROW
from memopt.traces.core.compiler import kernel
from memopt.traces.dependences.accesses import finding
from memopt.traces.dependences.carrier import RAW, WAR, WAW, count_in, distance, key_of
from memopt.traces.dependences.shadow_strips import (
    COUNT,
    GROWS,
    OF_READERS,
    R_FIRST,
    R_FIRST_GROWS,
    R_LAST,
    R_LAST_GROWS,
    R_SITE,
    READ,
    READER,
    SITE,
    SIZE,
    STRIP,
    WHEN,
)
from memopt.traces.dependences.state import tables_at
from memopt.traces.dependences.steady_iterations import (
    BLOCKS,
    LEVEL,
    MOST_BLOCKS,
    POSITION,
    SINCE,
    SNAP,
    UNIT,
    UNIT_BLOCK,
    UNIT_KIND,
    UNIT_SITE,
    run_at,
)


@kernel(forceinline=True)
def _carrier(t, r, run, iteration, time):
    """Of a dependence of what happens in this run of a block in this iteration on what did at ``time``: the number of
    the loop, how many iterations apart, and whether that is so for all between two places for which it is."""
    active, level = t.active, r.numbers[LEVEL]
    for around in range(level):
        row = ROW * around
        if time < active[row + BEGAN]:
            if time < active[row + ENTERED]:
                return -1, 0, True
            if time >= active[row + BEFORE]:
                return active[row + NUMBER], 1, True
            return active[row + NUMBER], distance(t.rings, FAR * around, active[row + ITERATION], time), True
    row, since, period = ROW * level, r.numbers[SINCE], r.numbers[BLOCKS]
    if time < since + iteration * period:
        if time < active[row + ENTERED]:
            return -1, 0, True
        if time >= since:
            return active[row + NUMBER], min(FAR, iteration - (time - since) // period), True
        apart = 1
        if time < active[row + BEFORE]:
            apart = distance(t.rings, FAR * level, active[row + ITERATION], time)
        return active[row + NUMBER], min(FAR, iteration + apart), False
    time -= iteration * period
    for within in range(r.snaps[SNAP * run]):
        snap = SNAP * run + 1 + 4 * within
        if time < r.snaps[snap + 2]:
            if time < r.snaps[snap + 1]:
                return -1, 0, True
            now = r.snaps[snap + 3]
            then = now
            while r.begins[MOST_BLOCKS * within + then] > time:
                then -= 1
            return r.snaps[snap], min(FAR, now - then), True
    return -1, 0, True


@kernel()
def _find_all(tables, of_run, key, run, time, grows, iteration, step, first, behind, size):
    """Dependences of places ``first`` to ``behind``, of ``size`` bytes each, on what happened at ``time``; the first
    place of the strip meets its access in ``iteration``, the next ones ``step`` later each."""
    t, r = tables_at(tables), run_at(of_run)
    f = finding(t)
    while first < behind:
        carrier, apart, between = _carrier(t, r, run, iteration + step * first, time + grows * first)
        end = behind if between else first + 1
        while end - first > 1:
            other, far, too = _carrier(t, r, run, iteration + step * (end - 1), time + grows * (end - 1))
            if too and other == carrier and far == apart:
                break
            end = (first + end + 1) >> 1
        count_in(f, key, carrier, apart, size * (end - first))
        first = end


@kernel()
def _write_after(tables, of_run, strip, reader, run, site, kind, now, grows, iteration, step):
    """A write of all places after one of those that have read them."""
    strips = tables_at(tables).strips
    first, behind, size = 0, strips[STRIP * strip + COUNT], strips[STRIP * strip + SIZE]
    at, source = STRIP * strip + OF_READERS + READER * reader, strips[STRIP * strip + R_SITE + reader]
    key = key_of(WAR, source, site)
    one, one_grows = strips[at + R_FIRST], strips[at + R_FIRST_GROWS]
    two, two_grows = strips[at + R_LAST], strips[at + R_LAST_GROWS]
    if source == site and kind & 1:  # each has just read what it writes
        two, two_grows = now, grows
    else:
        _find_all(tables, of_run, key, run, one, one_grows, iteration, step, first, behind, size)
    if one == two and (one_grows == two_grows or behind == 1):
        return
    while first < behind and one + one_grows * first == two + two_grows * first:
        first += 1
    while first < behind and one + one_grows * (behind - 1) == two + two_grows * (behind - 1):
        behind -= 1
    if source == site and kind & 1:
        two, two_grows = one, one_grows
    _find_all(tables, of_run, key, run, two, two_grows, iteration, step, first, behind, size)


@kernel()
def meet(tables, of_run, strip, position, unit, forward):
    """All places of ``strip``, the first of which is at ``position`` of its chain, meet the access of ``unit``."""
    r, strips, row, u = run_at(of_run), tables_at(tables).strips, STRIP * strip, UNIT * unit
    run, site, kind = r.units[u + UNIT_BLOCK], r.units[u + UNIT_SITE], r.units[u + UNIT_KIND]
    iteration = forward * (position - r.units[u + POSITION])
    period = r.numbers[BLOCKS]
    now, grows = r.numbers[SINCE] + run + iteration * period, forward * period
    count, size = strips[row + COUNT], strips[row + SIZE]
    if kind & 1:
        if strips[row + SITE]:
            _find_all(tables, of_run, key_of(RAW, strips[row + SITE], site), run, strips[row + WHEN],
                      strips[row + GROWS], iteration, forward, 0, count, size)
        reader, readers = 0, strips[row + READ]
        while reader < readers and strips[row + R_SITE + reader] != site:
            reader += 1
        at = row + OF_READERS + READER * reader
        if reader == readers:
            strips[row + READ], strips[row + R_SITE + reader] = readers + 1, site
            strips[at + R_FIRST], strips[at + R_FIRST_GROWS] = now, grows
        strips[at + R_LAST], strips[at + R_LAST_GROWS] = now, grows
    if kind & 2:
        if strips[row + SITE]:
            _find_all(tables, of_run, key_of(WAW, strips[row + SITE], site), run, strips[row + WHEN],
                      strips[row + GROWS], iteration, forward, 0, count, size)
        for reader in range(strips[row + READ]):
            _write_after(tables, of_run, strip, reader, run, site, kind, now, grows, iteration, forward)
        strips[row + SITE], strips[row + WHEN], strips[row + GROWS], strips[row + READ] = site, now, grows, 0


