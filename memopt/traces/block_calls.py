"""What the code of blocks (memopt.traces.block_code) calls for whatever is not the usual case.

Each takes the address of a directory, a row of 64-bit numbers that begins with the addresses of the tables, and three
numbers more; what it returns is 0, or what there must be more of before the code goes on.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba

from memopt.traces.activity import ACTIVE, BLOCK_NOW, CURRENT, LOOP_NOW, NODE_NOW, NUMBER, ROW, begin_block
from memopt.traces.carriers import find
from memopt.traces.kernels import kernel
from memopt.traces.places import CACHE, Tables, access, finding, go_on, keeping, tables
from memopt.traces.shadow import CELL, LOW, MAY_READ, WRITER, further_reader
from memopt.traces.tables import pointer
from memopt.traces.touching import write_after_further
from memopt.traces.trace import BLOCK

TABLES = len(Tables._fields)
CELLS_AT = Tables._fields.index("cells")
# Behind the addresses of the tables: where the code of each block begins, the cells of the pages met last, how often
# each block has run without code of its own, for each header the node it ran in last and the number of its loop
# there, the word that is looked at where there are no more, and the last one from which on words are looked at
# ahead; what a call returns, and a place that numba wants; a cell and a site meanwhile; where the code goes for what
# has none, and where it ends; where loops are left, entered and begin another iteration; how many runs are worth
# code; the kernels here, and the routines for accesses.
(DISPATCH, NEAR, RUNS, HEADERS, POSITION, END, LAST_AHEAD, RETURNED, RAISED, CELL_NOW, SITE_NOW, INTERPRET_AT, EXIT_AT,
 LEAVE_AT, ENTER_AT, ITERATION_AT, AHEAD_AT, ENOUGH, CALLS) = range(TABLES, TABLES + 19)
NO_MORE, MORE_CODE = -1, 100


@kernel()
def _begin(directory, block, word, _):
    """A block that does not go on in the loops of the one before."""
    d = pointer(directory)
    t = tables(d)
    more = begin_block(t, block, word)
    if not more and t.blocks[5 * block + 3] and t.state[LOOP_NOW] == t.blocks[5 * block + 2]:
        headers = pointer(d[HEADERS])
        headers[2 * block] = t.state[NODE_NOW]
        headers[2 * block + 1] = t.active[ROW * (t.state[ACTIVE] - 1) + NUMBER]
    return more


@kernel()
def _look_at(directory, index, word, _):
    """At one access of the block that runs."""
    d = pointer(directory)
    t = tables(d)
    row, address = 3 * (t.blocks[5 * t.state[BLOCK_NOW]] + index), word & 0xFFFFFFFFFFFF
    more = access(t, t.shapes[row + 1], t.state[CURRENT] + index, address, t.shapes[row])
    line = address >> 12 & (CACHE - 1)
    if t.cache[2 * line] == address >> 12:
        near = pointer(d[NEAR])
        near[2 * line], near[2 * line + 1] = address >> 12, d[CELLS_AT] + 8 * CELL * t.cache[2 * line + 1]
    return more


@kernel()
def _find(directory, key, first, last):
    find(finding(tables(pointer(directory))), key, first, last)
    return 0


@kernel()
def _read_further(directory, cell, site, time):
    d = pointer(directory)
    t = tables(d)
    further_reader(keeping(t), (cell - d[CELLS_AT]) // (8 * CELL), site, time)
    return 0


@kernel()
def _write_further(directory, cell, site, kind):
    d = pointer(directory)
    t = tables(d)
    row = pointer(cell)
    write_after_further(finding(t), keeping(t), kind, site, row[WRITER] & LOW)
    row[MAY_READ] = 0
    return 0


@kernel()
def _interpret(directory, position, _one, _other):
    """What lies there, up to the next block."""
    d = pointer(directory)
    t = tables(d)
    words, count = pointer(position), (d[END] - position) // 8
    if count == 0:
        return NO_MORE
    block = words[0] & 0xFFFFFFFF if words[0] >> 48 & 0xFFFF == BLOCK else -1
    at, more = go_on(t, words, count, 0, 1)
    d[POSITION] = position + 8 * at
    if more:
        return more
    if at == 0 or at == count:
        return NO_MORE
    if block >= 0:
        runs = pointer(d[RUNS])
        runs[block] += 1
        if runs[block] == d[ENOUGH]:
            return MORE_CODE
    return 0


@kernel(nogil=True)
def interpret_all(directory, position):
    """Everything, without code of blocks."""
    d = pointer(directory)
    t = tables(d)
    at, more = go_on(t, pointer(position), (d[END] - position) // 8, 0, 1 << 62)
    d[POSITION] = position + 8 * at
    return more if more else NO_MORE


BEGIN, LOOK_AT, FIND, READ_FURTHER, WRITE_FURTHER, INTERPRET = range(6)
ROUTINES = CALLS + 6
_FUNCTIONS = (_begin, _look_at, _find, _read_further, _write_further, _interpret)


@cache
def addresses() -> tuple[int, ...]:
    """Where the functions are. Numba's convention: the address for what is returned, one for an exception, the
    arguments; as in C otherwise."""
    made: list[int] = []
    types = (numba.types.int64,) * 4
    for function in _FUNCTIONS:
        function.compile(types)
        compiled: Any = function.overloads[types]
        made.append(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))
    return tuple(made)
