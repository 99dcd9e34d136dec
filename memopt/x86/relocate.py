"""Relocation of original instructions: they move as bytes and are never assembled again from text.

Example: ``je +5`` at 0x1000 is 2 bytes; moved to 0x9000 it is a 6-byte ``je rel32`` to the same target.

In: decoded instructions or the blocks of a loop, the new address. Out: their bytes there. Branches get their rel32
forms, RIP-relative operands a new displacement (Intel SDM volume 2, section 2.1.5 and appendix A for opcodes); every
other byte stays. Precondition: nothing jumps into the moved instructions except at their start (``jump_targets_inside``
and ``branches_into`` find such jumps).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Sequence

from memopt.ir.graph import BasicBlock, DecodedInstruction, FlowGraph, Kind
from memopt.ir.reasons import Reason, Rejected
from memopt.x86.decoder import decode, rip_displacement_offset

JUMP_SIZE = 5  # jmp rel32
_LONGEST_INSTRUCTION = 15
_LONG_BRANCH = re.compile(rb"[\xe8\xe9]|\x0f[\x80-\x8f]")  # call, jmp, jcc rel32: Intel SDM volume 2
# A rel8 branch reaches 127 bytes. Decoding starts some bytes further away, because decoding that starts in the middle
# of an instruction soon meets the true boundaries.
_SHORT_REACH = 224
_FALLS_INTO_STEP = 64  # bytes after which decoding has met them
# A moved call pushes its original return address and jumps, without changing a flag or register:
# lea rsp, [rsp-8]; push rax; lea rax, [rip+...]; mov [rsp+8], rax; pop rax; jmp ...
_RESERVE, _STORE = bytes.fromhex("488d6424f8 50 488d05"), bytes.fromhex("4889442408 58 e9")
_CALL_SIZE = len(_RESERVE) + 4 + len(_STORE) + 4
_PREFIXES = frozenset((0x2E, 0x36, 0x3E, 0x26, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3))


def displace(
    read: Callable[[int, int], bytes], header: int, minimum: int = JUMP_SIZE
) -> tuple[DecodedInstruction, ...]:
    """The whole instructions at ``header`` that cover at least ``minimum`` bytes.

    Raises Rejected(NO_ROOM) where they end earlier: the code does not decode, or an unconditional jump comes before the
    last of them.
    """
    code = read(header, minimum + _LONGEST_INSTRUCTION)
    taken: list[DecodedInstruction] = []
    size = 0
    for instruction in decode(code, header):
        if taken and not taken[-1].kind.falls_through:
            break
        taken.append(instruction)
        size += instruction.size
        if size >= minimum:
            return tuple(taken)
    raise Rejected(Reason.NO_ROOM, f"only {size} bytes of code at {header:#x}")


def jump_targets_inside(graph: FlowGraph, header: int, size: int) -> None:
    """Raise Rejected(NO_ROOM) if a direct branch in ``graph`` leads strictly inside the ``size`` bytes at ``header``,
    or a block starts there."""
    for block in graph.blocks.values():
        for target in (block.start, *block.successors):
            if header < target < header + size:
                raise Rejected(Reason.NO_ROOM, f"{target:#x} is a jump target")


def indirect_jumps(graph: FlowGraph, known: Collection[int]) -> None:
    """Raise Rejected(INDIRECT_JUMP) if ``graph`` has an indirect jump other than those in ``known``."""
    for block in graph.blocks.values():
        if block.kind is Kind.INDIRECT and block.instructions[-1].address not in known:
            raise Rejected(Reason.INDIRECT_JUMP, f"at {block.instructions[-1].address:#x}")


def branches_into(
    read: Callable[[int, int], bytes], bounds: tuple[int, int], header: int, size: int
) -> tuple[int, ...]:
    """The addresses of direct branches that may lead strictly inside the ``size`` bytes at ``header``.

    It scans all bytes of the mapping ``bounds``, so it also finds branches from code that no flow graph holds (a cold
    part of the function, an unknown entry). Very rarely it names bytes that are no branch: any four bytes behind a
    rel32 opcode are taken for a displacement. rel8 branches are found by decoding the bytes within their reach.
    """
    found = set(_long_branches(read(bounds[0], bounds[1] - bounds[0]), bounds[0], header + 1, header + size))
    low, high = max(bounds[0], header - _SHORT_REACH), min(bounds[1], header + _SHORT_REACH)
    code = read(low, high - low)
    for offset in range(min(_LONGEST_INSTRUCTION, len(code))):
        for instruction in decode(code[offset:], low + offset):
            in_step = instruction.address >= low + _FALLS_INTO_STEP or low == bounds[0]
            if in_step and instruction.target is not None and header < instruction.target < header + size:
                found.add(instruction.address)
    return tuple(sorted(found))


def callers(read: Callable[[int, int], bytes], bounds: tuple[int, int], entry: int) -> tuple[int, ...]:
    """The addresses of the direct calls of ``entry`` in the mapping ``bounds``; very rarely, of bytes that look like
    one."""
    code = read(bounds[0], bounds[1] - bounds[0])
    found = _long_branches(code, bounds[0], entry, entry + 1)
    return tuple(sorted(a for a in found if code[a - bounds[0]] == 0xE8))


def _long_branches(code: bytes, base: int, low: int, high: int) -> list[int]:
    """The addresses at which the bytes read as call, jmp or jcc rel32 with ``low`` <= target < ``high``."""
    least, most, displacement = low - base - 4, high - base - 4, struct.Struct("<i").unpack_from
    opcodes = _LONG_BRANCH.finditer(code, 0, max(0, len(code) - 4))
    return [base + o.start() for o in opcodes if least <= (end := o.end()) + displacement(code, end)[0] < most]


def relocate(instructions: Sequence[DecodedInstruction], new_address: int) -> bytes:
    """The bytes of contiguous original ``instructions`` that do the same at ``new_address``.

    A branch to one of the moved instructions goes to its copy. The code falls through at the end like the original. A
    call at the end pushes its original return address, so it returns to the original code. Raises Rejected(NO_ROOM)
    where a target or operand is out of reach, an instruction has no rel32 form (loop, jrcxz), or a call would return
    into the moved instructions.
    """
    for instruction in instructions[:-1]:
        if instruction.kind is Kind.CALL:
            raise _immovable(instruction)
    sizes = [_moved_size(i) for i in instructions]
    copies: dict[int, int] = {}
    at = new_address
    for instruction, size in zip(instructions, sizes, strict=True):
        copies[instruction.address] = at
        at += size
    return b"".join(_moved(i, copies[i.address], copies) for i in instructions)


def relocate_blocks(blocks: Sequence[BasicBlock], new_address: int) -> tuple[bytes, dict[int, int]]:
    """A whole loop, its header block first, moved to ``new_address``: (bytes, new address of each instruction).

    Branches inside the loop go to the copies. Branches back to the header go to its original address, where the patch
    lies. Raises as ``relocate``.
    """
    header = blocks[0].start
    copies: dict[int, int] = {}
    gaps: dict[int, int] = {}  # new address of a jump that replaces a fall-through -> its original target
    at = new_address
    for block, following in zip(blocks, (*blocks[1:], None), strict=True):
        for instruction in block.instructions:
            copies[instruction.address] = at
            at += _moved_size(instruction)
        if block.kind.falls_through and (following is None or following.start != block.end):
            gaps[at] = block.end
            at += JUMP_SIZE
    targets = {old: new for old, new in copies.items() if old != header}
    code = b""
    for block in blocks:
        for instruction in block.instructions:
            code += _moved(instruction, copies[instruction.address], targets)
        end = new_address + len(code)
        if end in gaps:
            target = targets.get(gaps[end], gaps[end])
            code += b"\xe9" + _relative(target - (end + JUMP_SIZE), block.instructions[-1])
    return code, copies


def _moved_size(instruction: DecodedInstruction) -> int:
    if instruction.kind is Kind.JUMP:
        return JUMP_SIZE
    if instruction.kind is Kind.CONDITIONAL:
        return JUMP_SIZE + 1
    if instruction.kind is Kind.CALL:
        return _CALL_SIZE
    return instruction.size


def _moved(instruction: DecodedInstruction, at: int, copies: dict[int, int]) -> bytes:
    if instruction.kind is Kind.CALL:
        return _moved_call(instruction, at)
    if instruction.kind in (Kind.JUMP, Kind.CONDITIONAL):
        if instruction.target is None:
            raise Rejected(Reason.NO_ROOM, f"{instruction.mnemonic} at {instruction.address:#x} has no target")
        opcode = _branch_opcode(instruction)
        target = copies.get(instruction.target, instruction.target)
        return opcode + _relative(target - (at + len(opcode) + 4), instruction)
    offset = rip_displacement_offset(instruction.bytes, instruction.address)
    if offset is None:
        return instruction.bytes
    data = instruction.bytes
    old = int.from_bytes(data[offset:offset + 4], "little", signed=True)
    return data[:offset] + _relative(old + instruction.address - at, instruction) + data[offset + 4:]


def _moved_call(instruction: DecodedInstruction, at: int) -> bytes:
    if instruction.target is None:
        raise _immovable(instruction)
    back = instruction.address + instruction.size - (at + len(_RESERVE) + 4)
    return (_RESERVE + _relative(back, instruction) + _STORE
            + _relative(instruction.target - (at + _CALL_SIZE), instruction))


def _immovable(instruction: DecodedInstruction) -> Rejected:
    return Rejected(Reason.NO_ROOM, f"{instruction.mnemonic} at {instruction.address:#x} cannot be moved")


def _branch_opcode(instruction: DecodedInstruction) -> bytes:
    """The opcode of the rel32 form; branch hints and the bnd prefix are dropped."""
    data = instruction.bytes
    while data[0] in _PREFIXES or data[0] & 0xF0 == 0x40:
        data = data[1:]
    if data[0] in (0xEB, 0xE9):
        return b"\xe9"
    if data[0] & 0xF0 == 0x70:
        return bytes((0x0F, 0x80 | data[0] & 0x0F))
    if data[0] == 0x0F and data[1] & 0xF0 == 0x80:
        return data[:2]
    raise _immovable(instruction)


def _relative(displacement: int, instruction: DecodedInstruction) -> bytes:
    if not -(1 << 31) <= displacement < 1 << 31:
        raise Rejected(Reason.NO_ROOM, f"{instruction.mnemonic} at {instruction.address:#x} is out of reach")
    return displacement.to_bytes(4, "little", signed=True)
