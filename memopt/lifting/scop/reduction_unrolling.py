"""Full unrolling of short reductions in small nests: the mask of a filter, the neighbours of a cell.

Before: ``for (l..3) for (m..3) B[i][j] += w[l][m] * A[i + l][j + m];``. After: one statement with nine products, added
to ``B[i][j]`` in the same order. The partial sums, which nothing else reads, are not stored.

In: a ``Scop``. Out: one with a single statement for each short reduction; loops that the compiler has unrolled in part
have several statements that continue one sum. Sound because every operation is performed on the same operands in the
same order. A single short loop around one statement is left alone: register tiles run all of it in each step
(passes.loop_code.tile_run).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.scop import Access, Apply, Expression, Index, Read, Scop, Statement, plain_reads

LONGEST = 8  # iterations of a short loop
MOST_TERMS = 32  # terms of one statement


def unroll_reductions(scop: Scop) -> Scop:
    """``scop`` with each short reduction as one statement."""
    groups: dict[tuple[object, ...], list[Statement]] = {}
    for statement in scop.statements:
        groups.setdefault((statement.dimensions, statement.position[:-1], statement.write, statement.conditions),
                          []).append(statement)
    places = {statement.name: number for number, statement in enumerate(scop.statements)}
    made = (s for group in groups.values() for s in _written_out(scop, tuple(group)))
    return replace(scop, statements=tuple(sorted(made, key=lambda s: places[s.name])))


def _written_out(scop: Scop, group: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """One statement for ``group``, or ``group`` as it is: statements in the same loops that write the same cell, in
    their order."""
    level = _outermost(scop, group)
    if level is None:
        return group
    first = group[0]
    dimensions, inner = first.dimensions[:level], first.dimensions[level:]
    chain = _Chain(first.write)
    for values in product(*(range(d.trips.constant) for d in inner)):
        for statement in group:
            chain = chain.then(statement, {d.name: Linear.of(v) for d, v in zip(inner, values, strict=True)})
    assert chain.expression is not None, "loops that run"
    return (replace(first, dimensions=dimensions, reads=chain.reads, expression=chain.expression,
                    position=first.position[:level + 1]),)


def _outermost(scop: Scop, group: tuple[Statement, ...]) -> int | None:
    """The level of the outermost loop of the reduction; None where it is over one loop and has one statement, or is
    none, or has more than ``MOST_TERMS`` terms."""
    depth = len(group[0].dimensions)
    level = depth
    while level > 1 and _short(scop, group, level - 1):
        level -= 1
    terms = len(group) * prod(d.trips.constant for d in group[0].dimensions[level:])
    several = depth - level > 1 or (depth > level and len(group) > 1)
    return level if several and terms <= MOST_TERMS and all(_accumulates(scop, s) for s in group) else None


def _short(scop: Scop, group: tuple[Statement, ...], level: int) -> bool:
    """Whether the loop at ``level`` is short, contains these statements alone, and neither the cell that they write nor
    their conditions and trip counts depend on its counter."""
    first = group[0]
    loop = first.dimensions[level]
    position = first.position[:level + 1]
    inside = sum(len(s.dimensions) > level and s.position[:level + 1] == position for s in scop.statements)
    fixed = (*first.write.subscripts, *first.conditions, *(d.trips for d in first.dimensions))
    return (inside == len(group) and loop.trips.is_constant and 1 < loop.trips.constant <= LONGEST
            and not any(x.coefficient(loop.name) for x in fixed))


def _accumulates(scop: Scop, statement: Statement) -> bool:
    """Whether an instance uses the stored result of the one before exactly once, and no other read is of that array."""
    element = scop.array(statement.write.array).element
    others = [r for r in statement.reads if r != statement.write]
    return (isinstance(statement.expression, Apply) and statement.expression.element is element
            and plain_reads(statement.expression) == frozenset(range(len(statement.reads)))
            and statement.condition is None
            and not any(r.array == statement.write.array for r in others)
            and _uses(statement, statement.expression) == 1)


def _uses(statement: Statement, node: Expression) -> int:
    match node:
        case Read(index):
            return int(statement.reads[index] == statement.write)
        case Apply(_, operands):
            return sum(_uses(statement, o) for o in operands)
    return 0


@dataclass(frozen=True, slots=True)
class _Chain:
    """The instances so far as one ``expression`` over ``reads``. Each of them writes ``cell``."""

    cell: Access
    reads: tuple[Access, ...] = ()
    expression: Expression | None = None

    def then(self, statement: Statement, values: dict[str, Linear]) -> _Chain:
        """With one more instance; ``values``: those of its inner counters."""
        reads = list(self.reads)

        def place(node: Expression) -> Expression:
            match node:
                case Read(index):
                    access = statement.reads[index]
                    if access == self.cell and self.expression is not None:
                        return self.expression
                    moved = replace(access, subscripts=tuple(s.substitute(values) for s in access.subscripts))
                    if moved not in reads:
                        reads.append(moved)
                    return Read(reads.index(moved))
                case Index(value):
                    return replace(node, value=value.substitute(values))
                case Apply(_, operands):
                    return replace(node, operands=tuple(map(place, operands)))
            return node

        expression = place(statement.expression)
        return _Chain(self.cell, tuple(reads), expression)
