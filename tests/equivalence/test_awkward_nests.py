"""Nests of assembly with one trap each, replaced without a trial: nothing but proofs and guards keeps them right.

After the nest is replaced it is called with overlapping arrays, other sizes, garbage in upper halves and a null
pointer; memory and the registers it leaves behind must be the original's.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.measure.execution import memopt_command, run
from tests.conftest import Build
from tests.support.waiting import PATIENCE

SIZE, CALLS = "300", "40"

PIECES = {
    "before": "", "outer": "", "size": "",
    "row": "xor r11d, r11d; mov rax, rbx; imul rax, r9; lea r13, [rsi+rax*8]; add rax, r10; lea r14, [rcx+rax*8]\n"
           "lea r15, [rdx+r10*8]",
    "body": "movsd xmm0, [r13+r11*8]; mulsd xmm0, [r15]; addsd xmm0, [r14]; movsd [r14], xmm0",
    "next k": "inc r11; cmp r11, r9; jne k",
    "next i": "inc rbx; cmp rbx, r9; jne i",
    "after": "",
}
KERNEL = """
.intel_syntax noprefix
.globl kernel
kernel:
    push rbx; push rbp; push r12; push r13; push r14; push r15
    xor ebx, ebx; xor r10d, r10d; xor r11d, r11d; xor ebp, ebp; xorps xmm0, xmm0; xorps xmm7, xmm7
    movsxd r9, edi
    test r9, r9
    jle out
    {before}
    xor ebx, ebx
i:  nop dword ptr [rax+rax+0]
    {outer}
    xor r10d, r10d
j:  {row}
k:  {body}
    lea r15, [r15+r9*8]
    {next k}
    inc r10; cmp r10, r9; jne j
next:
    {next i}
    {after}
out:
    lea rdi, seen[rip]
    mov [rdi], rbx; mov [rdi+8], r9; mov [rdi+16], r10; mov [rdi+24], r11; mov [rdi+32], rbp
    movups [rdi+48], xmm0; movups [rdi+64], xmm7
    pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx
    ret
.section .note.GNU-stack,"",@progbits
"""

CASES: dict[str, dict[str, str]] = {
    "plain": {},
    "32-bit counters": {"next i": "inc ebx; cmp ebx, r9d; jl i", "next k": "inc r11d; cmp r11d, r9d; jl k"},
    "sign extension by shifts": {
        "before": "mov r12, rdi", "row": PIECES["row"] + "\nmov rax, r12; shl rax, 32; sar rax, 32; imul rax, rbx\n"
        "lea r13, [rsi+rax*8]"},
    "test at the top": {"outer": "cmp rbx, r9; jge done", "next i": "inc rbx; jmp i\ndone:"},
    "upper lane": {"before": "movupd xmm7, [rsi]", "outer": "movhpd xmm7, [rsi+rbx*8]",
                   "body": PIECES["body"].replace("mulsd", "mulsd xmm0, xmm7; mulsd")},
    "null pointer": {"outer": "test r8, r8; je next", "next k": "inc r11; cmp r11, [r8+8]; jne k"},
    "slot": {"outer": "mov [rsp-16], rbx", "after": "mov rbp, [rsp-16]"},
}


@pytest.mark.parametrize("case", CASES)
def test_replaced_without_a_trial(build: Build, case: str, tmp_path: Path) -> None:
    source = tmp_path / "kernel.s"
    source.write_text(KERNEL.format(**PIECES | CASES[case]))
    program = str(build("awkward.c", str(source)))
    report = tmp_path / "report.json"
    native = run([program, SIZE, CALLS], PATIENCE)
    helped = run([*memopt_command(), "exec", "--no-shadow", "--json", str(report), "--", program, SIZE, CALLS],
                 PATIENCE)
    outcomes = [loop["outcome"] for loop in json.loads(report.read_text())["loops"]]
    assert "replaced" in outcomes, report.read_text()
    assert helped.stdout == native.stdout
    assert (native.exit_code, helped.exit_code) == (0, 0)
