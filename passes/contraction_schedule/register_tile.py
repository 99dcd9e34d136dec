"""Register tile: how many rows and vectors of results stay in registers over a block of the reduction.

``Vectorize`` decides the vector length: results that are neighbours along the vector dimension share a register.
``RegisterTile`` decides how many rows and vectors, from the register file and the latency of an addition
(memopt.models.tile_sizes).

Before: ``S0[i, j, k] -> [k]``, lanes and rows ``j, i``. After: ``S0[i, j, k] -> [floor(j/24), floor(i/8), k]``. Legal
because ``interchange`` has shown that rows and lanes do not depend on each other.
"""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.plan import RegisterTile as Tile
from memopt.ir.plan import TileLoop
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.ir.scop import Access, Apply, Expression, extreme
from memopt.models.contraction_cost import stride
from memopt.models.tile_sizes import RegisterNeeds, register_tile
from passes.context import Context
from passes.contraction_schedule.base import Roles, ScheduledRegion, known_trips


@dataclass(frozen=True, slots=True)
class Vectorize:
    """The pass that sets ``lanes``: one full vector of results along the vector dimension.

    Operands that vary along it are packed so that their elements are neighbours. Results whose elements are no
    neighbours are copied tile by tile.
    """

    name = "vectorize"

    def run(self, state: ScheduledRegion, context: Context) -> ScheduledRegion:
        """Needs roles; ``VerifyError`` where the vector dimension does not move the results."""
        roles = roles_of(state)
        element = state.scop.array(state.statement.write.array).element.size
        if not stride(state.scop, state.statement.write, roles.vector):
            raise VerifyError(f"results do not move along {roles.vector}")
        return replace(state, lanes=context.isa.vector_bytes // element)


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """The pass that sets ``tile`` and the loops over register tiles."""

    name = "register-tile"

    def run(self, state: ScheduledRegion, context: Context) -> ScheduledRegion:
        """Needs roles and lanes. Raises ``Rejected(NO_PLAN)`` when not even the smallest tile fits the register
        file."""
        roles = roles_of(state)
        if state.lanes is None:
            raise VerifyError("the register tile needs the lanes")
        rows, columns = known_trips(state, roles.rows), known_trips(state, roles.vector)
        counts = register_tile(context.isa, state.lanes, _needs(state, roles), rows, columns)
        if counts is None:
            raise Rejected(Reason.NO_PLAN, "the statement needs more vector registers than there are")
        tile = Tile(roles.rows, counts[0], roles.vector, counts[1], state.lanes, roles.reduction)
        loops = (
            *(TileLoop(name, 1) for name in roles.outer),
            TileLoop(tile.vector, tile.vector_count * tile.lanes),
            TileLoop(tile.rows, tile.row_count),
        )
        points = (roles.reduction, roles.vector, roles.rows)
        return replace(state, tile=tile, loops=loops, points=points)


def roles_of(state: ScheduledRegion) -> Roles:
    """The roles that ``interchange`` has set; ``VerifyError`` before that."""
    if state.roles is None:
        raise VerifyError("the dimensions have no roles yet")
    return state.roles


def _needs(state: ScheduledRegion, roles: Roles) -> RegisterNeeds:
    """Vector registers beside the accumulators. Vector operands are loaded once for all rows; the broadcasts of a row
    live while that row is computed."""

    def varies(access: Access) -> bool:
        return stride(state.scop, access, roles.vector) != 0

    vectors = sum(varies(a) for _, a in state.operands)
    broadcasts = len(state.operands) - vectors
    expression = extreme(state.statement) or state.statement.expression
    temporaries = _temporaries(expression.operands) if isinstance(expression, Apply) else 0
    return RegisterNeeds(per_vector=vectors, fixed=broadcasts + temporaries)


def _temporaries(operands: tuple[Expression, ...]) -> int:
    """Registers for intermediate values (Sethi and Ullman, JACM 17(4), 1970). Leaves of the tree are in registers
    already."""
    needed = held = 0
    for operand in operands:
        if isinstance(operand, Apply):
            needed = max(needed, held + max(1, _temporaries(operand.operands)))
            held += 1
    return needed
