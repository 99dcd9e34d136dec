"""The disassembler: machine code to decoded instructions. The only module that imports Capstone.

In: bytes and their address. Out: ``DecodedInstruction`` values, each with its kind of control flow and its branch
target. Capstone is trusted for lengths, mnemonics and branch targets. Its operand access flags are not used, because
they are wrong for most VEX and EVEX stores; reads and writes come from ``memopt.x86.semantics``.
"""

from __future__ import annotations

import re
from functools import cache

import capstone

from memopt.ir.graph import DecodedInstruction, Kind

_RIP = re.compile(r"\[rip ([+-]) (0x[0-9a-f]+|\d+)\]")
_CONDITIONAL = frozenset(("loop", "loope", "loopne", "jrcxz", "jecxz", "xbegin"))
_TRAPS = frozenset(("ud0", "ud1", "ud2", "int3", "int1", "hlt"))
_RETURNS = frozenset(("ret", "retf", "retfq", "iretd", "iretq", "iret", "sysret", "sysretq", "sysexit", "sysexitq"))


def rip_target(instruction: DecodedInstruction) -> int | None:
    """The address of the RIP-relative memory operand of ``instruction``; None without one."""
    place = _RIP.search(instruction.operands_text) if "[rip" in instruction.operands_text else None
    return instruction.end + int(place[1] + place[2], 0) if place else None


@cache
def _engine(detail: bool) -> capstone.Cs:
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    engine.detail = detail
    return engine


@cache
def _branches(mnemonic: str) -> Kind:
    """The kind of control flow by the mnemonic alone; ``_classify`` goes by the operand too (INDIRECT may be JUMP)."""
    name = mnemonic.rsplit(" ", 1)[-1]  # "notrack jmp", "bnd ret"
    if name in ("jmp", "ljmp"):
        return Kind.INDIRECT
    if name in ("call", "lcall"):
        return Kind.CALL
    if name in _RETURNS:
        return Kind.RETURN
    if name in _TRAPS:
        return Kind.TRAP
    return Kind.CONDITIONAL if name in _CONDITIONAL or name.startswith("j") else Kind.PLAIN


def _classify(kind: Kind, operands: str) -> tuple[Kind, int | None]:
    """(kind, branch target) of an instruction, from its kind by mnemonic and its operands; None: no direct target."""
    target = int(operands, 0) if operands[:1].isdigit() and "," not in operands else None  # "7" or "0x10"
    if kind is Kind.INDIRECT and target is not None:
        return Kind.JUMP, target
    return kind, None if kind in (Kind.RETURN, Kind.TRAP) else target


def decode(code: bytes, address: int, limit: int = 0) -> tuple[DecodedInstruction, ...]:
    """The first ``limit`` instructions (0: all) of ``code``, which lies at ``address``.

    Decoding stops before the first bytes that are no instruction. An instruction that the end of ``code`` cuts off is
    not returned.
    """
    result = []
    for at, size, mnemonic, operands in _engine(False).disasm_lite(code, address, limit):
        kind, target = _branches(mnemonic), None
        if kind.ends_block:
            kind, target = _classify(kind, operands)
        data = bytes(code[at - address : at - address + size])
        result.append(DecodedInstruction(at, size, mnemonic, operands, kind, target, data))
    return tuple(result)


def name_instruction(code: bytes, address: int) -> str:
    """"MNEMONIC at ADDRESS" of the first instruction of ``code``, for messages; "bytes ... at" where it is none."""
    found = decode(code[:16], address, 1)
    return f"{found[0].mnemonic} at {address:#x}" if found else f"bytes {code[:8].hex(' ')} at {address:#x}"


def capstone_detail(code: bytes, address: int) -> list[capstone.CsInsn]:
    """Raw Capstone instructions with operand detail, up to the first bytes that are no instruction."""
    return list(_engine(True).disasm(code, address))


def rip_displacement_offset(code: bytes, address: int) -> int | None:
    """The offset of the RIP-relative 32-bit displacement in the instruction's bytes; None without one.

    Precondition: ``code`` is one whole instruction.
    """
    instruction = capstone_detail(code, address)[0]
    relative = any(o.type == capstone.x86.X86_OP_MEM and o.mem.base == capstone.x86.X86_REG_RIP
                   for o in instruction.operands)
    return instruction.disp_offset if relative else None
