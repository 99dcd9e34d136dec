"""What is told from the code around a hot address alone."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import nullcontext
from dataclasses import replace

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.options import Options
from memopt.session.replacing.process import Process
from memopt.session.replacing.site import changed, find_site, loop_code, screen, vector_bytes
from tests.support.binaries import assemble
from tests.support.sites import NESTS, NEXT, site_of


def screened(body: str) -> int:
    """How many operations the loop's first block has."""
    site = site_of(f"xor ebx, ebx\ni: {body}\n{NEXT}")
    return len(screen(site, site.loops[0])(site.loops[0].header).operations)


@pytest.mark.parametrize("body", ["mov [rdi+rbx*8], rbx", "addsd xmm0, [rdi+rbx*8]"])
def test_a_loop_that_computes(body: str) -> None:
    assert screened(body) > 3


@pytest.mark.parametrize(("reason", "body"), [
    (Reason.NO_PLAN, "add rax, [rdi+rbx*8]"),
    (Reason.ATOMIC, "lock add qword ptr [rdi+rbx*8], 1"),
    (Reason.UNSUPPORTED_INSTRUCTION, "mov rax, [rdi+rbx*8]; cpuid"),
    (Reason.CALL, "call i; mov [rdi+rbx*8], rbx"),
])
def test_a_loop_that_is_left_alone(reason: Reason, body: str) -> None:
    with pytest.raises(Rejected) as refused:
        screened(body)
    assert refused.value.reason is reason


@pytest.mark.parametrize(("body", "size"), [
    ("addsd xmm0, [rdi+rbx*8]; movups xmm1, [rdi]; pxor xmm2, xmm2", 0),
    ("mulps xmm0, [rdi]", 16),
    ("vaddsd xmm0, xmm0, [rdi]; vfmadd231pd ymm1, ymm2, [rdi]", 32),
    ("vpmulld zmm1, zmm2, [rdi]; vpaddd ymm1, ymm2, ymm3", 64),
])
def test_the_vectors_a_loop_computes_with(body: str, size: int) -> None:
    site = site_of(f"xor ebx, ebx\ni: {body}\n{NEXT}")
    assert vector_bytes(site, site.loops[0]) == size


def test_a_loop_beside_a_decided_one_is_none_of_what_was_decided() -> None:
    site = site_of(NESTS)
    outer, first, inner, second = site.loops
    site = replace(site, loops=(outer, first, inner))
    nest, ranges = site.decided(inner)
    assert nest == first
    assert {low for low, _ in ranges} == outer.blocks - second.blocks
    assert site.decided(outer) == (outer, tuple((b, site.graph.blocks[b].end) for b in outer.blocks))


def test_loops_in_the_chosen_one_are_decided_with_it() -> None:
    site = site_of(NESTS)
    outer, first, inner, second = site.loops
    site = replace(site, loops=(outer, first, inner))
    assert inner.blocks <= {low for low, _ in site.decided(first)[1]}
    site = replace(site, loops=(second,))  # those around it hold a loop that is replaced
    nest, ranges = site.decided(second)
    assert nest == second
    assert {low for low, _ in ranges} == second.blocks


@pytest.mark.parametrize("path", ["", "/memfd:code (deleted)"])
def test_code_in_memory_without_a_file_is_left_alone(path: str) -> None:
    """A program that has made its code may write to any byte of it, under a jump of memopt's as well."""
    site = replace(site_of(NESTS), path=path)
    process = Process(os.getpid(), Options(), nullcontext, 0.0)
    with pytest.raises(Rejected) as refused:
        loop_code(process, site, site.loops[0])
    assert (refused.value.reason, "without a file" in refused.value.detail) == (Reason.NO_ROOM, True)


def test_code_that_was_exchanged() -> None:
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(assemble(f".intel_syntax noprefix\nxor ebx, ebx\ni: add rcx, rbx\n{NEXT}\nret"))
    site = find_site(os.getpid(), ctypes.addressof(ctypes.c_char.from_buffer(code)) + 2)
    assert site.loops
    assert not changed(os.getpid(), site)
    code[3] ^= 8  # the ``add`` is an ``or`` now
    assert changed(os.getpid(), site)
