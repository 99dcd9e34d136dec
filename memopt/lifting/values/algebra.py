"""Arithmetic of symbolic execution: each operator of machine code on symbolic values.

Example: ``add`` of i and 1 in 32 bits is the affine value ``i + 1`` modulo 2**32. ``sext`` of it to 64 bits is the
number i + 1 only if that is in [-2**31, 2**31).

In: an operator, operands, a width. Out: a ``Value``: affine where possible, else a ``Node``.
Sound because an operation that is exact only in a range (extension, comparison) takes the multiple of 2**width that
fits the sample and records the range as an obligation. The region builder proves it from loop bounds or makes a guard
of it. A product or shift by a symbol is specialised on the captured value, which a guard then checks; a product of a
counter and a stride is a symbol of its own (memopt.ir.linear.Product).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar

from memopt.ir.linear import Linear, Quotient, product, quotient
from memopt.lifting.values.extensions import DeferredExtension
from memopt.lifting.values.numbers import LOOP_COUNTER, TRIAL, Numbers, Obligation, fixable, uneven_part
from memopt.lifting.values.requests import AssumeEqual, PromoteCell
from memopt.lifting.values.values import (
    Atom,
    Formula,
    Integer,
    Node,
    Opaque,
    Truth,
    Value,
    centred,
    constant,
    constant_of,
    either,
    negate,
)

__all__ = ["LOOP_COUNTER", "TRIAL", "Algebra", "AssumeEqual", "Obligation", "PromoteCell", "fixable"]


class Algebra(Numbers):
    """The arithmetic: a method ``_name`` for each operator. An operator without one makes a ``Node``."""

    # -- operations ---------------------------------------------------------------------------------------------

    def compute(self, operator: str, operands: tuple[Value, ...], width: int) -> Value:
        """The value of ``operator`` on ``operands``, ``width`` bits wide.

        Records obligations; raises a request (memopt.lifting.values.requests) where a captured value is needed.
        """
        rule = self._RULES.get(operator)
        return Node(operator, operands, width) if rule is None else rule(self, operands, width)

    def _add(self, operands: tuple[Value, ...], width: int) -> Value:
        return self._sum(operands, width, 1)

    def _sub(self, operands: tuple[Value, ...], width: int) -> Value:
        if operands[0] == operands[1]:
            return constant(0, width)
        return self._sum(operands, width, -1)

    def _sum(self, operands: tuple[Value, ...], width: int, sign: int) -> Value:
        left, right = self.integer(operands[0]), self.integer(operands[1])
        if left is None or right is None:
            return Node("add" if sign > 0 else "sub", operands, width)
        return self._wrap(left.linear + right.linear * sign, width)

    @staticmethod
    def _wrap(linear: Linear, width: int) -> Integer:
        terms = linear.terms
        if linear.quotients:  # a quotient times a multiple of 2**width is 0 modulo 2**width
            terms = tuple((s, c) for s, c in terms if c % (1 << width) or not isinstance(s, Quotient))
        return Integer(Linear(terms, centred(linear.constant, width)), width)

    def _mul(self, operands: tuple[Value, ...], width: int) -> Value:
        numbers = [self.integer(o) for o in operands]
        left, right = numbers[0], numbers[1]
        if left is None or right is None:
            return Node("mul", operands, width)
        for factor, other in ((left, right), (right, left)):
            if factor.linear.is_constant:
                return self._wrap(other.linear * centred(factor.linear.constant, width), width)
        for factor, other in ((left, right), (right, left)):
            if self.is_stride(factor.linear) and (not fixable(other.linear) or self.is_stride(other.linear)):
                return self._wrap(product(self.settled(other.linear), factor.linear), width)
        for factor, other in sorted(((left, right), (right, left)), key=lambda p: abs(self.at_sample(p[0].linear))):
            if self.settles(factor.linear):
                return self._wrap(other.linear * self.specialised(factor.linear).constant, width)
        return Node("mul", operands, width)

    def _shl(self, operands: tuple[Value, ...], width: int) -> Value:
        count = self._count(operands[1])
        number = self.integer(operands[0]) if count is not None else None
        if number is None or count is None:
            return Node("shl", operands, width)
        return self._wrap(number.linear * (1 << count), width)

    def _count(self, value: Value) -> int | None:
        number = self.integer(value)
        if number is None:
            return None
        if not number.linear.is_constant:
            if fixable(number.linear) or self.exploring:
                return self.specialised(number.linear).constant % (1 << number.width)
            return None
        return number.linear.constant % (1 << number.width)

    def _shr(self, operands: tuple[Value, ...], width: int) -> Value:
        return self._shift_right(operands, width, signed=False)

    def _sar(self, operands: tuple[Value, ...], width: int) -> Value:
        return self._shift_right(operands, width, signed=True)

    def _shift_right(self, operands: tuple[Value, ...], width: int, signed: bool) -> Value:
        name = "sar" if signed else "shr"
        count = constant_of(operands[1])
        if count is None or not isinstance(operands[0], Integer):
            return Node(name, operands, width)
        if not count:
            return operands[0]
        linear, needs = self.in_range(operands[0], signed)
        divisor = 1 << count
        uneven = uneven_part(linear, divisor)
        if uneven.terms and fixable(uneven):
            return Node(name, operands, width)
        result = quotient(linear, divisor)
        if width == 64 and not linear.is_constant:  # behind a left shift, which drops high bits: an extension
            half = 1 << (63 - count) if signed else 0
            needs = (result + half, -result + ((1 << (64 - count)) - 1 - half))
        for need in needs:
            self.require(need, "a shifted value keeps its sign")
        return Integer(result, width)

    def _guessed(self, value: int) -> Linear:
        """For a trial: an unknown number whose sample is ``value``."""
        symbol = f"{TRIAL}{self.address:x}:guess"
        self.sample[symbol] = value
        return Linear.symbol(symbol)

    def _bitwise(self, name: str, operands: tuple[Value, ...], width: int) -> Value:
        left, right = constant_of(operands[0]), constant_of(operands[1])
        if left is not None and right is not None:
            number = left & right if name == "and" else left | right if name == "or" else left ^ right
            return constant(number, width)
        for mine, other in (operands, operands[::-1]):
            known = constant_of(mine)
            if known is None and isinstance(mine, Integer) and isinstance(other, Truth) and self.settles(mine.linear):
                known = self.specialised(mine.linear).constant % (1 << width)
            if known is None:
                continue
            if known == 0:
                return constant(0, width) if name == "and" else other
            if name == "and" and known == (1 << width) - 1:
                return other
            if isinstance(other, Truth):
                if name == "and":
                    return other if known & 1 else constant(0, width)
                if name == "xor" and known == 1:
                    return Truth(negate(other.formula), width)
            changed = self._low_bits(name, other, known) if isinstance(other, Integer) else None
            if changed is not None:
                return changed
            if name == "and" and isinstance(other, Integer) and (rounded := self._rounded(other, known)) is not None:
                return rounded
        if isinstance(operands[0], Truth) and isinstance(operands[1], Truth):
            return Truth(self._join(name, operands[0].formula, operands[1].formula), width)
        return Node(name, operands, width)

    def _low_bits(self, name: str, value: Integer, mask: int) -> Integer | None:
        """``value`` and, or, xor ``mask`` where it touches only bits that do not depend on symbols; else None."""
        linear, whole = value.linear, (1 << value.width) - 1
        if self.widenings.within(linear):
            return None
        step = math.gcd(1 << value.width, *(c for _, c in linear.terms))
        known = linear.constant % step
        if name == "and" and mask < step:
            return constant(known & mask, value.width)
        if (whole ^ mask if name == "and" else mask) >= step:
            if self.trial and name == "or":  # in a trial of an outer loop a guess is enough
                return self._wrap(linear + self._guessed(mask & ~self.at_sample(linear)), value.width)
            return None
        low = known & mask if name == "and" else known | mask if name == "or" else known ^ mask
        return self._wrap(linear - known + low % step, value.width)

    def _rounded(self, value: Integer, mask: int) -> Value | None:
        """``value & mask`` as an affine number, where the bits of ``mask`` are contiguous; else None.

        Rounding down to a power of two (``x & -8``) and its remainder (``x & 7``) are exact modulo 2**width. For a mask
        with zeros at both ends, the value is required to be below the upper end.
        """
        size = 1 << value.width
        for unit, low in ((size - mask, False), (mask + 1, True)):
            if 1 < unit < size and not unit & (unit - 1) and not fixable(value.linear):
                down = quotient(value.linear, unit) * unit
                return self._wrap(value.linear - down if low else down, value.width)
        unit, above = mask & -mask, mask + (mask & -mask)
        if unit > 1 and 0 < above < size and not above & (above - 1) and not fixable(value.linear):
            linear, _ = self.in_range(value, signed=False)
            if 0 <= self.at_sample(linear) < above:
                for need in (linear, -linear + (above - 1)):
                    self.require(need, "a masked number has no bits above the mask")
                return self._wrap(quotient(linear, unit) * unit, value.width)
        return None

    @staticmethod
    def _join(name: str, left: Formula, right: Formula) -> Formula:
        if name == "or":
            return either(left, right)
        if name == "and":
            return negate(either(negate(left), negate(right)))
        return either(
            negate(either(negate(left), right)),
            negate(either(left, negate(right))),
        )

    def _and(self, operands: tuple[Value, ...], width: int) -> Value:
        if operands[0] == operands[1]:
            return operands[0]
        return self._bitwise("and", operands, width)

    def _or(self, operands: tuple[Value, ...], width: int) -> Value:
        if operands[0] == operands[1]:
            return operands[0]
        return self._bitwise("or", operands, width)

    def _xor(self, operands: tuple[Value, ...], width: int) -> Value:
        if operands[0] == operands[1]:
            return constant(0, width)
        return self._bitwise("xor", operands, width)

    def _not(self, operands: tuple[Value, ...], width: int) -> Value:
        value = operands[0]
        if isinstance(value, Integer):
            return self._wrap(-value.linear - 1, width)
        if isinstance(value, Truth) and value.width == 1:
            return Truth(negate(value.formula), width)
        return Node("not", operands, width)

    # -- widths -------------------------------------------------------------------------------------------------

    def _trunc(self, operands: tuple[Value, ...], width: int) -> Value:
        value = operands[0]
        match value:
            case Integer(linear, _) if width == 8 and linear in self.low_bytes:
                return Integer(self.low_bytes[linear], width)
            case Integer(linear, _):
                if all(w.bits >= width for w in self.widenings.within(linear)):
                    return self._wrap(self.widenings.numbers(linear), width)
                return self._wrap(self.settled(linear), width)
            case Truth(formula, _):
                return Truth(formula, width)
            case Node("zext" | "sext" as name, (inner,), _):
                if _width(inner) == width:
                    return inner
                return self._trunc((inner,), width) if _width(inner) > width else self.compute(name, (inner,), width)
            case Node("concat", (_, low), _):
                return low if _width(low) == width else self._trunc((low,), width)
            case Node("and" | "or" | "xor" as name, inner, _):
                narrow = tuple(self._trunc((o,), width) for o in inner)
                return self.compute(name, narrow, width)
        return Node("trunc", operands, width)

    def _zext(self, operands: tuple[Value, ...], width: int) -> Value:
        value = operands[0]
        match value:
            case Truth(formula, _):
                return Truth(formula, width)
            case Integer():
                return self._widened(value, width, False, "an unsigned value does not wrap around")
        return Node("zext", operands, width)

    def _sext(self, operands: tuple[Value, ...], width: int) -> Value:
        value = operands[0]
        if isinstance(value, Integer):
            return self._widened(value, width, True, "a signed value does not wrap around")
        return Node("sext", operands, width)

    def _widened(self, value: Integer, width: int, signed: bool, why: str) -> Integer:
        linear, needs = self.in_range(value, signed)
        if needs and self.address in self.widenings.addresses:
            return Integer(self.widenings.symbol(DeferredExtension(linear, needs, value.width, why)), width)
        for need in needs:
            self.require(need, why, value.width >= 32)
        return Integer(linear, width)

    def _high(self, operands: tuple[Value, ...], width: int) -> Value:
        value = operands[0]
        number = constant_of(value)
        if number is not None:
            return constant(number >> width, width)
        match value:
            case Node("concat", (high, _), _):
                return high
            case Node("zext", (inner,), _) if _width(inner) <= width:
                return constant(0, width)
        return Node("high", operands, width)

    def _concat(self, operands: tuple[Value, ...], width: int) -> Value:
        high, low = constant_of(operands[0]), constant_of(operands[1])
        if high is not None and low is not None:
            return constant(high << (width // 2) | low, width)
        match operands:
            case (Node("high", (first,), _), Node("trunc", (second,), _)) if first == second:
                return first
        if high == 0 and not isinstance(operands[1], Integer):
            return Node("zext", (operands[1],), width)
        return Node("concat", operands, width)

    # -- comparisons --------------------------------------------------------------------------------------------

    def _eq(self, operands: tuple[Value, ...], width: int) -> Value:
        return Truth(self._equal(operands))

    def _ne(self, operands: tuple[Value, ...], width: int) -> Value:
        return Truth(negate(self._equal(operands)))

    def _equal(self, operands: tuple[Value, ...]) -> Formula:
        if operands[0] == operands[1]:
            return True
        for value, other in (operands, operands[::-1]):
            if isinstance(value, Truth) and (known := constant_of(other)) in (0, 1):
                return value.formula if known else negate(value.formula)
        left, right = self.integer(operands[0]), self.integer(operands[1])
        if left is None or right is None:
            return Opaque(Node("eq", operands, 1))
        difference = left.linear - right.linear
        if difference.is_constant:
            return difference.constant % (1 << left.width) == 0
        (a, first), (b, second) = self.in_range(left, signed=True), self.in_range(right, signed=True)
        return Atom(a - b, True, first + second, left.width)

    def _slt(self, operands: tuple[Value, ...], width: int) -> Value:
        if constant_of(operands[1]) == 0 and self._is_overflow(operands[0]):
            return Truth(False)
        return Truth(negate(self._at_least(operands, signed=True)))

    def _is_overflow(self, value: Value) -> bool:
        """Whether the sign bit of ``value`` is the overflow flag of a sum; if so, no overflow becomes an obligation."""
        match value:
            case Node("and", (Node("xor", (Integer() as left, Integer() as right), width), Integer(inverse, _)), _):
                distance = right.linear - left.linear
                inverted = (inverse + right.linear + 1, inverse + left.linear + 1)
                if distance.is_constant and any(i.is_constant and not i.constant % (1 << width) for i in inverted):
                    for number in (left, right):
                        for need in self.in_range(number, signed=True)[1]:
                            self.require(need, "a sum does not overflow")
                    return self.in_range(right, True)[0] - self.in_range(left, True)[0] == Linear.of(
                        centred(distance.constant, width))
        return False

    def _sle(self, operands: tuple[Value, ...], width: int) -> Value:
        return Truth(self._at_least(operands[::-1], signed=True))

    def _ult(self, operands: tuple[Value, ...], width: int) -> Value:
        return Truth(negate(self._at_least(operands, signed=False)))

    def _ule(self, operands: tuple[Value, ...], width: int) -> Value:
        return Truth(self._at_least(operands[::-1], signed=False))

    def _at_least(self, operands: tuple[Value, ...], signed: bool) -> Formula:
        """The formula operands[0] >= operands[1]."""
        if operands[0] == operands[1]:
            return True
        left, right = self.integer(operands[0]), self.integer(operands[1])
        if left is None or right is None:
            return Opaque(Node("sle" if signed else "ule", operands[::-1], 1))
        (a, first), (b, second) = self.in_range(left, signed), self.in_range(right, signed)
        difference = a - b
        if difference.is_constant and not first and not second:
            return difference.constant >= 0
        return Atom(difference, False, first + second, left.width)

    def _select(self, operands: tuple[Value, ...], width: int) -> Value:
        match operands[0]:
            case Truth(bool() as known):
                return operands[1] if known else operands[2]
        known_bit = constant_of(operands[0])
        if known_bit is not None:
            return operands[1] if known_bit else operands[2]
        return Node("select", operands, width)

    def _condition(self, operands: tuple[Value, ...], width: int) -> Value:
        return self.condition(self, operands)

    def _carry(self, operands: tuple[Value, ...], width: int) -> Value:
        return self.condition(self, (None, *operands))

    def truth(self, value: Value) -> Formula:
        """A value of one bit as a formula."""
        number = constant_of(value)
        if number is not None:
            return bool(number & 1)
        return value.formula if isinstance(value, Truth) else Opaque(value)

    # Operator -> the rule for its result, given the operands and the width. Others stay nodes.
    _RULES: ClassVar[Mapping[str, Callable[[Algebra, tuple[Value, ...], int], Value]]] = {
        "add": _add, "sub": _sub, "mul": _mul, "shl": _shl, "shr": _shr, "sar": _sar,
        "and": _and, "or": _or, "xor": _xor, "not": _not,
        "trunc": _trunc, "zext": _zext, "sext": _sext, "high": _high, "concat": _concat,
        "eq": _eq, "ne": _ne, "slt": _slt, "sle": _sle, "ult": _ult, "ule": _ule,
        "select": _select, "condition": _condition, "carry": _carry,
    }


def _width(value: Value) -> int:
    return value.width
