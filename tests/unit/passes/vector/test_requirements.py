"""What a statement needs: lanes by its widest type, temporaries, constants, and what there is no code for."""

from __future__ import annotations

import pytest

from memopt.ir.plan import Isa
from memopt.ir.scop import Apply, Constant, ElementType, Expression, Read
from passes.vector.lowering import unit_for
from passes.vector.registers import VectorUnit
from tests.support.lanes import F32, F64, I8, I16, I32, I64
from tests.support.requirements import refusal, requirements

A, B, C = Read(0), Read(1), Read(2)


@pytest.mark.parametrize(("expression", "reads", "result", "lanes", "mixed"), [
    (Apply("add", (A, B)), (F64, F64), F64, (2, 4, 8), False),
    (Apply("add", (A, B), F32), (F32, F32), F32, (4, 8, 16), False),
    (Apply("i32tof64", (A,)), (I32,), F64, (2, 4, 8), True),
    (Apply("zext", (A,), I32), (I8,), I32, (4, 8, 16), True),
    (Apply("add", (A, B), I8), (I8, I8), I8, (16, 32, 32), False),
    (Apply("select", (Apply("flt", (A, B), I64), A, B)), (F64, F64), F64, (2, 4, 8), False),
    (Apply("select", (Apply("slt", (A, B), I32), C, C), I16), (I32, I32, I16), I16, (4, 8, 16), True),
    (Apply("shl", (A, Constant(3, I64)), I32), (I32,), I32, (4, 8, 16), False),
])
def test_the_widest_type_fills_the_vector(expression: Expression, reads: tuple[ElementType, ...],
                                          result: ElementType, lanes: tuple[int, ...], mixed: bool) -> None:
    units = [unit_for(isa, expression, reads, result) for isa in Isa]
    assert tuple(u.lanes for u in units) == lanes
    assert {u.mixed for u in units} == {mixed}


def test_temporaries_and_instructions() -> None:
    unit = VectorUnit(Isa.AVX512, F64)
    found = requirements(unit, Apply("add", (Apply("mul", (A, B)), Apply("mul", (B, C)))), (F64,) * 3)
    assert (found.temporaries, found.masks, found.instructions, found.constants) == (2, 0, 3, ())
    select = Apply("select", (Apply("flt", (A, B), I64), A, B))
    found = requirements(unit, select, (F64,) * 2, masked=True)
    assert (found.temporaries, found.masks, found.instructions) == (0, 1, 2)


def test_constants_of_operators_are_named() -> None:
    for isa in Isa:
        found = requirements(VectorUnit(isa, F64), Apply("neg", (Apply("abs", (A,)),)), (F64,))
        assert found.constants == (Constant((1 << 63) - 1), Constant(1 << 63))
        assert found.instructions == 2 if isa is not Isa.SSE2 else 4


def test_what_has_no_code() -> None:
    fused = Apply("fma", (A, B, C))
    assert [refusal(isa, fused, (F64,) * 3, F64) is None for isa in Isa] == [False, True, True]
    variable = Apply("shl", (A, B), I32)
    assert all(refusal(isa, variable, (I32, I32), I32) for isa in Isa)
    as_data = Apply("slt", (A, B), I32)
    assert all(refusal(isa, as_data, (I32, I32), I32) for isa in Isa)
    unknown = Apply("umulhi", (A, B), I16)
    assert all(refusal(isa, unknown, (I16, I16), I16) for isa in Isa)
