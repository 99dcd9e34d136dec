"""The code buffer of the generators: a growing sequence of instructions, with fresh labels and frame slots.

Invariant: ``rbp`` holds the frame address throughout, the stack is never touched, and every slot lies in the part of
the frame that its layout sets aside for kernel temporaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from memopt.ir.reasons import Reason, Rejected
from memopt.x86.instructions import Align, Code, Imm, Instruction, Item, Label, LabelRef, Mem, Operand, Reg, instruction

Value = int | Mem
"""An integer known at compile time, or the 8-byte frame slot that holds it at run time."""


@dataclass(slots=True)
class _Numbers:
    """State that the sections of one sequence share: the slots of the frame and the number of labels."""

    start: int
    end: int
    labels: int = 0


class Emitter:
    """A growing code sequence. ``start``: frame offset of the first byte that is free for slots. ``prefix``: of its
    labels; two sequences that become one need different ones. ``near``: see ``load_address``."""

    def __init__(self, start: int, prefix: str = "kernel", *, near: bool = False) -> None:
        self._prefix, self._near = prefix, near
        self._items: list[Item | Emitter] = []
        self._numbers = _Numbers(start, start)

    @property
    def code(self) -> Code:
        """The instructions so far, those of sections in their places."""
        return tuple(self._flat())

    @property
    def local_bytes(self) -> int:
        """Bytes of the frame used so far for slots, gaps for alignment included."""
        return self._numbers.end - self._numbers.start

    def section(self) -> Emitter:
        """An emitter whose code lands at this point of the sequence, even when it is emitted later."""
        section = Emitter(0, self._prefix, near=self._near)
        section._numbers = self._numbers
        self._items.append(section)
        return section

    def _flat(self) -> Iterator[Item]:
        for item in self._items:
            if isinstance(item, Emitter):
                yield from item._flat()
            else:
                yield item

    def op(self, mnemonic: str, *operands: Operand | str | int, mask: str | None = None,
           zeroing: bool = False) -> None:
        """Appends one instruction. A ``str`` operand is a register, an ``int`` an immediate. ``mask``: mask register of
        AVX-512F; ``zeroing``: lanes outside it become 0 instead of keeping their values."""
        self._items.append(instruction(mnemonic, *operands, mask=mask, zeroing=zeroing))

    def append(self, items: Iterable[Item]) -> None:
        """Appends instructions that were made elsewhere."""
        self._items += items

    def fresh(self, stem: str) -> str:
        """A label name not used before in this sequence."""
        self._numbers.labels += 1
        return f"{self._prefix}_{stem}_{self._numbers.labels}"

    def place(self, label: str) -> None:
        """Defines ``label`` here."""
        self._items.append(Label(label))

    def align(self, boundary: int) -> None:
        """Pads with nops to a multiple of ``boundary`` bytes."""
        self._items.append(Align(boundary))

    def jump(self, target: str, condition: str = "mp") -> None:
        """A jump to the label ``target``; ``condition``: the suffix of the mnemonic ("mp" is unconditional)."""
        self._items.append(Instruction("j" + condition, (LabelRef(target),)))

    def slot(self, size: int = 8) -> Mem:
        """A new frame slot of ``size`` bytes, aligned to its size; frame pages are at least 64-byte aligned."""
        offset = -(-self._numbers.end // size) * size
        self._numbers.end = offset + size
        return Mem("rbp", displacement=offset, size=size)

    def load(self, register: str, value: Value) -> None:
        """``register = value``; keeps the flags."""
        if isinstance(value, Mem):
            self.op("mov", register, value)
        else:
            self.op("movabs" if not fits(value) else "mov", register, value)

    def load_address(self, register: str, address: int) -> None:
        """``register = address``; keeps the flags. The code holds only its distance if the sequence is ``near`` its
        memory: within rel32 reach."""
        if self._near:
            self.op("lea", register, Mem("rip", displacement=address))
        else:
            self.load(register, address)

    def add(self, register: str, value: Value, spare: str) -> None:
        """``register += value``; ``spare`` is clobbered by constants that need 64 bits."""
        if isinstance(value, Mem) or fits(value):
            if value != 0:
                self.op("add", register, value if isinstance(value, Mem) else Imm(value))
        else:
            self.load(spare, value)
            self.op("add", register, spare)

    def scale(self, register: str, factor: int, spare: str) -> None:
        """``register *= factor``; ``spare`` is clobbered by factors that need 64 bits."""
        if factor == 1:
            return
        if factor > 0 and factor & (factor - 1) == 0:
            self.op("shl", register, factor.bit_length() - 1)
        elif fits(factor):
            self.op("imul", register, register, factor)
        else:
            self.load(spare, factor)
            self.op("imul", register, spare)

    def minimum(self, register: str, value: Value, spare: str) -> None:
        """``register = min(register, value)``, signed; ``spare`` is clobbered."""
        self.load(spare, value)
        self.op("cmp", register, spare)
        self.op("cmovg", register, spare)


def fits(value: int) -> bool:
    """Whether ``value`` can be encoded as a sign-extended 32-bit immediate or displacement."""
    return -(1 << 31) <= value < 1 << 31


def displaced(base: str, displacement: int, size: int) -> Mem:
    """``[base + displacement]``. Raises ``Rejected(NO_SCHEDULE)`` when the displacement does not fit the encoding (rows
    of gigabytes)."""
    if not fits(displacement):
        raise Rejected(Reason.NO_SCHEDULE, f"a stride of {displacement} bytes does not fit an address")
    return Mem(base, displacement=displacement, size=size)


def register_of(size: int, register: str) -> Reg:
    """The 4- or 8-byte view of a general-purpose register, given as ``rax`` or ``r8``."""
    if size == 8:
        return Reg(register)
    return Reg(register + "d" if register[1:].isdigit() else "e" + register[1:])
