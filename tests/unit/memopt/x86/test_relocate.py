from __future__ import annotations

from collections.abc import Callable

import pytest
from unicorn import UC_ARCH_X86, UC_MODE_64, Uc
from unicorn.x86_const import UC_X86_REG_EFLAGS, UC_X86_REG_RAX, UC_X86_REG_RIP, UC_X86_REG_RSP

from memopt.cfg.flowgraph import discover
from memopt.ir.graph import Kind
from memopt.ir.reasons import Reason, Rejected
from memopt.x86.decoder import capstone_detail, decode
from memopt.x86.relocate import branches_into, callers, displace, indirect_jumps, jump_targets_inside, relocate
from tests.support.binaries import assemble

OLD, NEW, STACK = 0x400000, 0x10000, 0x20000


def _reader(code: bytes, base: int = OLD) -> Callable[[int, int], bytes]:
    return lambda address, size: code[address - base:address - base + size]


def _meaning(code: bytes, address: int) -> list[tuple[str, str, int | None, int | None]]:
    """Per instruction: mnemonic, operands without addresses, branch target, address of a RIP-relative operand."""
    result = []
    for plain, detail in zip(decode(code, address), capstone_detail(code, address), strict=True):
        relative = [plain.end + o.mem.disp for o in detail.operands
                    if o.type == 3 and detail.reg_name(o.mem.base) == "rip"]
        text = "" if relative or plain.target is not None else plain.operands_text
        result.append((plain.mnemonic, text, plain.target, relative[0] if relative else None))
    return result


@pytest.mark.parametrize("source", [
    "mov %rax, %rbx; add $1, %rcx",
    "movsd 0x1234(%rip), %xmm0; mulsd (%rax), %xmm0",
    "vmovupd 0x100(%rip), %zmm3; vaddpd 0x40(%rip){1to8}, %zmm1, %zmm2",
    "cmpl $0x12345678, 0x20(%rip); cmpb $7, 0x20(%rip); test %eax, %eax",
    "lea -0x30(%rip), %rax; nop",
    "cmp %rax, %rcx; jne .-0x30",
    "jb .+0x20; jmp .+0x30",
    "jle .+0x1000; mov %rax, (%rbx)",
    "jmp .+0x1000",
    "ds jne .+0x10; bnd jmp .+0x40",
    "ret",
    "jmp *0x100(%rip)",
])
def test_moved_code_means_the_same(source: str) -> None:
    code = assemble(source)
    moved = relocate(decode(code, OLD), NEW)
    before, after = _meaning(code, OLD), _meaning(moved, NEW)
    assert [(m.rsplit(" ", 1)[-1], *rest) for m, *rest in before] == [tuple(x) for x in after]


def test_plain_instructions_keep_their_bytes() -> None:
    code = assemble("movsd (%rax,%rcx,8), %xmm0; mulsd %xmm1, %xmm0; endbr64")
    assert relocate(decode(code, OLD), NEW) == code


def test_a_branch_to_a_moved_instruction_goes_to_its_copy() -> None:
    code = assemble("1: dec %ecx; jne 1b; nop")
    moved = decode(relocate(decode(code, OLD), NEW), NEW)
    assert moved[1].kind is Kind.CONDITIONAL
    assert moved[1].target == NEW


@pytest.mark.parametrize("source", ["jrcxz .+8", "loop .+8", "call *%rax", "call .+8; nop"])
def test_what_cannot_be_moved(source: str) -> None:
    with pytest.raises(Rejected) as caught:
        relocate(decode(assemble(source), OLD), NEW)
    assert caught.value.reason is Reason.NO_ROOM


def test_a_call_at_the_end_comes_back_to_where_it_was() -> None:
    """Flags, registers and the stack are those of the call itself."""
    code = assemble("mov %eax, 8(%rsp); call callee; nop; callee: ret")
    callee = OLD + len(code) - 1
    found = displace(_reader(code), OLD)

    def state(moved: bytes, at: int) -> tuple[object, ...]:
        machine = Uc(UC_ARCH_X86, UC_MODE_64)
        for address in (OLD, NEW, STACK):
            machine.mem_map(address, 0x1000)
        machine.mem_write(OLD, code)
        machine.mem_write(at, moved)
        machine.reg_write(UC_X86_REG_RAX, 0x123456789ABCDEF)
        machine.reg_write(UC_X86_REG_RSP, STACK + 0x800)
        machine.reg_write(UC_X86_REG_EFLAGS, 0x8D7)  # all that arithmetic sets
        machine.emu_start(at, callee)
        registers = [machine.reg_read(r) for r in (UC_X86_REG_RAX, UC_X86_REG_RSP, UC_X86_REG_EFLAGS, UC_X86_REG_RIP)]
        return *registers, machine.mem_read(STACK + 0x7F8, 0x100)

    assert state(relocate(found, NEW), NEW) == state(code, OLD)


@pytest.mark.parametrize("source", ["jmp .+8", "mov 8(%rip), %rax", "call .+8"])
def test_out_of_reach(source: str) -> None:
    with pytest.raises(Rejected) as caught:
        relocate(decode(assemble(source), OLD), OLD + (1 << 32))
    assert caught.value.reason is Reason.NO_ROOM
    near = relocate(decode(assemble(source), OLD), OLD + (1 << 31) - 16)
    assert len(near) >= 5


@pytest.mark.parametrize(("source", "size"), [
    ("mov %eax, %ebx; mov %eax, %ebx; mov %eax, %ebx; ret", 6),
    ("movsd (%rax), %xmm0; movsd (%rax), %xmm0; ret", 8),
    ("vmovupd 0x100(%rip), %zmm3; ret", 10),
    ("mov %eax, %ebx; cmp %eax, %ebx; jne .-4; ret", 6),
])
def test_displaced_bytes_are_whole_instructions(source: str, size: int) -> None:
    found = displace(_reader(assemble(source)), OLD)
    assert sum(i.size for i in found) == size


@pytest.mark.parametrize("source", ["mov %eax, %ebx; ret; nop; nop; nop", "nop; .byte 6", "nop; jmp .+2; nop; nop"])
def test_no_room(source: str) -> None:
    with pytest.raises(Rejected) as caught:
        displace(_reader(assemble(source)), OLD)
    assert caught.value.reason is Reason.NO_ROOM


def test_a_jump_into_the_displaced_bytes_is_no_room() -> None:
    code = assemble("1: inc %ecx; 2: dec %edx; jne 2b; cmp %ecx, %eax; jne 1b; ret")
    graph = discover(_reader(code), OLD, (OLD, OLD + len(code)))
    jump_targets_inside(graph, OLD, 2)
    with pytest.raises(Rejected) as caught:
        jump_targets_inside(graph, OLD, 6)
    assert caught.value.reason is Reason.NO_ROOM


def test_an_indirect_jump_may_land_anywhere() -> None:
    code = assemble("1: inc %ecx; dec %edx; jne 1b; jmp *%rax")
    with pytest.raises(Rejected) as caught:
        indirect_jumps(discover(_reader(code), OLD, (OLD, OLD + len(code))), ())
    indirect_jumps(discover(_reader(code), OLD, (OLD, OLD + len(code))), {OLD + len(code) - 2})
    assert caught.value.reason is Reason.INDIRECT_JUMP


@pytest.mark.parametrize(("branch", "distance"), [
    ("jmp inside", 0), ("jne inside", 60), ("jmp inside", 5000), ("jbe inside", 70000), ("call inside", 300),
    ("loop inside", 90),
])
@pytest.mark.parametrize("before", [True, False])
def test_branches_from_code_outside_every_graph_are_seen(branch: str, distance: int, before: bool) -> None:
    filler = "mov %rax, 8(%rbx); .balign 4, 0x90; " * (distance // 4)
    header = "header: inc %ecx; inside: dec %edx; test %edx, %edx; ret"
    other = f"other: {branch}; ret"
    source = "; ".join((other, filler, header) if before else (header, filler, other))
    code = assemble(source.replace("; ; ", "; "))
    bounds = OLD, OLD + len(code)
    at = OLD + code.index(assemble("inc %ecx; dec %edx"))
    found = branches_into(_reader(code), bounds, at, 6)
    assert len(found) == 1
    (instruction,) = decode(code[found[0] - OLD:], found[0], 1)
    assert instruction.target == at + 2
    assert (found[0] < at) == before
    assert branches_into(_reader(code), bounds, at + 2, 4) == ()


def test_callers_are_direct_calls_of_the_first_instruction() -> None:
    code = assemble("1: nop; call 2f; call 1b; jmp 2f; je 2f; call 2f+1; .zero 300; 2: ret")
    found = callers(_reader(code), (OLD, OLD + len(code)), OLD + len(code) - 1)
    assert found == (OLD + 1,)
