from __future__ import annotations

import pytest

from memopt.ir.graph import Kind
from memopt.x86.decoder import decode, name_instruction, rip_displacement_offset
from tests.support.binaries import assemble


@pytest.mark.parametrize(("source", "kind", "target"), [
    ("mov %rax, %rbx", Kind.PLAIN, None),
    ("lea 0x1000(%rip), %rax", Kind.PLAIN, None),
    ("jmp .+4", Kind.JUMP, 0x1004),
    ("jmp .+0x400", Kind.JUMP, 0x1400),
    ("jne .-0x10", Kind.CONDITIONAL, 0xFF0),
    ("jbe .+0x400", Kind.CONDITIONAL, 0x1400),
    ("loop .+8", Kind.CONDITIONAL, 0x1008),
    ("jrcxz .+8", Kind.CONDITIONAL, 0x1008),
    ("bnd jmp .+8", Kind.JUMP, 0x1008),
    ("jmp *%rax", Kind.INDIRECT, None),
    ("notrack jmp *%rax", Kind.INDIRECT, None),
    ("jmp *0x1000", Kind.INDIRECT, None),
    ("jmp *(%rax,%rcx,8)", Kind.INDIRECT, None),
    ("call .+0x100", Kind.CALL, 0x1100),
    ("call .-0x1000", Kind.CALL, 0),  # of a weak symbol that nothing defines
    ("jne .-0xff7", Kind.CONDITIONAL, 9),
    ("call *%rax", Kind.CALL, None),
    ("ret", Kind.RETURN, None),
    ("repz ret", Kind.RETURN, None),
    ("ud2", Kind.TRAP, None),
    ("int3", Kind.TRAP, None),
    ("hlt", Kind.TRAP, None),
    ("syscall", Kind.PLAIN, None),
])
def test_kinds(source: str, kind: Kind, target: int | None) -> None:
    (instruction,) = decode(assemble(source), 0x1000)
    assert (instruction.kind, instruction.target) == (kind, target)


def test_bytes_and_addresses_are_contiguous() -> None:
    code = assemble("endbr64; push %rbp; movsd 8(%rax), %xmm1; vaddpd %zmm1, %zmm2, %zmm3; ret")
    found = decode(code, 0x400000)
    assert b"".join(i.bytes for i in found) == code
    assert [i.address for i in found[1:]] == [i.end for i in found[:-1]]
    assert [i.mnemonic for i in decode(code, 0x400000, 2)] == ["endbr64", "push"]


def test_decoding_stops_at_a_cut_instruction() -> None:
    code = assemble("nop; mov $0x12345678, %eax")
    assert len(decode(code[:-1], 0)) == 1


def test_names_for_messages() -> None:
    assert name_instruction(assemble("lock addl $1, (%rax)"), 0x10) == "lock add at 0x10"
    assert name_instruction(b"\x06\x06", 0x10) == "bytes 06 06 at 0x10"


def test_rip_displacements() -> None:
    assert rip_displacement_offset(assemble("mov 0x10(%rip), %rax"), 0) == 3
    assert rip_displacement_offset(assemble("cmpl $7, 0x10(%rip)"), 0) == 2
    assert rip_displacement_offset(assemble("mov 0x10(%rax), %rax"), 0) is None
