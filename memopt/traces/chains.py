"""Chains of a run of alike iterations: places at a constant distance, each of which meets the same accesses in the same
order, but for those at the ends.
"""

from __future__ import annotations

from memopt.traces.alike import ITERATIONS, POSITION, UNIT, UNIT_KIND, numbered, run_at
from memopt.traces.kernels import kernel
from memopt.traces.meeting import meet
from memopt.traces.places import places_of, tables_at
from memopt.traces.shadow import CELL, WRITTEN
from memopt.traces.strips import (
    COUNT,
    MOST_READERS,
    READ,
    STEP,
    STRIP,
    WORD,
    cell_of,
    gather,
    isolate,
    readers_of,
    settle,
    strip_of,
    take_out,
)
from memopt.traces.tables import sort


@kernel()
def _may_meet(tables, word, step, first, behind, reads):
    """Whether the places at these positions of a chain can be looked at as strips: none has parts, and there is room
    for ``reads`` more readers."""
    t = tables_at(tables)
    p = places_of(t)
    while first < behind:
        cell = cell_of(p, word + first * step)
        written = t.cells[CELL * cell + WRITTEN]
        strip = strip_of(written)
        if strip >= 0:
            row = STRIP * strip
            if t.strips[row + READ] + reads > MOST_READERS:
                return False
            if t.strips[row + STEP] == step:
                first += t.strips[row + COUNT] - (word + first * step - t.strips[row + WORD]) // step
            else:
                first += 1
        elif written < 0 or readers_of(p, cell) + reads > MOST_READERS:
            return False
        else:
            first += 1
    return True


@kernel()
def _meet_all(tables, of_run, word, step, first, behind, count, forward):
    """The places at these positions of a chain meet the ``count`` accesses among them."""
    t, r = tables_at(tables), run_at(of_run)
    p, strips = places_of(t), t.strips
    position, before = first, -1
    while position < behind:
        here = word + position * step
        strip = strip_of(t.cells[CELL * cell_of(p, here) + WRITTEN])
        if strip >= 0 and strips[STRIP * strip + STEP] != step:
            if strips[STRIP * strip + COUNT] == 1:
                strips[STRIP * strip + STEP] = step
            else:
                take_out(p, here)
                strip = -1
        marked = strip >= 0
        if marked:
            row = STRIP * strip
            number = (here - strips[row + WORD]) // step
            strip = isolate(p, strip, number, min(strips[row + COUNT] - number, behind - position))
        else:
            strip = gather(p, here, step, behind - position)
        for n in range(count):
            meet(tables, of_run, strip, position, r.among[n], forward)
        position += strips[STRIP * strip + COUNT]
        before = settle(p, strip, before, behind - first < 4, marked)


@kernel()
def look_at_chain(tables, of_run, first, behind, word, step, forward, ask):
    """Of the units in ``keys``, those from ``first`` to ``behind`` are of one chain, whose position 0 is at ``word``.
    With ``ask``: whether it can be looked at as strips, and nothing else."""
    r = run_at(of_run)
    iterations, ends = r.numbers[ITERATIONS], 0
    back = 0 if forward > 0 else iterations - 1
    last = -1 << 40
    for n in range(first, behind):
        low = r.units[UNIT * numbered(r.keys[n]) + POSITION] - back
        if low != last:
            r.ends[ends], r.ends[ends + 1] = low, low + iterations
            ends, last = ends + 2, low
    sort(r.ends, 0, ends)
    for end in range(ends - 1):
        low, high, count, reads = r.ends[end], r.ends[end + 1], 0, 0
        if low == high:
            continue
        for n in range(first, behind):
            unit = numbered(r.keys[n])
            lowest = r.units[UNIT * unit + POSITION] - back
            if lowest <= low < lowest + iterations:
                r.among[count] = unit
                count += 1
                reads += r.units[UNIT * unit + UNIT_KIND] & 1
        if count == 0:
            continue
        if not ask:
            _meet_all(tables, of_run, word, step, low, high, count, forward)
        elif not _may_meet(tables, word, step, low, high, reads):
            return False
    return True
