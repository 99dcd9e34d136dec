"""Vector instructions of the three targets behind one spelling, and expressions lowered to them.

Bit-exactness lives here: the first operand of an operation is the machine's first source, no operation is
contracted, reordered or shared in a way that the scalar code could tell (NaN payloads, exception flags).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memopt.ir.plan import Isa
from memopt.ir.reasons import VerifyError
from memopt.ir.scop import Apply, ElementType, Expression
from memopt.x86.instructions import Mem, Operand
from passes.emitter import Emitter


@dataclass(frozen=True, slots=True)
class VectorUnit:
    """Names of registers and mnemonics for one instruction set and element type."""

    isa: Isa
    element: ElementType

    @property
    def bytes(self) -> int:
        return self.isa.vector_bytes

    @property
    def three_operands(self) -> bool:
        return self.isa is not Isa.SSE2

    def register(self, number: int) -> str:
        return {Isa.SSE2: "xmm", Isa.AVX2: "ymm", Isa.AVX512: "zmm"}[self.isa] + str(number)

    def mnemonic(self, name: str) -> str:
        """"add" -> "vaddpd", "addps"..."""
        suffix = "pd" if self.element is ElementType.F64 else "ps"
        return ("v" if self.three_operands else "") + name + suffix

    @property
    def broadcast(self) -> str:
        return "vbroadcastsd" if self.element is ElementType.F64 else "vbroadcastss"

    def at(self, base: str, displacement: int) -> Mem:
        """One vector in memory."""
        return Mem(base, displacement=displacement, size=self.bytes)


class OutOfRegisters(VerifyError):
    """The register map does not fit the register file."""


class Registers:
    """Free vector registers, lowest first; running out raises ``OutOfRegisters``."""

    def __init__(self, unit: VectorUnit, taken: int = 0) -> None:
        self._free = [unit.register(n) for n in range(taken, unit.isa.registers)]

    @property
    def left(self) -> int:
        return len(self._free)

    def take(self) -> str:
        if not self._free:
            raise OutOfRegisters("register tile does not fit the register file")
        return self._free.pop(0)

    def give(self, register: str) -> None:
        self._free.insert(0, register)


Leaf = Callable[[Expression], "str | Mem | None"]
"""Where a subtree's value is: in a register that must be kept, in memory as a vector, or still to be computed."""


@dataclass(frozen=True, slots=True)
class Lowering:
    """Emits expressions on ``unit``; temporaries come from ``pool`` and return to it."""

    unit: VectorUnit
    emitter: Emitter
    pool: Registers

    def into(self, target: str, expression: Expression, leaf: Leaf) -> None:
        """``target = expression``; ``target`` may be a register the expression reads."""
        place = leaf(expression)
        if place is not None:
            if place != target:
                self._move(target, place)
            return
        if not isinstance(expression, Apply):
            raise VerifyError(f"no place for {expression}")
        self._apply(expression, leaf, target)

    def fused(self, name: str, target: str, factors: tuple[Expression, ...], leaf: Leaf) -> None:
        """``target += x * y`` (or ``-=``) in one rounding; ``name`` is fmadd231 or fnmadd231."""
        (first, first_ours), (second, second_ours) = (self._value(f, leaf) for f in factors)
        register, fresh = self._in_register(first)
        self.emitter.op(self.unit.mnemonic(name), target, register, second)
        for place, ours in ((register, first_ours or fresh), (second, second_ours)):
            if ours and isinstance(place, str):
                self.pool.give(place)

    def _value(self, expression: Expression, leaf: Leaf) -> tuple[str | Mem, bool]:
        """Where the value is, and whether that is a temporary of ours."""
        place = leaf(expression)
        if isinstance(place, Mem) and place.broadcast and self.unit.isa is not Isa.AVX512:
            register, _ = self._in_register(place)  # only EVEX has broadcasting memory operands
            return register, True
        if place is not None:
            return place, False
        if not isinstance(expression, Apply):
            raise VerifyError(f"no place for {expression}")
        return self._apply(expression, leaf, None), True

    def _apply(self, expression: Apply, leaf: Leaf, target: str | None) -> str:
        mnemonic = self.unit.mnemonic(expression.operator)
        values = [self._value(o, leaf) for o in expression.operands]
        temporaries = [v for v, ours in values if ours and isinstance(v, str)]
        places = [v for v, _ in values]
        if len(places) == 1:
            result = target or (temporaries[0] if temporaries else self.pool.take())
            self.emitter.op(mnemonic, result, places[0])
        elif self.unit.three_operands:
            first, fresh = self._in_register(places[0])
            if fresh:
                temporaries.append(first)
            result = target or (temporaries[0] if temporaries else self.pool.take())
            self.emitter.op(mnemonic, result, first, places[1])
        else:
            result = self._two_operands(mnemonic, values, target, temporaries)
        for register in temporaries:
            if register != result:
                self.pool.give(register)
        return result

    def _two_operands(self, mnemonic: str, values: list[tuple[str | Mem, bool]], target: str | None,
                      temporaries: list[str]) -> str:
        """``first = first op second`` in place when the first source may be overwritten, else in a copy."""
        (first, ours), (second, _) = values
        if isinstance(first, str) and (ours or (first == target and second != target)):
            accumulator = first
        else:
            accumulator = self.pool.take()
            temporaries.append(accumulator)
            self._move(accumulator, first)
        self.emitter.op(mnemonic, accumulator, second)
        if target is not None and accumulator != target:
            self._move(target, accumulator)
            return target
        return accumulator

    def _in_register(self, place: str | Mem) -> tuple[str, bool]:
        if isinstance(place, str):
            return place, False
        register = self.pool.take()
        self._move(register, place)
        return register, True

    def _move(self, target: str, source: Operand | str) -> None:
        if isinstance(source, Mem) and source.broadcast:
            element = Mem(source.base, displacement=source.displacement, size=source.size)
            self.emitter.op(self.unit.broadcast, target, element)
        else:
            self.emitter.op(self.unit.mnemonic("mova"), target, source)
