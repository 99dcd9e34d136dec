"""Registers and flags at a loop header: dead only when every way writes them before anything reads them."""

from __future__ import annotations

import pytest

from memopt.cfg.dead_registers import dead_registers, flags_dead
from memopt.cfg.flowgraph import discover
from memopt.lifting.lift import Code
from tests.support.binaries import assemble
from tests.support.lifting import TEXT, code_of

REGISTERS = ("rbx", "xmm7.0")


def code(source: str) -> Code:
    """The label ``header`` must be the first instruction."""
    machine_code = assemble(".intel_syntax noprefix\n" + source)

    def read(address: int, size: int) -> bytes:
        return machine_code[address - TEXT:address - TEXT + size]

    return code_of(discover(read, TEXT, (TEXT, TEXT + len(machine_code))))


def dead(source: str) -> set[str]:
    """Of ``REGISTERS``, at the header."""
    it = code(source)
    return set(dead_registers(it.graph, it.lift, TEXT, REGISTERS))


def dead_flags(source: str) -> bool:
    return flags_dead(code(source).graph, TEXT)


@pytest.mark.parametrize(("source", "expected"), [
    ("header: mov rbx, rcx; add rax, rbx; jne header; ret", {"rbx"}),
    ("header: add rax, 8; cmp rax, rcx; jne header; pop rbx; movsd xmm7, [rax]; ret", {"rbx", "xmm7.0"}),
    ("header: cmp rax, 8; je 1f; mov ebx, 5; 1: add rax, 8; jne header; xor ebx, ebx; ret", {"rbx"}),
])
def test_written_on_every_way(source: str, expected: set[str]) -> None:
    assert dead(source) == expected


@pytest.mark.parametrize("source", [
    "header: add rax, rbx; addsd xmm7, xmm0; jne header; pop rbx; ret",
    "header: mov bl, 5; add rax, 8; jne header; pop rbx; ret",  # the other bits are passed on
    "header: add rax, 8; jne header; ret",  # the caller may look
    "header: cmp rax, 8; je 1f; mov rbx, rcx; movsd xmm7, [rcx]; 1: add rax, rbx; ucomisd xmm7, xmm0; jne header; ret",
    "header: add rax, 8; jne header; call f; mov rbx, 5; movsd xmm7, [rbx]; ret; .skip 64; f: ret",
    "header: add rax, 8; jne header; jmp rcx",
])
def test_read_or_passed_on(source: str) -> None:
    assert not dead(source)


@pytest.mark.parametrize("source", [
    "header: add rax, 8; cmp rax, rcx; jne header; ret",
    "header: mov rdx, [rax]; jrcxz other; add rax, 1; jmp header; other: sub rax, 1; ret",
    "header: inc rax; cmp rax, rcx; jne header; ret",  # keeps the carry, which cmp then writes
    "header: dec rax; jne header; cmp rax, rcx; ret",
    "header: dec rax; js header; setl dl; xor eax, eax; ret",
])
def test_flags_set_on_every_way(source: str) -> None:
    assert dead_flags(source)


@pytest.mark.parametrize("source", [
    "header: mov rdx, [rax]; jne header; ret",
    "header: dec rax; jne header; ret",  # keeps the carry: the caller may look
    "header: dec rax; adc rdx, 0; cmp rax, rcx; jne header; ret",
    "header: dec rax; ja header; cmp rax, rcx; ret",
    "header: shl rax, cl; jne header; cmp rax, rcx; ret",  # a count of zero keeps all flags
    "header: lahf; cmp rax, rcx; jne header; ret",
    "header: setb dl; cmp rax, rcx; jne header; ret",
    "header: jrcxz other; add rax, 1; jmp header; other: ret",  # the caller may look
])
def test_flags_read_or_passed_on(source: str) -> None:
    assert not dead_flags(source)
