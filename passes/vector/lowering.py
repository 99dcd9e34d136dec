"""Instruction selection: expression trees become vector instructions.

Example: ``add(read0, mul(read1, read2))`` becomes ``vmulpd ymm2, ymm1, [r9]`` and ``vaddpd ymm0, ymm0, ymm2``.

Bit-exact, together with the modules of the operators (``floating``, ``integers``, ``comparisons``, ``conversions``):
the first operand of an operation is the machine's first source (it decides NaN payloads), and no operation is
contracted or reordered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memopt.ir.isa import Isa
from memopt.ir.operations import called
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.ir.scop import ROUNDS, Apply, Constant, ElementType, Expression, Index, Read, Scalar, has_calls
from memopt.x86.instructions import Mem
from passes.vector import calls, comparisons, conversions, floating, integers
from passes.vector.comparisons import Truth
from passes.vector.emitter import Emitter
from passes.vector.instructions import I64, VectorCode, VectorValue
from passes.vector.integers import Constants
from passes.vector.registers import Leaf, MaskRegisters, Registers, VectorUnit

SHIFTS = frozenset(("shl", "shr", "sar"))  # their count is part of the instruction, not a value in a register


class Lowering:
    """Lowers expressions for one unit. Temporaries come from ``pool`` (and ``masks``) and return to it.

    ``reads``: the types of the statement's reads; None where every value is of the unit's type. ``mask``, ``aligned``,
    ``spare``: see ``VectorCode``; the attribute ``code`` is one, for loads, stores and broadcasts.

    A ``Leaf`` function says where values are. Constants, also those that operators need (sign masks and the like), are
    asked of it first, as ``Constant`` nodes; one that it does not have is made on the spot.

    Methods raise ``Rejected(NO_PLAN)`` for operators without an exact sequence of instructions, and ``OutOfRegisters``.
    """

    def __init__(self, unit: VectorUnit, emitter: Emitter, pool: Registers, *,
                 reads: Sequence[ElementType] | None = None, mask: str | None = None, aligned: bool = False,
                 spare: str = "rax", masks: MaskRegisters | None = None) -> None:
        self.unit = unit
        self.code = VectorCode(unit, emitter, pool, mask, aligned, spare, masks or MaskRegisters())
        self._reads = reads

    def into(self, target: str, expression: Expression, leaf: Leaf) -> None:
        """Emits ``target = expression``. ``target`` may be a register that the expression reads."""
        target = self.unit.canonical(target)
        held = _Tree(self, leaf).value(expression, target)
        if held.place != target:
            self.code.fetch(target, held.place, self.element(expression))
            self.code.release(held)

    def fused(self, name: str, target: str, factors: tuple[Expression, ...], leaf: Leaf) -> None:
        """Emits ``target += x * y`` (or ``-=``), rounded once. ``name`` is fmadd231 or fnmadd231, ``factors`` are x and
        y."""
        tree, target = _Tree(self, leaf), self.unit.canonical(target)
        first, second = map(tree.value, factors)
        operator = {"fmadd231": "fma", "fnmadd231": "fnma"}[name]
        floating.fused(self.code, operator, self.unit.element, (first, second, VectorValue(target)), target)

    def truth(self, expression: Expression, leaf: Leaf) -> Truth:
        """Emits a truth value, which the caller consumes."""
        return _Tree(self, leaf).truth(expression)

    def constants(self, leaf: Leaf) -> Constants:
        """The constants that operators on truth values need."""
        return _Tree(self, leaf).constant

    def element(self, expression: Expression) -> ElementType:
        """The type of an expression's value."""
        if self._reads is None:
            return self.unit.element
        if isinstance(expression, Read):
            return self._reads[expression.index]
        return expression.element


class _Tree:
    """One expression being lowered. Operands are evaluated before their operation, which consumes them. The operand
    that needs most registers goes first (Sethi and Ullman, The Generation of Optimal Code for Arithmetic Expressions,
    1970)."""

    def __init__(self, lowering: Lowering, leaf: Leaf) -> None:
        self._weights: dict[int, int] = {}
        self._lowering = lowering
        self._code = lowering.code
        self._unit = lowering.unit
        self._leaf = leaf

    def value(self, expression: Expression, target: str | None = None) -> VectorValue:
        """Emits code for ``expression``; its value may land in ``target``."""
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
        """The Sethi-Ullman number: registers that computing the value takes."""
        if not isinstance(node, Apply):
            return 0
        if id(node) not in self._weights:
            needed = sorted(map(self._weight, node.operands), reverse=True)
            self._weights[id(node)] = max(1, *(n + held for held, n in enumerate(needed)))
        return self._weights[id(node)]

    def constant(self, bits: int, element: ElementType) -> VectorValue:
        """A constant of an operator itself, such as a sign mask; always of type ``element``."""
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
            raise Rejected(Reason.NO_PLAN, f"the truth value of {name} is used as data")
        if (address := called(name)) is not None:
            return calls.call(self._code, address, element, self._values(operands), target)
        if element.is_float and (name in floating.BINARY or name in floating.FUSED or name in ROUNDS
                                 or name in ("sqrt", "neg", "abs")):
            return self._floating(name, self._values(operands), element, target)
        return self._integer(name, operands, element, target)

    def _floating(self, name: str, values: list[VectorValue], element: ElementType, target: str | None) -> VectorValue:
        code = self._code
        if name in floating.FUSED:
            return floating.fused(code, name, element, values, target)
        if name in floating.BINARY:
            first, second = values
            return floating.binary(code, name, element, first, second, target)
        if name in ROUNDS:
            return floating.rounded(code, element, values[0], ROUNDS[name], target)
        if name == "sqrt":
            return floating.square_root(code, element, values[0], target)
        sign = 1 << 8 * element.size - 1
        if name == "neg":
            return floating.bitwise(code, "xor", element, values[0], self.constant(sign, element), target)
        return floating.bitwise(code, "and", element, values[0], self.constant(sign - 1, element), target)

    def _integer(self, name: str, operands: tuple[Expression, ...], element: ElementType,
                 target: str | None) -> VectorValue:
        """Integer arithmetic, and operators on the bits of any type."""
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
            return floating.bitwise(code, "xor", element, value, self.constant(-1, element), target)
        if name in conversions.CONVERSIONS:
            return conversions.convert(code, name, self.value(operands[0]), self.constant, target)
        rules = {"add": integers.add, "sub": integers.subtract, "mul": integers.multiply}
        if name not in (*rules, *integers.EXTREMES, *comparisons.CONNECTIVES):
            raise Rejected(Reason.NO_PLAN, f"{name} of {element.value} has no vector instructions")
        first, second = self._values(operands)
        if name in rules:
            return rules[name](code, element, first, second, target)
        rule = integers.extreme if name in integers.EXTREMES else floating.bitwise
        return rule(code, name, element, first, second, target)

    def _extended(self, operands: tuple[Expression, ...]) -> bool | None:
        """Whether both factors are sign extensions (True) or zero extensions (False) of at most 32 bits; None where
        they are not, or the unit has no such product."""
        for name, signed in (("zext", False), ("sext", True)):
            if all(isinstance(o, Apply) and o.operator == name for o in operands):
                return signed if self._unit.three_operands or not signed else None
        return None

    def _extreme(self, name: str, operands: tuple[Expression, ...], element: ElementType,
                 target: str | None) -> VectorValue:
        _, less, swapped = integers.EXTREMES[name]
        first, second = (self._code.in_register(v, element) for v in self._values(operands))
        left, right = (second, first) if swapped else (first, second)
        truth = comparisons.compare(self._code, less, element, left.kept, right.kept, self.constant)
        return comparisons.select(self._code, truth, element, first, second, self.constant, target)

    def _shift(self, name: str, operands: tuple[Expression, ...], element: ElementType,
               target: str | None) -> VectorValue:
        value, count = operands
        if not isinstance(count, Constant):
            raise Rejected(Reason.NO_PLAN, f"{name} has a count that is not constant")
        bits = integers.shift_count(count.bits, element)
        return integers.shift(self._code, name, element, self.value(value), bits, self.constant, target)

    def _resize(self, name: str, operand: Expression, element: ElementType, target: str | None) -> VectorValue:
        source, value = self._lowering.element(operand), self.value(operand)
        if source.size == element.size:
            return value
        if name == "trunc":
            return conversions.truncate(self._code, source, element, value, target)
        return conversions.extend(self._code, name == "sext", source, element, value, self.constant, target)

    def _select(self, operands: tuple[Expression, ...], element: ElementType, target: str | None) -> VectorValue:
        chosen, other = self._values(operands[1:])
        truth = self.truth(operands[0])
        return comparisons.select(self._code, truth, element, chosen, other, self.constant, target)

    def truth(self, expression: Expression) -> Truth:
        if not isinstance(expression, Apply):
            raise VerifyError(f"{expression} is no truth value")
        operands = expression.operands
        if (place := self._leaf(expression)) is not None:
            register = place if isinstance(place, str) and place[0] == "k" else self._unit.canonical(str(place))
            return Truth(VectorValue(register), expression.element)
        if expression.operator == "not":
            return self.truth(operands[0]).opposite
        if expression.operator in comparisons.CONNECTIVES:
            left, right = map(self.truth, operands)
            return comparisons.combine(self._code, expression.operator, left, right, self.constant)
        if expression.operator not in comparisons.FLOATING and expression.operator not in comparisons.INTEGER:
            raise Rejected(Reason.NO_PLAN, f"{expression.operator} is used as a truth value")
        first, second = self._values(operands)
        return comparisons.compare(self._code, expression.operator, self._lowering.element(operands[0]), first, second,
                              self.constant)


def is_truth(expression: Expression) -> bool:
    """Whether the value is a truth value: a comparison, or a connective of truth values."""
    if not isinstance(expression, Apply):
        return False
    if expression.operator in comparisons.FLOATING or expression.operator in comparisons.INTEGER:
        return True
    return expression.operator in ("not", *comparisons.CONNECTIVES) and all(map(is_truth, expression.operands))


def unit_for(isa: Isa, expression: Expression, reads: Sequence[ElementType], result: ElementType,
             lanes: int = 0) -> VectorUnit:
    """The unit of a statement: the widest of its types fills the vector. It has one lane where functions are called."""
    elements = {result, *reads, *_elements(expression)}
    lanes = 1 if has_calls(expression) else lanes
    widest = max(elements, key=lambda e: (e.size, e is result, e.is_float, e.value))
    return VectorUnit(isa, widest, lanes, mixed=len({e.size for e in elements}) > 1)


def _elements(expression: Expression) -> Iterator[ElementType]:
    """Types of the values in an expression. Truth values and shift counts have none."""
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
