"""Heap allocations: address, size and calling context of each block that malloc and the like have returned.

Example: for ``p = malloc(100)`` the trace has the first two arguments at the entry of ``malloc``, and rax in the block
behind the call. The size is 100, the address is the value of rax.

In: the BLOCK and EXTRA words of a thread's trace (``core/format.py``), and the result of ``allocators.allocates`` for
each block.

Out: one ``Allocation`` for each address, the latest one.

Why a return is matched with the right call: while the allocating function and its callees run, the trace has no node
lower than the function's own. So the first return to a lower node is the function's own return. This also holds where
the function ends with a tail jump to another one: both return at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy

from memopt.ir.frozen import dataclass
from memopt.traces.allocators import PRODUCT, SECOND
from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import BLOCK, EXTRA, FLAGS, BlockShape, Words
from memopt.traces.core.reader import Reading
from memopt.traces.core.tables import larger, new_table, pointer, slot

_MOST = 1 << 20  # addresses that are kept; further ones are left out
_PENDING = 64  # calls of allocating functions that have not returned yet
# Columns of the state. _AWAITED: the next word is the node of _BLOCK_NOW. _EXTRAS: EXTRA words met in this block.
_AWAITED, _BLOCK_NOW, _NODE_NOW, _EXTRAS, _WAITING, _KNOWN = range(6)
_DONE, _MORE = range(2)
_ADDRESS_BITS = (1 << 48) - 1


@dataclass(frozen=True, slots=True)
class Allocation:
    """A block of memory that an allocating function has returned."""

    address: int
    size: int  # in bytes
    node: int  # the calling context: the node of the function that has allocated it


@kernel()
def _returned(state, waiting, node, address, table, places):
    """Handles a return to ``node`` with ``address`` in rax: it ends the pending calls of higher nodes. The outermost of
    them has allocated the block.
    """
    at = state[_WAITING]
    while at > 0 and waiting[2 * at - 1] > node:
        at -= 1
    if at < state[_WAITING] and address:
        row = 4 * slot(table, 4, places, address, 0)
        if table[row + 1] == -1 and state[_KNOWN] < _MOST:
            state[_KNOWN] += 1
            table[row], table[row + 1] = address, 0
        if table[row + 1] == 0:
            table[row + 2], table[row + 3] = waiting[2 * at], waiting[2 * at + 1]
    state[_WAITING] = at


@kernel(nogil=True)
def _feed(all_words, at, state, all_kinds, all_waiting, all_table):
    """Reads from the word ``at`` on. Returns where it stopped, and _MORE if the table must grow first, else _DONE."""
    words, kinds = pointer(all_words.ctypes.data), pointer(all_kinds.ctypes.data)
    waiting, table = pointer(all_waiting.ctypes.data), pointer(all_table.ctypes.data)
    places = len(all_table)
    for place in range(at, len(all_words)):
        word = words[place]
        upper = word >> 48 & 0xFFFF
        if state[_AWAITED]:
            state[_AWAITED], state[_NODE_NOW], state[_EXTRAS] = 0, word & ~FLAGS, 0
        elif upper == BLOCK:
            state[_AWAITED], state[_BLOCK_NOW] = 1, word & 0xFFFFFFFF
        elif upper == EXTRA:
            if 2 * (state[_KNOWN] + 1) > places:
                return place, _MORE
            kind, value = kinds[state[_BLOCK_NOW]], word & _ADDRESS_BITS
            if kind == 0:
                if state[_WAITING]:
                    _returned(state, waiting, state[_NODE_NOW], value, table, places)
            elif state[_EXTRAS] == 0:
                top = min(state[_WAITING], _PENDING - 1)
                state[_WAITING] = top + 1
                waiting[2 * top], waiting[2 * top + 1] = value, state[_NODE_NOW]
            elif kind == SECOND:
                waiting[2 * (state[_WAITING] - 1)] = value
            elif kind == PRODUCT:
                waiting[2 * (state[_WAITING] - 1)] *= value
            state[_EXTRAS] += 1
    return len(all_words), _DONE


class Allocations(Reading):
    """Finds the allocations of one thread."""

    def __init__(self) -> None:
        super().__init__()
        self._state = numpy.zeros(6, numpy.int64)
        self._kinds = numpy.zeros(0, numpy.int64)
        self._waiting = numpy.zeros((_PENDING, 2), numpy.int64)  # size, node
        self._table = new_table(1 << 10, 4)  # address, 0, size, node

    def know(self, blocks: Sequence[BlockShape], loops: Sequence[tuple[int | None, int]]) -> None:
        """Adds blocks and loops, which continue the numbering."""
        super().know(blocks, loops)
        self._kinds = numpy.concatenate((self._kinds, numpy.array([b.allocates for b in blocks], numpy.int64)))

    def feed(self, words: Words) -> None:
        """Reads the next words of the trace. Precondition: their blocks are known."""
        pending = words.view(numpy.int64)
        at, more = 0, -1
        while more != _DONE:
            at, more = _feed(pending, at, self._state, self._kinds, self._waiting, self._table)
            if more == _MORE:
                self._table = larger(self._table)

    def all(self) -> Iterator[Allocation]:
        """Yields, for each address, the latest allocation that returned it."""
        for address, _, size, node in self._table[self._table[:, 1] != -1].tolist():
            yield Allocation(address, size, node)
