"""Inlining: small functions that a loop calls are copied into its graph."""

from __future__ import annotations

from memopt.cfg.inlining import COPY
from memopt.ir.reasons import Reason
from tests.support.calls import ADDED, lift, refusal

SQUARE = "f: mulsd xmm0, xmm0; ret"


def test_a_function_called_twice_is_there_twice() -> None:
    body = "movsd xmm0, [r12+rbx*8]; call f; call f; movsd [r13+rbx*8], xmm0"
    lifted = lift(body, SQUARE)
    square = "mul([{0}], [{0}])".format("8*c:401002 + r12 + 8*rbx")
    assert str(lifted.statements).splitlines()[1] == f"  [8*c:401002 + r13 + 8*rbx]:64 = mul({square}, {square})"


def test_spills_below_the_stack_pointer_are_no_live_values() -> None:
    function = "f: push rbp; mov rbp, rsp; movsd [rbp-8], xmm0; movsd xmm1, [rbp-8]; addsd xmm0, xmm1; pop rbp; ret"
    region = lift("movsd xmm0, [r12+rbx*8]; call f; movsd [r12+rbx*8], xmm0", function).region
    assert [x for x in region.live_ins if "[rsp" in x.symbol] == []
    assert [str(s).split(" = ")[1] for s in region.scop.statements]


def test_functions_with_branches_and_loops_and_calls() -> None:
    functions = """f: xor ecx, ecx; 1: movsd xmm0, [r12+rcx*8]; call g; movsd [rdi+rcx*8], xmm0; inc rcx; cmp rcx, 7
    jne 1b; ret; g: addsd xmm0, xmm0; ret"""
    lines = str(lift("mov rdi, rbx; shl rdi, 9; add rdi, r13; call f", functions).statements).splitlines()
    copy = int(lines[1].split()[1].removeprefix("c:"), 16)
    assert copy > COPY
    assert lines[1].endswith("< 7")
    assert "add([8*c:" in lines[2]


def test_a_function_that_changes_its_return_address_is_refused() -> None:
    assert refusal(f"{ADDED}; call f", "f: add qword ptr [rsp], 1; ret") in (
        Reason.DATA_DEPENDENT_BRANCH, Reason.INDIRECT_JUMP)


def test_functions_that_do_not_return_or_jump_anywhere_are_refused() -> None:
    for function in ("f: jmp rax", "f: ud2", "f: jmp f"):
        assert refusal(f"{ADDED}; call f", function) is Reason.CALL
