"""What instructions access, held against what libVEX makes of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memopt.elf.image import Image
from memopt.elf.symbols import Symbols
from memopt.instrumentation.memory_operands import Access, accesses
from memopt.ir.operations import Load, Store
from memopt.ir.reasons import Rejected
from memopt.x86.decoder import decode
from memopt.x86.semantics import lift_block
from tests.support.binaries import assemble
from tests.support.effort import some

_ELSEWHERE = ("push", "pop", "leave", "lea", "nop")


def of(text: str) -> tuple[Access, ...] | None:
    return accesses(decode(assemble(f".intel_syntax noprefix; {text}"), 0x1000)[0])


@pytest.mark.parametrize(("text", "expected"), [
    ("mov rax, [rbx + rcx*4 - 16]", Access(8, True, False, "rbx", "rcx", 4, -16)),
    ("mov byte ptr [rsp], 1", Access(1, False, True, "rsp")),
    ("add [r12 + r13], eax", Access(4, True, True, "r12", "r13", 1)),
    ("cmp word ptr [rdi], 5", Access(2, True, False, "rdi")),
    ("vmovupd [rax*8 + 64], ymm1", Access(32, False, True, None, "rax", 8, 64)),
    ("vfmadd231sd xmm0, xmm1, [rdx]", Access(8, True, False, "rdx")),
    ("movsd xmm0, [rip + 16]", Access(8, True, False, absolute=0x1018)),
    ("lock xadd [rax], rcx", Access(8, True, True, "rax")),
    ("setne [rax]", Access(1, False, True, "rax")),
    ("comisd xmm2, [rax]", Access(8, True, False, "rax")),
    ("fstp qword ptr [rax]", Access(8, False, True, "rax")),
])
def test_an_operand(text: str, expected: Access) -> None:
    assert of(text) == (expected,)


@pytest.mark.parametrize("text", ["lea rax, [rbx]", "nop word ptr [rax]", "push [rax]", "mov eax, ebx",
                                  "prefetcht0 [rax]"])
def test_no_access(text: str) -> None:
    assert of(text) == ()


@pytest.mark.parametrize("text", ["mov rax, fs:[0x28]", "mov eax, [ebx]", "fxsave [rax]",
                                  "vgatherdpd ymm0, [rax + xmm1*8], ymm2"])
def test_what_cannot_be_told(text: str) -> None:
    assert of(text) is None


def test_strings() -> None:
    assert of("rep movsq") == (Access(8, True, False, "rsi", repeated=True),
                               Access(8, False, True, "rdi", repeated=True))
    assert of("stosb") == (Access(1, False, True, "rdi"),)
    assert of("repne scasb") == (Access(1, True, False, "rdi", repeated=True),)


@pytest.mark.parametrize("library", some(["libm.so.6", "libc.so.6"], 1))
def test_all_forms_in_a_library(library: str) -> None:
    """Bytes read and written by each form that occurs, whatever its numbers."""
    path = Path("/lib/x86_64-linux-gnu", library)
    if not path.exists():
        pytest.skip(f"there is no {path}")
    seen: set[tuple[str, str]] = set()
    wrong, compared = [], 0
    with Image(str(path)) as image:
        functions = Symbols(image).everything
        for function in functions:
            for instruction in decode(image.read(function.start, function.end - function.start), function.start):
                form = instruction.mnemonic, re.sub(r"0x[0-9a-f]+|\b\d+", "N", instruction.operands_text)
                if "[" not in form[1] or form in seen or instruction.kind.ends_block or form[0] in _ELSEWHERE or (
                        form[0].startswith("vf") and form[1].count(",") == 3):  # FMA4: no processor has it any more
                    continue
                seen.add(form)
                told = accesses(instruction)
                if told is None:
                    continue
                try:
                    operations = lift_block(instruction.bytes, instruction.address).operations
                except Rejected:
                    continue
                compared += 1
                theirs = [sum(o.width // 8 for o in operations if isinstance(o, kind)) for kind in (Load, Store)]
                ours = [sum(a.size for a in told if a.reads), sum(a.size for a in told if a.writes)]
                if ours != theirs:
                    wrong.append((str(instruction), theirs, ours))
    assert compared > 500
    assert wrong == []
