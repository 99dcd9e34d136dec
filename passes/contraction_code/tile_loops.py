"""Tile loops: the rectangular loop nest of a plan, around whatever the caller puts inside.

Example: ``(j/1032, k/512, j/24)`` is ``for jj += 1032: for kk += 512: for j in [jj, min(jj+1032, n)) += 24``.

A loop visits blocks of ``size`` iterations of its dimension, ascending, inside the block of the next outer loop over
the same dimension. Invariant: inside loop number ``level`` the block of every dimension is ``[position, limit)``, not
empty, and together the innermost blocks visit every iteration once. Loop state lies in frame slots: a register tile
runs for thousands of cycles, and registers are worth more inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memopt.ir.plan import TileLoop
from passes.vector.emitter import Emitter, Value


class TileLoops:
    """Generates the loop nest. ``extents``: the trip count of every dimension, at least 1: a number or a frame slot."""

    def __init__(self, emitter: Emitter, loops: tuple[TileLoop, ...], extents: Mapping[str, Value]) -> None:
        self._emitter = emitter
        self._loops = loops
        self._extents = extents
        self._slots = [(emitter.slot(), emitter.slot()) for _ in loops]

    def position(self, dimension: str, level: int) -> Value:
        """First iteration of the block of ``dimension`` inside loop number ``level``; -1 is outside of all loops."""
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
        """Emits the nest. ``inside(level)`` emits the code that runs first in each iteration of loop ``level`` (-1:
        once, before all loops); that of the last level is the body. It may clobber every register but rbp and rsp."""
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
    """Emits ``register = high - low``."""
    emitter.load(register, high)
    if low != 0:
        emitter.op("sub", register, low)
