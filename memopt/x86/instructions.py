"""Instruction objects: code generators build them, the assembler encodes them.

Example: ``instruction("add", "rax", Mem("rbp", displacement=64))`` is ``add rax, qword ptr [rbp + 0x40]``.

``str`` of an instruction is its canonical text (Intel syntax), used for listings, for Keystone and for the comparison
with Capstone. An ``Instruction`` names registers and widths explicitly. Its meaning does not depend on where it is
placed, except through labels and ``rip``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from memopt.ir.frozen import dataclass

_SIZES = {1: "byte", 2: "word", 4: "dword", 8: "qword", 16: "xmmword", 32: "ymmword", 64: "zmmword"}
_UNSIZED = ("lea", "xsave", "xrstor", "fxsave", "fxrstor", "prefetch", "clflush",
            "vgather", "vpgather", "vscatter", "vpscatter")

GENERAL = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
           "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")
_LOW_DWORD = dict(zip(GENERAL, ("eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi",
                                *(f"r{i}d" for i in range(8, 16))), strict=True))


def dword(register: str) -> str:
    """The 32-bit name of a 64-bit general-purpose register ("rax" -> "eax"); ``KeyError`` for any other."""
    return _LOW_DWORD[register]


def sub_register(register: str, size: int) -> str:
    """The name of the low ``size`` bytes of a 64-bit general-purpose register ("rax" -> "ax", "r9" -> "r9b")."""
    if size == 8:
        return register
    if size == 4:
        return dword(register)
    if register[1].isdigit():
        return register + {2: "w", 1: "b"}[size]
    return register[1:] if size == 2 else register[1:].replace("x", "") + "l"


@dataclass(frozen=True, slots=True)
class Reg:
    """A register by its name at the width used: "eax", "r10", "zmm17", "k3"."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Imm:
    """An immediate as a mathematical integer; it must fit the operand, signed or unsigned."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Mem:
    """``size`` bytes at ``[base + index * scale + displacement]``.

    ``index`` may be a vector register: gather and scatter. ``broadcast`` N reads one element of ``size`` bytes and
    repeats it N times (EVEX ``{1toN}``).
    With ``base == "rip"`` the displacement is the *absolute* address meant, or, with ``symbol``, an offset from that
    label; the assembler makes it relative. ``size`` is ignored by instructions that have no operand size (lea,
    prefetch, xsave). An address without any register is not encodable here: use ``rip``.
    """

    base: str | None
    index: str | None = None
    scale: int = 1
    displacement: int = 0
    size: int = 8
    broadcast: int = 0
    symbol: str | None = None

    def __str__(self) -> str:
        parts = [self.base] if self.base else []
        if self.index:
            parts.append(f"{self.index}*{self.scale}" if self.scale != 1 else self.index)
        if self.symbol:
            parts.append(self.symbol)
        text = " + ".join(parts)
        if self.displacement:
            text += f" {'-' if self.displacement < 0 else '+'} {abs(self.displacement):#x}"
        return f"[{text}]" + (f"{{1to{self.broadcast}}}" if self.broadcast else "")


@dataclass(frozen=True, slots=True)
class LabelRef:
    """The target of a jump."""

    name: str

    def __str__(self) -> str:
        return self.name


Operand: TypeAlias = Reg | Imm | Mem | LabelRef


@dataclass(frozen=True, slots=True)
class Instruction:
    """``mnemonic operands``; ``mask`` ("k1") and ``zeroing`` apply to the first operand (EVEX)."""

    mnemonic: str
    operands: tuple[Operand, ...] = ()
    mask: str | None = None
    zeroing: bool = False

    @property
    def memory(self) -> Mem | None:
        """The memory operand; no x86 instruction built here has two."""
        for operand in self.operands:
            if isinstance(operand, Mem):
                return operand
        return None

    @property
    def sized(self) -> bool:
        """Whether a memory operand of this instruction carries a size."""
        return not self.mnemonic.startswith(_UNSIZED)

    def __str__(self) -> str:
        texts = []
        for position, operand in enumerate(self.operands):
            text = str(operand)
            if isinstance(operand, Mem) and self.sized:
                text = f"{_SIZES[operand.size]} ptr {text}"
            if position == 0 and self.mask:
                text += f" {{{self.mask}}}" + (" {z}" if self.zeroing else "")
            texts.append(text)
        return f"{self.mnemonic} {', '.join(texts)}" if texts else self.mnemonic


@dataclass(frozen=True, slots=True)
class Label:
    """A name for the address of the item that follows; unique in one code sequence."""

    name: str


@dataclass(frozen=True, slots=True)
class Bytes:
    """Raw bytes: tables of constants, or original code that was moved. Not verified by the assembler."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Align:
    """Padding (executable no-operations) up to an absolute address that is a multiple of ``boundary``."""

    boundary: int


Item: TypeAlias = Instruction | Label | Bytes | Align
Code: TypeAlias = tuple[Item, ...]


def instruction(mnemonic: str, *operands: Operand | str | int, mask: str | None = None,
                zeroing: bool = False) -> Instruction:
    """Shorthand: a ``str`` is a register, an ``int`` an immediate."""
    return Instruction(mnemonic, tuple(_operand(o) for o in operands), mask, zeroing)


def jump(target: str, condition: str = "mp") -> Instruction:
    """``jmp target``, or with a condition ("e", "ne", "l", "ge", "o", ...) the conditional jump."""
    return Instruction("j" + condition, (LabelRef(target),))


def code(*parts: Item | Iterable[Item]) -> Code:
    """One sequence from items and sequences of items."""
    items: list[Item] = []
    for part in parts:
        if isinstance(part, Instruction | Label | Bytes | Align):
            items.append(part)
        else:
            items.extend(part)
    return tuple(items)


def _operand(value: Operand | str | int) -> Operand:
    if isinstance(value, str):
        return Reg(value)
    return Imm(value) if isinstance(value, int) else value
