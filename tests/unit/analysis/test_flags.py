"""Flags at a loop header: dead only when every way sets them before anything reads one."""

from __future__ import annotations

import pytest

from memopt.analysis.flags import flags_dead
from memopt.analysis.flowgraph import discover
from tests.support.binaries import assemble
from tests.support.lifting import TEXT, code_of


def dead(source: str) -> bool:
    """At the label ``header``, which must be the first instruction."""
    machine_code = assemble(".intel_syntax noprefix\n" + source)

    def read(address: int, size: int) -> bytes:
        return machine_code[address - TEXT:address - TEXT + size]

    code = code_of(discover(read, TEXT, (TEXT, TEXT + len(machine_code))))
    return flags_dead(code.graph, code.lift, TEXT)


@pytest.mark.parametrize("source", [
    "header: add rax, 8; cmp rax, rcx; jne header; ret",
    "header: mov rdx, [rax]; jrcxz other; add rax, 1; jmp header; other: sub rax, 1; ret",
])
def test_set_on_every_way(source: str) -> None:
    assert dead(source)


@pytest.mark.parametrize("source", [
    "header: mov rdx, [rax]; jne header; ret",
    "header: inc rax; cmp rax, rcx; jne header; ret",  # keeps the carry
    "header: setb dl; cmp rax, rcx; jne header; ret",
    "header: jrcxz other; add rax, 1; jmp header; other: ret",  # the caller may look
])
def test_read_or_passed_on(source: str) -> None:
    assert not dead(source)
