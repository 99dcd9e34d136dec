"""A plan: what is to be done to a region, without machine code. It is what a plan cache may keep.

For a contraction (one statement, an accumulator, products over a reduction dimension) the loop nest made from a
plan is, outermost first::

    for each tile of ``loops`` (dimension, tile size), in order
        pack the operands whose Pack.level is this loop
    register tile: ``rows`` x ``vectors`` accumulators, reduction innermost and ascending
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Isa(Enum):
    SSE2 = "sse2"
    AVX2 = "avx2"
    AVX512 = "avx512"

    @property
    def vector_bytes(self) -> int:
        return {"sse2": 16, "avx2": 32, "avx512": 64}[self.value]

    @property
    def registers(self) -> int:
        return 32 if self is Isa.AVX512 else 16


@dataclass(frozen=True, slots=True)
class TileLoop:
    """Loop over tiles of ``size`` iterations of ``dimension``; sizes nest (an inner tile divides its outer)."""

    dimension: str
    size: int

    def __str__(self) -> str:
        return f"{self.dimension}/{self.size}"


@dataclass(frozen=True, slots=True)
class Pack:
    """Copy operand ``Statement.reads[read]`` to contiguous scratch just inside tile loop number ``level``
    (index into ``Plan.loops``): panels of ``width`` elements along ``dimension`` by the reduction dimension."""

    read: int
    dimension: str
    width: int
    level: int

    def __str__(self) -> str:
        return f"pack read {self.read} in {self.dimension}-panels of {self.width} inside loop {self.level}"


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """``row_count`` values of ``rows`` x (``vector_count`` vectors of ``lanes`` values) of ``vector``."""

    rows: str
    row_count: int
    vector: str
    vector_count: int
    lanes: int
    reduction: str

    def __str__(self) -> str:
        return (f"tile {self.rows}:{self.row_count} x {self.vector}:{self.vector_count}x{self.lanes}"
                f" over {self.reduction}")


@dataclass(frozen=True, slots=True)
class Plan:
    """``fuse_multiply_add`` only under ``--fp fast``. ``summary`` is the user's one-line description."""

    isa: Isa
    statement: str
    loops: tuple[TileLoop, ...]
    packs: tuple[Pack, ...]
    tile: RegisterTile
    fuse_multiply_add: bool = False

    def __str__(self) -> str:
        order = " ".join(map(str, self.loops))
        return "\n".join((f"plan {self.isa.value} {self.statement}: {order}", *map(str, self.packs), str(self.tile)))

    @property
    def summary(self) -> str:
        order = ", ".join(map(str, self.loops))
        packs = f", {len(self.packs)} operands packed" if self.packs else ""
        tile = f"{self.tile.row_count}x{self.tile.vector_count * self.tile.lanes}"
        return f"tiled ({order}){packs}, {tile} register tile, {self.isa.value}"


@dataclass(frozen=True, slots=True)
class NestPlan:
    """The plans of a nest's statements, distributed: each runs over all iterations before the next one starts."""

    parts: tuple[Plan, ...]

    @property
    def isa(self) -> Isa:
        return self.parts[0].isa

    @property
    def summary(self) -> str:
        if len(self.parts) == 1:
            return self.parts[0].summary
        return f"distributed in {len(self.parts)}, first {self.parts[0].summary}"

    def __str__(self) -> str:
        return "\n".join(map(str, self.parts))
