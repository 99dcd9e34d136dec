"""Guards that keep the bounds of loop plans within 64-bit arithmetic.

Generated loops compare and add numbers that are Linear over symbols and counters; with every symbol below 2**40 in size
and few, small coefficients no step can overflow. Addresses wrap as the program's own do.
"""

from __future__ import annotations

from collections.abc import Iterator

from memopt.ir.linear import Linear
from memopt.ir.plan import LoopPlan, NestPlan
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Relation
from memopt.ir.scop import LIMIT, TRIPS
from passes.loop_code.leaf_shape import domain

MOST = 1 << 40
_WEIGHT = 1 << 16  # sum of coefficients in one expression
_WHY = "loop bounds small enough for 64-bit arithmetic"


def magnitude_guards(plan: NestPlan) -> tuple[Relation, ...]:
    """For the symbols that bounds and dates of loop plans use; ``Rejected`` when a coefficient is too large."""
    symbols = {s for part in plan.parts if isinstance(part, LoopPlan) for s in _symbols(part)}
    return tuple(Relation(Linear.symbol(s, sign, MOST), False, _WHY) for s in sorted(symbols) for sign in (1, -1))


def _symbols(plan: LoopPlan) -> Iterator[str]:
    yield TRIPS
    leaves = {leaf.statement: leaf for leaf in plan.leaves}
    for statement in plan.statements:
        dimensions = {d.name for d in statement.dimensions}
        for expression in (*domain(statement), *(d.expression for d in leaves[statement.name].dates)):
            if sum(abs(c) for _, c in expression.terms) > _WEIGHT or abs(expression.constant) > MOST:
                raise Rejected(Reason.NO_SCHEDULE, f"numbers as large as those of {expression} in loop bounds")
            yield from expression.symbols - dimensions - {LIMIT}
