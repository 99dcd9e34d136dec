"""Every operator on every instruction set, run: lane for lane what the scalar instructions give, flags included."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.ir.operations import PREDICATES
from memopt.ir.plan import Isa
from memopt.ir.scop import ROUNDS, Apply, Constant, ElementType, Expression, Read
from passes.vector.conversions import CONVERSIONS
from passes.vector.instructions import integer
from passes.vector.registers import VectorUnit
from tests.support.effort import some, some_rows
from tests.support.inprocess import host_isas
from tests.support.lanes import F32, F64, I8, I16, I32, I64, check

A, B, C, D, E = map(Read, range(5))
HOST = host_isas()


def ways(element: ElementType) -> list[tuple[VectorUnit, bool, bool]]:
    """Every instruction set and number of lanes, reads in registers and in memory, and masked. Fewer lanes than fill
    AVX-512F's vectors are AVX2's code."""
    found = []
    for isa in HOST:
        lanes = VectorUnit(isa, element).lanes
        while lanes:
            found += [(VectorUnit(isa, element, lanes), False, memory) for memory in (False, True)]
            lanes = 0 if isa is Isa.AVX512 else lanes // 2
        if isa is Isa.AVX512 and element.size >= 4:
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
@pytest.mark.parametrize("operator", some(ROUNDS, 4))
def test_rounding(operator: str, element: ElementType) -> None:
    check_all(Apply(operator, (A,), element), 1, element, least=Isa.AVX2)
    check_all(Apply(operator, (Apply("mul", (A, B), element),), element), 2, element, least=Isa.AVX2)


@pytest.mark.parametrize("element", some([F64, F32], 1))
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


INTEGERS = (I64, I32, I16, I8)


def constant(value: int, element: ElementType) -> Constant:
    return Constant(value % (1 << 8 * element.size), element)


@pytest.mark.parametrize("element", some(INTEGERS, 2))
@pytest.mark.parametrize("operator", ["add", "sub", "mul", "smin", "smax", "umin", "umax", "and", "andnot"])
def test_integers(operator: str, element: ElementType) -> None:
    check_all(Apply(operator, (A, B), element), 2, element)
    check_all(Apply(operator, (Apply("sub", (A, B), element), Apply("not", (B,), element)), element), 2, element)


@pytest.mark.parametrize("element", INTEGERS)
@pytest.mark.parametrize("operator", ["shl", "shr", "sar"])
def test_shifts(operator: str, element: ElementType) -> None:
    width = 8 * element.size
    for count in (0, 1, 5, width // 2, width - 1):
        check_all(Apply(operator, (A, constant(count, I8)), element), 1, element)
    check_all(Apply("add", (Apply(operator, (A, constant(3, I8)), element), A), element), 1, element)


COMPARISONS = [(name, element) for element in INTEGERS for name in ("eq", "slt", "sle", "ult", "ule")]
COMPARISONS += [(name, element) for element in (F64, F32) for name in PREDICATES]


def truth(name: str, first: Expression, second: Expression, element: ElementType) -> Apply:
    return Apply(name, (first, second), integer(element.size))


@pytest.mark.parametrize(("operator", "element"), some_rows(COMPARISONS, 8))
def test_comparison_and_selection(operator: str, element: ElementType) -> None:
    condition = truth(operator, A, B, element)
    check_all(Apply("select", (condition, A, B), element), 2, element)
    opposite = Apply("not", (condition,), condition.element)
    check_all(Apply("select", (opposite, C, A), element), 3, element)
    for name in ("and", "or", "xor"):
        both = Apply(name, (opposite, truth(operator, C, A, element)), condition.element)
        check_all(Apply("select", (both, A, B), element), 3, element)


def mixed_ways(*elements: ElementType) -> list[tuple[VectorUnit, bool, bool]]:
    widest = max(elements, key=lambda e: e.size)
    return [(replace(unit, mixed=True), masked, memory) for unit, masked, memory in ways(widest)]


def check_mixed(expression: Expression, reads: tuple[ElementType, ...], result: ElementType,
                *others: ElementType) -> None:
    for unit, masked, memory in mixed_ways(*reads, result, *others):
        check(unit, expression, reads, result, masked=masked, memory=memory)


@pytest.mark.parametrize("narrow", INTEGERS)
@pytest.mark.parametrize("wide", INTEGERS)
def test_extension_and_truncation(narrow: ElementType, wide: ElementType) -> None:
    if narrow.size >= wide.size:
        return
    for name in ("sext", "zext"):
        extended = Apply(name, (A,), wide)
        check_mixed(extended, (narrow,), wide)
        check_mixed(Apply("add", (extended, extended), wide), (narrow,), wide)
        product = Apply("mul", (extended, Apply(name, (B,), wide)), wide)
        check_mixed(product, (narrow, narrow), wide)
        check_mixed(Apply("trunc", (product,), narrow), (narrow, narrow), narrow, wide)
    check_mixed(Apply("trunc", (A,), narrow), (wide,), narrow)
    check_mixed(Apply("trunc", (Apply("sub", (A, B), wide),), narrow), (wide, wide), narrow)


@pytest.mark.parametrize("name", sorted(CONVERSIONS))
def test_conversions(name: str) -> None:
    source, to = CONVERSIONS[name]
    converted = Apply(name, (A,), to)
    check_mixed(converted, (source,), to)
    again = "sub" if to.is_float else "xor"
    check_mixed(Apply(again, (converted, converted), to), (source,), to)
    if source.is_float:
        check_mixed(Apply(name, (Apply("mul", (A, B), source),), to), (source, source), to)


@pytest.mark.parametrize("element", some([F64, F32, *INTEGERS], 2))
@pytest.mark.parametrize(("operator", "compared"), [("slt", I64), ("ult", I32), ("eq", I16), ("sle", I8),
                                                    ("flt", F64), ("funord", F32)])
def test_selection_by_a_comparison_of_another_width(operator: str, compared: ElementType,
                                                    element: ElementType) -> None:
    chosen = Apply("select", (truth(operator, A, B, compared), C, D), element)
    check_mixed(chosen, (compared, compared, element, element), element)
    other = I64 if compared.size < 8 else I16
    both = Apply("or", (truth(operator, A, B, compared), truth("slt", E, E, other)), I64)
    check_mixed(Apply("select", (both, C, D), element), (compared, compared, element, element, other), element)


@pytest.mark.parametrize("operator", ["add", "div", "min"])
def test_narrow_floating_arithmetic_beside_a_wider_type(operator: str) -> None:
    """Two 4-byte lanes do not fill a register, half a 512-bit register is not one of AVX-512F's operations."""
    sum_ = Apply(operator, (A, B), F32)
    check_mixed(Apply("f32to64", (sum_,), F64), (F32, F32), F64)
    check_mixed(Apply("sqrt", (Apply(operator, (Apply("f64to32", (A,), F32), B), F32),), F32), (F64, F32), F32)
    fitting = Apply("bits", (Apply("i32tof32", (A,), F32),), I32)
    check_mixed(Apply("sext", (fitting,), I64), (I32,), I64)
    if Isa.AVX2 in HOST:
        rounded = Apply("round9", (Apply(operator, (A, B), F32),), F32)
        for unit, masked, memory in mixed_ways(F64):
            if unit.isa is not Isa.SSE2:
                check(unit, Apply("f32to64", (rounded,), F64), (F32, F32), F64, masked=masked, memory=memory)
