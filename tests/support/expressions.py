"""Expressions of statements on plain numbers: the reading of memopt.ir.scop.Apply that tests use.

Values are bit patterns of their element type; a truth value is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memopt.ir.evaluate import signed
from memopt.ir.operations import AS_MXCSR_SAYS, PREDICATES, TOWARDS_ZERO
from memopt.ir.scop import ROUNDS, Apply, Constant, ElementType, Expression, Index, Read, Scalar
from tests.support.interpreter import compute

COMPARISONS = ("eq", "slt", "sle", "ult", "ule", *PREDICATES)
_FLOATING = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "sqrt": "fsqrt", "min": "fmin",
             "max": "fmax", "neg": "fneg", "abs": "fabs"}
_EXTREMES: dict[str, Callable[[int, int, int], bool]] = {
    "smin": lambda a, b, w: signed(a, w) < signed(b, w), "smax": lambda a, b, w: signed(a, w) > signed(b, w),
    "umin": lambda a, b, _: a < b, "umax": lambda a, b, _: a > b,
}


@dataclass(frozen=True)
class Evaluator:
    """One statement instance: ``reads`` gives bits and type of each read (the bits are asked for where the read is
    performed), ``values`` a number for each symbol and
    dimension, ``scalar`` the bits of a live-in vector register's part."""

    reads: Sequence[Sequence[Any]]
    values: Mapping[str, int]
    scalar: Callable[[Scalar], int]

    def bits(self, expression: Expression) -> int:
        match expression:
            case Read(index):
                return self.reads[index][0]
            case Constant(bits, element):
                assert 0 <= bits < 1 << _width(element)
                return bits
            case Scalar():
                return self.scalar(expression)
            case Index(value, element):
                return value.evaluate(self.values) % (1 << _width(element))
            case Apply("when", (condition, Read(index)), element):
                assert self.reads[index][1] is element
                return self.reads[index][0] if self.bits(condition) else 0
            case Apply(operator, operands, element):
                return self._apply(operator, operands, element)

    def _apply(self, operator: str, operands: tuple[Expression, ...], element: ElementType) -> int:
        numbers = tuple(map(self.bits, operands))
        widths = tuple(_width(self.element(o)) for o in operands)
        width = _width(element)
        if operator in COMPARISONS:
            assert widths == (width, width)
            assert not element.is_float
            return compute(operator, numbers, widths, 1)
        if operator == "select":
            assert is_truth(operands[0])
            assert {self.element(o) for o in operands[1:]} == {element}
            return numbers[1] if numbers[0] else numbers[2]
        if operator in ("and", "or", "xor", "not", "andnot") and is_truth(operands[0]):
            assert all(map(is_truth, operands))
            return _bitwise(operator, numbers, 1)
        assert not any(map(is_truth, operands)), "a truth value as a number"
        if operator in ("and", "or", "xor", "not", "andnot"):
            assert set(widths) == {width}
            return _bitwise(operator, numbers, width)
        if operator in _EXTREMES:
            assert set(widths) == {width}
            return numbers[0] if _EXTREMES[operator](*numbers, width) else numbers[1]
        if operator == "beside":
            assert {self.element(o) for o in operands} == {element}
            return numbers[0]
        if operator == "bits":
            assert widths == (width,)
            return numbers[0]
        if operator.startswith(("f64toi", "f32toi")):
            rounding = TOWARDS_ZERO if operator.endswith("z") else AS_MXCSR_SAYS
            return compute(operator.removesuffix("z"), (rounding, *numbers), (32, *widths), width)
        if operator in ROUNDS:
            return compute("fround", (ROUNDS[operator], *numbers), (32, *widths), width)
        if element.is_float and operator in _FLOATING:
            assert {self.element(o) for o in operands} == {element}
            return compute(_FLOATING[operator], numbers, widths, width)
        if operator in ("add", "sub", "mul", "shl", "shr", "sar"):
            assert not element.is_float
            assert set(widths) == {width}
        if operator in ("shl", "shr", "sar"):
            assert isinstance(operands[1], Constant)
        return compute(operator, numbers, widths, width)

    def element(self, expression: Expression) -> ElementType:
        """The type of an expression's value."""
        return self.reads[expression.index][1] if isinstance(expression, Read) else expression.element


def is_truth(expression: Expression) -> bool:
    match expression:
        case Apply(operator, operands, _):
            return operator in COMPARISONS or (operator in ("and", "or", "xor", "not") and is_truth(operands[0]))
    return False


def _bitwise(operator: str, numbers: tuple[int, ...], width: int) -> int:
    if operator == "andnot":
        return ~numbers[0] & numbers[1]
    return compute(operator, numbers, (width,) * len(numbers), width)


def _width(element: ElementType) -> int:
    return 8 * element.size
