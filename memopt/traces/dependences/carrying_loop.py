"""Finds the loop that carries a dependence and its distance, and counts the dependence in the table of results.

Example: in ``for (i ...) for (j ...) a[i][j] = a[i - 1][j];`` the loop over ``i`` carries the RAW dependence, at the
distance 1.

In: the kind, source and sink of the dependence, and the time of the source. Out: a row of ``found``: count, least and
most distance.

The carrier is the outermost active loop that has begun an iteration since the source; if it was entered only after the
source, no loop carries the dependence. A cache (``known``) avoids the search: it has for each pair the last result, and
the interval of source times for which that result holds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy

from memopt.traces.core.active_loops import (
    ACTIVE,
    BEFORE,
    BEGAN,
    ENTERED,
    FAR,
    ITERATION,
    LEVELS,
    NUMBER,
    ROW,
    TOLD_BEFORE,
)
from memopt.traces.core.compiler import kernel
from memopt.traces.core.tables import Array, likely, slot
from memopt.traces.dependences.shadow_memory import FOUND, FOUND_PLACES, FULL, LOW, WEIGHT, look_for_room

RAW, WAR_OF_FIRST, WAR, WAW = range(4)
DEPENDENCE = 8  # columns of ``found``; the first two are a packed key
_COUNT, _LEAST, _MOST = 2, 3, 4

# The cache of dependences met last, half a cache line each. Columns: the key (source, sink, kind); the carrying LOOP
# and the condition under which the result is the same; the row in ``found``, with the least and the most distance met
# before; the bytes met since they were last counted in ``found``. The column LOOP has, from the lowest bit on: where
# the number of the loop stands in the table of active loops; where the two times stand between which the source must
# lie; whether the distance VARIES, so that the source may lie in any earlier iteration of the same entry; in the upper
# half the number of the loop.
KNOWN, KNOWN_ROW = 1 << 13, 4
_KNOWN_KEY, _KNOWN_LOOP, _KNOWN_FOUND, _KNOWN_COUNT = range(KNOWN_ROW)
_PLACE, _VARIES = (1 << 10) - 1, 30
_FOUND_BITS = 32  # the column _KNOWN_FOUND has the row above these bits, below them the most distance
_FAR_BITS = 16  # and below these bits the least distance


class Finding(NamedTuple):
    """The tables that dependences are found with. A separate tuple, since a call passes each of its members."""

    state: Any
    active: Any
    rings: Any
    found: Any
    known: Any


@kernel(forceinline=True)
def distance(rings, first, iteration, time):
    """The number of iterations begun since ``time``, at least 1 and at most FAR. ``iteration`` is the current one; the
    ring that begins at ``first`` has the times at which iterations began. Precondition: the current one began after
    ``time``.
    """
    low, high = max(1, iteration - FAR + 1), iteration  # the iteration ``high`` began after ``time``
    if rings[first + (low & (FAR - 1))] > time:
        return FAR
    begun = rings[first + (high & (FAR - 1))]
    each = begun - rings[first + ((high - 1) & (FAR - 1))]
    middle = min(high - 1, max(low, high - 1 - (begun - time - 1) // each))  # a guess: they are often equally long
    step = 1
    while low < high - 1:
        if rings[first + (middle & (FAR - 1))] > time:
            high = middle
            middle = max(low, middle - step)
        else:
            low = middle
            middle = min(high - 1, middle + step)
        step *= 2
        if middle <= low or middle >= high:
            middle = (low + high) >> 1
    return iteration - low


@kernel(forceinline=True)
def _place_of(key):
    """The place of ``key`` in the cache."""
    return KNOWN_ROW * ((key ^ key >> 27) & (KNOWN - 1))


@kernel(forceinline=True)
def count_in(f, key, carrier, apart, count):
    """Counts ``count`` bytes of the dependence ``key``, carried by the loop of this number (-1: by none) at the
    distance ``apart``. Returns the place of its row.
    """
    state, found = f.state, f.found
    one, two = key >> 32 << 32 | (key & LOW) >> 2, (carrier + 1) << 2 | (key & 3) - ((key & 3) >> 1)
    at = DEPENDENCE * slot(found, DEPENDENCE, state[FOUND_PLACES], one, two)
    if found[at + 1] == -1:
        if 8 * state[FOUND] > 7 * state[FOUND_PLACES]:  # far more than room was made for
            state[FULL] = 1
            return at
        state[FOUND] += 1
        found[at], found[at + 1], found[at + _LEAST], found[at + _MOST] = one, two, apart, apart
        look_for_room(state)
    found[at + _COUNT] += count
    found[at + _LEAST] = min(found[at + _LEAST], apart)
    found[at + _MOST] = max(found[at + _MOST], apart)
    return at


@kernel()
def _find_again(f, key, time, size):
    """Finds the carrier of a dependence of ``size`` bytes on the access at ``time``, counts it, and puts it into the
    cache.
    """
    state, active, known = f.state, f.active, f.known
    level = state[ACTIVE]
    while level and time < active[ROW * (level - 1) + BEGAN]:
        level -= 1
    row, carrier, apart = ROW * level, -1, 0
    own, low, high = ROW * LEVELS + NUMBER, ROW * (level - 1 if level else LEVELS) + BEGAN, row + ENTERED
    if level < state[ACTIVE] and time >= active[row + ENTERED]:
        carrier, iteration, apart = active[row + NUMBER], active[row + ITERATION], 1
        if time < active[row + BEFORE]:
            apart = distance(f.rings, FAR * level, iteration, time)
        own, low, high = row + NUMBER, row + BEFORE + apart - 1, row + BEFORE + apart - 2
        if apart == 1:
            high = row + BEGAN
    at, place = count_in(f, key, carrier, apart, size * state[WEIGHT]), _place_of(key)
    varies = carrier >= 0 and (apart > TOLD_BEFORE or known[place + _KNOWN_KEY] == key)
    if varies:
        low, high = row + ENTERED, row + BEGAN
    f.found[DEPENDENCE * (known[place + _KNOWN_FOUND] >> _FOUND_BITS) + _COUNT] += known[place + _KNOWN_COUNT]
    known[place + _KNOWN_KEY], known[place + _KNOWN_COUNT] = key, 0
    known[place + _KNOWN_LOOP] = carrier << 32 | varies << _VARIES | high << 20 | low << 10 | own
    known[place + _KNOWN_FOUND] = (at // DEPENDENCE << _FOUND_BITS | f.found[at + _MOST] << _FAR_BITS
                                  | f.found[at + _LEAST])


@kernel(forceinline=True)
def _rarely_find_again(f, key, first, last, size):
    _find_again(f, key, first, size)
    if first != last:
        _find_again(f, key, last, size)


@kernel(forceinline=True)
def _as_far(f, place, own, first, last):
    """Whether the distances to both times lie between the least and the most that were met before."""
    met = f.known[place + _KNOWN_FOUND]
    least, most = met & (1 << _FAR_BITS) - 1, met >> _FAR_BITS & (1 << _FOUND_BITS - _FAR_BITS) - 1
    iteration, ring = f.active[own - NUMBER + ITERATION], FAR * (own // ROW)
    nearest, farthest = iteration - least + 1, iteration - most
    return (nearest > 0 and f.rings[ring + (nearest & (FAR - 1))] > last
            and (farthest < 1 or most == FAR or f.rings[ring + (farthest & (FAR - 1))] <= first))


@kernel(forceinline=True)
def key_of(which, source, sink):
    """The key of a dependence. ``which``: its kind; WAR_OF_FIRST if the source is the first reader of a cell."""
    return source << 32 | sink << 2 | which


@kernel(forceinline=True)
def find(f, key, first, last, size):
    """Records the dependence ``key`` of ``size`` bytes on the access at the time ``first``, and another one on the
    access at ``last`` if that is later.

    The cache knows the row of the dependence if the same pair was met before, and both times lie in the same iteration
    of the same loop as then, counted back from the current one: between two times of the table of active loops. If the
    distance varies, the cache knows it if the loop is the same one and the distance lies within those met before.
    """
    place, known, active = _place_of(key), f.known, f.active
    loop = known[place + _KNOWN_LOOP]
    own, low, high = loop & _PLACE, loop >> 10 & _PLACE, loop >> 20 & _PLACE
    if likely(known[place + _KNOWN_KEY] == key and first >= active[low] and last < active[high]
              and active[own] == loop >> 32
              and (likely(not loop >> _VARIES & 1) or _as_far(f, place, own, first, last))):
        known[place + _KNOWN_COUNT] += size * f.state[WEIGHT] << (first != last)
    else:
        _rarely_find_again(f, key, first, last, size)


def count_known(found: Array, known: Array) -> None:
    """Adds the counts of the cache to ``found``, and empties the cache."""
    rows = known[known[:, _KNOWN_COUNT] > 0]
    numpy.add.at(found[:, _COUNT], rows[:, _KNOWN_FOUND] >> _FOUND_BITS, rows[:, _KNOWN_COUNT])
    known[:] = 0
