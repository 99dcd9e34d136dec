"""Models of library functions: memcpy and the like as loops, mathematical functions as operations."""

from __future__ import annotations

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Relation
from tests.support.calls import ADDED, ROUTINE, SLOT, lift, refusal

COPY_ROW = "mov rdi, r13; mov rsi, r12; mov rdx, rbp; call library; lea r13, [rax+104]; add r12, 104"


def test_memcpy_is_its_loop_while_its_slot_is_what_it_was() -> None:
    lifted = lift(COPY_ROW, routine="memcpy")
    lines = str(lifted.statements).splitlines()
    assert lines[1].endswith("< 10")
    assert lines[2].split("]:64 = ")[1].endswith(" + 104*c:401002 + r12]")
    guarded = [str(g.expression) for g in lifted.region.guards if isinstance(g, Relation)]
    assert all(any(name in g for g in guarded) for name in (f"m[{SLOT}]:64", "rbp"))


@pytest.mark.parametrize(("size", "bits"), [("rbx*8+8", 64), ("rbx*4+4", 32), ("rbx*8+3", 8)])
def test_elements_are_as_large_as_the_size_allows(size: str, bits: int) -> None:
    body = f"mov rdi, rbx; shl rdi, 9; lea rsi, [rdi+r12]; add rdi, r13; lea rdx, [{size}]; call library"
    assert f"]:{bits} = [" in str(lift(body, routine="memcpy").statements)


def test_a_copy_onto_its_own_source_is_refused() -> None:
    assert lift(COPY_ROW, routine="memmove", registers={"r13": 0x10000 - 8}).statements is not None
    with pytest.raises(Rejected):
        lift(COPY_ROW, routine="memmove", registers={"r13": 0x10000 + 8})


def test_memset_repeats_its_byte() -> None:
    body = "mov rdi, r13; mov esi, 1; mov edx, 24; call library; add r13, 104"
    assert "]:64 = 0x101010101010101" in str(lift(body, routine="memset").statements)


@pytest.mark.parametrize("register", ["rcx", "xmm3", "r11"])
def test_what_a_library_function_may_change_is_unknown(register: str) -> None:
    store = "movsd [r14+rbx*8], xmm3" if register == "xmm3" else f"mov [r14+rbx*8], {register}"
    assert refusal(f"{COPY_ROW}; {store}", routine="memcpy") is Reason.CARRIED_VALUE
    compare = "movq rdx, xmm3; cmp rdx, 5" if register == "xmm3" else f"cmp {register}, 5"
    assert refusal(f"{COPY_ROW}; {compare}; je 1f; {ADDED}; 1:", routine="memcpy") in (
        Reason.CARRIED_VALUE, Reason.DATA_DEPENDENT_BRANCH)


@pytest.mark.parametrize(("routine", "operands", "checked"), [
    ("exp", "{0}", False), ("log", "{0}", True), ("pow", "{0}, [8*c:401002 + r13 + 8*rbx]", True)])
def test_mathematical_functions_are_operations(routine: str, operands: str, checked: bool) -> None:
    body = "movsd xmm0, [r12+rbx*8]; movsd xmm1, [r13+rbx*8]; call library; movsd [r14+rbx*8], xmm0"
    lifted = lift(body, routine=routine)
    value = f"call {ROUTINE:x}({operands.format('[8*c:401002 + r12 + 8*rbx]')})"
    assert str(lifted.statements).splitlines()[1] == f"  [8*c:401002 + r14 + 8*rbx]:64 = {value}"
    assert any(f"m[{SLOT}]:64" in str(g.expression) for g in lifted.region.guards if isinstance(g, Relation))
    assert (lifted.region.rollback is not None) == checked


def test_mathematical_functions_of_single_precision() -> None:
    body = "movss xmm0, [r12+rbx*4]; call library; movss [r14+rbx*4], xmm0"
    assert f"]:32 = call {ROUTINE:x}.f32([4*c:401002 + r12 + 4*rbx])" in str(lift(body, routine="expf").statements)
    above = "movss xmm0, [r12+rbx*4]; call library; movsd [r14+rbx*8], xmm0"
    assert refusal(above, routine="expf") is Reason.CARRIED_VALUE


@pytest.mark.parametrize("register", ["rax", "rdi", "xmm1", "xmm7"])
def test_what_a_mathematical_function_may_change_is_unknown(register: str) -> None:
    store = f"movsd [r13+rbx*8], {register}" if "xmm" in register else f"mov [r13+rbx*8], {register}"
    body = f"movsd xmm0, [r12+rbx*8]; call library; movsd [r14+rbx*8], xmm0; {store}"
    assert refusal(body, routine="exp") is Reason.CARRIED_VALUE


def test_a_mathematical_function_is_not_called_in_one_way_of_a_branch_only() -> None:
    body = "movsd xmm0, [r12+rbx*8]; cmp qword ptr [r13+rbx*8], 5; je 1f; call library; 1: movsd [r14+rbx*8], xmm0"
    assert refusal(body, routine="exp") is Reason.DATA_DEPENDENT_BRANCH
