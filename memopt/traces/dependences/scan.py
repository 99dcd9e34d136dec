"""Scans a trace word by word: follows the active loops, and hands each access to ``accesses``.

At the header of a loop it looks for steady iterations and hands them to ``steady_runs`` as a whole. After a failed
attempt it waits for twice as many iterations as last time, up to _MOST_PATIENCE.

In: words of a trace. Out: where the scan stopped, and which table must grow before it can go on.
"""

from __future__ import annotations

from memopt.traces.core.active_loops import (
    BLOCK_NOW,
    CONTEXT_LOOPS,
    CONTEXT_PLACES,
    CURRENT,
    DONE,
    FRAME,
    FRAMES,
    LEVELS,
    LOOP_NOW,
    LOOP_PLACES,
    MORE_CONTEXTS,
    MORE_LOOPS,
    begin_block,
)
from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import BLOCK, FLAGS
from memopt.traces.core.tables import likely, pointer
from memopt.traces.dependences.accesses import access
from memopt.traces.dependences.prefetch import look_ahead
from memopt.traces.dependences.shadow_memory import DONE_OF_REPEATED, PIECE, SHORT, TOGETHER, look_for_room
from memopt.traces.dependences.state import tables_at
from memopt.traces.dependences.steady_iterations import (
    ITERATIONS,
    LENGTH,
    MOST_BLOCKS,
    PENDING,
    WALKED,
    WALKS,
    find_alike,
    run_at,
)
from memopt.traces.dependences.steady_runs import go_on_with_run, look_at_run

_MOST_PATIENCE = 1023  # iterations, at most, until the next attempt
_CUT_OFF = -1


@kernel(forceinline=True)
def _room_for_run(t):
    """The table that must grow before a steady run can be processed, or 0."""
    state = t.state
    if state[SHORT]:
        return state[SHORT]
    if 2 * (t.counts[0] + MOST_BLOCKS) > state[CONTEXT_PLACES]:
        return MORE_CONTEXTS
    return MORE_LOOPS if 2 * (state[CONTEXT_LOOPS] + MOST_BLOCKS + LEVELS) > state[LOOP_PLACES] else 0


@kernel()
def _try_run(tables, of_run, words, count, at):
    """Tries a steady run from the word ``at`` on, where the header of a loop has just begun. Returns how many words it
    had (0: none), and what must grow before it can go on.
    """
    t, r = tables_at(tables), run_at(of_run)
    loop = t.blocks[5 * (words[at] & 0xFFFFFFFF) + 2]
    if words[at + 1] & FLAGS or t.state[LOOP_NOW] != loop or t.state[FRAME] + MOST_BLOCKS > FRAMES:
        return 0, 0
    found = find_alike(t, r, words, count, at)
    if found > 0 and look_at_run(t, r, words, at):
        t.tries[2 * loop + 1] = 0
        t.state[TOGETHER] += r.numbers[ITERATIONS] * r.numbers[LENGTH]
        if not go_on_with_run(t, r, words, at):
            return 0, t.state[SHORT]
        return r.numbers[ITERATIONS] * r.numbers[LENGTH], 0
    if found != PENDING:
        t.tries[2 * loop] = t.tries[2 * loop + 1] = min(_MOST_PATIENCE, 2 * t.tries[2 * loop + 1] + 1)
    return 0, 0


@kernel()
def _finish_run(t, r, words, at):
    """Completes the steady run that had to wait for a table to grow, if there is one. Returns the word behind it, and
    what must grow first.
    """
    if r.numbers[WALKED] == r.numbers[WALKS]:
        return at, 0
    if not go_on_with_run(t, r, words, at):
        return at, t.state[SHORT]
    return at + r.numbers[ITERATIONS] * r.numbers[LENGTH], 0


@kernel()
def _repeat(t, kind, site, address, size):
    """Handles a repeated access of any size, in pieces. Returns what must grow before it can go on, or 0."""
    while t.state[DONE_OF_REPEATED] < size:
        done = t.state[DONE_OF_REPEATED]
        piece = min(PIECE, size - done)
        more = access(t, kind, site, address + done, piece)
        if more:
            return more
        t.state[DONE_OF_REPEATED] += piece
    t.state[DONE_OF_REPEATED] = 0
    return 0


@kernel(forceinline=True)
def _begin(t, r, words, count, at):
    """Begins the block at the word ``at``, and perhaps a steady run with it. Returns how many words were read, and what
    must grow first: before the block, or before the run can go on, which ``_finish_run`` then completes from ``at`` on.
    """
    block = words[at] & 0xFFFFFFFF
    header = t.blocks[5 * block + 3]
    more = _room_for_run(t) if header else 0
    if not more:
        more = begin_block(t, block, words[at + 1])
    if not likely(more == 0):
        return 0, more
    if header:
        loop = t.blocks[5 * block + 2]
        if t.tries[2 * loop]:
            t.tries[2 * loop] -= 1
        else:
            done, more = _try_run(t.own, r.own, words, count, at)
            return done if more else max(done, 2), more
    return 2, 0


@kernel(forceinline=True)
def _go_on_in_block(t, words, count, at):
    """Reads the accesses of the current block. Returns where it stopped, and what must grow first; _CUT_OFF if the
    trace ends within an access.
    """
    row, site = 5 * t.state[BLOCK_NOW], t.state[CURRENT]
    first, number = t.blocks[row], t.blocks[row + 1]
    while at < count:
        look_ahead(t, words, at, count)
        word = words[at]
        index = word >> 48 & 0xFFFF
        if index >= number:
            if index == BLOCK:
                break
            at += 1  # a word of another kind (EXTRA)
            continue
        row, address = 3 * (first + index), word & 0xFFFFFFFFFFFF
        if likely(t.shapes[row + 2] == 0):
            more = access(t, t.shapes[row + 1], site + index, address, t.shapes[row])
        elif at + 1 == count:
            more = _CUT_OFF
        else:
            more = _repeat(t, t.shapes[row + 1], site + index, address, t.shapes[row] * words[at + 1])
            at += more == 0
        if not likely(more == 0):
            return at, more
        at += 1
    return at, 0


@kernel(nogil=True)
def look_at(block, run, trace, count, at):
    """Reads ``count`` words of a trace from the word ``at`` on. Returns where it stopped, and what must grow first, or
    DONE. ``block``, ``run`` and ``trace`` are addresses; see ``state.py``.
    """
    t, r, words = tables_at(pointer(block)), run_at(pointer(run)), pointer(trace)
    look_for_room(t.state)
    at, more = _finish_run(t, r, words, at)
    while at < count and not more:
        if words[at] >> 48 & 0xFFFF == BLOCK:
            if at + 1 == count:
                break
            words_of_it, more = _begin(t, r, words, count, at)
            at += words_of_it
            if more or words_of_it > 2:
                continue
        if not likely(t.state[BLOCK_NOW] >= 0):  # cannot be: a trace begins with a block
            at += 1
            continue
        at, more = _go_on_in_block(t, words, count, at)
    return at, max(more, DONE)
