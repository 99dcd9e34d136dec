"""The trees of calling contexts that threads of a recorded process grow in its memory, seen from outside.

A node is what a unit keeps of one context it runs in: its number, the node that called it, the record of the site, and
what its ``NodeLayout`` says. The first node of a tree has counters of no unit.
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
from runtime.recording.translation.layout import LAST_CELL, NEXT_NODE, NODE_CALLER, NODE_COUNTERS, NODE_SITE
from runtime.recording.translation.unit import Unit
from runtime.target.memory import Memory

_CHUNK_BYTES = 1 << 20
_WORD = struct.Struct("<Q").pack


@dataclass
class Thread:
    """``state``: the page gs points to. ``root``: address of the node above all others. ``chunks``: where its nodes
    lie, the last chunk up to NEXT_NODE. ``signals``: for each handler that runs, what it interrupted: (instruction
    pointer, stack pointer, copy of the instruction, node, top of the calls). ``trace``: where its trace begins, 0 where
    nothing is watched. ``cut``: by (node, copy of an instruction, or behind a system call), how much oftener the thread
    began there than it went away from there for good, for a handler or at its end. ``known``: where nodes end that the
    watcher knows."""

    tid: int
    state: int
    root: int
    trace: int
    chunks: list[tuple[int, int]] = field(default_factory=list)
    signals: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    cut: Counter[tuple[int, int]] = field(default_factory=Counter)
    known: int = 0

    def give_up(self, first: int) -> None:
        """What the handlers from this one on interrupted does not go on."""
        for _, _, copy, node, _ in self.signals[first:]:
            self.cut[node, copy] -= 1
        del self.signals[first:]


class Trees:
    """``units``: by their numbers, from 1 on. Chunks lie at addresses ``[start, end)``. The process stands still
    whenever something is asked of it here."""

    def __init__(self, memory: Memory, units: Sequence[Unit], start: int, end: int) -> None:
        self._memory, self._units, self._next, self._end = memory, units, start, end

    def forked(self, memory: Memory) -> Trees:
        """Those of a child, whose ``memory`` is a copy."""
        child = shallow_copy(self)
        child._memory = memory
        return child

    def chunk(self) -> tuple[int, int]:
        """Addresses ``[start, end)`` for nodes and cells. Raises Rejected(NO_MEMORY)."""
        start, end = self._next, self._next + _CHUNK_BYTES
        if end > self._end:
            raise Rejected(Reason.NO_MEMORY, "too many calling contexts")
        self._next = end
        return start, end

    def more_room(self, thread: Thread) -> None:
        """A new chunk for nodes and cells. Raises Rejected(NO_MEMORY)."""
        start, end = self.chunk()
        thread.chunks[-1] = thread.chunks[-1][0], self._memory.word(thread.state + NEXT_NODE)
        thread.chunks.append((start, end))
        self._memory.write(thread.state + NEXT_NODE, _WORD(start) + _WORD(end))

    def child(self, thread: Thread, caller: int, unit: Unit) -> int:
        """A new node of ``unit``, called from nowhere in the node ``caller``."""
        node = self._memory.word(thread.state + NEXT_NODE)
        if node + unit.node_bytes > self._memory.word(thread.state + LAST_CELL):
            self.more_room(thread)
            node = self._memory.word(thread.state + NEXT_NODE)
        self._memory.write(thread.state + NEXT_NODE, _WORD(node + unit.node_bytes))
        self._memory.write(node, _WORD(unit.number) + _WORD(caller))
        return node

    def new_nodes(self, thread: Thread) -> NDArray[numpy.int64]:
        """Rows (node, the one that called it) of those made since this was asked before, callers first."""
        rows = [(start + 8 * at, int(words[at + NODE_CALLER // 8]))
                for start, words in self._chunks(thread, thread.known) for at, _ in self._nodes(thread, start, words)]
        thread.known = thread.chunks[-1][1]
        return numpy.array(rows, numpy.int64).reshape(-1, 2)

    def collect(self, thread: Thread) -> Iterator[tuple[int, Unit, int, int, NDArray[numpy.int64]]]:
        """The nodes: address, unit, caller's address, record of the site or 0, counters."""
        for start, words in self._chunks(thread):
            for at, unit in self._nodes(thread, start, words):
                first = at + NODE_COUNTERS // 8
                yield (start + 8 * at, unit, int(words[at + NODE_CALLER // 8]), int(words[at + NODE_SITE // 8]),
                       words[first:first + unit.counters])

    def _chunks(self, thread: Thread, behind: int = 0) -> Iterator[tuple[int, NDArray[numpy.int64]]]:
        """As far as they are in use, from the address ``behind`` on: addresses and words."""
        thread.chunks[-1] = thread.chunks[-1][0], self._memory.word(thread.state + NEXT_NODE)
        for first, end in thread.chunks:
            start = max(first, behind)
            if start < end:
                yield start, numpy.frombuffer(self._memory.read(start, end - start), numpy.int64)

    def _nodes(self, thread: Thread, start: int, words: NDArray[numpy.int64]) -> Iterator[tuple[int, Unit]]:
        """Where the nodes of a chunk begin among its words."""
        at = NODE_COUNTERS // 8 if start == thread.root else 0
        while at < len(words):
            unit = self._units[int(words[at]) - 1]
            yield at, unit
            at += unit.node_bytes // 8

    def forget_counts(self, thread: Thread) -> None:
        for start, read in self._chunks(thread):
            words = read.copy()
            for at, unit in self._nodes(thread, start, read):
                first = at + NODE_COUNTERS // 8
                words[first:first + unit.counters] = 0
            self._memory.write(start, words.tobytes())
