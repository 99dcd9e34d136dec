"""Expressions lowered to vector instructions.

Bit-exactness lives here and in the operators' modules (floating, integers, truths, widths): the first operand of an
operation is the machine's first source, no operation is contracted or reordered.
"""

from __future__ import annotations

from collections.abc import Sequence

from memopt.ir.operations import called
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.ir.scop import Apply, Constant, ElementType, Expression, Index, Read, Scalar
from memopt.x86.instructions import Mem
from passes.vector import calls, comparisons, conversions, floating, integers
from passes.vector.comparisons import Truth
from passes.vector.emitter import Emitter
from passes.vector.instructions import I64, VectorCode, VectorValue
from passes.vector.registers import Leaf, MaskRegisters, Registers, VectorUnit


class Lowering:
    """Emits expressions on ``unit``; temporaries come from ``pool`` (and ``masks``) and return to it.

    ``reads``: the types of the statement's reads; None: every value is of the unit's type. ``mask``, ``aligned``,
    ``spare``: see ``VectorCode``, which is ``code`` and has loads, stores and broadcasts.

    Constants, those of the expression and those that operators need (sign masks and the like), are asked of the leaf
    first, as ``Constant``, and made on the spot where it has none.
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
        held = _Tree(self, leaf).value(expression, target)
        if held.place != target:
            self.code.fetch(target, held.place, self.element(expression))
            self.code.release(held)

    def fused(self, name: str, target: str, factors: tuple[Expression, ...], leaf: Leaf) -> None:
        """``target += x * y`` (or ``-=``) in one rounding; ``name`` is fmadd231 or fnmadd231."""
        tree, target = _Tree(self, leaf), self.unit.canonical(target)
        first, second = map(tree.value, factors)
        operator = {"fmadd231": "fma", "fnmadd231": "fnma"}[name]
        floating.fused(self.code, operator, self.unit.element, (first, second, VectorValue(target)), target)

    def element(self, expression: Expression) -> ElementType:
        """The type of an expression's value."""
        if self._reads is None:
            return self.unit.element
        if isinstance(expression, Read):
            return self._reads[expression.index]
        return expression.element


class _Tree:
    """One expression being lowered. Operands are evaluated before their operation and consumed by it, those first that
    need most registers (Sethi and Ullman, The Generation of Optimal Code for Arithmetic Expressions, 1970)."""

    def __init__(self, lowering: Lowering, leaf: Leaf) -> None:
        self._weights: dict[int, int] = {}
        self._lowering = lowering
        self._code = lowering.code
        self._unit = lowering.unit
        self._leaf = leaf

    def value(self, expression: Expression, target: str | None = None) -> VectorValue:
        place = self._leaf(expression)
        if place is not None:
            return VectorValue(place if isinstance(place, Mem) else self._unit.canonical(place))
        match expression:
            case Apply():
                return self._apply(expression, self._lowering.element(expression), target)
            case Constant(bits):
                register = target or self._code.pool.take()
                self._code.constant(register, bits, self._lowering.element(expression))
                return VectorValue(register, ours=target is None)
            case Read() | Scalar() | Index():
                raise VerifyError(f"no place for {expression}")

    def _values(self, operands: Sequence[Expression]) -> list[VectorValue]:
        found: dict[int, VectorValue] = {}
        for number in sorted(range(len(operands)), key=lambda n: -self._weight(operands[n])):
            found[number] = self.value(operands[number])
        return [found[number] for number in range(len(operands))]

    def _weight(self, node: Expression) -> int:
        """Registers that the value takes to compute."""
        if not isinstance(node, Apply):
            return 0
        if id(node) not in self._weights:
            needed = sorted(map(self._weight, node.operands), reverse=True)
            self._weights[id(node)] = max(1, *(n + held for held, n in enumerate(needed)))
        return self._weights[id(node)]

    def _constant(self, bits: int, element: ElementType) -> VectorValue:
        """One of an operator's own: always of the type it says."""
        constant = Constant(bits & (1 << 8 * element.size) - 1, element)
        place = self._leaf(constant)
        if place is not None:
            return VectorValue(place if isinstance(place, Mem) else self._unit.canonical(place))
        register = self._code.pool.take()
        self._code.constant(register, constant.bits, element)
        return VectorValue(register, ours=True)

    def _apply(self, expression: Apply, element: ElementType, target: str | None) -> VectorValue:
        name, operands = expression.operator, expression.operands
        if name == "select":
            return self._select(operands, element, target)
        if name == "beside":
            for other in operands[1:]:
                self._code.release(self.value(other))
            return self.value(operands[0], target)
        if name in ("shl", "shr", "sar"):
            return self._shift(name, operands, element, target)
        if name in ("sext", "zext", "trunc"):
            return self._resize(name, operands[0], element, target)
        if is_truth(expression):
            raise Rejected(Reason.NO_PLAN, f"the truth value of {name} as data")
        if (address := called(name)) is not None:
            return calls.call(self._code, address, element, self._values(operands), target)
        if element.is_float and (name in floating.BINARY or name in floating.FUSED or name in ("sqrt", "neg", "abs")):
            return self._floating(name, self._values(operands), element, target)
        return self._integer(name, operands, element, target)

    def _floating(self, name: str, values: list[VectorValue], element: ElementType, target: str | None) -> VectorValue:
        code = self._code
        if name in floating.FUSED:
            return floating.fused(code, name, element, values, target)
        if name in floating.BINARY:
            first, second = values
            return floating.binary(code, name, element, first, second, target)
        if name == "sqrt":
            return floating.square_root(code, element, values[0], target)
        sign = 1 << 8 * element.size - 1
        if name == "neg":
            return floating.bitwise(code, "xor", element, values[0], self._constant(sign, element), target)
        return floating.bitwise(code, "and", element, values[0], self._constant(sign - 1, element), target)

    def _integer(self, name: str, operands: tuple[Expression, ...], element: ElementType,
                 target: str | None) -> VectorValue:
        """Integer arithmetic, and what works on the bits of any type."""
        code = self._code
        if name == "mul" and element is I64 and (signed := self._extended(operands)) is not None:
            first, second = self._values(operands)
            return integers.multiply_extended(code, signed, first, second, target)
        if name in integers.EXTREMES and not integers.has_extreme(code, name, element):
            return self._extreme(name, operands, element, target)
        if name == "bits":
            return self.value(operands[0])
        if name == "not":
            value = self.value(operands[0])
            return floating.bitwise(code, "xor", element, value, self._constant(-1, element), target)
        if name in conversions.CONVERSIONS:
            return conversions.convert(code, name, self.value(operands[0]), self._constant, target)
        rules = {"add": integers.add, "sub": integers.subtract, "mul": integers.multiply}
        if name not in (*rules, *integers.EXTREMES, *comparisons.CONNECTIVES):
            raise Rejected(Reason.NO_PLAN, f"no vector instructions for {name} of {element.value}")
        first, second = self._values(operands)
        if name in rules:
            return rules[name](code, element, first, second, target)
        rule = integers.extreme if name in integers.EXTREMES else floating.bitwise
        return rule(code, name, element, first, second, target)

    def _extended(self, operands: tuple[Expression, ...]) -> bool | None:
        """Whether both factors are sign extensions (True) or zero extensions (False) of at most 32 bits."""
        for name, signed in (("zext", False), ("sext", True)):
            if all(isinstance(o, Apply) and o.operator == name for o in operands):
                return signed if self._unit.three_operands or not signed else None
        return None

    def _extreme(self, name: str, operands: tuple[Expression, ...], element: ElementType,
                 target: str | None) -> VectorValue:
        _, less, swapped = integers.EXTREMES[name]
        first, second = (self._code.in_register(v, element) for v in self._values(operands))
        left, right = (second, first) if swapped else (first, second)
        truth = comparisons.compare(self._code, less, element, left.kept, right.kept, self._constant)
        return comparisons.select(self._code, truth, element, first, second, self._constant, target)

    def _shift(self, name: str, operands: tuple[Expression, ...], element: ElementType,
               target: str | None) -> VectorValue:
        value, count = operands
        if not isinstance(count, Constant):
            raise Rejected(Reason.NO_PLAN, f"{name} by a variable count")
        bits = integers.shift_count(count.bits, element)
        return integers.shift(self._code, name, element, self.value(value), bits, self._constant, target)

    def _resize(self, name: str, operand: Expression, element: ElementType, target: str | None) -> VectorValue:
        source, value = self._lowering.element(operand), self.value(operand)
        if source.size == element.size:
            return value
        if name == "trunc":
            return conversions.truncate(self._code, source, element, value, target)
        return conversions.extend(self._code, name == "sext", source, element, value, self._constant, target)

    def _select(self, operands: tuple[Expression, ...], element: ElementType, target: str | None) -> VectorValue:
        chosen, other = self._values(operands[1:])
        truth = self._truth(operands[0])
        return comparisons.select(self._code, truth, element, chosen, other, self._constant, target)

    def _truth(self, expression: Expression) -> Truth:
        if not isinstance(expression, Apply):
            raise VerifyError(f"{expression} is no truth value")
        operands = expression.operands
        if (place := self._leaf(expression)) is not None:
            register = place if isinstance(place, str) and place[0] == "k" else self._unit.canonical(str(place))
            return Truth(VectorValue(register), expression.element)
        if expression.operator == "not":
            return self._truth(operands[0]).opposite
        if expression.operator in comparisons.CONNECTIVES:
            left, right = map(self._truth, operands)
            return comparisons.combine(self._code, expression.operator, left, right, self._constant)
        if expression.operator not in comparisons.FLOATING and expression.operator not in comparisons.INTEGER:
            raise Rejected(Reason.NO_PLAN, f"{expression.operator} as a truth value")
        first, second = self._values(operands)
        return comparisons.compare(self._code, expression.operator, self._lowering.element(operands[0]), first, second,
                              self._constant)


def is_truth(expression: Expression) -> bool:
    """Whether the value is a truth value: a comparison, or made of comparisons."""
    if not isinstance(expression, Apply):
        return False
    if expression.operator in comparisons.FLOATING or expression.operator in comparisons.INTEGER:
        return True
    return expression.operator in ("not", *comparisons.CONNECTIVES) and all(map(is_truth, expression.operands))
