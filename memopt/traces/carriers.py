"""Which loop carries a dependence, at which distance, and the table of those that were found."""

from __future__ import annotations

from typing import Any, NamedTuple

from memopt.traces.activity import (
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
from memopt.traces.kernels import kernel
from memopt.traces.shadow import FOUND, FOUND_PLACES, FULL, LOW, WEIGHT, look_for_room
from memopt.traces.tables import slot

RAW, WAR_OF_FIRST, WAR, WAW = range(4)
DEPENDENCE = 8  # columns of those found
_COUNT, _LEAST, _MOST = 2, 3, 4

# Rows of those met last: source and sink; where their row of those found is; where in the table of active loops the
# number of their loop is, and that number; where the times are between which the source is as far back as it was, or,
# where it VARIES, is in an earlier iteration of that loop.
KNOWN = 1 << 13
_KNOWN_KEY, _KNOWN_ROW, _KNOWN_OWN, _KNOWN_CARRIER, _KNOWN_LOW, _KNOWN_HIGH, _KNOWN_VARIES = range(7)


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
    return 8 * ((key ^ key >> 27) & (KNOWN - 1))


@kernel(forceinline=True)
def count_in(f, key, carrier, apart, count):
    """So many dependences of what ``key`` says, carried by the loop of this number (-1: by none), so many iterations
    apart. Where their row is."""
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
def _find_again(f, key, time):
    """A dependence on what happened at ``time``; what it was is known from now on."""
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
    at, place = count_in(f, key, carrier, apart, state[WEIGHT]), _place_of(key)
    varies = carrier >= 0 and (apart > TOLD_BEFORE or known[place + _KNOWN_KEY] == key)
    if varies:
        low, high = row + ENTERED, row + BEGAN
    known[place + _KNOWN_KEY], known[place + _KNOWN_ROW], known[place + _KNOWN_VARIES] = key, at, varies
    known[place + _KNOWN_OWN], known[place + _KNOWN_CARRIER] = own, carrier
    known[place + _KNOWN_LOW], known[place + _KNOWN_HIGH] = low, high


@kernel(forceinline=True)
def _as_far(f, place, first, last):
    """Whether dependences on both times are no nearer and no farther than those that are in their row already."""
    found, own = f.known[place + _KNOWN_ROW], f.known[place + _KNOWN_OWN]
    iteration, ring = f.active[own - NUMBER + ITERATION], FAR * (own // ROW)
    nearest, farthest = iteration - f.found[found + _LEAST] + 1, iteration - f.found[found + _MOST]
    return (nearest > 0 and f.rings[ring + (nearest & (FAR - 1))] > last
            and (farthest < 1 or f.found[found + _MOST] == FAR or f.rings[ring + (farthest & (FAR - 1))] <= first))


@kernel(forceinline=True)
def key_of(which, source, sink):
    """``which``: the kind; WAR_OF_FIRST for the first reader."""
    return source << 32 | sink << 2 | which


@kernel(forceinline=True)
def find(f, key, first, last):
    """A dependence of what ``key`` says on what was done at the time ``first``, and another one at ``last`` if that is
    later.

    It is known in which row it belongs if the same pair was met before, and both times lie in the same iteration of the
    same loop as then, relative to the one that goes on: between two times of the table of active loops. Where that
    varies, it is the same loop, and no distance that was not met before.
    """
    place, known, active = _place_of(key), f.known, f.active
    low, high = active[known[place + _KNOWN_LOW]], active[known[place + _KNOWN_HIGH]]
    if (known[place + _KNOWN_KEY] == key and first >= low and last < high
            and active[known[place + _KNOWN_OWN]] == known[place + _KNOWN_CARRIER]
            and (not known[place + _KNOWN_VARIES] or _as_far(f, place, first, last))):
        f.found[known[place + _KNOWN_ROW] + _COUNT] += f.state[WEIGHT] * (1 + (first != last))
    else:
        _find_again(f, key, first)
        if first != last:
            _find_again(f, key, last)
