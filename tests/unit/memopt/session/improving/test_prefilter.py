"""The first look at integer code: loops that store and call nothing are worth a second one."""

from __future__ import annotations

import pytest

from memopt.session.improving.prefilter import stores_in_a_loop
from tests.support.binaries import assemble

START = 0x401000


@pytest.mark.parametrize(("expected", "body"), [
    (True, "add eax, [rsi+rcx*4]; mov [rdi+rcx*4], eax"),
    (True, "add [rdi+rcx*4], eax"),
    (True, "movsxd rax, [rsi+rcx*4]; lock add [rdi], rax"),
    (True, "movdqu xmm0, [rsi+rcx*8]; paddd xmm0, xmm1; movups [rdi+rcx*8], xmm0"),
    (True, "cmp eax, 5; jge 1f; mov [rdi+rcx*4], eax; 1: inc eax"),
    (True, "movdqu xmm0, [rsi+rcx*8]; pxor xmm0, xmm1; paddd xmm2, xmm0"),
    (False, "paddd xmm2, xmm0"),
    (False, "movdqu xmm0, [rsi+rcx*8]; pcmpeqb xmm0, xmm1; por xmm2, xmm0"),
    (False, "add eax, [rsi+rcx*4]"),
    (False, "cmp dword ptr [rsi+rcx*4], 5"),
    (False, "mov [rdi+rcx*4], eax; call 9f"),
    (False, "mov [rdi+rcx*4], eax; jmp rax"),
])
def test_loops(expected: bool, body: str) -> None:
    code = assemble(f".intel_syntax noprefix\nmov [rdi], rax\n0: {body}\ninc rcx; cmp rcx, rdx; jne 0b\n9: ret")
    first = len(assemble(".intel_syntax noprefix\nmov [rdi], rax"))
    loop = assemble(f".intel_syntax noprefix\n0: {body}\n9:")
    for address in (START + first, START + first + len(loop)):
        assert stores_in_a_loop(code, START, address) is expected, hex(address)


def test_straight_code_is_no_loop() -> None:
    code = assemble(".intel_syntax noprefix\nmov [rdi], eax; mov [rsi], eax; ret")
    assert not stores_in_a_loop(code, START, START)
