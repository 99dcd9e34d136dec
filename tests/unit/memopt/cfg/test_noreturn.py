"""Which calls do not return."""

from __future__ import annotations

import pytest

from memopt.cfg.flowgraph import discover
from memopt.cfg.noreturn import NoReturn, does_not_return
from memopt.elf.symbols import Function
from tests.support.binaries import assemble

START = 0x40_0000


@pytest.mark.parametrize(("name", "ends"), [
    ("exit", True), ("_exit", True), ("__stack_chk_fail", True), ("_ZSt20__throw_length_errorPKc", True),
    ("errx", True), ("_gfortran_stop_string", True), ("__longjmp_chk", True), ("__gnat_rcheck_CE_Overflow_Check", True),
    ("atexit", False), ("exit_handler", False), ("error", False), ("setjmp", False), ("_gfortran_st_write", False),
])
def test_names(name: str, ends: bool) -> None:
    assert does_not_return(name) == ends


@pytest.mark.parametrize(("body", "ends"), [
    ("t: ud2", True),
    ("t: jmp t", True),
    ("t: cmp eax, 1; je u; ud2; u: call [rip + 0xfffec]; nop", True),
    ("t: push rbx; call u; u: hlt", True),
    ("t: call w; ud2; w: ret", False),
    ("t: cmp eax, 1; je u; ud2; u: ret", False),
    ("t: jmp rax", False),
    ("t: call [rip + 0x100]; nop", False),
    ("t: jmp s", False),
])
def test_functions_end_where_nothing_in_them_returns(body: str, ends: bool) -> None:
    code = assemble(f".intel_syntax noprefix\ns: call t\nnop\nret\n{body}\n")

    def read(address: int, size: int) -> bytes:
        return code[max(0, address - START):max(0, address - START) + size]

    functions = (Function(START, START + 7, "s"), Function(START + 7, START + len(code), "t"))
    graph = discover(read, START, (START, START + 7))
    assert NoReturn(read, functions, {START + 0x10_0000}).of(graph) == (frozenset((START,)) if ends else frozenset())
