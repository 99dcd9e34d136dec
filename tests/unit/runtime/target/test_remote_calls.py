from __future__ import annotations

import struct

import pytest
from capstone import CS_ARCH_X86, CS_MODE_64, Cs

from memopt.ir.reasons import Reason, Rejected
from runtime.target.ptrace import Registers
from runtime.target.remote_calls import KEPT, Call, Stub, _executable_segments, assemble, check

START = 0x401800
STATE = Registers(*[0x1111111111111111 * (1 + n % 15) for n in range(27)])


def disassemble(stub: Stub) -> list[tuple[str, str]]:
    code = stub.code[stub.entry - START:]
    return [(i.mnemonic, i.op_str) for i in Cs(CS_ARCH_X86, CS_MODE_64).disasm(code[:-8], stub.entry)]


def test_every_changed_register_is_set_back_and_flags_are_not_touched() -> None:
    stub = assemble((Call(9, (0, 4096, 3, 0x22, -1, 0)),), START, STATE, 0)
    code = disassemble(stub)
    assert {mnemonic for mnemonic, _ in code} <= {"mov", "movabs", "syscall", "jmp"}
    assert code[-1][0] == "jmp"
    assert stub.code[-8:] == STATE.rip.to_bytes(8, "little")
    last_call = max(n for n, (mnemonic, _) in enumerate(code) if mnemonic == "syscall")
    restored = {op.split(",")[0]: int(op.split(",")[1], 16) for _, op in code[last_call + 1:-1]}
    changed = {"rax", "rcx", "rdx", "rbx", "rsi", "rdi", "r8", "r9", "r10", "r11"}
    assert restored == {name: getattr(STATE, name) for name in changed}


def test_the_signal_mask_is_restored_last() -> None:
    stub = assemble((Call(3, (5,)),), START, STATE, 0xABCDEF0123456789)
    code = disassemble(stub)
    calls = [n for n, (mnemonic, _) in enumerate(code) if mnemonic == "syscall"]
    assert len(calls) == 2
    assert ("mov", "eax, 0xe") in code[calls[0]:calls[1]]  # rt_sigprocmask
    pointer = next(int(op.split(", ")[1], 16) for _, op in code[calls[0]:calls[1]] if op.startswith("esi"))
    assert struct.unpack_from("<Q", stub.code, pointer - START)[0] == 0xABCDEF0123456789


def test_texts_are_passed_by_address_and_results_are_kept() -> None:
    stub = assemble((Call(319, (b"memopt\0", 1), keep=True), Call(3, (KEPT,))), START, STATE, 0)
    code = disassemble(stub)
    pointer = next(int(op.split(", ")[1], 16) for _, op in code if op.startswith("edi"))
    assert stub.code[pointer - START:].startswith(b"memopt\0")
    assert ("mov", "rbx, rax") in code
    assert ("mov", "rdi, rbx") in code


def test_a_child_leaves_by_itself() -> None:
    code = disassemble(assemble((Call(56, (0, 0, 0, 0, 0), child_exits=True),), START, STATE, 0))
    test = code.index(("xchg", "rcx, rax"))
    assert [mnemonic for mnemonic, _ in code[test:test + 6]] == ["xchg", "jrcxz", "jmp", "mov", "mov", "syscall"]
    assert ("mov", "eax, 0xe7") in code[test:test + 6]  # exit_group


def header(flags: int, kind: int = 1, count: int = 1) -> bytes:
    start = bytearray(64)
    start[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", start, 32, 64)
    struct.pack_into("<HH", start, 54, 56, count)
    return bytes(start) + struct.pack("<IIQQQQQQ", kind, flags, 0x1000, 0x401000, 0x401000, 0x518, 0x518, 0x1000)


def test_executable_segments() -> None:
    assert _executable_segments(header(5)) == [(0x1000, 0x518, 0x518)]
    assert _executable_segments(header(4)) == []
    assert _executable_segments(header(5, kind=2)) == []
    assert _executable_segments(header(5, count=9000)) == []  # a table that would run off the page
    assert _executable_segments(b"\x7fELF\x01" + bytes(100)) == []
    assert _executable_segments(b"") == []


def test_errors_of_calls() -> None:
    assert check(0x7F0000000000, "mmap") == 0x7F0000000000
    for result, reason in ((-12, Reason.NO_MEMORY), (-22, Reason.PROTECTED_MAPPING)):
        with pytest.raises(Rejected) as caught:
            check(result, "mmap")
        assert caught.value.reason is reason
