"""The bytes of probes are the instructions they are meant to be."""

from __future__ import annotations

import itertools

import pytest

from memopt.x86.decoder import decode
from runtime.recording.translation import encode
from runtime.recording.translation.encode import NAMES, RSP
from runtime.recording.translation.probe_routines import routines
from runtime.recording.translation.writer import Writer

REGISTERS = range(16)


def read(code: bytes) -> str:
    (instruction,) = decode(code, 0)
    assert instruction.size == len(code)
    return f"{instruction.mnemonic} {instruction.operands_text}"


@pytest.mark.parametrize("register", REGISTERS)
def test_state_and_single_registers(register: int) -> None:
    name = NAMES[register]
    assert read(encode.load_state(register, 0x48)) == f"mov {name}, qword ptr gs:[0x48]"
    assert read(encode.store_state(0x48, register)) == f"mov qword ptr gs:[0x48], {name}"
    assert read(encode.compare_state(register, 0x48)) == f"cmp {name}, qword ptr gs:[0x48]"
    assert read(encode.move_64_bits(register, 0xFFFF << 48)) == f"movabs {name}, 0xffff000000000000"
    assert read(encode.invert(register)) == f"not {name}"
    assert read(encode.test(register)) == f"test {name}, {name}"


@pytest.mark.parametrize(("register", "base"), list(itertools.product(REGISTERS, REGISTERS)))
def test_pairs_of_registers(register: int, base: int) -> None:
    name, place = NAMES[register], f"[{NAMES[base]} + 0x150]"
    assert read(encode.load(register, base, 0x150)) == f"mov {name}, qword ptr {place}"
    assert read(encode.store(base, 0x150, register)) == f"mov qword ptr {place}, {name}"
    assert read(encode.lea(register, base, 0x150)) == f"lea {name}, {place}"
    assert read(encode.compare(register, base, 0x150)) == f"cmp {name}, qword ptr {place}"
    assert read(encode.add(register, base, 0x150)) == f"add {name}, qword ptr {place}"
    assert read(encode.increment(base, 0x150)) == f"inc qword ptr {place}"
    assert read(encode.store_16_bits(base, 0x150, 7)) == f"mov word ptr {place}, 7"
    assert read(encode.lea_address(register, base, None, 1, -8)) == f"lea {name}, [{NAMES[base]} - 8]"
    if base != RSP:
        assert read(encode.lea_address(register, 3, base, 4, 8)) == f"lea {name}, [rbx + {NAMES[base]}*4 + 8]"
        assert read(encode.lea_address(register, None, base, 8, 8)) == f"lea {name}, [{NAMES[base]}*8 + 8]"
    assert read(encode.move(register, base)) == f"mov {name}, {NAMES[base]}"
    if register != RSP:
        assert read(encode.lea_sum(3, base, register, 1)) == f"lea rbx, [{NAMES[base]} + {name} + 1]"
        assert read(encode.lea_sum(register, base, 9, 1, 32)).endswith(f", [{NAMES[base]} + r9 + 1]")


def test_lookups() -> None:
    assert read(encode.low_16_bits(0, 1)) == "movzx eax, cx"
    assert read(encode.double(0)) == "lea eax, [rax + rax]"
    assert read(encode.load_indexed(2, 0, 0x1234560)) == "mov rdx, qword ptr [rax*8 + 0x1234560]"
    assert read(encode.load_state_byte(1, 0x92)) == "movzx ecx, byte ptr gs:[0x92]"
    assert read(encode.store_state_32_bits(0x98, 2)) == "mov dword ptr gs:[0x98], edx"
    assert read(encode.store_32_bits(1, 20, 2)) == "mov dword ptr [rcx + 0x14], edx"
    assert read(encode.READ_TIME_STAMP) == "rdtsc "
    assert read(encode.set_state(0x78, 3)) == "mov qword ptr gs:[0x78], 3"
    assert read(encode.jump_by_state(0x20)) == "jmp qword ptr gs:[0x20]"
    assert read(encode.relative(encode.JUMP, 0, 0x100)) == "jmp 0x100"
    assert read(encode.lea_relative(9) + bytes(4)) == "lea r9, [rip]"


def test_the_routines_decode_to_their_end_and_hold_no_trap() -> None:
    shared = routines(0x10000, 0x5000000, (4321, 4322))
    found = decode(shared.code, shared.start)
    assert found[-1].end == shared.start + len(shared.code)
    assert not any(i.mnemonic in ("int3", "int") for i in found)


def test_a_label_out_of_reach_is_an_error() -> None:
    from memopt.ir.reasons import VerifyError

    write = Writer(0)
    write.if_zero("far")
    write(bytes(200))
    write.place("far")
    with pytest.raises(VerifyError):
        write.finish()
