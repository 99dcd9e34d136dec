"""Scratch registers: what a probe may change, since the code behind it sets it before it reads it."""

from __future__ import annotations

import pytest

from memopt.instrumentation.scratch_registers import idle
from memopt.x86.decoder import decode
from tests.support.binaries import assemble


def assemble_text(text: str) -> bytes:
    return assemble(f".intel_syntax noprefix; {text}")


@pytest.mark.parametrize(("text", "registers", "flags"), [
    ("mov eax, 1; cmp rax, rcx; ret", {"rax"}, True), ("mov rax, [rax]; add rcx, 1", set(), True),
    ("xor edx, edx; jne 5", {"rdx"}, True), ("jne 5", set(), False), ("inc rax; cmp rax, 1", set(), False),
    ("mov al, 1; test al, al", set(), True), ("adc rax, 1; cmp rax, 1", set(), False),
    ("movzx ecx, byte ptr [rdi + rcx]; cmp ecx, 1", set(), True), ("shl rax, cl; cmp eax, 1", set(), False),
    ("movsd xmm0, [rax]; lea rax, [rcx + 1]; ucomisd xmm0, xmm1", set(), True), ("setne al; cmp al, 1", set(), False),
    ("push rbp; mov rbp, rsp; sub rsp, 8", set(), False), ("movsd xmm0, [rcx]; mov edx, 4; mov rcx, 5", {"rdx"}, False),
])
def test_what_a_probe_may_change(text: str, registers: set[str], flags: bool) -> None:
    assert idle(decode(assemble_text(text), 0)) == (registers, flags)
