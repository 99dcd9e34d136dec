"""The layout of the dependence analysis's tables: one block has the tables of fixed size and the others' addresses.

This way a kernel reaches every table from one register. An address for each would need more registers than there are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from memopt.traces.core.active_loops import FRAMES, LEVELS, ROW
from memopt.traces.core.compiler import kernel
from memopt.traces.core.tables import Array, behind, pointer
from memopt.traces.dependences.carrying_loop import KNOWN, KNOWN_ROW
from memopt.traces.dependences.shadow_lines import HINTS
from memopt.traces.dependences.shadow_memory import NUMBERS, RECENT
from memopt.traces.dependences.shadow_strips import CACHE, CACHE_ROW


class Tables(NamedTuple):
    """Pointers to tables of 64-bit numbers, in rows and columns. Those of ``Activity`` and ``Reading`` are described
    there.

    cache: see ``shadow_strips.py``. known: see ``carrying_loop.py``. recent: cell and site of a further reader, and
    where in chunks its last time is. hints: see ``Lines``.

    pages: number, 0, then as in cache. cells, a cache line each: time of the last write (0: none); its site, and in the
    lower half the last chunk of further readers (0: none); the sites of two readers since then (0: none), the first one
    in the upper half; first and last time of the one, and of the other; which further readers there may be, by the low
    bits of their sites. chunks: further readers, two cache lines each. free: chunks that are not in use.

    found: source and sink; carrier and kind; bytes; least; most. strips: see ``shadow_strips.py``; free_strips: those
    not in use. tries: for each loop, how many iterations pass until the next attempt at a steady run, and how many
    passed last time. ahead: see ``prefetch.py``. own: the block itself, which costs less to pass on than all these
    pointers.
    """

    active: Any
    state: Any
    frames: Any
    cache: Any
    known: Any
    recent: Any
    hints: Any
    rings: Any
    blocks: Any
    shapes: Any
    loops: Any
    context_blocks: Any
    context_loops: Any
    pages: Any
    cells: Any
    chunks: Any
    found: Any
    last: Any
    counts: Any
    free: Any
    strips: Any
    free_strips: Any
    tries: Any
    ahead: Any
    callers: Any
    lines: Any
    own: Any


def _behind(start: int, numbers: int) -> int:
    """The start of the next cache line behind ``numbers`` numbers from ``start`` on."""
    return start + (numbers + 7 & -8)


# Where the tables of the block begin. The active loops come first: their columns are looked up by a computed index, and
# without an offset to add that takes one instruction.
ADDRESSES = _behind(0, ROW * (LEVELS + 1))
STATE = _behind(ADDRESSES, len(Tables._fields))
OF_FRAMES = _behind(STATE, NUMBERS)
OF_CACHE = _behind(OF_FRAMES, 2 * (FRAMES + 1))
OF_KNOWN = _behind(OF_CACHE, CACHE * CACHE_ROW)
OF_RECENT = _behind(OF_KNOWN, KNOWN * KNOWN_ROW)
OF_HINTS = _behind(OF_RECENT, 2 * RECENT)
LENGTH = _behind(OF_HINTS, HINTS)


def room(block: Array, start: int, rows: int, columns: int) -> Array:
    """The table of the block that begins at ``start``."""
    return block[start:start + rows * columns].reshape(rows, columns)


def put(block: Array, start: int, table: Array) -> Array:
    """Copies a table into the block, from ``start`` on, and returns the copy."""
    place = block[start:start + table.size].reshape(table.shape)
    place[:] = table
    return place


@kernel(forceinline=True)
def tables_at(d):
    """The tables of the block at ``d``."""
    a = behind(d, ADDRESSES)
    return Tables(d, behind(d, STATE), behind(d, OF_FRAMES), behind(d, OF_CACHE), behind(d, OF_KNOWN),
                  behind(d, OF_RECENT), behind(d, OF_HINTS), pointer(a[0]), pointer(a[1]), pointer(a[2]), pointer(a[3]),
                  pointer(a[4]), pointer(a[5]), pointer(a[6]), pointer(a[7]), pointer(a[8]), pointer(a[9]),
                  pointer(a[10]), pointer(a[11]), pointer(a[12]), pointer(a[13]), pointer(a[14]), pointer(a[15]),
                  pointer(a[16]), pointer(a[17]), pointer(a[18]), d)
