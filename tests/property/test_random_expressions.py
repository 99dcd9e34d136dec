"""Random expressions of all types and operators, on every instruction set, against scalar instructions."""

from __future__ import annotations

import random

import pytest

from memopt.ir.operations import PREDICATES
from memopt.ir.plan import Isa
from memopt.ir.reasons import Rejected
from memopt.ir.scop import ROUNDS, Apply, Constant, ElementType, Expression, Read
from passes.vector.conversions import CONVERSIONS
from passes.vector.instructions import integer
from passes.vector.lowering import unit_for
from passes.vector.registers import OutOfRegisters
from tests.support.effort import some
from tests.support.inprocess import host_isas
from tests.support.lanes import F32, F64, I8, I16, I32, I64, adversarial, check

READS = (F64, F32, I64, I32, I16, I8)
INTEGERS = (I64, I32, I16, I8)


class Draw:
    """``reads`` are chosen among ``types``, so that some expressions have one width only."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.types = self.rng.choice((READS, READS, (F64,), (F32,), (F64, I64), (F32, I32), (I32, F64), (I8, I16, I32),
                                      (I8,), (I16,), (F64, F32)))
        self.reads = tuple(self.rng.choice(self.types) for _ in range(4))

    def value(self, element: ElementType, depth: int) -> Expression:
        rng = self.rng
        fitting = [Read(n) for n, e in enumerate(self.reads) if e is element]
        if depth == 0 or rng.random() < 0.1:
            if fitting and rng.random() < 0.85:
                return rng.choice(fitting)
            return Constant(adversarial(rng, element), element)
        kind = rng.random()
        if kind < 0.15:
            return Apply("select", (self.truth(depth - 1), self.value(element, depth - 1),
                                    self.value(element, depth - 1)), element)
        if kind < 0.35 and (converted := self.converted(element, depth)) is not None:
            return converted
        return self.floating(element, depth) if element.is_float else self.whole(element, depth)

    def converted(self, element: ElementType, depth: int) -> Expression | None:
        choices = [(name, source) for name, (source, to) in CONVERSIONS.items()
                   if to is element and source in self.types]
        for other in INTEGERS if not element.is_float else ():
            if other in self.types and other is not element:
                choices += [("trunc", other)] if other.size > element.size else [("sext", other), ("zext", other)]
        choices += [("bits", e) for e in self.types if e.size == element.size and e is not element]
        if not choices:
            return None
        name, source = self.rng.choice(choices)
        return Apply(name, (self.value(source, depth - 1),), element)

    def floating(self, element: ElementType, depth: int) -> Expression:
        name = self.rng.choice(("add", "sub", "mul", "div", "min", "max", "sqrt", "neg", "abs", "fma", "fms", "fnma",
                                "fnms", "and", "xor", "round"))
        count = 3 if name[0] == "f" else 1 if name in ("sqrt", "neg", "abs", "round") else 2
        name = self.rng.choice(tuple(ROUNDS)) if name == "round" else name
        return Apply(name, tuple(self.value(element, depth - 1) for _ in range(count)), element)

    def whole(self, element: ElementType, depth: int) -> Expression:
        name = self.rng.choice(("add", "sub", "mul", "shl", "shr", "sar", "smin", "smax", "umin", "umax", "and", "or",
                                "xor", "andnot", "not"))
        first = self.value(element, depth - 1)
        if name == "not":
            return Apply(name, (first,), element)
        if name in ("shl", "shr", "sar"):
            return Apply(name, (first, Constant(self.rng.randrange(8 * element.size), I8)), element)
        return Apply(name, (first, self.value(element, depth - 1)), element)

    def truth(self, depth: int) -> Expression:
        if depth > 0 and self.rng.random() < 0.3:
            name = self.rng.choice(("and", "or", "not"))
            operands = tuple(self.truth(depth - 1) for _ in range(1 if name == "not" else 2))
            return Apply(name, operands, I64)
        element = self.rng.choice(self.types)
        names = tuple(PREDICATES) if element.is_float else ("eq", "slt", "sle", "ult", "ule")
        compared = tuple(self.value(element, min(depth, 1)) for _ in range(2))
        return Apply(self.rng.choice(names), compared, integer(element.size))


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("seed", some(range(100), 25))
def test_random_expression(seed: int, isa: Isa) -> None:
    draw = Draw(seed)
    result = draw.reads[0]
    expression = draw.value(result, draw.rng.randrange(2, 6))
    unit = unit_for(isa, expression, draw.reads, result)
    over = draw.rng.choice((None, 0))
    try:
        check(unit, expression, draw.reads, result, over=over, rounds=15)
        check(unit, expression, draw.reads, result, memory=True, rounds=9)
        if unit.evex:
            check(unit, expression, draw.reads, result, masked=True, over=over, rounds=20)
        check(unit_for(isa, expression, draw.reads, result, 1), expression, draw.reads, result, over=over, rounds=9)
    except (Rejected, OutOfRegisters):
        assert isa is Isa.SSE2 or str(expression).count("Apply") > 20
