"""Interchange: give every dimension its role in the register tile.

Before: ``S0[i, j, k] -> [i, j, k]``. After: ``S0[i, j, k] -> [k]`` with ``j, i`` as lanes and rows, legal when every
result sees its reductions in their original order.

The vector dimension walks the results element by element, or by a stride where none does; a reduction dimension does
not move the result; the rows are the dimension, of those left, along which the operands are shared most. All others
run outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Statement
from memopt.models.contraction_cost import stride
from memopt.polyhedral.isl import IntegerSet, budget
from passes.context import Context
from passes.contraction_schedule.base import Roles, ScheduledRegion
from passes.contraction_schedule.contraction import element_of


@dataclass(frozen=True, slots=True)
class Interchange:
    name = "interchange"

    def run(self, state: ScheduledRegion, context: Context) -> ScheduledRegion:
        _check_shape(state)
        for roles in _candidates(state):
            if _is_legal(state, roles):
                points = (*roles.outer, roles.reduction, roles.vector, roles.rows)
                return replace(state, roles=roles, points=points, parallel=2)
        raise Rejected(Reason.NO_SCHEDULE, "no order of the loops keeps the dependences")


def _check_shape(state: ScheduledRegion) -> None:
    """One accumulation in one floating type, whose operands nobody writes."""
    statement, scop = state.statement, state.scop
    if len(scop.statements) != 1:
        raise Rejected(Reason.NO_PLAN, f"{len(scop.statements)} statements in one nest")
    if statement.reads.count(statement.write) != 1:
        raise Rejected(Reason.NO_PLAN, f"{statement.write} is not accumulated")
    if any(access.array == statement.write.array for _, access in state.operands):
        raise Rejected(Reason.OVERLAP, f"{statement.write.array} is both accumulated and read elsewhere")
    element_of(scop, statement)


def _candidates(state: ScheduledRegion) -> Iterator[Roles]:
    """Roles that fit the strides, best first; Rejected when there are none."""
    statement, scop = state.statement, state.scop
    names = [d.name for d in statement.dimensions]
    element = scop.array(statement.write.array).element.size
    moves = {name: stride(scop, statement.write, name) for name in names}
    reductions = [name for name in names if moves[name] == 0]
    shortest = min((abs(m) for m in moves.values() if m), default=0)
    vectors = [name for name in names if moves[name] and abs(moves[name]) == max(shortest, element)]
    if not reductions:
        raise Rejected(Reason.NO_PLAN, "nothing is accumulated over a loop")
    if not vectors:
        raise Rejected(Reason.NO_PLAN, "no loop walks over the results")
    # The innermost reduction stays innermost, so that each result sees all of them in their order.
    reduction = reductions[-1]
    pairs = [(r, v) for v in vectors for r in names if moves[r] and r != v and _is_tile(state, r, v)]
    if not pairs:
        raise Rejected(Reason.NO_PLAN, "no two loops of independent results")
    for rows, vector in sorted(pairs, key=lambda pair: _sharing(state, *pair), reverse=True):
        yield Roles(rows, vector, reduction, tuple(n for n in names if n not in (rows, vector, reduction)))


def _is_tile(state: ScheduledRegion, rows: str, vector: str) -> bool:
    """Every operand enters the tile as one value for a row or one value for a lane."""
    return all(not (stride(state.scop, a, rows) and stride(state.scop, a, vector)) for _, a in state.operands)


def _sharing(state: ScheduledRegion, rows: str, vector: str) -> tuple[int, int]:
    """Operands that stay while the rows advance, then those that lie in memory as the lanes want them."""
    accesses = [a for _, a in state.operands]
    element = state.scop.array(state.statement.write.array).element.size
    shared = sum(stride(state.scop, a, rows) == 0 for a in accesses)
    shared += sum(stride(state.scop, a, vector) == 0 for a in accesses)
    return shared, sum(stride(state.scop, a, vector) == element for a in accesses)


def _is_legal(state: ScheduledRegion, roles: Roles) -> bool:
    """The loops around the tiles may carry dependences forwards. Those they leave must be carried by the reduction
    alone: then the three tile dimensions are permutable and rows and lanes are independent (Wolf and Lam, "A loop
    transformation theory", IEEE TPDS 2(4), 1991)."""
    with budget():
        left = state.dependences.all.differences
        for name in roles.outer:
            if not (left & _distances(state.statement, f"{name} < 0")).is_empty:
                return False
            left = left & _distances(state.statement, f"{name} = 0")
        only = f"{roles.rows} = 0 and {roles.vector} = 0 and {roles.reduction} > 0"
        return left <= _distances(state.statement, only)


def _distances(statement: Statement, condition: str) -> IntegerSet:
    names = ", ".join(d.name for d in statement.dimensions)
    return IntegerSet.parse(f"{{ {statement.name}[{names}] : {condition} }}")
