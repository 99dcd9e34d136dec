"""Straight code that adds to what is in memory."""

from __future__ import annotations

import pytest

from memopt.instrumentation.reductions import accumulates
from memopt.x86.decoder import decode
from tests.support.binaries import assemble


def combined(*lines: str) -> bool:
    """Of the last instruction with the first."""
    block = decode(assemble(f".intel_syntax noprefix; {'; '.join(lines)}"), 0x1000)
    return accumulates(block, block[-1].address, block[0].address)


@pytest.mark.parametrize("lines", [
    ("add [rdi], rax",), ("inc dword ptr [rdi + rcx*4]",),
    ("movsd xmm0, [rdi]", "addsd xmm0, xmm1", "movsd [rdi], xmm0"),
    ("addsd xmm0, [rdi + 8]", "mov rcx, rdx", "movsd [rdi + 8], xmm0"),
    ("mov eax, [rdi]", "imul eax, ecx", "mov [rdi], eax"),
])
def test_what_is_combined(lines: tuple[str, ...]) -> None:
    assert combined(*lines)


@pytest.mark.parametrize("lines", [
    ("mov [rdi], rax",), ("movsd xmm0, [rdi]", "movsd [rdi], xmm0"),
    ("movsd xmm0, [rdi]", "addsd xmm0, xmm1", "movsd [rdi + 8], xmm0"),
    ("movsd xmm0, [rdi]", "addsd xmm0, xmm1", "movsd [rdi], xmm1"),
    ("mov eax, [rdi]", "add eax, 3", "add rdi, 8", "mov [rdi], eax"),
    ("mov eax, [rdi]", "add eax, 3", "mov ecx, eax", "mov [rdi], eax"),
    ("mov eax, [rdi]", "mov eax, ecx", "mov [rdi], eax"),
])
def test_what_is_not(lines: tuple[str, ...]) -> None:
    assert not combined(*lines)
