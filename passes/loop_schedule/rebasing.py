"""Rebasing (skewing by outer counters): an inner loop counts from where the subscripts start instead of from 0.

Before: ``for k: for i < n - k - 1: A[k + i + 1, k]``. After: ``for k: for i < n, i >= k + 1: A[i, k]``. Now a row of
the array is one value of i for every k; before, no cell would have stayed at one i while k runs.

Needed because all lifted loops count from their first iteration. Sound because both ways of counting visit the same
instances in the same order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from memopt.ir.linear import Linear
from memopt.ir.plan import Rebase
from memopt.ir.scop import Access, Apply, Dimension, Expression, Index, Scop, Statement
from memopt.polyhedral.isl import instances


def rebase(scop: Scop) -> tuple[Scop, tuple[Rebase, ...]]:
    """``scop`` with other counters where that makes subscripts simpler, and the changes that were made."""
    rebases: list[Rebase] = []
    private = {a.name for a in scop.arrays if a.private}
    for level in range(1, max(len(s.dimensions) for s in scop.statements)):
        for loop in sorted({s.position[:level + 1] for s in scop.statements if len(s.dimensions) > level}):
            inside = [s for s in scop.statements if len(s.dimensions) > level and s.position[:level + 1] == loop]
            by = _start(inside, level, private)
            if by is not None:
                made = {s.name: counted_from(s, level, by) for s in inside}
                rebases += [Rebase(s.name, s.dimensions[level].name, by) for s in inside]
                scop = replace(scop, statements=tuple(made.get(s.name, s) for s in scop.statements))
    return scop, tuple(rebases)


def _start(inside: list[Statement], level: int, private: set[str]) -> Linear | None:
    """The start for the counter of a loop: what most subscripts of memory add to it that depends on outer loops. None
    where most add nothing, or the sum may be negative."""
    votes: Counter[Linear] = Counter()
    least: dict[Linear, int] = {}
    for statement in inside:
        outer = {d.name for d in statement.dimensions[:level]}
        name = statement.dimensions[level].name
        for access in dict.fromkeys(a for a in (statement.write, *statement.reads) if a.array not in private):
            for subscript in access.subscripts:
                if subscript.coefficient(name) == 1:
                    moving = Linear.build({n: c for n, c in subscript.terms if n in outer})
                    votes[moving] += 1
                    least[moving] = min(least.get(moving, subscript.constant), subscript.constant)
    if not votes:
        return None
    # On a tie the counter stays (the mask of a convolution): then the loop is the same in every outer iteration.
    chosen = max(votes, key=lambda moving: (votes[moving], moving.is_constant))
    if chosen.is_constant or any(abs(c) > 1 for _, c in chosen.terms):
        return None  # a larger coefficient is the row length of a linearised array
    by = chosen + least[chosen]
    for candidate in (by, chosen):
        lows = [instances(s).least(candidate) for s in inside if not instances(s).is_empty]
        if all(low is not None and low >= 0 for low in lows):
            return candidate
    return None


def counted_from(statement: Statement, level: int, by: Linear) -> Statement:
    """The statement with its counter number ``level`` larger by ``by``, Linear over the loops around it."""
    dimension = statement.dimensions[level]
    values = {dimension.name: Linear.symbol(dimension.name) - by}
    dimensions = tuple(
        Dimension(d.name, d.trips + by) if n == level else Dimension(d.name, d.trips.substitute(values))
        for n, d in enumerate(statement.dimensions))
    return replace(
        statement, dimensions=dimensions, write=_moved(statement.write, values),
        reads=tuple(_moved(r, values) for r in statement.reads), expression=_counting(statement.expression, values),
        conditions=(*(c.substitute(values) for c in statement.conditions), Linear.symbol(dimension.name) - by))


def _moved(access: Access, values: dict[str, Linear]) -> Access:
    return replace(access, subscripts=tuple(s.substitute(values) for s in access.subscripts))


def _counting(expression: Expression, values: dict[str, Linear]) -> Expression:
    """The expression with the moved counters, where counters are used as data."""
    match expression:
        case Index(value):
            return replace(expression, value=value.substitute(values))
        case Apply(_, operands):
            return replace(expression, operands=tuple(_counting(o, values) for o in operands))
    return expression
