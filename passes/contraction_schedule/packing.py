"""Packing: operands copied into panels that the register tile reads front to back.

Strided operands touch a new page, and often the same few sets, at every step of the reduction; a panel is read in
order from the cache it was made for. The vector operand is packed once for each block of the reduction, the row
operand once for each block of rows. What the copies cost is part of the estimate (memopt.models.contraction_cost).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from memopt.ir.plan import Pack
from memopt.ir.reasons import VerifyError
from memopt.models.contraction_cost import stride
from passes.context import Context
from passes.contraction_schedule.base import ScheduledRegion


@dataclass(frozen=True, slots=True)
class Packing:
    name = "packing"

    def run(self, state: ScheduledRegion, context: Context) -> ScheduledRegion:
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
                # The outermost loop over the rows is the block's; it lies inside that over the reduction.
                packs.append(Pack(index, tile.rows, tile.row_count, blocks[tile.rows]))
        return replace(state, packs=tuple(packs))
