"""What code expressions become: operand order, memory operands, in place, constants. Results are checked by running
them, in tests/property/test_lowered_expressions.py; here for one kernel of each kind."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from memopt.ir.plan import Isa
from memopt.ir.scop import Apply, Constant, ElementType, Expression, Read
from memopt.x86.assembler import listing
from memopt.x86.instructions import Mem
from passes.vector.emitter import Emitter
from passes.vector.lowering import Lowering
from passes.vector.registers import Registers, VectorUnit
from tests.support.inprocess import host_isas
from tests.support.lanes import F32, F64, I8, I32, I64, check

A, B, C = Read(0), Read(1), Read(2)


def text(unit: VectorUnit, expression: Expression, places: Sequence[str | Mem], reads: Sequence[ElementType], *,
         target: str = "zmm9", mask: str | None = None) -> list[str]:
    emitter, pool = Emitter(0), Registers(unit, 4)
    found = {Read(n): p for n, p in enumerate(places)}
    lowering = Lowering(unit, emitter, pool, reads=reads, mask=mask)
    lowering.into(target, expression, lambda node: found.get(node) if isinstance(node, Read) else None)
    return [line.strip() for line in listing(emitter.code).splitlines()]


AVX512, AVX2, SSE2 = (VectorUnit(isa, F64) for isa in (Isa.AVX512, Isa.AVX2, Isa.SSE2))


def test_operands_keep_their_order() -> None:
    product = Apply("mul", (B, A))
    assert text(AVX512, Apply("sub", (product, A)), ["zmm0", "zmm1"], (F64, F64)) == [
        "vmulpd zmm4, zmm1, zmm0", "vsubpd zmm9, zmm4, zmm0"]
    assert text(AVX512, Apply("add", (A, product)), ["zmm0", "zmm1"], (F64, F64), mask="k1") == [
        "vmulpd zmm4 {k1} {z}, zmm1, zmm0", "vaddpd zmm9 {k1} {z}, zmm0, zmm4"]


def test_two_operand_instructions_do_not_lose_the_first_source() -> None:
    difference = Apply("sub", (A, B))
    assert text(SSE2, difference, ["xmm0", "xmm9"], (F64, F64)) == [
        "movapd xmm4, xmm0", "subpd xmm4, xmm9", "movapd xmm9, xmm4"]
    assert text(SSE2, difference, ["xmm9", "xmm1"], (F64, F64)) == ["subpd xmm9, xmm1"]
    assert text(SSE2, difference, ["xmm9", "xmm9"], (F64, F64)) == ["subpd xmm9, xmm9"]


def test_the_fused_form_follows_where_the_result_goes() -> None:
    fused = Apply("fma", (A, B, C))
    for target, form in (("zmm0", "132pd zmm0, zmm2, zmm1"), ("zmm1", "213pd zmm1, zmm0, zmm2"),
                         ("zmm2", "231pd zmm2, zmm0, zmm1")):
        assert text(AVX512, fused, ["zmm0", "zmm1", "zmm2"], (F64,) * 3, target=target) == [f"vfmadd{form}"]


def test_memory_operands() -> None:
    total = Apply("add", (A, B))
    vector, element = Mem("r8", size=64), Mem("r8", size=8, broadcast=8)
    assert text(AVX512, total, ["zmm0", element], (F64, F64)) == [
        "vaddpd zmm9, zmm0, qword ptr [r8]{1to8}"]
    assert text(AVX512, total, ["zmm0", vector], (F64, F64), mask="k1") == [
        "vmovupd zmm4 {k1} {z}, zmmword ptr [r8]", "vaddpd zmm9 {k1} {z}, zmm0, zmm4"]
    assert text(AVX2, total, ["ymm0", Mem("r8", size=8, broadcast=4)], (F64, F64)) == [
        "vpbroadcastq ymm4, qword ptr [r8]", "vaddpd ymm9, ymm0, ymm4"]
    assert text(SSE2, total, ["xmm9", Mem("r8", size=16)], (F64, F64)) == [
        "movupd xmm4, xmmword ptr [r8]", "addpd xmm9, xmm4"]
    one = VectorUnit(Isa.AVX2, F64, 1)
    assert text(one, total, ["xmm0", Mem("r8", size=8)], (F64, F64)) == ["vaddsd xmm9, xmm0, qword ptr [r8]"]


def test_constants_of_operators_come_from_the_leaf_where_it_has_them() -> None:
    emitter = Emitter(0)
    places = {Constant(1 << 63): "zmm7", A: "zmm0"}
    Lowering(AVX512, emitter, Registers(AVX512, 8), reads=(F64,)).into(
        "zmm9", Apply("neg", (A,)), lambda node: places.get(node) if not isinstance(node, Apply) else None)
    assert listing(emitter.code).split("\n") == ["    vpxorq zmm9, zmm0, zmm7"]
    assert text(AVX2, Apply("not", (A,)), ["ymm0"], (F64,)) == [
        "vpcmpeqd ymm4, ymm4, ymm4", "vxorpd ymm9, ymm0, ymm4"]


def test_products_of_extended_values_are_one_instruction() -> None:
    unit = VectorUnit(Isa.AVX512, I64, mixed=True)
    product = Apply("mul", tuple(Apply("sext", (r,), I64) for r in (A, B)), I64)
    assert text(unit, product, ["zmm0", "zmm1"], (I32, I32)) == [
        "vpmovsxdq zmm4, ymm0", "vpmovsxdq zmm5, ymm1", "vpmuldq zmm9, zmm4, zmm5"]


def test_extension_reads_memory_directly() -> None:
    unit = VectorUnit(Isa.AVX512, I32, mixed=True)
    assert text(unit, Apply("zext", (A,), I32), [Mem("r8", size=16)], (I8,)) == [
        "vpmovzxbd zmm9, xmmword ptr [r8]"]


def test_what_is_done_for_its_flags_is_done_before_its_operands_are_lost() -> None:
    both = Apply("beside", (Apply("sub", (A, B)), Apply("mul", (A, A))))
    assert text(AVX512, both, ["zmm9", "zmm1"], (F64, F64)) == [
        "vmulpd zmm4, zmm9, zmm9", "vsubpd zmm9, zmm9, zmm1"]
    assert text(SSE2, both, ["xmm9", "xmm1"], (F64, F64)) == [
        "movapd xmm4, xmm9", "mulpd xmm4, xmm9", "subpd xmm9, xmm1"]


@pytest.mark.parametrize("isa", host_isas())
def test_one_of_each_kind_run(isa: Isa) -> None:
    less = Apply("flt", (A, B), I32)
    chosen = Apply("select", (less, Apply("div", (A, B), F32), Apply("sqrt", (C,), F32)), F32)
    check(VectorUnit(isa, F32), chosen, (F32,) * 3, F32, memory=True)
    beside = Apply("beside", (Apply("add", (A, B), F32), Apply("mul", (C, C), F32)), F32)
    check(VectorUnit(isa, F32), beside, (F32,) * 3, F32)
    check(VectorUnit(isa, F64, mixed=True), Apply("add", (Apply("i32tof64", (A,)), B)), (I32, F64), F64)
    bytes_ = Apply("trunc", (Apply("mul", (Apply("zext", (A,), I32), Apply("sext", (B,), I32)), I32),), I8)
    check(VectorUnit(isa, I32, mixed=True), bytes_, (I8, I8), I8, masked=isa is Isa.AVX512)
