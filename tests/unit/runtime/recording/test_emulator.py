"""What a thread would do next, on memory of this process."""

from __future__ import annotations

import ctypes
import os
from contextlib import closing
from dataclasses import fields, replace

import pytest

from runtime.recording.emulator import emulate
from runtime.target.memory import Memory
from runtime.target.ptrace import Registers
from tests.support.binaries import assemble


@pytest.mark.parametrize(("most", "done"), [(9, True), (3, False)])
def test_it_runs_up_to_an_instruction_and_writes_only_if_it_gets_there(most: int, done: bool) -> None:
    code = assemble(".intel_syntax noprefix\nadd rax, gs:[8]\nmov [rdi], rax\nmov gs:[0], rbx\nlea rbx, [rbx + 1]\nret")
    text, data = ctypes.create_string_buffer(code), (ctypes.c_uint64 * 3)(5, 30, 0)
    start, state = ctypes.addressof(text), ctypes.addressof(data)
    nothing = Registers(*(0 for _ in fields(Registers)))
    registers = replace(nothing, rip=start, rax=12, rbx=(1 << 64) - 1, rdi=state + 16, gs_base=state)
    with closing(Memory(os.getpid())) as memory:
        found = emulate(registers, memory, lambda rip: rip == start + len(code) - 1, most)
    assert (found is not None) == done
    assert list(data) == ([(1 << 64) - 1, 30, 42] if done else [5, 30, 0])
    if found is not None:
        assert found == replace(registers, rip=start + len(code) - 1, rax=42, rbx=0, eflags=found.eflags)


def test_what_cannot_be_read_or_emulated_is_none() -> None:
    nothing = Registers(*(0 for _ in fields(Registers)))
    code = ctypes.create_string_buffer(assemble("syscall"))
    with closing(Memory(os.getpid())) as memory:
        assert emulate(nothing, memory, lambda rip: False, 5) is None
        assert emulate(replace(nothing, rip=ctypes.addressof(code)), memory, lambda rip: False, 5) is None
