"""Where the tables are that dependences are found by.

Those of fixed size lie side by side in one block of memory, with the addresses of the others, so that kernels reach
them from one register; an address each would cost a kernel more registers than there are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from memopt.traces.core.active_loops import FRAMES, LEVELS, ROW
from memopt.traces.core.compiler import kernel
from memopt.traces.core.tables import Array, behind, pointer
from memopt.traces.dependences.carrier import KNOWN, KNOWN_ROW
from memopt.traces.dependences.shadow_lines import HINTS
from memopt.traces.dependences.shadow_memory import NUMBERS, RECENT
from memopt.traces.dependences.shadow_strips import CACHE, CACHE_ROW


class Tables(NamedTuple):
    """Pointers to 64-bit numbers; a table is made of rows, in columns:

    those that Activity and Reading have, as they say. cache: see strips.py. known: see find. recent: cell and site of
    one of the further readers, where in chunks its last time is. hints: see Lines.
    pages: number, 0, then as in cache. cells, of a cache line each: time of the last write (0: none); its site, and in
    the lower half the chunk of the last further readers (0: none); the sites of two readers since then (0: none), the
    first in the upper half; first and last time of the one, and of the other; which further readers there may be, by
    the low bits of their sites. chunks: of further readers, two cache lines each. free: chunks that are not in use.
    found: source and sink, carrier and kind, bytes, least, most. strips: see there; free_strips: those that are not in
    use. tries: of each loop, how many iterations are not tried as the first of a run, and what that was before. ahead:
    see ahead.py. own: the block, which costs less to hand on than each of them.
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
    """What begins in the next cache line."""
    return start + (numbers + 7 & -8)


# Where what is in the block begins. First the active loops: where in them a time stands is known only when it is looked
# up, and without a distance to add then, that is one instruction.
ADDRESSES = _behind(0, ROW * (LEVELS + 1))
STATE = _behind(ADDRESSES, len(Tables._fields))
OF_FRAMES = _behind(STATE, NUMBERS)
OF_CACHE = _behind(OF_FRAMES, 2 * (FRAMES + 1))
OF_KNOWN = _behind(OF_CACHE, CACHE * CACHE_ROW)
OF_RECENT = _behind(OF_KNOWN, KNOWN * KNOWN_ROW)
OF_HINTS = _behind(OF_RECENT, 2 * RECENT)
LENGTH = _behind(OF_HINTS, HINTS)


def room(block: Array, start: int, rows: int, columns: int) -> Array:
    """A table of the block, from ``start`` on."""
    return block[start:start + rows * columns].reshape(rows, columns)


def put(block: Array, start: int, table: Array) -> Array:
    """The same table in the block, from ``start`` on."""
    place = block[start:start + table.size].reshape(table.shape)
    place[:] = table
    return place


@kernel(forceinline=True)
def tables_at(d):
    """Those of the block at ``d``."""
    a = behind(d, ADDRESSES)
    return Tables(d, behind(d, STATE), behind(d, OF_FRAMES), behind(d, OF_CACHE), behind(d, OF_KNOWN),
                  behind(d, OF_RECENT), behind(d, OF_HINTS), pointer(a[0]), pointer(a[1]), pointer(a[2]), pointer(a[3]),
                  pointer(a[4]), pointer(a[5]), pointer(a[6]), pointer(a[7]), pointer(a[8]), pointer(a[9]),
                  pointer(a[10]), pointer(a[11]), pointer(a[12]), pointer(a[13]), pointer(a[14]), pointer(a[15]),
                  pointer(a[16]), pointer(a[17]), pointer(a[18]), d)
