"""Overflow guards: they bound the symbols in the loop bounds of loop plans, so that 64-bit arithmetic is exact.

Generated loops compare and add numbers that are Linear over symbols and counters. If every symbol is at most 2**40 in
magnitude, and the coefficients of an expression sum up to at most 2**16, no step can overflow. Addresses need no such
guard: they wrap around modulo 2**64 as the program's own do.

In: a plan, or the symbols of other loops (``passes.version.cell_scan``). Out: a pair of guards -2**40 <= s <= 2**40 for
each symbol s of its bounds and dates; for a contraction, whose loops count single bounds, a pair for each bound that is
known at entry only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memopt.ir.linear import Linear
from memopt.ir.plan import LoopPlan, NestPlan, Plan
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region, Relation
from memopt.ir.scop import LIMIT, TRIPS
from passes.loop_code.leaf_shape import domain

MOST = 1 << 40  # magnitude of a symbol or constant
_WEIGHT = 1 << 16  # sum of the magnitudes of the coefficients of one expression
_WHY = "loop bounds are small enough for 64-bit arithmetic"


def magnitude_guards(plan: NestPlan) -> tuple[Relation, ...]:
    """The guards for the symbols in bounds and dates of loop plans.

    Raises Rejected(NO_SCHEDULE) where coefficients or a constant are too large for any bound on symbols to help.
    """
    return bounds({s for part in plan.parts if isinstance(part, LoopPlan) for s in _symbols(part)})


def bounds(symbols: Iterable[str]) -> tuple[Relation, ...]:
    """Guards that each of ``symbols`` is at most ``MOST`` in magnitude."""
    return tuple(Relation(Linear.symbol(s, sign, MOST), False, _WHY) for s in sorted(symbols) for sign in (1, -1))


def extent_guards(region: Region, plan: NestPlan) -> tuple[Relation, ...]:
    """Guards for the trip counts of contractions that are known at entry only: the tile loops rely on at least one
    iteration. Half a register tile is demanded, because a version loses time on less."""
    tiles = {p.statement: {p.tile.rows: p.tile.row_count, p.tile.vector: p.tile.vector_count * p.tile.lanes}
             for p in plan.parts if isinstance(p, Plan)}
    found: dict[Linear, int] = {}
    for statement in (s for s in region.scop.statements if s.name in tiles):
        for dimension in (d for d in statement.dimensions[1:] if not d.trips.is_constant):
            least = -(-tiles[statement.name].get(dimension.name, 1) // 2)
            found[dimension.trips] = max(least, found.get(dimension.trips, least))
    return tuple(Relation(expression, False, _WHY) for trips, least in found.items()
                 for expression in (trips - least, -trips + MOST))


def check_numbers(expression: Linear) -> None:
    """Raises Rejected(NO_SCHEDULE) where the numbers in ``expression`` are too large for any bound on symbols to help.
    """
    if sum(abs(c) for _, c in expression.terms) > _WEIGHT or abs(expression.constant) > MOST:
        raise Rejected(Reason.NO_SCHEDULE, f"the numbers in the loop bound {expression} are too large")


def _symbols(plan: LoopPlan) -> Iterator[str]:
    yield TRIPS
    leaves = {leaf.statement: leaf for leaf in plan.leaves}
    for statement in plan.statements:
        dimensions = {d.name for d in statement.dimensions}
        for expression in (*domain(statement), *(d.expression for d in leaves[statement.name].dates)):
            check_numbers(expression)
            yield from expression.symbols - dimensions - {LIMIT}
