"""Splits the accesses of a steady run into clusters that share no word, and processes a cluster by strips if it can.

Example: in ``for (i ...) { a[i] = a[i - 1]; s += b[i]; }`` the accesses to ``a``, to ``b`` and to ``s`` are three
clusters.

In: the accesses of a ``Run``, sorted by the first word they touch. Out: for a cluster whose accesses all move on by the
same distance, its places as chains: positions at that distance from each other (``chains.py``).
"""

from __future__ import annotations

from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import LINE
from memopt.traces.core.tables import lowest_bit, sort
from memopt.traces.dependences.accesses import have_cells
from memopt.traces.dependences.chains import look_at_chain
from memopt.traces.dependences.shadow_memory import MOST_AT_ONCE
from memopt.traces.dependences.steady_iterations import (
    ACCESS,
    ACCESS_SITE,
    ACCESSES,
    ADDRESS,
    AT,
    CHAIN_BITS,
    DISTANCE,
    ITERATIONS,
    KIND,
    MOST_UNITS,
    OF_BLOCK,
    OF_STRIP,
    ORDER_BITS,
    POSITION,
    SIZE,
    UNIT,
    UNIT_BLOCK,
    UNIT_KIND,
    UNIT_SITE,
    UNITS,
    numbered,
)

_MOST_POSITIONS, _MOST_STEP = 1 << 20, 1 << 22
LEAST_SIZE = 4  # bytes of places in strips: strips of smaller places are short, and slower than reading word by word


@kernel(forceinline=True)
def low_of(r, access):
    """The first word that an access touches in any of the iterations."""
    a = ACCESS * access
    far = (r.numbers[ITERATIONS] - 1) * r.accesses[a + DISTANCE]
    return (r.accesses[a + ADDRESS] + min(0, far)) >> 3


@kernel(forceinline=True)
def high_of(r, access):
    """The word behind the last one that an access touches in any of the iterations."""
    a = ACCESS * access
    far = (r.numbers[ITERATIONS] - 1) * r.accesses[a + DISTANCE]
    return (r.accesses[a + ADDRESS] + max(0, far) + r.accesses[a + SIZE] + 7) >> 3


@kernel()
def have_places(t, r, first, behind, low, high):
    """Moves the words of a cluster from lines to cells: all from ``low`` to ``high``, or only its own if these are far
    apart. Returns False if tables must grow first.
    """
    if high - low <= 8 * (behind - first) * r.numbers[ITERATIONS]:
        return have_cells(t.own, low, high)
    for n in range(first, behind):
        access = numbered(r.keys[n])
        a = ACCESS * access
        far = r.accesses[a + DISTANCE]
        if -LINE <= far <= LINE:
            if not have_cells(t.own, low_of(r, access), high_of(r, access)):
                return False
        else:
            for iteration in range(r.numbers[ITERATIONS]):
                place = r.accesses[a + ADDRESS] + iteration * far
                if not have_cells(t.own, place >> 3, (place + r.accesses[a + SIZE] + 7) >> 3):
                    return False
    return True


@kernel(forceinline=True)
def distance_of(r, first, behind):
    """The distance by which all accesses of a cluster move on (negative: backwards), and the size of the largest places
    that divides their addresses, sizes and distance, eight bytes at most. That size is 0 if they do not move on alike.
    """
    far, all_of = r.accesses[ACCESS * numbered(r.keys[first]) + DISTANCE], 8
    for n in range(first, behind):
        a = ACCESS * numbered(r.keys[n])
        if r.accesses[a + DISTANCE] != far:
            return far, 0
        all_of |= r.accesses[a + ADDRESS] | r.accesses[a + SIZE]
    all_of |= far
    return far, all_of & -all_of


@kernel()
def look_at_strips(t, r, first, behind, low, high, far, size, cuts):
    """Looks at a cluster by strips of places of ``size`` bytes. Returns False, and has changed nothing, if that is not
    possible. ``cuts``: words may be cut for it, see ``look_at_chain``.
    """
    shift = lowest_bit(size)
    step, forward, low = abs(far) >> shift, 1 if far > 0 else -1, low << 3 - shift
    if step > _MOST_STEP or (high << 3 - shift) - low >= _MOST_POSITIONS * step:
        return False
    count = 0
    for n in range(first, behind):
        r.ends[n - first] = numbered(r.keys[n])
    sort(r.ends, 0, behind - first)
    for n in range(behind - first):  # so that units are numbered in the order of the trace
        a = ACCESS * r.ends[n]
        units = r.accesses[a + SIZE] >> shift
        if r.numbers[UNITS] + count + units > MOST_UNITS:
            return False
        for unit in range(units):
            place = (r.accesses[a + ADDRESS] >> shift) + unit - low
            position, chain = place // step, place % step
            u = UNIT * count
            r.units[u + POSITION], r.units[u + UNIT_BLOCK] = position, r.accesses[a + OF_BLOCK]
            r.units[u + UNIT_SITE], r.units[u + UNIT_KIND] = r.accesses[a + ACCESS_SITE], r.accesses[a + KIND]
            order = _MOST_POSITIONS - position if forward > 0 else position
            r.among[count] = chain << CHAIN_BITS | order << ORDER_BITS | count
            count += 1
    if (r.numbers[UNITS] + count) * r.numbers[ITERATIONS] > MOST_AT_ONCE:
        return False
    among = r.numbers[ACCESSES]  # keys of units lie behind those of accesses
    for n in range(count):
        r.keys[among + n] = r.among[n]
    sort(r.keys, among, count)
    for ask in range(1, -1, -1):
        start = among
        while start < among + count:
            chain, end = r.keys[start] >> CHAIN_BITS, start + 1
            while end < among + count and r.keys[end] >> CHAIN_BITS == chain:
                end += 1
            if not look_at_chain(t.own, r.own, start, end, low + chain << shift, size, step << shift, forward,
                                 ask == 1, cuts):
                return False
            start = end
    for n in range(first, behind):
        access = numbered(r.keys[n])
        r.becomes[r.accesses[ACCESS * access + AT]] = OF_STRIP
    r.numbers[UNITS] += count
    return True


@kernel(forceinline=True)
def end_of_cluster(r, first):
    """The end of the cluster that begins with the access ``first``, and the word behind its last one."""
    end, high = first + 1, high_of(r, numbered(r.keys[first]))
    while end < r.numbers[ACCESSES] and r.keys[end] >> ORDER_BITS < high:
        high = max(high, high_of(r, numbered(r.keys[end])))
        end += 1
    return end, high


