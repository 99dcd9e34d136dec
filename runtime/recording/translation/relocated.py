"""Moves instructions of the program to other addresses.

Example: ``mov rax, [rip + 0x100]`` gets another displacement, so that it still reads the same address.

In: an instruction and its new address. Out: bytes that do the same there. Raises Rejected(UNSUPPORTED_INSTRUCTION) for
what cannot be moved, Rejected(NO_ROOM) if an operand is out of reach.
"""

from __future__ import annotations

from typing import NamedTuple

from memopt.ir.graph import DecodedInstruction
from memopt.ir.reasons import Reason, Rejected
from memopt.x86.decoder import rip_displacement_offset, rip_target
from runtime.recording.translation.encode import RCX

_STRINGS = ("movs", "stos", "lods", "cmps", "scas")
_LEGACY = frozenset((0x2E, 0x36, 0x3E, 0x26, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3))


def repeats(instruction: DecodedInstruction) -> bool:
    """Whether ``instruction`` is a string instruction that repeats rcx times (``rep movsb``)."""
    name = instruction.mnemonic
    return name.startswith("rep") and name.partition(" ")[2].startswith(_STRINGS)


def target_of(instruction: DecodedInstruction) -> int:
    """The target of a direct jump. Raises Rejected(UNSUPPORTED_INSTRUCTION) if it is not known."""
    if instruction.target is None:
        raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"{instruction} cannot be copied")
    return instruction.target


def opcode_of(instruction: DecodedInstruction) -> bytes:
    """The opcode of a jump's form with a 32-bit distance; a single byte if there is no such form."""
    data = _bare(instruction)
    if data[0] & 0xF0 == 0x70:
        return bytes((0x0F, 0x80 | data[0] & 0x0F))
    return data[:2] if data[0] == 0x0F else data[:1]


def _bare(instruction: DecodedInstruction) -> bytes:
    data = instruction.bytes
    while data[0] in _LEGACY:
        data = data[1:]
    return data


class Moved(NamedTuple):
    """An instruction at another address. ``distance``: offset of its distance to an original address, if it has one."""

    code: bytes
    distance: int | None = None


def moved(instruction: DecodedInstruction, at: int) -> Moved:
    """The instruction that does at the address ``at`` what ``instruction`` does at its own."""
    target = rip_target(instruction)
    return Moved(instruction.bytes) if target is None else _toward(instruction.bytes, target, instruction, at)


def _toward(data: bytes, target: int, instruction: DecodedInstruction, at: int) -> Moved:
    """``data``, a form of ``instruction`` with the same operand bytes, changed so that at ``at`` its rip-relative
    operand is still at ``target``.
    """
    old = (target - instruction.end).to_bytes(4, "little", signed=True)
    places = [n for n in range(2, len(data) - 3) if data[n:n + 4] == old and data[n - 1] & 0xC7 == 0x05]
    place = places[0] if len(places) == 1 else None
    if place is None:
        place = rip_displacement_offset(data, instruction.end - len(data))
    if place is None:
        raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"{instruction} cannot be copied")
    distance = target - at - len(data)
    if not -(1 << 31) <= distance < 1 << 31:
        raise Rejected(Reason.NO_ROOM, f"{instruction} is out of reach")
    return Moved(data[:place] + distance.to_bytes(4, "little", signed=True) + data[place + 4:], place)


def load_target(instruction: DecodedInstruction, at: int) -> Moved:
    """``mov rcx, operand``, for the operand of an indirect call or jump (FF /2, FF /4: Intel SDM volume 2)."""
    data, prefixes = instruction.bytes, b""
    while data[0] in _LEGACY:
        if data[0] not in (0xF2, 0x3E, 0x66):  # bnd, notrack, data16: without meaning for a load
            prefixes += data[:1]
        data = data[1:]
    rex = 0x48
    if data[0] & 0xF0 == 0x40:
        rex |= data[0] & 0x03
        data = data[1:]
    if data[0] != 0xFF or data[1] >> 3 & 7 not in (2, 4):
        raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"{instruction} cannot be copied")
    code = prefixes + bytes((rex, 0x8B, data[1] & 0xC7 | RCX << 3)) + data[2:]
    target = rip_target(instruction)
    return Moved(code) if target is None else _toward(code, target, instruction, at)

