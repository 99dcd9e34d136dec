"""Value profile: arguments, trip counts, cycles and register values of functions and loops, as distributions.

Example: for ``for (i = 0; i < n; i++)`` the profile tells how often the loop was entered, how many iterations and
cycles its entries had, and which values the registers had at entry.

In: the words of a trace of values. Each record belongs to a point of ``instrumentation/value_probes.py`` and has

- BLOCK and the number of the point, its node, the time stamp counter, the stack pointer, and the cycles for which the
  program has waited for memopt until now;
- at the entry of a function: the caller's node, then the registers;
- at the entry of a loop: how often its header has run until now, then the registers;
- at the exit of a loop: how often its header has run until then.

Out: a ``Value`` for each value of each point in each node.

The stack pointer tells which functions have ended, by a return or in any other way. The stack grows downwards (System V
AMD64 ABI 3.2.2), so a record with a higher stack pointer shows that all frames below it have ended. The result is wrong
for functions that switch to another stack and back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy

from memopt.instrumentation.value_probes import Moment, Point
from memopt.ir.frozen import dataclass
from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import RESUMED, Words
from memopt.traces.core.frequent import count_value, counted
from memopt.traces.core.reader import Reading, first_site
from memopt.traces.core.tables import Array, extended, longer, pointer, zeros

AMOUNTS = ("cycles", "own cycles", "trips")  # names of values that are no registers
PLACES = 8  # different values that are counted one by one
CLASSES = 64  # 0, 1, 2 to 3, 4 to 7, ...: by the number of bits
_FRAMES = 1 << 14  # active functions and loops, at most
_ENTRY, _BACK, _LOOP_ENTRY, _LOOP_EXIT = (moment.value for moment in Moment)
# Columns of a distribution. From _PAIRS on: pairs of value and count; from _CLASSES on: a count for each class.
_COUNT, _LEAST, _MOST, _TOTAL, _BITS, _CHANGES, _LAST, _PAIRS = range(8)
_CLASSES = _PAIRS + 2 * PLACES
_COLUMNS = _CLASSES + CLASSES
# Columns of a point.
_MOMENT, _VALUES, _LOOP, _STEP, _WIDTH = range(5)
# Columns of an active function (_IN_LOOP is -1) or of an active loop of the function below it: node, loop, its first
# distribution, cycles at entry, stack pointer at entry, cycles in its callees, runs of the header until its entry.
_NODE, _IN_LOOP, _ROW, _SINCE, _STACK, _INSIDE, _HEADER = range(7)
_ACTIVE_COLUMNS = 8
_TOP, _NOW = range(2)
_HIGHEST = (1 << 63) - 1  # higher than any stack
_DONE, _MORE_CONTEXTS, _MORE_ROWS = range(3)


@dataclass(frozen=True, slots=True)
class Value:
    """The distribution of one value of one point in one node."""

    node: int
    point: int
    loop: int | None  # index among the loops of the node's function; None for the function itself
    name: str  # "cycles", "own cycles" (without callees), "trips", or a register
    count: int
    least: int
    most: int
    total: int  # modulo 2**64
    bits: int  # bitwise or of all values
    changes: int  # how often the value differed from the one before
    frequent: dict[int, int]  # how often, by value (see ``core/frequent.py``)
    classes: dict[int, int]  # how often, by the least value of a class; for amounts only


@kernel(forceinline=True)
def _note(rows, number, value):
    """Adds ``value`` to the distribution of this number."""
    row = _COLUMNS * number
    if rows[row + _COUNT] == 0:
        rows[row + _LEAST], rows[row + _MOST] = value, value
    elif value != rows[row + _LAST]:
        rows[row + _CHANGES] += 1
    rows[row + _LEAST] = min(rows[row + _LEAST], value)
    rows[row + _MOST] = max(rows[row + _MOST], value)
    rows[row + _COUNT] += 1
    rows[row + _TOTAL] += value
    rows[row + _BITS] |= value
    rows[row + _LAST] = value
    count_value(rows, row + _PAIRS, row + _CLASSES, value, 1)


@kernel(forceinline=True)
def _note_amount(rows, number, value):
    """Adds ``value``, an amount, to its distribution and to the counts by class."""
    _note(rows, number, value)
    bits, rest = 0, value
    while rest > 0:
        bits += 1
        rest >>= 1
    rows[_COLUMNS * number + _CLASSES + bits] += 1


@kernel()
def _function_below(active, top):
    """The highest active function from ``top`` downwards; -1 if there is none."""
    while top >= 0 and active[_ACTIVE_COLUMNS * top + _IN_LOOP] >= 0:
        top -= 1
    return top


@kernel()
def _return(active, top, rows, now):
    """Ends the function at ``top`` and all functions and loops above it. Returns the new top."""
    frame = _ACTIVE_COLUMNS * top
    cycles = now - active[frame + _SINCE]
    _note_amount(rows, active[frame + _ROW], cycles)
    _note_amount(rows, active[frame + _ROW] + 1, cycles - active[frame + _INSIDE])
    below = _function_below(active, top - 1)
    if below >= 0:
        active[_ACTIVE_COLUMNS * below + _INSIDE] += cycles
    return top - 1


@kernel()
def _unwind(active, top, rows, stack, caller, now):
    """Ends the functions that were entered with a stack pointer below ``stack``, and those that were entered at
    ``stack`` itself, unless ``caller`` is their node or 0. Returns the new top.
    """
    while True:
        function = _function_below(active, top)
        if function < 0:
            return top
        node, entered = active[_ACTIVE_COLUMNS * function + _NODE], active[_ACTIVE_COLUMNS * function + _STACK]
        if entered > stack or (entered == stack and caller in (0, node)):
            return top
        top = _return(active, function, rows, now)


@kernel()
def _loop_below(active, top, node, loop):
    """The active loop ``loop`` of the function on top, which is that of ``node``; -1 if it is not active."""
    while top >= 0 and active[_ACTIVE_COLUMNS * top + _IN_LOOP] >= 0:
        if active[_ACTIVE_COLUMNS * top + _IN_LOOP] == loop and active[_ACTIVE_COLUMNS * top + _NODE] == node:
            return top
        top -= 1
    return -1


@kernel()
def _push(active, top, node, loop, row, now, stack, header):
    """Makes a function or loop active and returns the new top. If too many are active, all of them are forgotten."""
    top = 0 if top + 1 == _FRAMES else top + 1
    frame = _ACTIVE_COLUMNS * top
    active[frame + _NODE], active[frame + _IN_LOOP], active[frame + _ROW] = node, loop, row
    active[frame + _SINCE], active[frame + _STACK], active[frame + _INSIDE] = now, stack, 0
    active[frame + _HEADER] = header
    return top


@kernel(nogil=True)
def _feed(all_words, at, state, all_points, all_contexts, all_counts, all_last, all_rows, all_active):
    """Reads from the word ``at`` on. Returns where it stopped, and what must grow first, or _DONE."""
    words, count = pointer(all_words.ctypes.data), len(all_words)
    points, rows, active = (pointer(all_points.ctypes.data), pointer(all_rows.ctypes.data),
                            pointer(all_active.ctypes.data))
    contexts, counts, last = (pointer(all_contexts.ctypes.data), pointer(all_counts.ctypes.data),
                              pointer(all_last.ctypes.data))
    places, room, top = len(all_contexts), len(all_rows), state[_TOP]
    while at + 5 <= count:
        point = 5 * (words[at] & 0xFFFFFFFF)
        moment, values, loop = points[point + _MOMENT], points[point + _VALUES], points[point + _LOOP]
        registers = values - 2 if moment in (_ENTRY, _LOOP_ENTRY) else 0
        size = 5 + (moment != _BACK) + registers
        if at + size > count:
            break
        node, now, stack = words[at + 1] & ~RESUMED, words[at + 2] - words[at + 4], words[at + 3]
        row = 0
        if values:
            row = first_site(contexts, places, counts, last, words[at] & 0xFFFFFFFF, node, values)
            if row < 0:
                state[_TOP] = top
                return at, _MORE_CONTEXTS
            if counts[1] > room:
                state[_TOP] = top
                return at, _MORE_ROWS
        top = _unwind(active, top, rows, stack, words[at + 5] if moment == _ENTRY else 0, now)
        if moment == _ENTRY:
            top = _push(active, top, node, -1, row, now, stack, 0)
        elif moment == _LOOP_ENTRY:
            again = _loop_below(active, top, node, loop)
            top = _push(active, top if again < 0 else again - 1, node, loop, row, now, stack, words[at + 5])
        elif moment == _LOOP_EXIT:
            found = _loop_below(active, top, node, loop)
            if found >= 0:
                frame = _ACTIVE_COLUMNS * found
                way = words[at + 5] - active[frame + _HEADER]
                if points[point + _STEP] < 0:
                    way = -way
                if points[point + _WIDTH] == 32:
                    way &= 0xFFFFFFFF
                _note_amount(rows, active[frame + _ROW], now - active[frame + _SINCE])
                _note_amount(rows, active[frame + _ROW] + 1, way // abs(points[point + _STEP]))
                top = found - 1
        for register in range(registers):
            _note(rows, row + 2 + register, words[at + 6 + register])
        at += size
        state[_NOW] = now
    state[_TOP] = top
    return at, _DONE


@kernel()
def _end(state, all_rows, all_active):
    """Ends all active functions at the end of the trace."""
    _unwind(pointer(all_active.ctypes.data), state[_TOP], pointer(all_rows.ctypes.data), _HIGHEST, 0, state[_NOW])
    state[_TOP] = -1


class Values(Reading):
    """Finds the distributions of values of one thread."""

    def __init__(self) -> None:
        super().__init__()
        self._state = numpy.array([-1, 0], numpy.int64)
        self._points = numpy.zeros((0, 5), numpy.int64)
        self._known: list[Point] = []
        self._rows = zeros(1 << 8, _COLUMNS)
        self._active = numpy.zeros((_FRAMES, _ACTIVE_COLUMNS), numpy.int64)

    def know_points(self, points: Sequence[Point]) -> None:
        """Adds points, which continue the numbering."""
        self._points = extended(self._points, [
            (p.moment.value, len(names(p)), -1 if p.loop is None else p.loop, 1 if p.trips is None else p.trips.step,
             64 if p.trips is None else p.trips.bits) for p in points])
        self._last = extended(self._last, [(-1, 0)] * len(points))
        self._known += points

    def feed(self, words: Words) -> None:
        """Reads the next words of the trace. Precondition: their points are known."""
        pending = self._pending(words)
        at, more = 0, -1
        while more != _DONE:
            at, more = _feed(pending, at, self._state, self._points, self._context_blocks, self._counts, self._last,
                             self._rows, self._active)
            if more == _MORE_CONTEXTS:
                self._more_contexts()
            while len(self._rows) < self._counts[1]:
                self._rows = longer(self._rows)
        self._rest = pending[at:].copy()

    def all(self) -> Iterator[Value]:
        """Yields the distributions, in the order in which their points were met. To be called once, at the end of the
        trace: functions that are active end there.
        """
        _end(self._state, self._rows, self._active)
        found = self._context_blocks[self._context_blocks[:, 1] != -1]
        for node, number, first in found[numpy.argsort(found[:, 2])].tolist():
            point = self._known[number]
            for row, name in zip(self._rows[first:first + len(names(point))], names(point), strict=True):
                if row[_COUNT]:
                    yield _value(node, point, name, row)


def _value(node: int, point: Point, name: str, row: Array) -> Value:
    count, least, most, total, bits, changes = row[:_LAST].tolist()
    classes = {1 << n >> 1: times for n, times in enumerate(row[_CLASSES:].tolist()) if times}
    return Value(node, point.number, point.loop, name, count, least, most, total, bits, changes,
                 counted(row[_PAIRS:_CLASSES]), classes)


def names(point: Point) -> tuple[str, ...]:
    """The names of the values of a point, in order. The cycles and trips of a loop are known when it is left, but
    belong to its entry.
    """
    match point.moment:
        case Moment.ENTRY:
            return ("cycles", "own cycles", *point.registers)
        case Moment.LOOP_ENTRY:
            return ("cycles", "trips", *point.registers)
    return ()
