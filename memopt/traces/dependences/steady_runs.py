"""Computes the dependences of a run of steady iterations, and the shadow memory after it, without reading all of them.

Example: for the steady iterations of ``for (i ...) a[i] = a[i - 1];`` one strip of places is processed, not n
iterations.

In: a ``Run`` (``steady_iterations.py``). Out: the same dependences and counts that the scan word by word would find.

The accesses fall into clusters that share no word (``clusters.py``). There are three cases:

- All accesses of a cluster move on by the same distance: its places lie in chains (``chains.py``), and the dependences
  are found for all places at once that have one history (``shadow_strips.py``, ``strip_access.py``).
- All accesses of a cluster stay where they are: all further iterations do what the second one does, only later. Two
  iterations are walked through, and the second one counts for all others.
- All other clusters are processed access by access.
"""

from __future__ import annotations

from memopt.traces.core.active_loops import (
    ACTIVE,
    BEFORE,
    BEGAN,
    BLOCK_NOW,
    CURRENT,
    ENTERED,
    FAR,
    FRAME,
    ITERATION,
    LEVELS,
    LOOP_NOW,
    NEVER,
    NODE_NOW,
    NUMBER,
    ROW,
    TIME,
    TOLD_BEFORE,
    begin_block,
)
from memopt.traces.core.compiler import kernel
from memopt.traces.core.tables import sort
from memopt.traces.dependences.accesses import look_at_access, places_of
from memopt.traces.dependences.clusters import (
    LEAST_SIZE,
    distance_of,
    end_of_cluster,
    have_places,
    high_of,
    look_at_strips,
    low_of,
)
from memopt.traces.dependences.prefetch import look_ahead
from memopt.traces.dependences.shadow_memory import (
    CELL,
    CHUNK,
    FIRST,
    LAST,
    LOW,
    SECOND_FIRST,
    SECOND_LAST,
    SHORT,
    TIMES,
    WEIGHT,
    WRITER,
    WRITTEN,
    begins,
    next_chunk,
    part_at,
    parts_of,
)
from memopt.traces.dependences.shadow_strips import cell_of, fetch_cell, fetch_strip
from memopt.traces.dependences.steady_iterations import (
    ACCESS,
    ACCESS_SITE,
    ACCESSES,
    ALONE,
    BLOCK_WORD,
    BLOCKS,
    FIXED,
    ITERATIONS,
    LENGTH,
    LEVEL,
    MOST_BLOCKS,
    MOST_WITHIN,
    OF_BLOCK,
    ORDER_BITS,
    SINCE,
    SNAP,
    UNITS,
    WALKED,
    WALKS,
)

_MOST_TRIPS = 15  # iterations of a loop within an iteration: a longer one is a steady run itself


@kernel(forceinline=True)
def _close(t, level):
    """Marks the levels of loops from ``level`` on as not active."""
    for row in range(ROW * level, ROW * min(LEVELS, level + MOST_WITHIN + 2), ROW):
        t.active[row + ENTERED] = t.active[row + BEGAN] = NEVER
        for before in range(TOLD_BEFORE):
            t.active[row + BEFORE + before] = NEVER


@kernel()
def _look_within(t, r, words, at):
    """Notes which loops are active within the first iteration. Returns False, and has changed nothing, if they are too
    many or one of them has so many iterations that it is a steady run itself.
    """
    state, level = t.state, t.state[ACTIVE] - 1
    frame, block, current = state[FRAME], state[BLOCK_NOW], state[CURRENT]
    node, loop, since = state[NODE_NOW], state[LOOP_NOW], state[TIME]
    r.numbers[SINCE], r.numbers[LEVEL] = since, level
    k, run, access, most = 2, 0, 0, 0
    counts = r.ends  # of iterations begun, by levels within
    for within in range(MOST_WITHIN):
        counts[within] = 0
    while True:
        active = state[ACTIVE] - level - 1
        most = max(most, active)
        if most > MOST_WITHIN:
            break
        snap = SNAP * run
        r.snaps[snap] = active
        for within in range(active):
            row, to = ROW * (level + 1 + within), snap + 1 + 4 * within
            if t.active[row + ITERATION] > _MOST_TRIPS:
                most = MOST_WITHIN + 1
            if t.active[row + BEGAN] == state[TIME]:
                r.begins[MOST_BLOCKS * within + counts[within]] = state[TIME]
                counts[within] += 1
            r.snaps[to], r.snaps[to + 1] = t.active[row + NUMBER], t.active[row + ENTERED]
            r.snaps[to + 2], r.snaps[to + 3] = t.active[row + BEGAN], counts[within] - 1
        if most > MOST_WITHIN:
            break
        while access < r.numbers[ACCESSES] and r.accesses[ACCESS * access + OF_BLOCK] == run:
            r.accesses[ACCESS * access + ACCESS_SITE] += state[CURRENT]
            access += 1
        while k < r.numbers[LENGTH] and r.becomes[k] != BLOCK_WORD:
            k += 1
        if k == r.numbers[LENGTH]:
            break
        begin_block(t, words[at + k] & 0xFFFFFFFF, words[at + k + 1])
        k += 2
        run += 1
    state[FRAME], state[BLOCK_NOW], state[CURRENT] = frame, block, current
    state[NODE_NOW], state[LOOP_NOW], state[TIME], state[ACTIVE] = node, loop, since, level + 1
    _close(t, level + 1)
    return most <= MOST_WITHIN


@kernel()
def _walk(t, r, words, at, iteration):
    """Walks through an iteration, access by access, without the accesses that strips handle."""
    length = r.numbers[LENGTH]
    here = at + iteration * length
    k = 0 if iteration else 2
    while k < length:
        look_ahead(t, words, here + k, at + r.numbers[ITERATIONS] * length)
        word = words[here + k]
        if r.becomes[k] == BLOCK_WORD:
            begin_block(t, word & 0xFFFFFFFF, words[here + k + 1])
            k += 1
        elif r.becomes[k] == ALONE:
            row = 3 * (t.blocks[5 * t.state[BLOCK_NOW]] + (word >> 48 & 0xFFFF))
            look_at_access(t, t.shapes[row + 1], t.state[CURRENT] + (word >> 48 & 0xFFFF), word & 0xFFFFFFFFFFFF,
                           t.shapes[row])
        k += 1


@kernel()
def _pass_over(t, r):
    """Updates time and active loops from the end of the second iteration to the end of the last one."""
    iterations, period, level = r.numbers[ITERATIONS], r.numbers[BLOCKS], r.numbers[LEVEL]
    later = (iterations - 2) * period
    t.state[TIME] += later
    row = ROW * level
    second = t.active[row + ITERATION]
    for further in range(1, iterations - 1):
        t.rings[FAR * level + (second + further & (FAR - 1))] = t.active[row + BEGAN] + further * period
    t.active[row + ITERATION] += iterations - 2
    t.active[row + BEGAN] += later
    for before in range(TOLD_BEFORE):
        t.active[row + BEFORE + before] = t.active[row + BEGAN] - (before + 1) * period
    for within in range(level + 1, t.state[ACTIVE]):
        row = ROW * within
        t.active[row + ENTERED] += later
        t.active[row + BEGAN] += later
        for before in range(TOLD_BEFORE):
            if t.active[row + BEFORE + before] < NEVER:
                t.active[row + BEFORE + before] += later
        for iteration in range(max(1, t.active[row + ITERATION] - FAR + 1), t.active[row + ITERATION] + 1):
            t.rings[FAR * within + (iteration & (FAR - 1))] += later


@kernel(forceinline=True)
def _next_part(parts, byte):
    """The byte behind ``byte`` at which the next part of a word begins, or 8. ``parts`` below 0: the word is not cut.
    """
    byte += 1
    while byte < 8 and (parts < 0 or not begins(parts, byte)):
        byte += 1
    return byte


@kernel()
def _written_before(t, r):
    """Whether a place that stays was last written in the same entry of the loop, but before this run. The distance to
    that write grows with each iteration, so the second iteration cannot stand for the others.
    """
    since, entered = r.numbers[SINCE], t.active[ROW * r.numbers[LEVEL] + ENTERED]
    for n in range(r.numbers[FIXED]):
        for word in range(r.fixed[2 * n], r.fixed[2 * n + 1]):
            cell, byte = cell_of(places_of(t), word), 0
            parts = parts_of(t.cells[CELL * cell + WRITTEN])
            while byte < 8:
                if entered <= t.cells[CELL * (cell if parts < 0 else part_at(parts, byte)) + WRITTEN] < since:
                    return True
                byte = _next_part(parts, byte)
    return False


@kernel(forceinline=True)
def _later(table, at, since, later):
    """Moves a time of the second iteration to the last one."""
    if table[at] >= since:
        table[at] += later


@kernel()
def _happens_later(t, cell, since, later):
    """Moves all times of a cell that lie in the second iteration to the last one."""
    for column in (WRITTEN, FIRST, LAST, SECOND_FIRST, SECOND_LAST):
        _later(t.cells, CELL * cell + column, since, later)
    chunk = t.cells[CELL * cell + WRITER] & LOW
    while chunk:
        times = CHUNK * chunk + TIMES
        for number in range(2 * (t.chunks[CHUNK * chunk] & 15)):
            _later(t.chunks, times + number, since, later)
        chunk = next_chunk(t.chunks[CHUNK * chunk])


@kernel()
def _happen_later(t, r):
    """Moves what the second iteration did to the places that stay to the last iteration."""
    period = r.numbers[BLOCKS]
    since, later = r.numbers[SINCE] + period, (r.numbers[ITERATIONS] - 2) * period
    for n in range(r.numbers[FIXED]):
        for word in range(r.fixed[2 * n], r.fixed[2 * n + 1]):
            cell, byte = cell_of(places_of(t), word), 0
            parts = parts_of(t.cells[CELL * cell + WRITTEN])
            while byte < 8:
                _happens_later(t, cell if parts < 0 else part_at(parts, byte), since, later)
                byte = _next_part(parts, byte)


@kernel()
def go_on_with_run(t, r, words, at):
    """Completes the run at ``at`` after its strips. Returns False if tables must grow first."""
    numbers = r.numbers
    while numbers[WALKED] < numbers[WALKS]:
        if t.state[SHORT]:
            return False
        if numbers[WALKED] == 1 and numbers[FIXED] >= 0 and not _written_before(t, r):
            numbers[WALKS] = 2
            t.state[WEIGHT] = numbers[ITERATIONS] - 1
        _walk(t, r, words, at, numbers[WALKED])
        numbers[WALKED] += 1
    if numbers[WALKS] < numbers[ITERATIONS]:
        t.state[WEIGHT] = 1
        _happen_later(t, r)
        _pass_over(t, r)
    return True


@kernel(forceinline=True)
def _fetch(t, r, strips):
    """Prefetches the cells of the first and last word that each access touches, or the ``strips`` that these are in. If
    they are far away, all of them arrive in the time of one.
    """
    for access in range(r.numbers[ACCESSES]):
        for word in (low_of(r, access), high_of(r, access) - 1):
            if strips:
                fetch_strip(places_of(t), word)
            else:
                fetch_cell(places_of(t), word)


@kernel()
def look_at_run(t, r, words, at):
    """Processes the steady iterations in ``r``, beginning with the one whose header is at ``at`` and has begun. Does
    the part that strips can do, and leaves the rest to ``go_on_with_run``. Returns False, and has changed nothing, if
    they must be read word by word.
    """
    _fetch(t, r, False)
    if not _look_within(t, r, words, at):
        return False
    _fetch(t, r, True)
    accesses = r.numbers[ACCESSES]
    for access in range(accesses):
        r.keys[access] = low_of(r, access) << ORDER_BITS | access
    sort(r.keys, 0, accesses)
    first = 0
    while first < accesses:
        end, high = end_of_cluster(r, first)
        if not have_places(t, r, first, end, r.keys[first] >> ORDER_BITS, high):
            return False
        first = end
    alone, fixed, first, r.numbers[UNITS] = False, 0, 0, 0
    while first < accesses:
        end, high = end_of_cluster(r, first)
        low, (far, size) = r.keys[first] >> ORDER_BITS, distance_of(r, first, end)
        if size and far == 0:
            r.fixed[2 * fixed], r.fixed[2 * fixed + 1] = low, high
            fixed += 1
        else:
            looked, cuts = False, size < 8
            while size >= LEAST_SIZE and not looked:
                looked = look_at_strips(t, r, first, end, low, high, far, size, cuts)
                size >>= 1  # try again with smaller places, which may cut words
            alone |= not looked
        first = end
    r.numbers[FIXED] = -1 if alone else fixed
    r.numbers[WALKED], r.numbers[WALKS] = 0, r.numbers[ITERATIONS]
    return True
