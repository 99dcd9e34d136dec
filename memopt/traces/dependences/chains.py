"""Applies the accesses of a cluster to its chains: places at a constant distance that meet the same accesses in order.

Example: in ``for (i ...) a[i] = a[i - 1];`` each place of ``a`` meets the store first and the load an iteration later,
but for the places at both ends, which meet only one of them.

In: the units of a ``Run`` that belong to one chain: position at the first iteration, run of a block, site, kind. Out:
strips that have met them (``strip_access.py``).

A chain is cut where a unit begins or ends to meet places. Between two cuts all places meet the same units in the same
order, so each strip there can be processed as a whole.
"""

from __future__ import annotations

from memopt.traces.core.compiler import kernel
from memopt.traces.core.tables import sort
from memopt.traces.dependences.accesses import cut_at, places_of
from memopt.traces.dependences.shadow_memory import CELL, WRITTEN, beginnings, is_part, part_at, parts_of
from memopt.traces.dependences.shadow_strips import (
    COUNT,
    MOST_READERS,
    PLACE,
    READ,
    STEP,
    STRIP,
    cell_at,
    cell_of,
    gather,
    isolate,
    readers_of,
    settle,
    strip_of,
    take_out,
)
from memopt.traces.dependences.state import tables_at
from memopt.traces.dependences.steady_iterations import ITERATIONS, POSITION, UNIT, UNIT_KIND, numbered, run_at
from memopt.traces.dependences.strip_access import meet

_MOST_COPIED = 12  # readers of a place that is cut: each part gets a copy of all of them


@kernel()
def _be_part(tables, cell, address, size):
    """Cuts a word so that ``size`` bytes from ``address`` on are one place. Returns whether they are one now. They are
    not if they have several parts, or if too many readers would have to be copied.
    """
    t = tables_at(tables)
    place, value = cell, t.cells[CELL * cell + WRITTEN]
    if value < 0 and strip_of(value) < 0:
        if beginnings(parts_of(value)) >> (address & 7) + 1 & (1 << size - 1) - 1:
            return False  # it has several parts
        place = part_at(parts_of(value), address & 7)
    strip = strip_of(t.cells[CELL * place + WRITTEN])
    if (t.strips[STRIP * strip + READ] if strip >= 0 else readers_of(places_of(t), place)) > _MOST_COPIED:
        return False
    cut_at(tables, cell, address)
    if address + size & 7:
        cut_at(tables, cell, address + size)
    return True


@kernel(forceinline=True)
def _place_is(cells, cell, address, size):
    """Whether ``size`` bytes of the word of ``cell`` are one place."""
    value = cells[CELL * cell + WRITTEN]
    if size == 8:
        return value >= 0 or strip_of(value) >= 0
    return value < 0 and strip_of(value) < 0 and is_part(parts_of(value), address & 7, size)


@kernel()
def _may_meet(tables, place, size, step, first, behind, reads, cuts):
    """Whether the places from position ``first`` to ``behind`` can be processed as strips: each is one place, and
    strips have room for ``reads`` more readers. ``cuts``: words may be cut for it.
    """
    t = tables_at(tables)
    p = places_of(t)
    while first < behind:
        address = place + first * step
        cell = cell_of(p, address >> 3)
        if not _place_is(t.cells, cell, address, size) and not (cuts and _be_part(tables, cell, address, size)):
            return False
        cell = cell_at(p, address, size)
        strip = strip_of(t.cells[CELL * cell + WRITTEN])
        if strip < 0:
            if readers_of(p, cell) + reads > MOST_READERS:
                return False
            first += 1
        else:
            row = STRIP * strip
            if t.strips[row + READ] + reads > MOST_READERS:
                return False
            if t.strips[row + STEP] == step:
                first += t.strips[row + COUNT] - (address - t.strips[row + PLACE]) // step
            else:
                first += 1
    return True


@kernel()
def _meet_all(tables, of_run, place, size, step, first, behind, count, forward):
    """Makes strips of the places from position ``first`` to ``behind``, and applies the ``count`` units in ``among`` to
    them.
    """
    t, r = tables_at(tables), run_at(of_run)
    p, strips = places_of(t), t.strips
    position, before = first, -1
    while position < behind:
        here = place + position * step
        cell = cell_at(p, here, size)
        strip = strip_of(t.cells[CELL * cell + WRITTEN])
        if strip >= 0 and strips[STRIP * strip + STEP] != step:
            if strips[STRIP * strip + COUNT] == 1:
                strips[STRIP * strip + STEP] = step
            else:
                take_out(p, cell, here)
                strip = -1
        marked = strip >= 0
        if marked:
            row = STRIP * strip
            number = (here - strips[row + PLACE]) // step
            strip = isolate(p, strip, number, min(strips[row + COUNT] - number, behind - position))
        else:
            strip = gather(p, here, size, step, behind - position)
        for n in range(count):
            meet(tables, of_run, strip, position, r.among[n], forward)
        position += strips[STRIP * strip + COUNT]
        before = settle(p, strip, before, behind - first < 4, marked)


@kernel()
def look_at_chain(tables, of_run, first, behind, place, size, step, forward, ask, cuts):
    """Applies the units of one chain, whose keys are ``first`` to ``behind``, to its places; the position 0 is at
    ``place``. With ``ask`` it only returns whether that is possible; see ``_may_meet``.
    """
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
            _meet_all(tables, of_run, place, size, step, low, high, count, forward)
        elif not _may_meet(tables, place, size, step, low, high, reads, cuts):
            return False
    return True
