"""What a statement needs on an instruction set: temporaries, mask registers, constants, number of instructions.

It is lowered into a code buffer that is thrown away, with as many registers as it asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memopt.ir.isa import Isa
from memopt.ir.reasons import Rejected
from memopt.ir.scop import Apply, Constant, ElementType, Expression
from memopt.x86.instructions import Instruction
from passes.vector.emitter import Emitter
from passes.vector.lowering import Lowering, unit_for
from passes.vector.registers import MaskRegisters, Registers, VectorUnit


@dataclass(frozen=True, slots=True)
class Requirements:
    """What one vector of results needs beside the target, with reads, scalars and ``constants`` in registers. The
    ``constants`` are worth keeping in registers outside loops."""

    temporaries: int
    masks: int
    instructions: int
    constants: tuple[Constant, ...]


def requirements(unit: VectorUnit, expression: Expression, reads: Sequence[ElementType], *,
                 masked: bool = False) -> Requirements:
    """The requirements of ``expression`` on ``unit``. Raises ``Rejected`` where there is no exact sequence of
    instructions."""
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
    """The reason why a statement cannot be lowered; None where it can."""
    try:
        requirements(unit_for(isa, expression, reads, result), expression, reads)
    except Rejected as rejected:
        return rejected
    return None


class _Counted(Registers):
    """A pool that does not run out and counts: ``most`` registers were taken at the same time."""

    def __init__(self, unit: VectorUnit) -> None:
        self._free = [unit.register(n) for n in range(256)]
        self.most = 0

    def take(self) -> str:
        register = super().take()
        self.most = max(self.most, 256 - len(self._free))
        return register


class _CountedMasks(MaskRegisters):
    """The same for mask registers."""

    def __init__(self) -> None:
        self._free = [f"k{n}" for n in range(2, 256)]
        self.most = 0

    def take(self) -> str:
        register = super().take()
        self.most = max(self.most, 254 - len(self._free))
        return register
