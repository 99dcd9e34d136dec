"""The register tile as code: which registers it takes, what it hoists, and golden listings of whole kernels."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from memopt.ir.code import Placement
from memopt.ir.plan import Isa, Plan
from memopt.ir.reasons import VerifyError
from memopt.ir.region import Region
from memopt.ir.scop import FLOATS, Apply, Constant, ElementType, Expression, Scalar
from memopt.x86.assembler import listing
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import Instruction, Label
from passes.contraction_code.micro_kernel import MicroKernel, shape
from passes.contraction_schedule.contraction import contraction
from passes.vector.emitter import Emitter
from passes.version.kernel import kernel
from tests.support.products import MULTIPLY_ADD, A, B, C, product, tiled

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "kernels"
SIZES = {"i": 64, "j": 96, "k": 32}


def micro_kernel(isa: Isa, tile: tuple[int, int], expression: Expression = MULTIPLY_ADD,
                 element: ElementType = ElementType.F64) -> list[Instruction]:
    region = product("ijk", SIZES, element, expression)
    emitter = Emitter(0)
    MicroKernel(contraction(region, tiled(region, isa, tile)), {}).emit(emitter, 64)
    return [item for item in emitter.code if isinstance(item, Instruction)]


def count(instructions: list[Instruction], *mnemonics: str) -> int:
    return sum(i.mnemonic in mnemonics for i in instructions)


@pytest.mark.parametrize(("isa", "tile"), [(Isa.AVX512, (8, 3)), (Isa.AVX2, (6, 2)), (Isa.SSE2, (6, 2))])
def test_one_multiplication_and_one_addition_per_accumulator_and_iteration(isa: Isa, tile: tuple[int, int]) -> None:
    instructions = micro_kernel(isa, tile)
    for name in ("mulpd", "addpd"):
        assert count(instructions, name, f"v{name}") == 5 * tile[0] * tile[1]  # four unrolled and one remaining
    assert count(instructions, "vpbroadcastq") == (0 if isa is Isa.SSE2 else 5 * tile[0])


def test_vector_operands_are_loaded_once_for_all_rows_when_registers_allow() -> None:
    roomy, tight = micro_kernel(Isa.AVX2, (6, 2)), micro_kernel(Isa.AVX2, (4, 3))
    assert count(roomy, "vmovapd") == 5 * 2
    assert count(tight, "vmovapd") == 0
    assert sum(i.mnemonic == "vmulpd" and i.memory is not None for i in tight) == 5 * 12


def test_the_register_file_is_not_exceeded() -> None:
    for isa, tile in ((Isa.AVX2, (8, 2)), (Isa.AVX2, (5, 3)), (Isa.SSE2, (4, 4)), (Isa.AVX512, (8, 4))):
        with pytest.raises(VerifyError):
            micro_kernel(isa, tile)


def test_accumulators_are_loaded_and_stored_once() -> None:
    instructions = micro_kernel(Isa.AVX512, (8, 3))
    loads = [i for i in instructions if i.mnemonic == "vmovupd" and str(i.operands[0]).startswith("zmm")]
    assert len(loads) == 24
    assert count(instructions, "vmovupd") == 48
    assert {str(i.operands[0]) for i in loads} == {f"zmm{n}" for n in range(24)}


ALPHA, TWO = Scalar("xmm0"), Constant(0x4000_0000_0000_0000)
SCALED_ROW, SCALED_VECTOR, FIXED = Apply("mul", (ALPHA, A)), Apply("mul", (B, TWO)), Apply("add", (ALPHA, TWO))
SCALED_PRODUCT = Apply("mul", (Apply("mul", (SCALED_ROW, SCALED_VECTOR)), FIXED))


def test_subtrees_are_computed_where_they_vary() -> None:
    both = Apply("add", (SCALED_PRODUCT, Apply("mul", (A, B))))
    region = product("ijk", SIZES, expression=Apply("add", (C, both)))
    found = shape(contraction(region, tiled(region, Isa.AVX512, (8, 3))))
    assert found.row_trees == (SCALED_ROW, A)
    assert found.vector_trees == (SCALED_VECTOR, B)
    assert found.invariant_trees == (ALPHA, TWO, FIXED)


def test_what_depends_on_one_element_is_computed_when_it_is_packed() -> None:
    region = product("ijk", SIZES, expression=Apply("add", (C, SCALED_PRODUCT)))
    seen = contraction(region, tiled(region, Isa.AVX512, (8, 3)))
    assert {operand.computed for _, operand in seen.operands} == {SCALED_ROW, SCALED_VECTOR}
    assert shape(seen).expression == Apply("add", (C, Apply("mul", (Apply("mul", (A, B)), FIXED))))
    assert shape(seen).invariant_trees == (FIXED,)


def test_first_operand_stays_first_source() -> None:
    for expression, names in ((MULTIPLY_ADD, "A"), (Apply("add", (C, Apply("mul", (B, A)))), "B")):
        first = next(i for i in micro_kernel(Isa.AVX512, (8, 3), expression) if i.mnemonic == "vmulpd")
        broadcast = next(i for i in micro_kernel(Isa.AVX512, (8, 3), expression) if i.mnemonic == "vpbroadcastq")
        row = str(broadcast.operands[0])
        assert (str(first.operands[1]) == row) == (names == "A")
        assert (str(first.operands[2]) == row) == (names == "B")


@pytest.mark.parametrize("isa", Isa)
@pytest.mark.parametrize("element", FLOATS)
def test_golden_listing(isa: Isa, element: ElementType) -> None:
    """Whole kernels with a small tile; ``UPDATE_GOLDEN=1`` rewrites the files."""
    region = product("ijk", {"i": 100, "j": 70, "k": 50}, element)
    text = f"{golden_plan(region, isa)}\n\n{kernel_listing(region, golden_plan(region, isa))}\n"
    path = GOLDEN / f"{isa.value}-{element.value}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


def golden_plan(region: Region, isa: Isa) -> Plan:
    return tiled(region, isa, (2, 1), {"r": 8, "v": 48, "k": 20})


def kernel_listing(region: Region, plan: Plan) -> str:
    layout = FrameLayout.build(("c", "a", "b"), 0)
    made = kernel(region, plan, layout, Placement(0, 0, 0, 0, 0, 0x7000_0000_0000, 0))
    return listing(made.items)


def test_kernel_keeps_its_conventions() -> None:
    region = product("ijk", SIZES)
    for isa in Isa:
        plan = replace(golden_plan(region, isa), fuse_multiply_add=False)
        layout = FrameLayout.build(("c", "a", "b"), 0)
        made = kernel(region, plan, layout, Placement(0, 0, 0, 0, 0, 0x7000_0000_0000, 0))
        assert made.items[0] == Label("kernel")
        assert str(made.items[-1]) == "jmp kernel_done"
        written = {str(i.operands[0]) for i in made.items if isinstance(i, Instruction) and i.operands}
        assert not written & {"rsp", "rbp"}
        frame = [i.memory for i in made.items if isinstance(i, Instruction) and i.memory and i.memory.base == "rbp"]
        stores = [i.operands[0] for i in made.items if isinstance(i, Instruction) and i.operands]
        assert all(m.displacement >= layout.locals for m in frame if m in stores)
        assert all(m.displacement + m.size <= layout.locals + made.local_bytes for m in frame
                   if m.displacement >= layout.locals)
