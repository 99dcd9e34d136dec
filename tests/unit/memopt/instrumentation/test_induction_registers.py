"""Registers that tell how often a loop ran."""

from __future__ import annotations

import pytest

from memopt.cfg.flowgraph import discover
from memopt.cfg.loop_nesting import find_nesting
from memopt.instrumentation.induction_registers import Stepping, steppings, written
from memopt.x86.decoder import decode
from tests.support.binaries import assemble


def assemble_text(text: str) -> bytes:
    return assemble(f".intel_syntax noprefix; {text}")


def stepping_of(*lines: str) -> Stepping | None:
    code = assemble_text("; ".join(lines))
    graph = discover(lambda a, n: code[a - 0x1000:a - 0x1000 + n], 0x1000, (0x1000, 0x1000 + len(code)))
    return steppings(graph, find_nesting(graph)).get(0)


@pytest.mark.parametrize(("step", "register", "amount", "bits"), [
    ("add rax, 8", "rax", 8, 64), ("sub rcx, -128", "rcx", 128, 64), ("dec rdx", "rdx", -1, 64),
    ("inc r9d", "r9", 1, 32), ("sub eax, 1", "rax", -1, 32), ("lea r8, [r8 + 24]", "r8", 24, 64),
    ("add r10d, 0xfffffffe", "r10", -2, 32),
])
def test_a_step(step: str, register: str, amount: int, bits: int) -> None:
    found = stepping_of("xor ebx, ebx", "cmp rdi, rsi", "mov r11d, 1", "nop", "jmp l", "l: " + step,
                        "movsd xmm0, [rdi]", "cmp rdi, 5", "jne l", "ret")
    assert found is not None
    assert (found.register, found.step, found.bits) == (register, amount, bits)


@pytest.mark.parametrize("other", [
    "mov al, 3", "mul rdi", "cqo; idiv rdi; cdqe", "xchg rax, rdi", "lahf", "rdtsc", "cmpxchg [rdi], rdx", "add ax, 2",
    "call rdi", "pop rax", "lodsb", "inc rax",
])
def test_what_else_may_change_it(other: str) -> None:
    assert stepping_of("l: add rax, 8", other, "cmp rdi, 5", "jne l", "ret") is None


def test_parts_of_registers_and_the_stack_pointer_do_not_count() -> None:
    assert stepping_of("l: inc al", "jne l", "ret") is None
    assert stepping_of("l: inc ax", "jne l", "ret") is None
    assert stepping_of("l: add rsp, 8", "jne l", "ret") is None


def test_a_step_behind_a_condition_counts_its_own_block() -> None:
    found = stepping_of("l: cmp rdi, [rsi]", "je m", "inc rax", "m: cmp rsi, 7", "jne l", "ret")
    assert found is not None
    assert found.block != 0x1000


def test_what_instructions_change() -> None:
    def of(text: str) -> frozenset[str] | None:
        (instruction,) = decode(assemble_text(text), 0)
        return written(instruction)

    assert of("imul rax, rcx, 5") == {"rax"}
    assert of("imul rcx") == {"rax", "rdx"}
    assert of("cvttsd2si r9d, xmm3") == {"r9"}
    assert of("movsd qword ptr [rdi], xmm0") == frozenset()
    assert of("xadd rax, rcx") is None
    assert of("movsb") is None
