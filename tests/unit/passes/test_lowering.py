"""Every operator on every instruction set, run: lane for lane what the scalar instructions give, flags included."""

from __future__ import annotations

import pytest

from memopt.ir.plan import Isa
from memopt.ir.scop import Apply, Constant, ElementType, Expression, Read
from passes.vectors import VectorUnit
from tests.support.inprocess import host_isas
from tests.support.lanes import F32, F64, check

A, B, C = Read(0), Read(1), Read(2)
HOST = host_isas()


def ways(element: ElementType) -> list[tuple[VectorUnit, bool, bool]]:
    """Every instruction set and number of lanes, reads in registers and in memory, and masked."""
    found = []
    for isa in HOST:
        lanes = isa.vector_bytes // element.size
        while lanes:
            found += [(VectorUnit(isa, element, lanes), False, memory) for memory in (False, True)]
            lanes //= 2
        if isa is Isa.AVX512:
            found += [(VectorUnit(isa, element), True, memory) for memory in (False, True)]
    return found


def check_all(expression: Expression, reads: int, element: ElementType, *, least: Isa = Isa.SSE2) -> None:
    for unit, masked, memory in ways(element):
        if unit.isa is not Isa.SSE2 or least is Isa.SSE2:
            check(unit, expression, (element,) * reads, element, masked=masked, memory=memory)


@pytest.mark.parametrize("element", [F64, F32])
@pytest.mark.parametrize("operator", ["add", "sub", "mul", "div", "min", "max"])
def test_arithmetic(operator: str, element: ElementType) -> None:
    check_all(Apply(operator, (A, B), element), 2, element)
    check_all(Apply(operator, (Apply("mul", (A, B), element), B), element), 2, element)
    check_all(Apply(operator, (B, Apply("sub", (A, B), element)), element), 2, element)


@pytest.mark.parametrize("element", [F64, F32])
@pytest.mark.parametrize("operator", ["sqrt", "neg", "abs", "not"])
def test_one_operand(operator: str, element: ElementType) -> None:
    check_all(Apply(operator, (A,), element), 1, element)
    check_all(Apply(operator, (Apply("add", (A, B), element),), element), 2, element)


@pytest.mark.parametrize("element", [F64, F32])
@pytest.mark.parametrize("operator", ["fma", "fms", "fnma", "fnms"])
def test_fused(operator: str, element: ElementType) -> None:
    check_all(Apply(operator, (A, B, C), element), 3, element, least=Isa.AVX2)
    product = Apply("mul", (A, B), element)
    for operands in ((product, B, C), (A, product, C), (A, B, product), (A, A, B), (A, B, A), (A, B, B),
                     (product, product, product)):
        check_all(Apply(operator, operands, element), 3, element, least=Isa.AVX2)


@pytest.mark.parametrize("element", [F64, F32])
@pytest.mark.parametrize("operator", ["and", "or", "xor", "andnot"])
def test_bit_patterns(operator: str, element: ElementType) -> None:
    check_all(Apply(operator, (A, B), element), 2, element)
    check_all(Apply(operator, (A, Constant(0x7FC00001, element)), element), 1, element)
