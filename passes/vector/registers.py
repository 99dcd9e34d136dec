"""Vector registers: how many lanes a statement has, how values of each type lie in registers, and which are free.

Example: a statement of double and int32 on AVX2 has 4 lanes. The doubles fill a ``ymm``; the int32 lie in the low 16
bytes of theirs.

All values of a statement have equally many lanes. The widest type fills the vector; a value of a narrower type lies in
the low ``lanes * size`` bytes of its register, and the bytes above are undefined. Invariant: an operation that can
raise a floating-point flag never computes on those bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from memopt.ir.frozen import dataclass
from memopt.ir.plan import Isa
from memopt.ir.reasons import VerifyError
from memopt.ir.scop import ElementType, Expression
from memopt.x86.instructions import Mem

_PREFIXES = {16: "xmm", 32: "ymm", 64: "zmm"}


@dataclass(frozen=True, slots=True)
class VectorUnit:
    """The vector shape of a statement: how many lanes of which widest type it computes at a time."""

    isa: Isa
    # The widest type of the statement.
    element: ElementType
    # Values at a time: a power of two. 0 (the default) becomes as many as a vector of the instruction set holds. One
    # lane stands for scalar instructions. AVX-512F has no arithmetic on bytes and words: where these are the widest
    # type, vectors are AVX2's.
    lanes: int = 0
    # Values of narrower types occur too. AVX-512F operates on whole 512-bit registers only, so narrower values need
    # AVX2's instructions, which reach the first 16 registers.
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
        """Whether instructions have a destination besides two sources (AVX and later)."""
        return self.isa is not Isa.SSE2

    @property
    def evex(self) -> bool:
        """Whether vectors are the 512-bit ones of AVX-512F, with mask registers and masked operations."""
        return self.isa is Isa.AVX512 and self.bytes == 64

    @property
    def registers(self) -> int:
        """Vector registers that every operation of the unit can name."""
        return 32 if self.evex and not self.mixed else 16

    @property
    def scalar(self) -> bool:
        """Whether the unit uses scalar instructions."""
        return self.lanes == 1

    def width(self, element: ElementType) -> int:
        """Bytes of all lanes of ``element``."""
        return self.lanes * element.size

    def register_bytes(self, element: ElementType) -> int:
        """Bytes of the register that holds all lanes of ``element``; at least 16."""
        return max(16, self.width(element))

    def register(self, number: int) -> str:
        """The name that pools and places use for register ``number``."""
        return _PREFIXES[self.register_bytes(self.element)] + str(number)

    def canonical(self, register: str) -> str:
        """The name that pools use for a register, given under its name of any width."""
        return self.register(int(register[3:]))

    def mnemonic(self, name: str) -> str:
        """The mnemonic on ``element``: "add" -> "vaddpd", "addps", "vaddsd"... Moves are of whole registers."""
        packed = "s" if self.scalar and not name.startswith("mov") else "p"
        suffix = packed + ("d" if self.element is ElementType.F64 else "s")
        return ("v" if self.three_operands else "") + name + suffix

    def at(self, base: str, displacement: int, element: ElementType | None = None) -> Mem:
        """One vector in memory, of ``element`` or of the unit's own type."""
        return Mem(base, displacement=displacement, size=self.width(element or self.element))


def view(register: str, size: int) -> str:
    """The name of a vector register at ``size`` bytes: 16, 32 or 64."""
    return _PREFIXES[size] + register[3:]


class OutOfRegisters(VerifyError):
    """The register allocation does not fit the register file."""


class Registers:
    """The pool of free vector registers, lowest first. The first ``taken`` registers are not in it."""

    def __init__(self, unit: VectorUnit, taken: int = 0) -> None:
        self._free = [unit.register(n) for n in range(taken, unit.registers)]

    @property
    def left(self) -> int:
        """How many registers are free."""
        return len(self._free)

    def taken(self, unit: VectorUnit) -> tuple[str, ...]:
        """The registers of ``unit`` that are not free."""
        return tuple(r for r in map(unit.register, range(unit.registers)) if r not in self._free)

    def take(self) -> str:
        """The next free register. Raises ``OutOfRegisters`` when there is none."""
        if not self._free:
            raise OutOfRegisters("the register tile does not fit the register file")
        return self._free.pop(0)

    def give(self, register: str) -> None:
        """Returns a register; it is the next one to be taken."""
        self._free.insert(0, register)


class MaskRegisters(Registers):
    """The pool of free mask registers of AVX-512F, k1 to k7: k0 cannot mask an operation."""

    def __init__(self, *taken: str) -> None:
        self._free = [f"k{n}" for n in range(1, 8) if f"k{n}" not in taken]

    def reserve(self, register: str) -> None:
        """Takes this register out of the pool."""
        if register in self._free:
            self._free.remove(register)


Leaf = Callable[[Expression], "str | Mem | None"]
"""Says where the value of a subtree is: in a register that must be kept (a truth value of AVX-512F: a mask register),
in memory as a vector, in memory as one element for all lanes (``Mem.broadcast``), or (None) still to be computed."""
