"""Short sums in small nests, written out: the mask of a filter, the neighbours of a cell.

Before: ``for l < 3: for m < 3: B[i, j] = B[i, j] + w[l, m] * A[i + l, j + m]``. After: one statement with nine
products, added to ``B[i, j]`` in the same order; the sums in between, which nothing else reads, are not stored.

Every operation is performed on the same operands in the same order. A single short loop is left alone: register tiles
run all of it in each step (passes.tile_run).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import prod

from memopt.ir.linear import Linear
from memopt.ir.scop import Access, Apply, Expression, Index, Read, Scop, Statement

LONGEST = 8  # iterations of one loop
MOST_TERMS = 32  # of a sum


def written_out(scop: Scop) -> Scop:
    """``scop`` with a single instance for each short sum over several loops."""
    return replace(scop, statements=tuple(_written_out(scop, s) for s in scop.statements))


def _written_out(scop: Scop, statement: Statement) -> Statement:
    level = _outermost(scop, statement)
    if level is None:
        return statement
    dimensions, inner = statement.dimensions[:level], statement.dimensions[level:]
    chain = _Chain(statement)
    for values in product(*(range(d.trips.constant) for d in inner)):
        chain = chain.then({d.name: Linear.of(v) for d, v in zip(inner, values, strict=True)})
    assert chain.expression is not None, "loops that run"
    return replace(statement, dimensions=dimensions, reads=chain.reads, expression=chain.expression,
                   position=statement.position[:level + 1])


def _outermost(scop: Scop, statement: Statement) -> int | None:
    """The level of the outermost loop of a short sum over two loops or more; None where there is none."""
    level = len(statement.dimensions)
    while level > 1 and _short(scop, statement, level - 1):
        level -= 1
    terms = prod(d.trips.constant for d in statement.dimensions[level:])
    several = len(statement.dimensions) - level > 1
    return level if several and terms <= MOST_TERMS and _accumulates(scop, statement) else None


def _short(scop: Scop, statement: Statement, level: int) -> bool:
    """Whether a loop is around this statement alone, short, and moves neither its cell nor anything it depends on."""
    loop = statement.dimensions[level]
    position = statement.position[:level + 1]
    alone = sum(len(s.dimensions) > level and s.position[:level + 1] == position for s in scop.statements) == 1
    fixed = (*statement.write.subscripts, *statement.conditions, *(d.trips for d in statement.dimensions))
    return (alone and loop.trips.is_constant and 1 < loop.trips.constant <= LONGEST
            and not any(x.coefficient(loop.name) for x in fixed))


def _accumulates(scop: Scop, statement: Statement) -> bool:
    """Whether the result of one instance, as it is stored, is used once in the next, and no other read can meet it."""
    element = scop.array(statement.write.array).element
    others = [r for r in statement.reads if r != statement.write]
    return (isinstance(statement.expression, Apply) and statement.expression.element is element
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
    """The instances so far as one ``expression`` over ``reads``."""

    statement: Statement
    reads: tuple[Access, ...] = ()
    expression: Expression | None = None

    def then(self, values: dict[str, Linear]) -> _Chain:
        """With one more, the numbers of its inner loops given."""
        reads = list(self.reads)

        def place(node: Expression) -> Expression:
            match node:
                case Read(index):
                    access = self.statement.reads[index]
                    if access == self.statement.write and self.expression is not None:
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

        expression = place(self.statement.expression)
        return _Chain(self.statement, tuple(reads), expression)
