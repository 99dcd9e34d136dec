"""Applies one access of all iterations of a steady run to all places of a strip, and records the dependences.

Example: in ``for (i ...) s += a[i];`` after ``for (i ...) a[i] = 0;`` the load meets the strip of ``a`` once: n RAW
dependences on the store, which no loop carries.

In: a strip, and a unit: the access with the position that it has in the first iteration. Out: counts in the table of
dependences; the strip with its new writer or reader.

Why it is sound: times are linear along a strip, and so is the iteration that meets a place. If the first and the last
place of a stretch have the same carrier and distance, all places between them have.
"""

from __future__ import annotations

from memopt.traces.core.active_loops import BEFORE, BEGAN, ENTERED, FAR, ITERATION, NUMBER, ROW
from memopt.traces.core.compiler import kernel
from memopt.traces.dependences.accesses import finding
from memopt.traces.dependences.carrying_loop import RAW, WAR, WAW, count_in, distance, key_of
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
    """The carrier of a dependence of this run of a block in this iteration on the access at ``time``: number of the
    loop (-1: none), distance, and whether the same result for two places implies it for all places between.
    """
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
    """Records the dependences of the places ``first`` to ``behind``, of ``size`` bytes each, on the access at ``time``
    (growing by ``grows`` from place to place). The first place of the strip meets its access in ``iteration``, each
    further one ``step`` iterations later. Halves a stretch until its ends agree.
    """
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
    """Records the WAR dependences of a write to all places on the reads by one reader."""
    strips = tables_at(tables).strips
    first, behind, size = 0, strips[STRIP * strip + COUNT], strips[STRIP * strip + SIZE]
    at, source = STRIP * strip + OF_READERS + READER * reader, strips[STRIP * strip + R_SITE + reader]
    key = key_of(WAR, source, site)
    one, one_grows = strips[at + R_FIRST], strips[at + R_FIRST_GROWS]
    two, two_grows = strips[at + R_LAST], strips[at + R_LAST_GROWS]
    if source == site and kind & 1:  # the last read is that of the same access
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
    """Applies the access of ``unit`` to all places of ``strip``, the first of which is at ``position`` of its chain."""
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


