"""Reads the calling-context trees that threads of a recorded process build in its memory.

Example: if ``main`` calls ``f`` at two sites, ``f`` has two nodes below that of ``main``, each with counters of its
own.

A node is a unit in one calling context: the unit's number, the caller's node, the record of the site, and what its
``NodeLayout`` says. The root of a tree belongs to no unit.

In: the memory of the process, stopped. Out: the nodes, with their counters.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy as shallow_copy
from dataclasses import dataclass, field

import numpy
from numpy.typing import NDArray

from memopt.ir.reasons import Reason, Rejected
from runtime.recording.placed import Placed
from runtime.recording.translation.layout import LAST_CELL, NEXT_NODE, NODE_CALLER, NODE_COUNTERS, NODE_SITE, NODE_STRAY
from runtime.recording.translation.unit import Unit
from runtime.target.memory import Memory

_CHUNK_BYTES = 1 << 20
_WORD = struct.Struct("<Q").pack


@dataclass
class Thread:
    """A recorded thread."""

    tid: int
    number: int  # by which results name it: tid, unless an earlier thread has had that
    state: int  # address of the page that gs points to
    root: int  # address of the root of its tree
    trace: int  # where its trace begins; 0 if it has none
    chunks: list[tuple[int, int]] = field(default_factory=list)  # where its nodes lie; the last one up to NEXT_NODE
    # For each handler that runs, what it interrupted: instruction pointer, stack pointer, copy of the instruction,
    # node, top of the stack of calls.
    signals: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    # By (node, copy of an instruction, or place behind a system call): how much more often the thread began there than
    # it left from there for good (for a handler, or at its end).
    cut: Counter[tuple[int, int]] = field(default_factory=Counter)
    known: int = 0  # the watcher knows the nodes up to this address

    def give_up(self, first: int) -> None:
        """Notes that what the handlers from the number ``first`` on have interrupted does not go on."""
        for _, _, copy, node, _ in self.signals[first:]:
            self.cut[node, copy] -= 1
        del self.signals[first:]


class Trees:
    """The trees of a process. ``units``: by number, from 1 on. Chunks for nodes lie at addresses ``[start, end)``.
    Precondition of all methods: the process stands still.
    """

    def __init__(self, memory: Memory, units: Sequence[Unit], start: int, end: int) -> None:
        self._memory, self._units, self._next, self._end = memory, units, start, end
        # Chunks of threads that have ended: what was used of them, pieces ``[start, end)``.
        self._free: list[tuple[int, tuple[tuple[int, int], ...]]] = []

    def forked(self, memory: Memory) -> Trees:
        """The trees of a forked child, whose ``memory`` is a copy."""
        child = shallow_copy(self)
        child._memory, child._free = memory, list(self._free)
        return child

    def chunk(self) -> tuple[int, int]:
        """Addresses ``[start, end)`` of a new chunk for nodes and cells, all zero. Raises Rejected(NO_MEMORY)."""
        if self._free:
            start, used = self._free.pop()
            for first, last in used:
                self._memory.write(first, bytes(last - first))
            return start, start + _CHUNK_BYTES
        start, end = self._next, self._next + _CHUNK_BYTES
        if end > self._end:
            raise Rejected(Reason.NO_MEMORY, "too many calling contexts")
        self._next = end
        return start, end

    def free(self, thread: Thread) -> None:
        """Frees the chunks of a thread that has ended."""
        *full, (last, _) = thread.chunks
        used = self._memory.word(thread.state + NEXT_NODE), self._memory.word(thread.state + LAST_CELL)
        self._free += ((start, ((start, start + _CHUNK_BYTES),)) for start, _ in full)
        self._free.append((last, ((last, used[0]), (used[1], last + _CHUNK_BYTES))))

    def more_room(self, thread: Thread) -> None:
        """Gives the thread a new chunk. Raises Rejected(NO_MEMORY)."""
        start, end = self.chunk()
        thread.chunks[-1] = thread.chunks[-1][0], self._memory.word(thread.state + NEXT_NODE)
        thread.chunks.append((start, end))
        self._memory.write(thread.state + NEXT_NODE, _WORD(start) + _WORD(end))

    def child(self, thread: Thread, caller: int, unit: Placed) -> int:
        """A new node of ``unit`` below the node ``caller``, called from no site."""
        node = self._memory.word(thread.state + NEXT_NODE)
        if node + unit.node_bytes > self._memory.word(thread.state + LAST_CELL):
            self.more_room(thread)
            node = self._memory.word(thread.state + NEXT_NODE)
        self._memory.write(thread.state + NEXT_NODE, _WORD(node + unit.node_bytes))
        self._memory.write(node, _WORD(unit.number) + _WORD(caller))
        if unit.unit.linkage.continues:  # what it jumps to is entered there
            self._memory.write(node + NODE_SITE, _WORD(node + NODE_STRAY))
        return node

    def new_nodes(self, thread: Thread) -> NDArray[numpy.int64]:
        """Rows (node, the node that called it) of the nodes made since the last call, callers first."""
        rows = [(start + 8 * at, int(words[at + NODE_CALLER // 8]))
                for start, words in self._chunks(thread, thread.known) for at, _ in self._nodes(thread, start, words)]
        thread.known = thread.chunks[-1][1]
        return numpy.array(rows, numpy.int64).reshape(-1, 2)

    def collect(self, thread: Thread) -> Iterator[tuple[int, Unit, int, int, NDArray[numpy.int64]]]:
        """Yields the nodes: address, unit, caller's address, record of the site or 0, counters."""
        for start, words in self._chunks(thread):
            for at, unit in self._nodes(thread, start, words):
                first = at + NODE_COUNTERS // 8
                yield (start + 8 * at, unit, int(words[at + NODE_CALLER // 8]), int(words[at + NODE_SITE // 8]),
                       words[first:first + unit.counters])

    def _chunks(self, thread: Thread, behind: int = 0) -> Iterator[tuple[int, NDArray[numpy.int64]]]:
        """Yields addresses and words of the used part of the chunks, from the address ``behind`` on."""
        thread.chunks[-1] = thread.chunks[-1][0], self._memory.word(thread.state + NEXT_NODE)
        for first, end in thread.chunks:
            start = max(first, behind)
            if start < end:
                yield start, numpy.frombuffer(self._memory.read(start, end - start), numpy.int64)

    def _nodes(self, thread: Thread, start: int, words: NDArray[numpy.int64]) -> Iterator[tuple[int, Unit]]:
        """Yields the index of the first word of each node of a chunk, and its unit."""
        at = NODE_COUNTERS // 8 if start == thread.root else 0
        while at < len(words):
            unit = self._units[int(words[at]) - 1]
            yield at, unit
            at += unit.node_bytes // 8

    def forget_counts(self, thread: Thread) -> None:
        """Sets all counters of a thread to 0."""
        for start, read in self._chunks(thread):
            words = read.copy()
            for at, unit in self._nodes(thread, start, read):
                first = at + NODE_COUNTERS // 8
                words[first:first + unit.counters] = 0
            self._memory.write(start, words.tobytes())
