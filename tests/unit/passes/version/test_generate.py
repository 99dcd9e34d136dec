"""Gluing a version together: the blob's form, and what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from memopt.ir.code import CompiledRegion, Placement
from memopt.ir.plan import Isa
from memopt.ir.reasons import Rejected, VerifyError
from memopt.ir.region import Cell, LiveIn, Region, Register, Rejoin, Trips
from memopt.ir.scop import Scop
from memopt.x86.decoder import decode
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import Code, Label, Mem, code, instruction, jump
from passes.version.generate import generate
from passes.version.kernel import KernelCode
from tests.support.header import PLAN, linear

PLACE = Placement(0x10000, 0x2000, 0x20000, 0x2000, 0x30000, 0x40000, 0x1000)
DISPLACED = bytes.fromhex("4883c001 90")
REGION = Region(0x8000, DISPLACED, (LiveIn("n", Register("rsi")),), Trips(linear(n=1), 1), (), (), (), Scop((), ()),
                flags_dead=True)
KERNEL = (Label("kernel"), jump("kernel_done"))


def made(region: Region = REGION, place: Placement = PLACE, items: Code = KERNEL, local_bytes: int = 0,
         scratch: int = 0, isa: Isa = Isa.SSE2, xcr0: int = 7) -> CompiledRegion:
    kernel = KernelCode(items, local_bytes, scratch)
    plan = replace(PLAN, parts=(replace(PLAN.parts[0], isa=isa),))
    return generate(region, plan, lambda _: kernel, place, lambda _: DISPLACED, xcr0)


def test_the_displaced_instructions_come_first_and_go_back() -> None:
    asked: list[int] = []

    def displaced(address: int) -> bytes:
        asked.append(address)
        return DISPLACED

    compiled = generate(REGION, PLAN, lambda _: KernelCode(KERNEL, 0, 0), PLACE, displaced, 7)
    assert asked == [PLACE.code]
    assert compiled.code.startswith(DISPLACED)
    back = decode(compiled.code[len(DISPLACED):], PLACE.code + len(DISPLACED))[0]
    assert (back.mnemonic, back.target) == ("jmp", REGION.header + len(DISPLACED))
    assert compiled.entry == back.end
    assert [line for line in compiled.listing.splitlines() if line.endswith(":")
            and "entry_" not in line and "exit_" not in line] == [
        "displaced:", "entry:", "fail:", "kernel:", "kernel_done:"]


def test_the_kernel_sees_the_final_offsets() -> None:
    seen: list[FrameLayout] = []

    def kernel(layout: FrameLayout) -> KernelCode:
        seen.append(layout)
        return KernelCode(code(Label("kernel"), instruction("mov", "rax", Mem("rbp", displacement=layout.symbols["n"])),
                               jump("kernel_done")), 1000, 0)

    compiled = generate(REGION, PLAN, kernel, PLACE, lambda _: DISPLACED, 7)
    final = FrameLayout.build(("n",), 1000)
    assert f"mov rax, qword ptr [rbp + {final.symbols['n']:#x}]" in compiled.listing
    assert (seen[0].locals, seen[0].symbols) == (final.locals, final.symbols)


def test_what_does_not_fit_is_an_error() -> None:
    made(local_bytes=0x1000, scratch=0x1000)
    broken: tuple[Callable[[], CompiledRegion], ...] = (
        lambda: made(local_bytes=0x2000),
        lambda: made(scratch=0x1001),
        lambda: made(place=replace(PLACE, frame=0x20020)),
        lambda: made(place=replace(PLACE, frame=2**40)),
        lambda: made(isa=Isa.AVX512),
        lambda: made(isa=Isa.AVX2, xcr0=3),
    )
    for make in broken:
        with pytest.raises(VerifyError):
            make()
    assert made(isa=Isa.AVX512, xcr0=0xe7).code


def test_a_version_that_is_too_large_for_its_place_is_refused() -> None:
    with pytest.raises(Rejected):
        made(place=replace(PLACE, code_size=100))


@pytest.mark.parametrize("items", [
    (), (jump("kernel_done"),), (Label("kernel"), instruction("push", "rax"), jump("kernel_done")),
    (Label("kernel"), instruction("mov", "rax", Mem("rsp")), jump("kernel_done")),
    (Label("kernel"), instruction("sub", "rsp", 8), jump("kernel_done")),
    (Label("kernel"), Label("fail"), jump("kernel_done")),
])
def test_a_kernel_that_breaks_its_contract(items: Code) -> None:
    with pytest.raises(VerifyError):
        made(items=items)


@pytest.mark.parametrize("region", [
    replace(REGION, rejoin=(Rejoin(Register("rsp"), linear(n=1)),)),
    replace(REGION, rejoin=(Rejoin(Register("rax"), linear(n=1)), Rejoin(Cell("rax", 0, 8), linear(n=1)))),
    replace(REGION, rejoin=(Rejoin(Register("rax"), linear(n=1), 2),)),
    replace(REGION, live_ins=(*REGION.live_ins, LiveIn("w", Register("rax"), 3))),
    replace(REGION, live_ins=(*REGION.live_ins, LiveIn("w", Cell("rax", 0, 4), 8))),
])
def test_a_region_that_cannot_be_rejoined(region: Region) -> None:
    with pytest.raises(VerifyError):
        made(region)


def test_values_that_are_nested_too_deeply_are_refused_by_name() -> None:
    def kernel(layout: FrameLayout) -> KernelCode:
        return kernel(layout)

    with pytest.raises(Rejected, match="nested too deeply"):
        generate(REGION, PLAN, kernel, PLACE, lambda _: DISPLACED, 7)
