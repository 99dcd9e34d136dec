"""Tracks the active loops of a thread from the blocks of its trace: which loops, in which iteration, and since when.

Example: in ``for (i ...) { for (j ...) f(); }`` with a loop in ``f``, three loops are active while that loop runs.

In: the number and node of each block that begins. Out: a stack of active loops in tables that kernels read. Times are
numbers of runs of blocks.

A loop is active from a run of its header, or of another of its blocks, until a block of its function outside the loop
runs. Frames are told apart by their nodes: when a node runs, all frames have ended but its own and those of its
callers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy

from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import FLAGS, INSIDE, RESUMED
from memopt.traces.core.reader import Reading, first_site
from memopt.traces.core.tables import Array, larger, likely, new_table, pointer, slot

FAR = 1 << 14  # for so many latest iterations of a loop it is known when they began
LEVELS = 64  # active loops, at most
FRAMES = 4096  # active frames, at most

# The state: numbers that are kept from one call of a kernel to the next. From OWN on, each analysis has its own.
(TIME, FRAME, ACTIVE, BLOCK_NOW, CURRENT, CONTEXT_LOOPS, LOOP_PLACES, CONTEXT_PLACES, NODE_NOW, LOOP_NOW,
 CALLER_PLACES, OWN) = range(12)
DONE, MORE_CONTEXTS, MORE_LOOPS, MORE_OWN = range(4)

# Columns of an active loop: the loop, the time of its entry, the time at which the current iteration began, the number
# of the loop in its context, the number of the current iteration, and the times at which the TOLD_BEFORE iterations
# before it began. Rows not in use have NEVER for all times. The row behind the last level has a time before all others
# and a number that no loop has.
ROW, TOLD_BEFORE = 8, 3
LOOP, ENTERED, BEGAN, NUMBER, ITERATION, BEFORE = range(6)
NEVER = 1 << 62
_UNKNOWN = -2  # differs from every loop, and from -1 for no loop


class Following(NamedTuple):
    """The tables that the loops of a frame are followed with; see ``begin_block``. A separate tuple, since a call
    passes each of its members.
    """

    state: Any
    frames: Any
    active: Any
    rings: Any
    blocks: Any
    loops: Any
    context_loops: Any


class Calling(NamedTuple):
    """The tables that frames are followed with."""

    state: Any
    frames: Any
    active: Any
    callers: Any


@kernel(forceinline=True)
def _following(t):
    return Following(t.state, t.frames, t.active, t.rings, t.blocks, t.loops, t.context_loops)


@kernel(forceinline=True)
def calling(t):
    """The tables that frames are followed with, out of a larger tuple."""
    return Calling(t.state, t.frames, t.active, t.callers)


@kernel()
def _enter(t, loop, node):
    """Makes ``loop``, in the context ``node``, the innermost active loop."""
    at = 3 * slot(t.context_loops, 3, t.state[LOOP_PLACES], node, loop)
    if t.context_loops[at + 1] == -1:
        t.context_loops[at], t.context_loops[at + 1] = node, loop
        t.context_loops[at + 2] = t.state[CONTEXT_LOOPS]
        t.state[CONTEXT_LOOPS] += 1
    level, time = t.state[ACTIVE], t.state[TIME]
    row = ROW * level
    t.active[row + LOOP], t.active[row + ENTERED], t.active[row + BEGAN] = loop, time, time
    t.active[row + NUMBER], t.active[row + ITERATION] = t.context_loops[at + 2], 1
    t.rings[FAR * level + 1] = time
    t.state[ACTIVE] += 1


@kernel(forceinline=True)
def _leave(t, stay):
    """Ends the active loops but for the ``stay`` outermost ones."""
    while t.state[ACTIVE] > stay:
        t.state[ACTIVE] -= 1
        row = ROW * t.state[ACTIVE]
        t.active[row + ENTERED] = t.active[row + BEGAN] = NEVER
        for before in range(TOLD_BEFORE):
            t.active[row + BEFORE + before] = NEVER


@kernel(forceinline=True)
def _next_iteration(t):
    """Begins another iteration of the innermost active loop."""
    level, time = t.state[ACTIVE] - 1, t.state[TIME]
    row = ROW * level
    iteration = t.active[row + ITERATION] + 1
    for before in range(TOLD_BEFORE - 1, 0, -1):
        t.active[row + BEFORE + before] = t.active[row + BEFORE + before - 1]
    t.active[row + BEFORE] = t.active[row + BEGAN]
    t.active[row + BEGAN], t.active[row + ITERATION] = time, iteration
    t.rings[FAR * level + (iteration & (FAR - 1))] = time


@kernel()
def caller_among(t, node, least):
    """The nearest of ``node`` and its callers that is not higher than ``least``. If a caller is not known, the last one
    that is.
    """
    while node > least:
        at = 3 * slot(t.callers, 3, t.state[CALLER_PLACES], node, 0)
        if t.callers[at + 1] == -1:
            break
        node = t.callers[at + 2]
    return node


@kernel()
def _follow(t, node):
    """Switches to the frame of ``node``. The frames of its callers stay; all others end, with their loops."""
    frame, above = t.state[FRAME], node
    while frame >= 0 and t.frames[2 * frame] != above:
        if t.frames[2 * frame] > above:
            frame -= 1
            continue
        above = caller_among(t, above, t.frames[2 * frame])
        if above > t.frames[2 * frame]:  # its callers are not known: all frames below stay
            break
    if frame < t.state[FRAME]:
        _leave(t, t.frames[2 * frame + 3])
    if frame < 0 or t.frames[2 * frame] != node:
        frame = min(frame + 1, FRAMES - 1)
        t.frames[2 * frame], t.frames[2 * frame + 1] = node, t.state[ACTIVE]
    t.state[FRAME] = frame


@kernel()
def _begin(t, block, node, inside):
    """Updates the active loops of the top frame for a run of ``block``, which lies in a loop. ``inside``: the run
    begins within the block, not at its start.
    """
    state, row = t.state, 5 * block
    base, loop = t.frames[2 * state[FRAME] + 1], t.blocks[row + 2]
    header, entry = t.blocks[row + 3] and not inside, t.blocks[row + 4] and not inside
    depth = t.loops[2 * loop + 1]
    _leave(t, base if entry else base + depth)
    while state[ACTIVE] > base:  # the loops around the block stay
        around = loop
        for _ in range(depth - (state[ACTIVE] - base)):
            around = t.loops[2 * around]
        if t.active[ROW * (state[ACTIVE] - 1) + LOOP] == around:
            break
        _leave(t, state[ACTIVE] - 1)
    if state[ACTIVE] - base == depth:
        if header:
            _next_iteration(t)
    else:
        while state[ACTIVE] - base < depth and state[ACTIVE] < LEVELS:
            around = loop
            for _ in range(depth - 1 - (state[ACTIVE] - base)):
                around = t.loops[2 * around]
            _enter(t, around, node)
    state[LOOP_NOW] = loop if state[ACTIVE] - base == depth else _UNKNOWN


@kernel(forceinline=True)
def begin_block(t, block, word):
    """Begins a run of ``block`` in the node of ``word``: updates time, frames and active loops. Returns what must grow
    first, or 0.

    ``t`` has pointers to state, frames (node, first of its active loops), active (see ROW), rings (for each active loop
    the times at which its last FAR iterations began), context_loops (node, loop, number), callers (node, 0, the node
    that called it), and to the tables of ``Reading``.
    """
    state, node, row = t.state, word & ~FLAGS, 5 * block
    site = first_site(t.context_blocks, state[CONTEXT_PLACES], t.counts, t.last, block, node, t.blocks[row + 1])
    if not likely(site >= 0):
        return MORE_CONTEXTS
    if word == state[NODE_NOW] and t.blocks[row + 2] == state[LOOP_NOW] and not t.blocks[row + 4]:
        state[TIME] += 1  # the active loops are the same as before
        if t.blocks[row + 3]:
            _next_iteration(t)
    else:
        if not likely(2 * (state[CONTEXT_LOOPS] + LEVELS) <= state[LOOP_PLACES]):
            return MORE_LOOPS
        if node != state[NODE_NOW]:
            _follow(calling(t), node)
            state[NODE_NOW], state[LOOP_NOW] = node, _UNKNOWN
        if likely(not word & RESUMED):
            state[TIME] += 1
            if t.blocks[row + 2] < 0:
                _leave(t, t.frames[2 * state[FRAME] + 1])
                state[LOOP_NOW] = -1
            else:
                _begin(_following(t), block, node, word & INSIDE)
    state[BLOCK_NOW], state[CURRENT] = block, site
    return 0


@kernel()
def _know_callers(callers, nodes):
    places, table = len(callers), pointer(callers.ctypes.data)
    for row in range(len(nodes)):
        at = slot(table, 3, places, nodes[row, 0], 0)
        callers[at, 0], callers[at, 1], callers[at, 2] = nodes[row, 0], 0, nodes[row, 1]


class Activity(Reading):
    """Base of the analyses that need to know the active loops. ``numbers``: the length of the analysis's state."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self._state = numpy.zeros(numbers, numpy.int64)
        self._state[[FRAME, BLOCK_NOW, NODE_NOW]] = -1
        self._frames = numpy.zeros((FRAMES + 1, 2), numpy.int64)
        self._active = numpy.full((LEVELS + 1, ROW), NEVER, numpy.int64)
        self._active[LEVELS, [BEGAN, NUMBER]] = 0, -1
        self._rings = numpy.zeros((LEVELS, FAR), numpy.int64)
        self._context_loops, self._callers, self._nodes = new_table(1 << 12, 3), new_table(1 << 12, 3), 0

    def know_nodes(self, nodes: Array) -> None:
        """Adds nodes: rows of (node, the node that called it)."""
        self._nodes += len(nodes)
        while 8 * self._nodes > len(self._callers):  # so sparse that the first probe finds most nodes
            self._callers = larger(self._callers)
        _know_callers(self._callers, nodes)

    def _set_places(self) -> None:
        self._state[[LOOP_PLACES, CONTEXT_PLACES]] = len(self._context_loops), len(self._context_blocks)
        self._state[CALLER_PLACES] = len(self._callers)

    def _grow(self, more: int) -> None:
        if more == MORE_CONTEXTS:
            self._more_contexts()
        elif more == MORE_LOOPS:
            self._context_loops = larger(self._context_loops)

    def _loops_by_number(self) -> Mapping[int, tuple[int, int]]:
        """By the number of a loop in its context: node and loop."""
        rows = self._context_loops[self._context_loops[:, 1] != -1].tolist()
        return {number: (node, loop) for node, loop, number in rows}
