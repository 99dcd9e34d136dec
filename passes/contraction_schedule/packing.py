"""Packing: operands are copied into contiguous panels, which the register tile reads front to back.

Before: the tile reads ``B[k][j..j+23]`` for each k, a new page and often the same few cache sets at every step. After:
``panel[k][0..23]``, read in order from the cache that it was made for.

The vector operand is packed once for each block of the reduction, the row operand once for each block of rows. The
estimate counts what the copies cost (memopt.models.contraction_cost). Legal when no statement writes the operand;
passes.legality.contractions checks it.
"""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.plan import Pack
from memopt.ir.reasons import VerifyError
from memopt.models.contraction_cost import stride
from passes.context import Context
from passes.contraction_schedule.base import ScheduledRegion


@dataclass(frozen=True, slots=True)
class Packing:
    """The pass: sets ``packs``, one ``Pack`` for each operand."""

    name = "packing"

    def run(self, state: ScheduledRegion, context: Context) -> ScheduledRegion:
        """Needs the register tile and the cache tiles; ``VerifyError`` without the register tile."""
        tile = state.tile
        if tile is None:
            raise VerifyError("packing needs the register tile")
        blocks = {loop.dimension: level for level, loop in reversed(tuple(enumerate(state.loops)))}
        packs = []
        for index, access in state.operands:
            if stride(state.scop, access, tile.vector):
                width, level = tile.vector_count * tile.lanes, blocks[tile.reduction]
                packs.append(Pack(index, tile.vector, width, level))
            else:
                # The outermost loop over the rows is that of the block; it lies inside the loop over the reduction.
                packs.append(Pack(index, tile.rows, tile.row_count, blocks[tile.rows]))
        return replace(state, packs=tuple(packs))
