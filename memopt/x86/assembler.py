"""The assembler: instruction objects to bytes. The only module that imports Keystone.

In: a code sequence (``memopt.x86.instructions``) and the address it is for. Out: its bytes, the addresses of its
labels, a listing. Every instruction that leaves this module was decoded again and compared with what was meant
(``memopt.x86.verify``).

Keystone assembles every distinct form once, all in one call. A form has a placeholder for its displacement where the
bytes depend on the place (``rip`` operands), and where Keystone 0.9.2 is wrong (EVEX displacements that are multiples
of the vector length). The four placeholder bytes are patched afterwards. Keystone gives vcvtss2si and vcvtsd2si of
memory an EVEX encoding, which processors without AVX-512F do not have; so they are made of vcvttss2si and vcvttsd2si,
whose opcodes are one lower (Intel SDM volume 2). Jumps are encoded here, with 32-bit
displacements (jrcxz has 8 bits only).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, lru_cache

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import VerifyError
from memopt.x86.decoder import decode
from memopt.x86.instructions import Align, Bytes, Code, Imm, Instruction, Label, LabelRef, Mem, Reg
from memopt.x86.verify import verify_run

# Odd, and too large for EVEX's compressed disp8 * N: Keystone always encodes it in four unscaled bytes, correctly.
_PLACEHOLDER = 0x12345679
_PLACEHOLDER_BYTES = _PLACEHOLDER.to_bytes(4, "little")
_EVEX = b"\x62"  # in 64-bit mode nothing else begins so
_TRUNCATES = 0x2C
_DECIMAL = re.compile(r"\b\d+\b")
_JUMPS = {name: number for number, name in enumerate(
    ("jo", "jno", "jb", "jae", "je", "jne", "jbe", "ja", "js", "jns", "jp", "jnp", "jl", "jge", "jle", "jg"))}
# No-operations of 1 .. 9 bytes (Intel SDM volume 2, NOP, table 4-12).
_NOPS = tuple(bytes.fromhex(h) for h in (
    "", "90", "6690", "0f1f00", "0f1f4000", "0f1f440000", "660f1f440000", "0f1f8000000000", "0f1f840000000000",
    "660f1f840000000000"))


@dataclass(frozen=True, slots=True)
class Assembled:
    """Assembled code."""

    code: bytes  # for the base address that it was assembled for
    labels: Mapping[str, int]  # absolute addresses
    listing: str  # the source with labels, without addresses: the same wherever the code is placed
    evex: bool = False  # an instruction has an EVEX encoding, which only processors with AVX-512F have


def assemble(code: Code, base: int) -> Assembled:
    """Assemble ``code`` for address ``base``.

    Raises ``VerifyError`` for an unknown or repeated label, an instruction that Keystone refuses or encodes wrongly, or
    a displacement out of reach: all of them bugs of the code generator.
    """
    forms = _encode_forms(i for i in code if isinstance(i, Instruction) and not _is_jump(i))
    pieces: list[bytes] = []
    starts: list[int] = []
    labels: dict[str, int] = {}
    address = base
    for item in code:
        starts.append(address)
        match item:
            case Label(name):
                if name in labels:
                    raise VerifyError(f"label {name} is defined twice")
                labels[name] = address
                piece = b""
            case Bytes(data):
                piece = data
            case Align(boundary):
                piece = padding(-address % boundary)
            case Instruction():
                piece = bytes(_jump_size(item)) if _is_jump(item) else forms[_form(item)]
        pieces.append(piece)
        address += len(piece)
    _resolve(code, pieces, starts, labels)
    _verify(code, pieces, starts, labels)
    evex = any(piece[:1] == _EVEX for item, piece in zip(code, pieces, strict=True) if isinstance(item, Instruction))
    return Assembled(b"".join(pieces), labels, listing(code), evex)


def listing(code: Code) -> str:
    """The text form of ``code``, one item per line."""
    lines = []
    for item in code:
        match item:
            case Label(name):
                lines.append(f"{name}:")
            case Bytes(data):
                more = f" ... ({len(data)} bytes)" if len(data) > 16 else ""
                lines.append(f"    .byte {data[:16].hex(' ')}{more}")
            case Align(boundary):
                lines.append(f"    .align {boundary}")
            case Instruction():
                lines.append(f"    {item}".replace("[rip + 0x", "[0x"))  # an absolute address, see Mem
    return "\n".join(lines)


def padding(size: int) -> bytes:
    """``size`` bytes of no-operations, in as few instructions as possible."""
    return _NOPS[9] * (size // 9) + _NOPS[size % 9]


def _is_jump(instruction: Instruction) -> bool:
    return instruction.mnemonic[0] == "j"


def _jump_size(instruction: Instruction) -> int:
    return {"jmp": 5, "jrcxz": 2}.get(instruction.mnemonic, 6)


def _is_evex(instruction: Instruction) -> bool:
    """Whether only an EVEX encoding exists: 512-bit, masked, broadcast, or registers above 15."""
    if instruction.mask:
        return True
    for operand in instruction.operands:
        if isinstance(operand, Mem) and operand.broadcast:
            return True
        if isinstance(operand, Reg) and _needs_evex(operand.name):
            return True
    return False


@cache
def _needs_evex(register: str) -> bool:
    return register[1:3] == "mm" and (register[0] == "z" or int(register[3:]) > 15)


@lru_cache(maxsize=16384)
def _form(instruction: Instruction) -> Instruction:
    """The instruction as Keystone gets it: with a placeholder where the displacement is patched later."""
    memory = instruction.memory
    if memory is None:
        return instruction
    _check_memory(instruction, memory)
    if memory.base == "rip" or memory.symbol is not None:
        form = replace(memory, base="rip", symbol=None, displacement=_PLACEHOLDER)
    elif _has_placeholder(instruction, memory):
        form = replace(memory, displacement=_PLACEHOLDER)
    else:
        return instruction
    return replace(instruction, operands=tuple(form if o is memory else o for o in instruction.operands))


def _has_placeholder(instruction: Instruction, memory: Mem) -> bool:
    """Whether the displacement is patched: every one of EVEX; every one of four bytes, for fewer distinct forms."""
    return not -128 <= memory.displacement < 128 or _is_evex(instruction)


def _check_memory(instruction: Instruction, memory: Mem) -> None:
    if memory.symbol is not None or memory.base == "rip":
        good = memory.index is None and memory.base in (None, "rip")
    else:
        has_register = memory.base is not None or memory.index is not None
        good = has_register and memory.index != "rsp" and -2**31 <= memory.displacement < 2**31
    if not good or memory.scale not in (1, 2, 4, 8):
        raise VerifyError(f"no encoding for the memory operand of {instruction}")


def _encode_forms(instructions: Iterable[Instruction]) -> dict[Instruction, bytes]:
    """The bytes of each distinct form. Capstone finds where instructions end; ``_verify`` checks their meaning."""
    forms = list(dict.fromkeys(map(_form, instructions)))
    if not forms:
        return {}
    blob = _run_keystone([_in_hexadecimal(str(_truncating(f))) for f in forms])
    decoded = decode(blob, 0)
    if len(decoded) != len(forms) or decoded[-1].end != len(blob):
        raise VerifyError(f"Keystone made {len(decoded)} instructions of {len(forms)}")
    return {form: found.bytes if _truncating(form) is form else _rounding(found.bytes)
            for form, found in zip(forms, decoded, strict=True)}


def _truncating(form: Instruction) -> Instruction:
    """What Keystone gets in place of ``form``."""
    if form.mnemonic in ("vcvtss2si", "vcvtsd2si") and form.memory is not None:
        return replace(form, mnemonic=form.mnemonic.replace("vcvt", "vcvtt"))
    return form


def _rounding(encoded: bytes) -> bytes:
    """A VEX encoding with the opcode for the conversion that rounds in place of the one that truncates."""
    at = {0xC5: 2, 0xC4: 3}.get(encoded[0], 0)  # behind a VEX prefix of two or three bytes
    if encoded[at] != _TRUNCATES:
        raise VerifyError(f"no conversion: {encoded.hex()}")
    return encoded[:at] + bytes((_TRUNCATES + 1,)) + encoded[at + 1:]


def _in_hexadecimal(text: str) -> str:
    """``text`` with hexadecimal numbers: Keystone's default radix is uninitialised, so it may read "192" as 0x192."""
    return _DECIMAL.sub(lambda found: hex(int(found[0])), text)


def _run_keystone(texts: list[str], attempts: int = 3) -> bytes:
    """Assemble all ``texts`` in one call. A refusal is tried again: Keystone was once seen to refuse a valid one."""
    import keystone

    for attempt in range(attempts):
        engine = keystone.Ks(keystone.KS_ARCH_X86, keystone.KS_MODE_64)
        try:
            encoding, count = engine.asm("\n".join(texts), 0, True)
        except keystone.KsError as error:
            if attempt + 1 == attempts:
                culprit = texts[0] if len(texts) == 1 else _culprit(texts)
                raise VerifyError(f"Keystone refuses {culprit}: {error}") from error
        else:
            if encoding is None or count != len(texts):
                raise VerifyError(f"Keystone assembled {count} instructions of {len(texts)}")
            return bytes(encoding)
    raise AssertionError("unreachable")


def _culprit(texts: list[str]) -> str:
    """The first text that Keystone refuses when it is alone; for error messages only."""
    for text in texts:
        try:
            _run_keystone([text], 1)
        except VerifyError:
            return text
    return "an instruction"


def _resolve(code: Code, pieces: list[bytes], starts: list[int], labels: Mapping[str, int]) -> None:
    """Fill in jumps and the placeholders of ``rip`` and EVEX displacements, in place in ``pieces``."""
    for position, item in enumerate(code):
        if not isinstance(item, Instruction):
            continue
        end = starts[position] + len(pieces[position])
        if _is_jump(item):
            pieces[position] = _jump(item, end, labels)
            continue
        memory = item.memory
        if memory is None:
            continue
        if memory.symbol is not None or memory.base == "rip":
            origin = 0 if memory.symbol is None else _address(memory.symbol, labels)
            pieces[position] = _patch(item, pieces[position], memory.displacement + origin - end)
        elif _has_placeholder(item, memory):
            pieces[position] = _patch(item, pieces[position], memory.displacement)


def _jump(item: Instruction, end: int, labels: Mapping[str, int]) -> bytes:
    (target,) = item.operands
    if isinstance(target, LabelRef):
        relative = _address(target.name, labels) - end
    elif isinstance(target, Imm):
        relative = target.value - end
    else:
        raise VerifyError(f"indirect jump: {item}")
    if item.mnemonic == "jmp":
        return b"\xe9" + _displacement(item, relative)
    if item.mnemonic == "jrcxz":
        return b"\xe3" + _displacement(item, relative, 1)
    if item.mnemonic not in _JUMPS:
        raise VerifyError(f"unknown jump: {item}")
    return bytes((0x0f, 0x80 + _JUMPS[item.mnemonic])) + _displacement(item, relative)


def _address(label: str, labels: Mapping[str, int]) -> int:
    if label not in labels:
        raise VerifyError(f"label {label} is not defined")
    return labels[label]


def _displacement(item: Instruction, value: int, size: int = 4) -> bytes:
    try:
        return value.to_bytes(size, "little", signed=True)
    except OverflowError as error:
        raise VerifyError(f"out of reach: {item}") from error


def _patch(item: Instruction, piece: bytes, value: int) -> bytes:
    # Displacements precede immediates, so the first match is the displacement; prefixes and opcode are too short.
    at = piece.find(_PLACEHOLDER_BYTES, 1)
    if at < 0:
        raise VerifyError(f"no displacement to patch in {item}: {piece.hex()}")
    return piece[:at] + _displacement(item, value) + piece[at + 4:]


def _verify(code: Code, pieces: list[bytes], starts: list[int], labels: Mapping[str, int]) -> None:
    """Decode each run of instructions between data and padding, and compare."""
    run: list[Instruction] = []
    parts: list[bytes] = []
    start = 0
    for item, piece, address in zip((*code, Bytes(b"")), (*pieces, b""), (*starts, 0), strict=True):
        match item:
            case Instruction():
                start = address if not run else start
                run.append(item)
                parts.append(piece)
            case Bytes() | Align():
                if run:
                    verify_run(run, b"".join(parts), start, labels)
                run, parts = [], []
            case Label():
                pass
