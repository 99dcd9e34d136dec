"""Random statements that store and read under conditions, with random plans.

Pages that the reference does not touch are inaccessible, those that it does not write are read-only.

``python -m tests.property.test_conditional_nests first last`` runs more of them.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace

import pytest

from memopt.ir.plan import Isa
from memopt.ir.reasons import Rejected
from memopt.ir.scop import Access, Apply, ElementType, Expression, Read, Statement, misplaced, plain_reads
from tests.support.effort import some
from tests.support.inprocess import host_isas
from tests.support.loop_check import check
from tests.support.loop_draw import Drawn, draw

SCALARS = (0x3FF8000000000000, 0x4000000000000000, 0x3FD0000000000000)
INTEGERS = {e.size: e for e in ElementType if not e.is_float}


@pytest.mark.parametrize("seed", some(range(400), 15, most=120))
def test_random_conditions_pass_over_what_the_reference_does(seed: int) -> None:
    isas = host_isas()
    run(seed, isas[seed % len(isas)])


def run(seed: int, isa: Isa) -> int:
    rng = random.Random(seed)
    drawn = conditional(rng, draw(rng, isa))
    try:
        return check(drawn.region, drawn.plan, drawn.symbols, seed=seed, specials=rng.random() < 0.3, scalars=SCALARS,
                     guarded=True)
    except Rejected as refusal:
        if "the new code has at least" not in refusal.detail:  # instructions: more than are worth their time
            raise
        return 0


def conditional(rng: random.Random, drawn: Drawn) -> Drawn:
    """``drawn`` with a condition for most stores, and for reads. A cell that is kept in a register is stored always."""
    scop = drawn.region.scop
    elements = {a.name: a.element for a in scop.arrays}
    kept = {leaf.statement for leaf in drawn.plan.leaves if leaf.promote}
    statements = tuple(_conditional(rng, s, elements, s.name not in kept) for s in scop.statements)
    return replace(drawn, region=replace(drawn.region, scop=replace(scop, statements=statements)),
                   plan=replace(drawn.plan, statements=statements))


def _conditional(rng: random.Random, statement: Statement, elements: dict[str, ElementType], store: bool) -> Statement:
    condition = _condition(rng, statement, elements)
    if condition is None:
        return statement
    needed = plain_reads(condition)
    hidden = {n for n, r in enumerate(statement.reads)
              if n not in needed and r != statement.write and rng.random() < 0.7}
    value = _where(statement.expression, condition, hidden, elements, statement.reads)
    if store and rng.random() < 0.8:
        value = Apply("when", (condition, value), elements[statement.write.array])
    assert not misplaced(value)
    return replace(statement, expression=value)


def _condition(rng: random.Random, statement: Statement, elements: dict[str, ElementType]) -> Expression | None:
    """A comparison of two reads, often of ones that many lanes share, so that it holds for whole rows or not."""
    order = sorted(range(len(statement.reads)), key=lambda n: (
        sum(len(s.symbols) for s in statement.reads[n].subscripts), rng.random()))
    for first in order:
        kind = elements[statement.reads[first].array]
        second = next((n for n in order if n != first and elements[statement.reads[n].array] is kind), first)
        name = rng.choice(("flt", "fle", "feq") if kind.is_float else ("slt", "ult", "eq"))
        truth = Apply(name, (Read(first), Read(second)), INTEGERS[kind.size])
        return Apply("not", (truth,), INTEGERS[kind.size]) if rng.random() < 0.3 else truth
    return None


def _where(node: Expression, condition: Expression, hidden: set[int], elements: dict[str, ElementType],
           reads: tuple[Access, ...]) -> Expression:
    match node:
        case Read(index) if index in hidden:
            return Apply("when", (condition, node), elements[reads[index].array])
        case Apply(_, operands):
            return replace(node, operands=tuple(_where(o, condition, hidden, elements, reads) for o in operands))
    return node


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        for each in host_isas():
            run(number, each)
