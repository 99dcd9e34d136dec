"""The table of targets of a recorded process: which copy stands for an original address.

Example: ``call rax`` in a copy looks up the address in rax, and goes to the way in that the table has for it.

In: the memory of the process, stopped; original addresses. Out: entries (runtime.recording.translation.layout).

Invariant: an entry is complete before a thread can find it, since its copy is written before its address.
"""

from __future__ import annotations

import struct
from copy import copy as shallow_copy

from memopt.ir.reasons import Reason, Rejected
from runtime.recording.translation.layout import TABLE_ENTRIES
from runtime.target.memory import Memory

_WORD = struct.Struct("<Q").pack
_NO_ADDRESS = 1  # minus this is no address


class Targets:
    """The entries of the table at the address ``start``."""

    def __init__(self, memory: Memory, start: int) -> None:
        self._memory, self.start = memory, start
        self._used: dict[int, int] = {}  # original addresses, by index of the entry; _NO_ADDRESS where one was removed

    def forked(self, memory: Memory) -> Targets:
        """The table of a forked child."""
        child = shallow_copy(self)
        child._memory, child._used = memory, dict(self._used)
        return child

    def enter(self, address: int, copy: int) -> None:
        """Enters ``copy`` for the original ``address``, which has no entry. Raises Rejected(NO_ROOM)."""
        if len(self._used) >= TABLE_ENTRIES - 1:
            raise Rejected(Reason.NO_ROOM, "the table of targets is full")
        index = address % TABLE_ENTRIES
        while index in self._used:
            index = (index + 1) % TABLE_ENTRIES
        self._used[index] = address
        self._memory.write(self.start + 16 * index + 8, _WORD(copy))
        self._memory.write(self.start + 16 * index, _WORD(-address % (1 << 64)))

    def remove(self, address: int) -> None:
        """Removes the entry of ``address``, which has one."""
        index = address % TABLE_ENTRIES
        while self._used[index] != address:
            index = (index + 1) % TABLE_ENTRIES
        self._used[index] = _NO_ADDRESS
        self._memory.write(self.start + 16 * index, _WORD(_NO_ADDRESS))
