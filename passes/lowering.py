"""Expressions lowered to vector instructions.

Bit-exactness lives here and in the operators' modules: the first operand of an operation is the machine's first source,
no operation is contracted or reordered.
"""

from __future__ import annotations

from collections.abc import Sequence

from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.ir.scop import Apply, Constant, ElementType, Expression, Index, Read, Scalar
from memopt.x86.instructions import Mem
from passes import floating
from passes.emitter import Emitter
from passes.vector_code import Held, VectorCode
from passes.vectors import Leaf, MaskRegisters, Registers, VectorUnit


class Lowering:
    """Emits expressions on ``unit``; temporaries come from ``pool`` (and ``masks``) and return to it.

    ``reads``: the types of the statement's reads; None: every value is of the unit's type. ``mask``, ``aligned``,
    ``spare``: see ``VectorCode``, which is ``code`` and has loads, stores and broadcasts.

    Constants that operators need (sign masks and the like) are asked of the leaf first, as ``Constant``, and made on
    the spot where it has none.
    """

    def __init__(self, unit: VectorUnit, emitter: Emitter, pool: Registers, *,
                 reads: Sequence[ElementType] | None = None, mask: str | None = None, aligned: bool = False,
                 spare: str = "rax", masks: MaskRegisters | None = None) -> None:
        self.unit = unit
        self.code = VectorCode(unit, emitter, pool, mask, aligned, spare, masks or MaskRegisters())
        self._reads = reads

    def into(self, target: str, expression: Expression, leaf: Leaf) -> None:
        """``target = expression``; ``target`` may be a register the expression reads."""
        target = self.unit.canonical(target)
        held = self._value(expression, leaf, target)
        if held.place != target:
            self.code.fetch(target, held.place, self.element(expression))
            self.code.release(held)

    def fused(self, name: str, target: str, factors: tuple[Expression, ...], leaf: Leaf) -> None:
        """``target += x * y`` (or ``-=``) in one rounding; ``name`` is fmadd231 or fnmadd231."""
        first, second = (self._value(f, leaf) for f in factors)
        operator = {"fmadd231": "fma", "fnmadd231": "fnma"}[name]
        floating.fused(self.code, operator, self.unit.element, (first, second, Held(self.unit.canonical(target))),
                       target)

    def element(self, expression: Expression) -> ElementType:
        """The type of an expression's value."""
        if self._reads is None:
            return self.unit.element
        if isinstance(expression, Read):
            return self._reads[expression.index]
        return expression.element

    def _value(self, expression: Expression, leaf: Leaf, target: str | None = None) -> Held:
        place = leaf(expression)
        if place is not None:
            return Held(place if isinstance(place, Mem) or place[0] == "k" else self.unit.canonical(place))
        match expression:
            case Apply():
                return self._apply(expression, leaf, target)
            case Constant(bits):
                register = target or self.code.pool.take()
                self.code.constant(register, bits, self.element(expression))
                return Held(register, ours=target is None)
            case Read() | Scalar() | Index():
                raise VerifyError(f"no place for {expression}")

    def _apply(self, expression: Apply, leaf: Leaf, target: str | None) -> Held:
        name, element, operands = expression.operator, self.element(expression), expression.operands

        def values() -> list[Held]:
            return [self._value(o, leaf) for o in operands]

        def constant(bits: int) -> Held:
            return self._value(Constant(bits & (1 << 8 * element.size) - 1, element), leaf)

        code = self.code
        if element.is_float:
            if name in floating.BINARY:
                first, second = values()
                return floating.binary(code, name, element, first, second, target)
            if name == "sqrt":
                return floating.square_root(code, element, values()[0], target)
            if name in floating.FUSED:
                return floating.fused(code, name, element, values(), target)
            if name in ("neg", "abs"):
                sign = 1 << 8 * element.size - 1
                (value,) = values()
                return floating.sign(code, name, element, value, constant(sign if name == "neg" else ~sign), target)
        if name in ("and", "or", "xor", "andnot"):
            first, second = values()
            return floating.bitwise(code, name, element, first, second, target)
        if name == "not":
            (value,) = values()
            return floating.bitwise(code, "xor", element, value, constant(-1), target)
        if name == "bits":
            return values()[0]
        raise Rejected(Reason.NO_PLAN, f"no vector instructions for {name} of {element.value}")

