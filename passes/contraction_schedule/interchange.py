"""Loop interchange: give every dimension its role in the register tile.

Before: ``S0[i, j, k] -> [i, j, k]``. After: ``S0[i, j, k] -> [k]`` with ``j, i`` as lanes and rows. Legal when every
result gets its reductions in their original order.

The vector dimension moves the result by one element, or by the shortest stride where no dimension moves it by one. A
reduction dimension does not move the result. Of the remaining dimensions the rows are the one along which the operands
are shared most. All others run outside, one iteration at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Statement
from memopt.models.contraction_cost import stride
from memopt.polyhedral.isl import IntegerSet, budget
from passes.context import Context
from passes.contraction_schedule.base import Roles, ScheduledRegion
from passes.contraction_schedule.contraction import element_of


@dataclass(frozen=True, slots=True)
class Interchange:
    """The pass: takes the best roles that keep every dependence."""

    name = "interchange"

    def run(self, state: ScheduledRegion, context: Context) -> ScheduledRegion:
        """Sets ``roles``, ``points`` and ``parallel``. Raises ``Rejected``: ``NO_PLAN`` or ``OVERLAP`` when the
        statement is no contraction, ``NO_SCHEDULE`` when no candidate keeps the dependences."""
        _check_shape(state)
        for roles in _candidates(state):
            if _is_legal(state, roles):
                points = (*roles.outer, roles.reduction, roles.vector, roles.rows)
                return replace(state, roles=roles, points=points, parallel=2)
        raise Rejected(Reason.NO_SCHEDULE, "no order of the loops keeps the dependences")


def _check_shape(state: ScheduledRegion) -> None:
    """The statement must be one accumulation in one floating-point type, and nobody may write its operands. A statement
    that sets results to one value will do where no loop plan could have it: rows have a length that differs between
    entries."""
    statement, scop = state.statement, state.scop
    if len(scop.statements) != 1:
        raise Rejected(Reason.NO_PLAN, f"the nest has {len(scop.statements)} statements; a contraction has one")
    sets = scop.strided and not statement.reads
    if statement.reads.count(statement.write) != 1 and not sets:
        raise Rejected(Reason.NO_PLAN, f"the result {statement.write} is not accumulated")
    if any(access.array == statement.write.array for _, access in state.operands):
        raise Rejected(Reason.OVERLAP, f"{statement.write.array} is both accumulated and read elsewhere")
    element_of(scop, statement)


def _candidates(state: ScheduledRegion) -> Iterator[Roles]:
    """Roles that fit the strides, best first. Raises ``Rejected(NO_PLAN)`` when there are none."""
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
    # The innermost reduction stays innermost, so that each result gets all its reductions in their order.
    reduction = reductions[-1]
    pairs = [(r, v) for v in vectors for r in names if moves[r] and r != v and _is_tile(state, r, v)]
    if not pairs:
        raise Rejected(Reason.NO_PLAN, "there are no two loops of independent results")
    for rows, vector in sorted(pairs, key=lambda pair: _sharing(state, *pair), reverse=True):
        yield Roles(rows, vector, reduction, tuple(n for n in names if n not in (rows, vector, reduction)))


def _is_tile(state: ScheduledRegion, rows: str, vector: str) -> bool:
    """Whether every operand enters the tile as one value for a row or one value for a lane."""
    return all(not (stride(state.scop, a, rows) and stride(state.scop, a, vector)) for _, a in state.operands)


def _sharing(state: ScheduledRegion, rows: str, vector: str) -> tuple[int, int]:
    """The sort key of a pair: how many operands are reused along rows or lanes, then how many have their lanes
    contiguous in memory."""
    accesses = [a for _, a in state.operands]
    element = state.scop.array(state.statement.write.array).element.size
    shared = sum(stride(state.scop, a, rows) == 0 for a in accesses)
    shared += sum(stride(state.scop, a, vector) == 0 for a in accesses)
    return shared, sum(stride(state.scop, a, vector) == element for a in accesses)


def _is_legal(state: ScheduledRegion, roles: Roles) -> bool:
    """The loops around the tiles may carry dependences forwards. The dependences that they leave must be carried by the
    reduction alone. Then the three tile dimensions are permutable, and rows and lanes are independent (Wolf and Lam, "A
    loop transformation theory", IEEE TPDS 2(4), 1991)."""
    with budget():
        left = state.dependences.all.differences
        for name in roles.outer:
            if not (left & _distances(state.statement, f"{name} < 0")).is_empty:
                return False
            left = left & _distances(state.statement, f"{name} = 0")
        only = f"{roles.rows} = 0 and {roles.vector} = 0 and {roles.reduction} > 0"
        return left <= _distances(state.statement, only)


def _distances(statement: Statement, condition: str) -> IntegerSet:
    """The dependence distances that fulfil ``condition``, in isl's notation."""
    names = ", ".join(d.name for d in statement.dimensions)
    return IntegerSet.parse(f"{{ {statement.name}[{names}] : {condition} }}")
