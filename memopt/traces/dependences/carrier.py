"""Which loop carries a dependence, at which distance, and the table of those that were found."""

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
DEPENDENCE = 8  # columns of those found
_COUNT, _LEAST, _MOST = 2, 3, 4

# Rows of those met last, half a cache line each: source and sink; in which LOOP it is as far back as it was; in which
# row of those found it belongs, with the least and the most of the distances that were met before; and how many bytes
# of it were met since they were counted there. The second column has, from the lowest bit on, where in the table of
# active loops the number of the loop is, where the times are between which it is as far back, whether that VARIES, so
# that it is in an earlier iteration of the loop, and in the upper half the number of the loop.
KNOWN, KNOWN_ROW = 1 << 13, 4
_KNOWN_KEY, _KNOWN_LOOP, _KNOWN_FOUND, _KNOWN_COUNT = range(KNOWN_ROW)
_PLACE, _VARIES = (1 << 10) - 1, 30
_FOUND_BITS = 32  # below them, in the column _KNOWN_FOUND: most, and below these bits least
_FAR_BITS = 16


class Finding(NamedTuple):
    """Those of the tables by which dependences are found: a call hands on each of them."""

    state: Any
    active: Any
    rings: Any
    found: Any
    known: Any


@kernel(forceinline=True)
def distance(rings, first, iteration, time):
    """Iterations begun since ``time``, one at least; the ring at ``first`` has when each began."""
    low, high = max(1, iteration - FAR + 1), iteration  # the one at high began after time
    if rings[first + (low & (FAR - 1))] > time:
        return FAR
    begun = rings[first + (high & (FAR - 1))]
    each = begun - rings[first + ((high - 1) & (FAR - 1))]
    middle = min(high - 1, max(low, high - 1 - (begun - time - 1) // each))  # they often take as long as each other
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
    """Where it is known what ``key`` is."""
    return KNOWN_ROW * ((key ^ key >> 27) & (KNOWN - 1))


@kernel(forceinline=True)
def count_in(f, key, carrier, apart, count):
    """So many bytes depend as ``key`` says, carried by the loop of this number (-1: by none), so many iterations apart.
    Where their row is."""
    state, found = f.state, f.found
    one, two = key >> 32 << 32 | (key & LOW) >> 2, (carrier + 1) << 2 | (key & 3) - ((key & 3) >> 1)
    at = DEPENDENCE * slot(found, DEPENDENCE, state[FOUND_PLACES], one, two)
    if found[at + 1] == -1:
        if 8 * state[FOUND] > 7 * state[FOUND_PLACES]:  # far more than there was room to be for
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
    """A dependence of so many bytes on what happened at ``time``; what it was is known from now on."""
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
    """Whether dependences on both times are no nearer and no farther than those that were met before."""
    met = f.known[place + _KNOWN_FOUND]
    least, most = met & (1 << _FAR_BITS) - 1, met >> _FAR_BITS & (1 << _FOUND_BITS - _FAR_BITS) - 1
    iteration, ring = f.active[own - NUMBER + ITERATION], FAR * (own // ROW)
    nearest, farthest = iteration - least + 1, iteration - most
    return (nearest > 0 and f.rings[ring + (nearest & (FAR - 1))] > last
            and (farthest < 1 or most == FAR or f.rings[ring + (farthest & (FAR - 1))] <= first))


@kernel(forceinline=True)
def key_of(which, source, sink):
    """``which``: the kind; WAR_OF_FIRST for the first reader."""
    return source << 32 | sink << 2 | which


@kernel(forceinline=True)
def find(f, key, first, last, size):
    """Of ``size`` bytes a dependence of what ``key`` says on what was done at the time ``first``, and another one at
    ``last`` if that is later.

    It is known in which row it belongs if the same pair was met before, and both times lie in the same iteration of the
    same loop as then, relative to the one that goes on: between two times of the table of active loops. Where that
    varies, it is the same loop, and no distance that was not met before.
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
    """All that was met is counted among those found, and nothing is known any more."""
    rows = known[known[:, _KNOWN_COUNT] > 0]
    numpy.add.at(found[:, _COUNT], rows[:, _KNOWN_FOUND] >> _FOUND_BITS, rows[:, _KNOWN_COUNT])
    known[:] = 0
