"""A trace, word by word, but for runs of iterations that are alike."""

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

_MOST_PATIENCE = 1023  # iterations
_CUT_OFF = -1


@kernel(forceinline=True)
def _room_for_run(t):
    """0, or what there must be more of before a run is looked at."""
    state = t.state
    if state[SHORT]:
        return state[SHORT]
    if 2 * (t.counts[0] + MOST_BLOCKS) > state[CONTEXT_PLACES]:
        return MORE_CONTEXTS
    return MORE_LOOPS if 2 * (state[CONTEXT_LOOPS] + MOST_BLOCKS + LEVELS) > state[LOOP_PLACES] else 0


@kernel()
def _try_run(tables, of_run, words, count, at):
    """How many words of a run there were from ``at`` on, where the header of a loop is told that has begun, and what
    there must be more of before it goes on."""
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
    """Behind the run that there must have been more room for, if any, and what there must be more of first."""
    if r.numbers[WALKED] == r.numbers[WALKS]:
        return at, 0
    if not go_on_with_run(t, r, words, at):
        return at, t.state[SHORT]
    return at + r.numbers[ITERATIONS] * r.numbers[LENGTH], 0


@kernel()
def _repeat(t, kind, site, address, size):
    """An access of any size; 0, or what there must be more of before it goes on."""
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
    """The block that is told at ``at`` begins, and with it perhaps a run: how many words that is, and what there must
    be more of first: before the block, or before the run goes on, which _finish_run does from ``at``."""
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
    """Up to the end of what is told of it: where that is, and what there must be more of first (_CUT_OFF: of the
    trace)."""
    row, site = 5 * t.state[BLOCK_NOW], t.state[CURRENT]
    first, number = t.blocks[row], t.blocks[row + 1]
    while at < count:
        look_ahead(t, words, at, count)
        word = words[at]
        index = word >> 48 & 0xFFFF
        if index >= number:
            if index == BLOCK:
                break
            at += 1  # of another kind
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
    """At ``count`` words of a trace, from the number ``at`` on: where it stopped, and what there must be more of before
    it goes on. ``block``, ``run``, ``trace``: addresses; see directory.py."""
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
