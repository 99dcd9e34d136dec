"""Loop tiling for the caches: blocks of the three tile dimensions that stay in a cache while they are reused.

Before: ``[floor(j/24), floor(i/8), k]``. After:
``[floor(j/2064), floor(k/512), floor(i/128), floor(j/24), floor(i/8), k]``: the vector operand's block stays in the
outermost cache, the row operand's in L2, one panel of each in L1.

Legal because the reduction still ascends for each result, and the three tile dimensions are permutable
(``interchange``).
"""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.plan import Isa, TileLoop
from memopt.ir.reasons import VerifyError
from memopt.models.contraction_cost import stride
from memopt.models.tile_sizes import Panel, cache_tiles
from passes.context import Context
from passes.contraction_schedule.base import ScheduledRegion, known_trips
from passes.contraction_schedule.register_tile import roles_of


@dataclass(frozen=True, slots=True)
class Tiling:
    """The pass: replaces the loops over register tiles by cache tiles around them. Needs roles and the register tile.
    """

    name = "tiling"

    def run(self, state: ScheduledRegion, context: Context) -> ScheduledRegion:
        """Sizes from the machine's caches (memopt.models.tile_sizes); ``VerifyError`` without the register tile."""
        tile, roles = state.tile, roles_of(state)
        if tile is None:
            raise VerifyError("tiling needs the register tile")
        element = state.scop.array(state.statement.write.array).element.size
        columns = tile.vector_count * tile.lanes
        vectors = sum(stride(state.scop, a, tile.vector) != 0 for _, a in state.operands)
        # SSE2 cannot load one element into all lanes, so its row panels hold a copy of each element for every lane.
        copies = tile.lanes if context.isa is Isa.SSE2 else 1
        row_bytes = (len(state.operands) - vectors) * tile.row_count * element * copies
        sizes = cache_tiles(
            context.machine,
            Panel(tile.row_count, row_bytes, known_trips(state, tile.rows)),
            Panel(columns, vectors * columns * element, known_trips(state, tile.vector)),
            columns * element,
            known_trips(state, tile.reduction),
        )
        loops = (
            *(TileLoop(name, 1) for name in roles.outer),
            TileLoop(tile.vector, sizes.vector),
            TileLoop(tile.reduction, sizes.reduction),
            TileLoop(tile.rows, sizes.rows),
            TileLoop(tile.vector, columns),
            TileLoop(tile.rows, tile.row_count),
        )
        return replace(state, loops=loops)
