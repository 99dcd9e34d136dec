"""Finds steady iterations of a loop: the same blocks in the same nodes, each access a constant distance further on.

Example: the iterations of ``for (i = 0; i < n; i++) a[i] = b[2 * i] + c;`` with ``double`` are steady: the accesses
move on by 8, 16 and 0 bytes.

In: words of the trace from the header of a loop on. Out: a ``Run``: how many iterations are steady, and their accesses
with their distances.

Each word is compared with that of the iteration before. So nothing has to be proved about the code, and calls and inner
loops may lie within the iterations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy

from memopt.traces.core.active_loops import caller_among, calling
from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import BLOCK, FLAGS
from memopt.traces.core.tables import Array, pointer, prefetch
from memopt.traces.dependences.shadow_memory import MOST_AT_ONCE

MOST_WORDS, MOST_BLOCKS, MOST_ACCESSES, MOST_UNITS = 4096, 512, 1024, 2048  # of one iteration
LEAST_ITERATIONS = 6  # more than TOLD_BEFORE, so that all those times lie within the run
_LEAST_WORDS = 96  # of all iterations
PENDING = -1

# The kind of a word: it begins a block; it is an access that is processed alone, or by strips; it may be anything.
BLOCK_WORD, ALONE, OF_STRIP, OTHER = range(4)
ACCESS = 7  # columns of an access: see Run
AT, OF_BLOCK, ACCESS_SITE, KIND, SIZE, ADDRESS, DISTANCE = range(ACCESS)

MOST_WITHIN = 6  # levels of loops within an iteration
SNAP = 1 + 4 * MOST_WITHIN  # how many loops are active; of each: number, times of entry and iteration, index in begins
UNIT = 4  # columns of a unit: position in its chain at the first iteration, run of a block, site, kind
POSITION, UNIT_BLOCK, UNIT_SITE, UNIT_KIND = range(UNIT)
CHAIN_BITS, ORDER_BITS = 40, 12  # of keys for sorting; their lowest bits are the number of an access or a unit

(LENGTH, ITERATIONS, BLOCKS, ACCESSES, TOUCHED, OTHERS, SINCE, LEVEL, FIXED, WALKED, WALKS, UNITS,
 OWN_NUMBERS) = range(13)


class Run(NamedTuple):
    """Pointers to the tables of a steady run.

    numbers: words, iterations, blocks and accesses of it; words of memory that the accesses of an iteration touch if
    all are aligned; other words; the time at which the first iteration began; the level of its loop; how many clusters
    stay where they are (-1 if others are processed access by access); how many iterations were walked through, and how
    many have to be; how many units, each a place that an access touches, are processed by strips.

    becomes, further, masks: for each word of an iteration what becomes of it, what it grows by, and the bits that must
    agree. others: the words that may be anything.

    accesses, in the order of the trace: word and run of a block within the iteration, site, kind, size, address, what
    that grows by. snaps: for each run of a block the active loops within the iteration. begins: for each level within,
    when its iterations began.

    units: see UNIT. keys: of accesses, by the first words they touch; behind them of units, by chain, and in the order
    in which a place meets them. ends, among: between which positions of a chain the same units are met, and which
    units. fixed: between which words the places lie that all iterations access. own: see ``state.Tables``.
    """

    numbers: Any
    becomes: Any
    further: Any
    masks: Any
    others: Any
    accesses: Any
    snaps: Any
    begins: Any
    units: Any
    keys: Any
    ends: Any
    among: Any
    fixed: Any
    own: Any


def run_tables() -> tuple[Array, ...]:
    """The tables of a ``Run``, empty."""
    lengths = (OWN_NUMBERS, MOST_WORDS, MOST_WORDS, MOST_WORDS, MOST_WORDS, ACCESS * MOST_ACCESSES, SNAP * MOST_BLOCKS,
               MOST_BLOCKS * MOST_WITHIN, UNIT * MOST_UNITS, MOST_ACCESSES + MOST_UNITS, 2 * MOST_UNITS, MOST_UNITS,
               2 * MOST_ACCESSES)
    return tuple(numpy.zeros(length, numpy.int64) for length in lengths)


@kernel(forceinline=True)
def run_at(d):
    """The ``Run`` whose tables have their addresses in a row at ``d``."""
    return Run(pointer(d[0]), pointer(d[1]), pointer(d[2]), pointer(d[3]), pointer(d[4]), pointer(d[5]),
               pointer(d[6]), pointer(d[7]), pointer(d[8]), pointer(d[9]), pointer(d[10]), pointer(d[11]),
               pointer(d[12]), d)


@kernel()
def _length(words, count, at):
    """The words until the header at ``at`` comes again in the same node; PENDING if the trace ends before, 0 if that is
    too far away.
    """
    block, node = words[at], words[at + 1]
    for ahead in range(at + 2, min(count - 1, at + MOST_WORDS)):
        if words[ahead] == block and words[ahead + 1] == node:
            return ahead - at
    return 0 if at + MOST_WORDS < count else PENDING


@kernel(forceinline=True)
def _within(t, block, loop):
    """Whether a block lies in a loop."""
    at = t.blocks[5 * block + 2]
    while at >= 0 and at != loop:
        at = t.loops[2 * at]
    return at == loop


@kernel()
def _parse(t, r, words, at, length):
    """Reads one iteration into ``r``. Returns whether it can be part of a steady run: the loop stays active, and no
    access is a repeated one.
    """
    own, loop = words[at + 1], t.blocks[5 * (words[at] & 0xFFFFFFFF) + 2]
    blocks = accesses = touched = others = first = number = 0
    k = 0
    while k < length:
        word = words[at + k]
        index = word >> 48 & 0xFFFF
        if index == BLOCK:
            block, node = word & 0xFFFFFFFF, words[at + k + 1]
            if k + 1 == length or node & FLAGS or blocks == MOST_BLOCKS:
                return False
            if node == own and (t.blocks[5 * block + 4] or not _within(t, block, loop)):
                return False
            if node < own or caller_among(calling(t), node, own) < own:
                return False
            first, number = t.blocks[5 * block], t.blocks[5 * block + 1]
            blocks += 1
            r.becomes[k] = r.becomes[k + 1] = BLOCK_WORD
            r.masks[k] = r.masks[k + 1] = -1
            k += 2
            continue
        r.becomes[k], r.masks[k] = OTHER, 0
        if index >= number:
            r.others[others] = k
            others += 1
        else:
            row = 3 * (first + index)
            if t.shapes[row + 2] or accesses == MOST_ACCESSES:
                return False
            r.becomes[k], r.masks[k] = ALONE, -1
            a = ACCESS * accesses
            r.accesses[a + AT], r.accesses[a + OF_BLOCK], r.accesses[a + ACCESS_SITE] = k, blocks - 1, index
            r.accesses[a + SIZE], r.accesses[a + KIND] = t.shapes[row], t.shapes[row + 1]
            r.accesses[a + ADDRESS] = word & 0xFFFFFFFFFFFF
            accesses += 1
            touched += t.shapes[row] + 7 >> 3
            if touched > MOST_UNITS:
                return False
        k += 1
    r.numbers[LENGTH], r.numbers[BLOCKS], r.numbers[ACCESSES], r.numbers[TOUCHED] = length, blocks, accesses, touched
    r.numbers[OTHERS] = others
    return True


@kernel(forceinline=True)
def _others_agree(r, words, at, length):
    """Whether the words that may be anything are of the same kind as those an iteration before."""
    for n in range(r.numbers[OTHERS]):
        here = at + r.others[n]
        if (words[here] ^ words[here - length]) >> 48 != 0:
            return False
    return True


@kernel(forceinline=True)
def _agree(r, words, at, length):
    """Whether each word of the iteration at ``at`` has grown by as much as it did in the iteration before."""
    differ = 0
    for k in range(0, length, 8):  # the next iteration, which another processor has written
        prefetch(words, at + 2 * length + k)
    for k in range(length):
        differ |= (words[at + k] - words[at + k - length] - r.further[k]) & r.masks[k]
    return differ == 0


@kernel()
def find_alike(t, r, words, count, at):
    """How many iterations are steady, beginning with the one whose header is at ``at``; ``r`` then describes them. 0 if
    they are too few; PENDING if that is because the trace ends.
    """
    length = _length(words, count, at)
    if length <= 0:
        return length
    if at + LEAST_ITERATIONS * length > count:
        return PENDING
    second = at + length
    if not _parse(t, r, words, at, length) or not _others_agree(r, words, second, length):
        return 0
    for k in range(length):
        further = words[second + k] - words[at + k]
        if r.becomes[k] == OTHER:
            further = 0
        elif (words[second + k] ^ words[at + k]) >> 48 != 0 or (r.becomes[k] == BLOCK_WORD and further != 0):
            return 0
        r.further[k] = further
    for access in range(r.numbers[ACCESSES]):
        a = ACCESS * access
        r.accesses[a + DISTANCE] = r.further[r.accesses[a + AT]]
    most = MOST_AT_ONCE // max(1, r.numbers[TOUCHED])
    found, here = 2, second + length
    while (found < most and here + length <= count and _agree(r, words, here, length)
           and _others_agree(r, words, here, length)):
        found += 1
        here += length
    if found < LEAST_ITERATIONS or found * length < _LEAST_WORDS:
        return 0
    r.numbers[ITERATIONS] = found
    return found


@kernel(forceinline=True)
def numbered(key):
    """The number of the access or unit that a key belongs to."""
    return key & ((1 << ORDER_BITS) - 1)
