"""Loop distribution: a nest of several statements becomes a sequence of nests of one statement each.

Before: ``for i: { S0(i); S1(i) }``. After: ``for i: S0(i)`` then ``for i: S1(i)``. Legal when no instance of a later
statement must run before one of an earlier statement (Allen and Kennedy, "Automatic translation of FORTRAN programs to
vector form", TOPLAS 9(4), 1987; here without reordering the statements).

A register tile has three dimensions. A statement in fewer than three loops, or without a dimension for one of the
roles, gets loops of one iteration for the missing ones: the single column of an epilogue is a product with one column.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region
from memopt.ir.scop import Access, Dimension, Scop, Statement
from memopt.polyhedral.dependences import dependences, iteration_domain
from memopt.polyhedral.isl import budget

MOST_STATEMENTS = 32
ONCE = "unit"  # name of the one-iteration loop that is the reduction of a statement without one


def distribute(region: Region) -> tuple[Region, ...]:
    """One region for each statement, in order.

    Raises ``Rejected(NO_SCHEDULE)`` when a dependence goes back from a later statement to an earlier one, and
    ``Rejected(NO_PLAN)`` when there are too many statements or one of them writes a single cell and so cannot be a
    contraction.
    """
    scop = region.scop
    if len(scop.statements) > MOST_STATEMENTS:
        raise Rejected(Reason.NO_PLAN, f"the nest has {len(scop.statements)} statements, more than {MOST_STATEMENTS}")
    if not all(s.write.subscripts for s in scop.statements):
        raise Rejected(Reason.NO_PLAN, "a statement writes a single cell, so it has no loops to tile")
    parts = tuple(Scop(scop.arrays, (s,)) for s in scop.statements)
    if len(parts) > 1:
        _check(scop, parts)
    return tuple(replace(region, scop=Scop(p.arrays, (with_unit_loops(p.statements[0]),))) for p in parts)


def _check(scop: Scop, parts: tuple[Scop, ...]) -> None:
    """Raises ``Rejected(NO_SCHEDULE)`` where an instance of a later statement must run before one of an earlier
    statement."""
    every = dependences(scop).all
    with budget():
        for first, second in combinations(parts, 2):
            backwards = every.restricted(iteration_domain(second)).inverse.restricted(iteration_domain(first))
            if not backwards.is_empty:
                names = f"{second.statements[0].name} to run before {first.statements[0].name}"
                raise Rejected(Reason.NO_SCHEDULE, f"some iterations need {names}")


def with_unit_loops(statement: Statement) -> Statement:
    """The statement with at least two dimensions that move its result and one that does not. Missing ones become loops
    of one iteration."""
    moving = [d for d in statement.dimensions if any(s.coefficient(d.name) for s in statement.write.subscripts)]
    result = statement
    for number in range(len(moving), 2):
        result = _with_loop(result, f"unit{number}", moves=True)
    if len(moving) == len(statement.dimensions):
        result = _with_loop(result, ONCE, moves=False)
    return result


def _with_loop(statement: Statement, name: str, moves: bool) -> Statement:
    def moved(access: Access) -> Access:
        *outer, last = access.subscripts
        return Access(access.array, (*outer, last + Linear.symbol(name)))

    write, reads = statement.write, statement.reads
    if moves:
        reads = tuple(moved(r) if r == write else r for r in reads)
        write = moved(write)
    dimensions = (*statement.dimensions, Dimension(name, Linear.of(1)))
    return replace(statement, dimensions=dimensions, write=write, reads=reads,
                   position=(*statement.position, 0))
