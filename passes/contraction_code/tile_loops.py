"""Tile loops: the rectangular loop nest of a plan around whatever the caller puts inside.

Each loop visits blocks of ``size`` iterations of its dimension, ascending, inside the block of the next loop
outside over the same dimension. Invariant: inside loop number ``level`` the block of every dimension is
``[position, limit)``, not empty, and together the innermost blocks visit every iteration once. Loop state lives in
frame slots: a register tile runs for thousands of cycles, registers are worth more inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memopt.ir.plan import TileLoop
from passes.vector.emitter import Emitter, Value


class TileLoops:
    """``extents``: trip count of every dimension, at least 1 each: a number or a frame slot."""

    def __init__(self, emitter: Emitter, loops: tuple[TileLoop, ...], extents: Mapping[str, Value]) -> None:
        self._emitter = emitter
        self._loops = loops
        self._extents = extents
        self._slots = [(emitter.slot(), emitter.slot()) for _ in loops]

    def position(self, dimension: str, level: int) -> Value:
        """First iteration of the block of ``dimension`` inside loop number ``level``; -1 is outside of all."""
        inner = self._innermost(dimension, level)
        return 0 if inner < 0 else self._slots[inner][0]

    def limit(self, dimension: str, level: int) -> Value:
        """One past the last iteration of that block."""
        inner = self._innermost(dimension, level)
        return self._extents[dimension] if inner < 0 else self._slots[inner][1]

    def always_full(self, dimension: str, size: int) -> bool:
        """Whether every innermost block of ``dimension`` is known to have ``size`` iterations."""
        extent = self._extents[dimension]
        sizes = [loop.size for loop in self._loops if loop.dimension == dimension]
        return isinstance(extent, int) and extent % size == 0 and all(s % size == 0 for s in sizes)

    def emit(self, inside: Callable[[int], None]) -> None:
        """The nest; ``inside(level)`` emits what runs first in each iteration of loop ``level`` (-1: once, before
        all), it may clobber every register but rbp and rsp. The last level's is the body."""
        self._emit_from(-1, inside)

    def _innermost(self, dimension: str, level: int) -> int:
        return max((i for i, loop in enumerate(self._loops[:level + 1]) if loop.dimension == dimension), default=-1)

    def _emit_from(self, level: int, inside: Callable[[int], None]) -> None:
        inside(level)
        if level + 1 == len(self._loops):
            return
        emitter, loop = self._emitter, self._loops[level + 1]
        first, stop = self.position(loop.dimension, level), self.limit(loop.dimension, level)
        position, limit = self._slots[level + 1]
        head = emitter.fresh(f"{loop.dimension}_tile")
        emitter.load("rax", first)
        emitter.place(head)
        emitter.op("mov", position, "rax")
        emitter.add("rax", loop.size, "rcx")
        emitter.minimum("rax", stop, "rcx")
        emitter.op("mov", limit, "rax")
        self._emit_from(level + 1, inside)
        emitter.op("mov", "rax", limit)
        emitter.load("rcx", stop)
        emitter.op("cmp", "rax", "rcx")
        emitter.jump(head, "l")


def difference(emitter: Emitter, register: str, high: Value, low: Value) -> None:
    """``register = high - low``."""
    emitter.load(register, high)
    if low != 0:
        emitter.op("sub", register, low)
