"""Translation validation of the assembler: its bytes, decoded again, must mean what the instruction objects say.

In: instruction objects, their bytes and address, the labels. Out: nothing, or a ``VerifyError``. Keystone assembles and
Capstone decodes, so an encoding error of either is found.

Both sides are compared in a normal form, the *meaning*: the mnemonic, and the operands, with immediates modulo the
operation's width, ``rip`` operands and jump targets as absolute addresses, and base and index in a fixed order where
the scale is 1. It is needed because Capstone prints aliases (``cmppd ..., 2`` as ``cmplepd``) and immediates of either
sign.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from memopt.ir.graph import DecodedInstruction
from memopt.ir.reasons import VerifyError
from memopt.x86.decoder import decode
from memopt.x86.instructions import Imm, Instruction, LabelRef, Mem, Operand, Reg

Meaning: TypeAlias = tuple[object, ...]

_ALIASES = {"movabs": "mov", "sal": "shl", "wait": "fwait"}
_CONDITIONS = {"z": "e", "nz": "ne", "c": "b", "nae": "b", "nc": "ae", "nb": "ae", "na": "be", "nbe": "a", "pe": "p",
               "po": "np", "nge": "l", "nl": "ge", "ng": "le", "nle": "g"}
_SYMMETRIC = frozenset({"xchg", "test"})
_PREDICATES = ("eq", "lt", "le", "unord", "neq", "nlt", "nle", "ord", "eq_uq", "nge", "ngt", "false", "neq_oq", "ge",
               "gt", "true", "eq_os", "lt_oq", "le_oq", "unord_s", "neq_us", "nlt_uq", "nle_uq", "ord_s", "eq_us",
               "nge_uq", "ngt_uq", "false_os", "neq_os", "ge_oq", "gt_oq", "true_us")
_COMPARE = re.compile(r"(v?cmp|vpcmpu?)([ps][sd]|[bwdq])")
_CONDITIONAL = re.compile(r"(j|set|cmov)(\w+)")
_POINTER = {"byte": 1, "word": 2, "dword": 4, "qword": 8, "xmmword": 16, "ymmword": 32, "zmmword": 64}


def verify(instruction: Instruction, decoded: DecodedInstruction, labels: Mapping[str, int]) -> None:
    """Raise ``VerifyError`` unless ``decoded`` means what ``instruction`` says, labels and ``rip`` included."""
    found = _absolute(_parse(decoded.mnemonic, decoded.operands_text, instruction.sized), decoded.end)
    if _wanted(instruction, labels) != found:
        raise VerifyError(f"assembled {instruction} reads back as {decoded}")


def verify_run(instructions: list[Instruction], encoded: bytes, address: int, labels: Mapping[str, int]) -> None:
    """Raise ``VerifyError`` unless ``encoded`` at ``address`` is exactly ``instructions``, no more and no fewer."""
    decoded = decode(encoded, address)
    if len(decoded) != len(instructions) or (decoded and decoded[-1].end != address + len(encoded)):
        raise VerifyError(f"{len(instructions)} instructions at {address:#x} read back as {len(decoded)}")
    for instruction, found in zip(instructions, decoded, strict=True):
        verify(instruction, found, labels)


def _wanted(instruction: Instruction, labels: Mapping[str, int]) -> Meaning:
    mnemonic, operands = _mnemonic(instruction.mnemonic), instruction.operands
    compare = _COMPARE.fullmatch(mnemonic)
    if compare and operands and isinstance(operands[-1], Imm):
        name, unsigned = (compare[1][:-1], "u") if compare[1] == "vpcmpu" else (compare[1], "")
        mnemonic = f"{name}{_PREDICATES[operands[-1].value]}{unsigned}{compare[2]}"
        operands = operands[:-1]
    if mnemonic[0] == "j" and isinstance(operands[0], Imm):
        return _ordered(mnemonic, "", False, [("to", operands[0].value)])
    bits = _bits(operands[0]) if operands else 0
    meanings = [_operand(o, bits, instruction.sized, labels) for o in operands]
    return _ordered(mnemonic, instruction.mask or "", instruction.zeroing, meanings)


def _operand(operand: Operand, bits: int, sized: bool, labels: Mapping[str, int]) -> object:
    match operand:
        case Reg(name):
            return name
        case Imm(value):
            return value % (1 << bits)
        case LabelRef(name):
            return ("to", labels[name])
        case Mem(base, index, scale, displacement, size, broadcast, symbol):
            if symbol is not None:
                base, displacement = "rip", displacement + labels[symbol]
            return _memory(base, index, scale, displacement, size if sized else 0, broadcast)


def _memory(base: str | None, index: str | None, scale: int, displacement: int, size: int, broadcast: int) -> Meaning:
    if index is not None and scale == 1 and index[1:3] != "mm":
        base, index = (index, None) if base is None else (min(base, index), max(base, index))
    return ("at", base, index, scale if index else 1, displacement, size, broadcast)


def _absolute(meaning: Meaning, end: int) -> Meaning:
    """``meaning`` with ``rip`` operands, which count from the instruction's ``end``, as absolute addresses."""
    return tuple((*o[:4], o[4] + end, *o[5:]) if isinstance(o, tuple) and o[:2] == ("at", "rip") else o
                 for o in meaning)


def _mnemonic(name: str) -> str:
    conditional = _CONDITIONAL.fullmatch(name)
    if conditional and conditional[2] in _CONDITIONS:
        return conditional[1] + _CONDITIONS[conditional[2]]
    return _ALIASES.get(name, name)


def _bits(operand: Operand) -> int:
    """The width in bits of an immediate, by the first operand: the operation's width, 8 for vector instructions."""
    if isinstance(operand, Reg):
        return _register_bits(operand.name)
    return operand.size * 8 if isinstance(operand, Mem) and operand.size <= 8 else 8


@lru_cache(maxsize=256)
def _register_bits(name: str) -> int:
    if name.startswith(("xmm", "ymm", "zmm", "k")):
        return 8
    if name.endswith("l") or (name[-1] == "b" and name[0] == "r"):
        return 8
    if name[0] == "r":
        return {"d": 32, "w": 16}.get(name[-1], 64) if name[1].isdigit() else 64
    return 32 if name[0] == "e" else 16


def _ordered(mnemonic: str, mask: str, zeroing: bool, operands: list[object]) -> Meaning:
    if mnemonic in _SYMMETRIC:
        operands = sorted(operands, key=str)
    return (mnemonic, mask, zeroing, *operands)


_MASK = re.compile(r" ?\{(k[0-7])\}( ?\{z\})?$")
_MEMORY = re.compile(r"(?:(\w*) ?ptr )?\[(.*)\](?:\{1to(\d+)\})?")


@lru_cache(maxsize=16384)
def _parse(mnemonic: str, text: str, sized: bool) -> Meaning:
    """The meaning of Capstone's text; ``rip`` displacements still count from the end of the instruction."""
    name = _mnemonic(mnemonic)
    mask, zeroing = "", False
    parts = text.split(", ") if text else []
    if parts and (found := _MASK.search(parts[0])):
        mask, zeroing = found[1], bool(found[2])
        parts[0] = parts[0][:found.start()]
    operands: list[object] = []
    bits = 0
    for position, part in enumerate(parts):
        if memory := _MEMORY.fullmatch(part):
            size = _POINTER.get(memory[1] or "", 0)
            operands.append(_parse_memory(memory[2], size if sized else 0, int(memory[3] or 0)))
            bits = bits or (size * 8 if size <= 8 else 8)
        elif part[0].isdigit() or part[0] == "-":
            value = int(part, 0)
            operands.append(("to", value) if name[0] == "j" else value % (1 << bits))
        else:
            operands.append(part)
            bits = bits or _register_bits(part)
        if position == 0 and not bits:
            bits = 8
    return _ordered(name, mask, zeroing, operands)


def _parse_memory(text: str, size: int, broadcast: int) -> Meaning:
    base: str | None = None
    index: str | None = None
    scale, displacement = 1, 0
    for term in text.replace(" - ", " + -").split(" + "):
        if term.lstrip("-")[0].isdigit():
            displacement = int(term, 0)
        elif "*" in term:
            index, number = term.split("*")
            scale = int(number)
        elif base is None and index is None:
            base = term
        else:
            index = term
    return _memory(base, index, scale, displacement, size, broadcast)
