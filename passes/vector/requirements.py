"""What a statement needs on an instruction set, asked before any code is made: lanes, registers, constants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memopt.ir.plan import Isa
from memopt.ir.reasons import Rejected
from memopt.ir.scop import Apply, Constant, ElementType, Expression, Read, has_calls
from memopt.x86.instructions import Instruction
from passes.vector.emitter import Emitter
from passes.vector.lowering import Lowering, is_truth
from passes.vector.registers import MaskRegisters, Registers, VectorUnit

SHIFTS = frozenset(("shl", "shr", "sar"))  # their count is part of the instruction, no value


@dataclass(frozen=True, slots=True)
class Requirements:
    """Of one vector of results, with the reads, scalars and ``constants`` in registers: temporaries beside the
    target, mask registers, instructions. ``constants`` are worth keeping outside loops."""

    temporaries: int
    masks: int
    instructions: int
    constants: tuple[Constant, ...]


def unit_for(isa: Isa, expression: Expression, reads: Sequence[ElementType], result: ElementType,
             lanes: int = 0) -> VectorUnit:
    """The unit of a statement: the widest of its types fills the vector; one lane where functions are called."""
    elements = {result, *reads, *_elements(expression)}
    lanes = 1 if has_calls(expression) else lanes
    widest = max(elements, key=lambda e: (e.size, e is result, e.is_float, e.value))
    return VectorUnit(isa, widest, lanes, mixed=len({e.size for e in elements}) > 1)


def _elements(expression: Expression) -> Iterator[ElementType]:
    """Types of the values in an expression; truth values and shift counts are none."""
    match expression:
        case Apply(operator, operands, element):
            if not is_truth(expression):
                yield element
            for operand in operands[:1] if operator in SHIFTS else operands:
                yield from _elements(operand)
        case Read():
            return
        case _:
            yield expression.element


def requirements(unit: VectorUnit, expression: Expression, reads: Sequence[ElementType], *,
                 masked: bool = False) -> Requirements:
    """Raises ``Rejected`` where there is no exact sequence of instructions."""
    constants: dict[Constant, str] = {}
    places: dict[Expression, str] = {}

    def leaf(node: Expression) -> str | None:
        if isinstance(node, Constant):
            return constants.setdefault(node, unit.register(2000 + len(constants)))
        return None if isinstance(node, Apply) else places.setdefault(node, unit.register(1000 + len(places)))

    emitter, pool, masks = Emitter(0), _Counted(unit), _CountedMasks()
    lowering = Lowering(unit, emitter, pool, reads=reads, mask="k1" if masked else None, masks=masks)
    lowering.into(unit.register(999), expression, leaf)
    instructions = sum(isinstance(i, Instruction) for i in emitter.code)
    return Requirements(pool.most, masks.most, instructions, tuple(constants))


def refusal(isa: Isa, expression: Expression, reads: Sequence[ElementType], result: ElementType) -> Rejected | None:
    """Why a statement cannot be lowered, or None."""
    try:
        requirements(unit_for(isa, expression, reads, result), expression, reads)
    except Rejected as rejected:
        return rejected
    return None


class _Counted(Registers):
    """As many registers as anybody wants; ``most``: taken at one time."""

    def __init__(self, unit: VectorUnit) -> None:
        self._free = [unit.register(n) for n in range(256)]
        self.most = 0

    def take(self) -> str:
        register = super().take()
        self.most = max(self.most, 256 - len(self._free))
        return register


class _CountedMasks(MaskRegisters):
    def __init__(self) -> None:
        self._free = [f"k{n}" for n in range(2, 256)]
        self.most = 0

    def take(self) -> str:
        register = super().take()
        self.most = max(self.most, 254 - len(self._free))
        return register
