"""Vector registers: how many lanes a statement has, and how values of each type lie in registers.

All values of a statement have equally many lanes. The widest type fills the vector; a value of a narrower type lies in
the low ``lanes * size`` bytes of its register, and nothing may be said about the bytes above. Invariant: an operation
that can raise a floating-point flag never computes on those bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memopt.ir.plan import Isa
from memopt.ir.reasons import VerifyError
from memopt.ir.scop import ElementType, Expression
from memopt.x86.instructions import Mem

_PREFIXES = {16: "xmm", 32: "ymm", 64: "zmm"}


@dataclass(frozen=True, slots=True)
class VectorUnit:
    """``lanes`` values of ``element``, the widest type of a statement, at a time; a power of two, by default (0) as
    many as a vector of the instruction set holds. One lane stands for scalar instructions. AVX-512F has no arithmetic
    on bytes and words: where they are the widest type, vectors are AVX2's.

    ``mixed``: values of narrower types occur too. AVX-512F operates on whole 512-bit registers only, so that narrower
    values need AVX2's instructions, which reach the first 16 registers.
    """

    isa: Isa
    element: ElementType
    lanes: int = 0
    mixed: bool = False

    def __post_init__(self) -> None:
        most = min(self.isa.vector_bytes, 64 if self.element.size >= 4 else 32) // self.element.size
        if not 0 <= self.lanes <= most or self.lanes & (self.lanes - 1):
            raise VerifyError(f"{self.lanes} lanes of {self.element.value} on {self.isa.value}")
        object.__setattr__(self, "lanes", self.lanes or most)

    @property
    def bytes(self) -> int:
        """Bytes of one vector of ``element`` in memory."""
        return self.width(self.element)

    @property
    def three_operands(self) -> bool:
        return self.isa is not Isa.SSE2

    @property
    def evex(self) -> bool:
        """Whether vectors are the 512-bit ones of AVX-512F: mask registers, masked operations."""
        return self.isa is Isa.AVX512 and self.bytes == 64

    @property
    def registers(self) -> int:
        return 32 if self.evex and not self.mixed else 16

    @property
    def scalar(self) -> bool:
        return self.lanes == 1

    def width(self, element: ElementType) -> int:
        """Bytes of all lanes of ``element``."""
        return self.lanes * element.size

    def register_bytes(self, element: ElementType) -> int:
        return max(16, self.width(element))

    def register(self, number: int) -> str:
        """The name that pools and places use for register ``number``."""
        return _PREFIXES[self.register_bytes(self.element)] + str(number)

    def canonical(self, register: str) -> str:
        """The name that pools use, of a register given under the name of any width."""
        return self.register(int(register[3:]))

    def mnemonic(self, name: str) -> str:
        """"add" -> "vaddpd", "addps", "vaddsd"... for operations on ``element``; moves are of whole registers."""
        packed = "s" if self.scalar and not name.startswith("mov") else "p"
        suffix = packed + ("d" if self.element is ElementType.F64 else "s")
        return ("v" if self.three_operands else "") + name + suffix

    def at(self, base: str, displacement: int, element: ElementType | None = None) -> Mem:
        """One vector (of ``element``, or of the unit's own) in memory."""
        return Mem(base, displacement=displacement, size=self.width(element or self.element))


def view(register: str, size: int) -> str:
    """The name of a vector register at ``size`` bytes: 16, 32 or 64."""
    return _PREFIXES[size] + register[3:]


class OutOfRegisters(VerifyError):
    """The register map does not fit the register file."""


class Registers:
    """Free vector registers, lowest first; running out raises ``OutOfRegisters``."""

    def __init__(self, unit: VectorUnit, taken: int = 0) -> None:
        self._free = [unit.register(n) for n in range(taken, unit.registers)]

    @property
    def left(self) -> int:
        return len(self._free)

    def taken(self, unit: VectorUnit) -> tuple[str, ...]:
        """The registers of ``unit`` that are not free."""
        return tuple(r for r in map(unit.register, range(unit.registers)) if r not in self._free)

    def take(self) -> str:
        if not self._free:
            raise OutOfRegisters("register tile does not fit the register file")
        return self._free.pop(0)

    def give(self, register: str) -> None:
        self._free.insert(0, register)


class MaskRegisters(Registers):
    """Free mask registers of AVX-512F. k0 cannot mask an operation."""

    def __init__(self, *taken: str) -> None:
        self._free = [f"k{n}" for n in range(1, 8) if f"k{n}" not in taken]

    def reserve(self, register: str) -> None:
        if register in self._free:
            self._free.remove(register)


Leaf = Callable[[Expression], "str | Mem | None"]
"""Where a subtree's value is: in a register that must be kept (a truth value of AVX-512F: in a mask register), in
memory as a vector or as one element to be repeated (``Mem.broadcast``), or (None) still to be computed."""
