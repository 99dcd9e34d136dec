"""Encodes the few instructions that probes are made of, as bytes.

Probes are made by the ten thousand while the program waits for them, so they are not assembled from text. Tests compare
each encoding with what Capstone decodes.

Functions from ``compare`` to ``increment`` change flags, no other does. Registers are given by their numbers (Intel SDM
volume 2, table 3-1). ``state`` names offsets in the page of the thread, which gs points to.
"""

from __future__ import annotations

import struct
from functools import cache

RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI = range(8)
R11 = 11

NAMES = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{n}" for n in range(8, 16)))

_int32 = struct.Struct("<i").pack


@cache
def load_state(register: int, offset: int) -> bytes:
    """mov register, gs:[offset]"""
    return bytes((0x65, 0x48 | register >> 3 << 2, 0x8B, 0x04 | (register & 7) << 3, 0x25)) + _int32(offset)


@cache
def store_state(offset: int, register: int) -> bytes:
    """mov gs:[offset], register"""
    return bytes((0x65, 0x48 | register >> 3 << 2, 0x89, 0x04 | (register & 7) << 3, 0x25)) + _int32(offset)


def store_state_32_bits(offset: int, register: int) -> bytes:
    """mov gs:[offset], the low half of register; register below r8"""
    return bytes((0x65, 0x89, 0x04 | register << 3, 0x25)) + _int32(offset)


def jump_by_state(offset: int) -> bytes:
    """jmp qword ptr gs:[offset]"""
    return b"\x65\xff\x24\x25" + _int32(offset)


def _memory(opcode: int, register: int, base: int, offset: int) -> bytes:
    code = bytes((0x48 | register >> 3 << 2 | base >> 3, opcode))
    modrm = 0x80 | (register & 7) << 3 | base & 7
    return code + (bytes((modrm, 0x24)) if base & 7 == RSP else bytes((modrm,))) + _int32(offset)


def load(register: int, base: int, offset: int = 0) -> bytes:
    """mov register, [base + offset]"""
    return _memory(0x8B, register, base, offset)


def store(base: int, offset: int, register: int) -> bytes:
    """mov [base + offset], register"""
    return _memory(0x89, register, base, offset)


def store_32_bits(base: int, offset: int, register: int) -> bytes:
    """mov [base + offset], the low half of register; both below r8"""
    return _memory(0x89, register, base, offset)[1:]


def lea(register: int, base: int, offset: int) -> bytes:
    """lea register, [base + offset]"""
    return _memory(0x8D, register, base, offset)


def move(register: int, source: int) -> bytes:
    """mov register, source"""
    return bytes((0x48 | source >> 3 << 2 | register >> 3, 0x89, 0xC0 | (source & 7) << 3 | register & 7))


def lea_sum(register: int, first: int, second: int, more: int = 0, bits: int = 64) -> bytes:
    """lea register, [first + second + more], modulo 2**32 if ``bits`` is 32; second is not rsp"""
    rex = (0x48 if bits == 64 else 0x40) | register >> 3 << 2 | second >> 3 << 1 | first >> 3
    return bytes((rex, 0x8D, 0x44 | (register & 7) << 3, (second & 7) << 3 | first & 7, more))


def lea_address(register: int, base: int | None, index: int | None, scale: int, displacement: int) -> bytes:
    """lea register, [base + index * scale + displacement]; index is not rsp"""
    if index is None and base is not None:
        return lea(register, base, displacement)
    rex = 0x48 | register >> 3 << 2 | (0 if index is None else index >> 3 << 1) | (0 if base is None else base >> 3)
    sib = (scale.bit_length() - 1) << 6 | (RSP if index is None else index & 7) << 3 | (5 if base is None else base & 7)
    modrm = (0x04 if base is None else 0x84) | (register & 7) << 3
    return bytes((rex, 0x8D, modrm, sib)) + _int32(displacement)


def store_16_bits(base: int, offset: int, value: int) -> bytes:
    """mov word ptr [base + offset], value"""
    wide = _memory(0xC7, 0, base, offset)
    return bytes((0x66, wide[0] & ~8)) + wide[1:] + value.to_bytes(2, "little")


def move_64_bits(register: int, value: int) -> bytes:
    """mov register, value"""
    return bytes((0x48 | register >> 3, 0xB8 | register & 7)) + value.to_bytes(8, "little")


def load_state_byte(register: int, offset: int) -> bytes:
    """movzx register, byte ptr gs:[offset]; register below r8"""
    return bytes((0x65, 0x0F, 0xB6, 0x04 | register << 3, 0x25)) + _int32(offset)


def invert(register: int) -> bytes:
    """not register"""
    return bytes((0x48 | register >> 3, 0xF7, 0xD0 | register & 7))


def low_16_bits(register: int, source: int) -> bytes:
    """movzx register, the low 16 bits of source; both below r8"""
    return bytes((0x0F, 0xB7, 0xC0 | register << 3 | source))


def double(register: int) -> bytes:
    """lea register, [register + register], 32 bits"""
    return bytes((0x8D, 0x04 | register << 3, register << 3 | register))


def load_indexed(register: int, index: int, table: int) -> bytes:
    """mov register, [index * 8 + table], the table below 2 GiB"""
    return bytes((0x48, 0x8B, 0x04 | register << 3, 0xC5 | index << 3)) + _int32(table)


def compare(register: int, base: int, offset: int) -> bytes:
    """cmp register, [base + offset]"""
    return _memory(0x3B, register, base, offset)


def set_state(offset: int, value: int) -> bytes:
    """mov qword ptr gs:[offset], value"""
    return b"\x65\x48\xc7\x04\x25" + _int32(offset) + _int32(value)


def compare_state(register: int, offset: int) -> bytes:
    """cmp register, gs:[offset]"""
    return bytes((0x65, 0x48 | register >> 3 << 2, 0x3B, 0x04 | (register & 7) << 3, 0x25)) + _int32(offset)


def compare_eax(number: int) -> bytes:
    """cmp eax, number"""
    return b"\x3d" + _int32(number)


def add(register: int, base: int, offset: int) -> bytes:
    """add register, [base + offset]"""
    return _memory(0x03, register, base, offset)


def test(register: int) -> bytes:
    """test register, register"""
    return bytes((0x48 | register >> 3 << 2 | register >> 3, 0x85, 0xC0 | (register & 7) << 3 | register & 7))


def increment(base: int, offset: int) -> bytes:
    """inc qword ptr [base + offset]; changes flags"""
    return _memory(0xFF, 0, base, offset)


def relative(opcode: bytes, at: int, target: int) -> bytes:
    """``opcode`` at the address ``at``, followed by the 32-bit distance to ``target``."""
    return opcode + _int32(target - at - len(opcode) - 4)


JUMP = b"\xe9"
PUSH_RELATIVE = b"\xff\x35"  # push qword ptr [rip + distance]
JUMP_RELATIVE = b"\xff\x25"  # jmp qword ptr [rip + distance]


def lea_relative(register: int) -> bytes:
    """lea register, [rip + distance], without the distance"""
    return bytes((0x48 | register >> 3 << 2, 0x8D, 0x05 | (register & 7) << 3))


JRCXZ = 0xE3
SKIP_JUMP = b"\xeb\x05"  # over a jump with a distance of 32 bits
READ_TIME_STAMP = b"\x0f\x31"  # rdtsc: edx and eax
SAVE_FLAGS = b"\x9f\x0f\x90\xc0"  # lahf; seto al
RESTORE_FLAGS = b"\x04\x7f\x9e"  # add al, 0x7f; sahf
