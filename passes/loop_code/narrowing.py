"""Type narrowing: integer arithmetic in the fewest bits that give the same result, so that a vector has more lanes.

Example: C promotes ``uint8_t c = a + b`` to ``int``. ``trunc.i8(add.i32(zext.i32(a), zext.i32(b)))`` is
``add.i8(a, b)``.

In: an expression, the types of its reads. Out: an expression of the same type and value. Addition, subtraction,
multiplication, left shifts and bitwise operators need no more bits than their result has. Right shifts, minima and
maxima need all bits that their operands can have set; interval arithmetic finds these. It is exact, because integer
operations wrap around and raise no flags. Floating-point operations are left as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memopt.ir.evaluate import signed
from memopt.ir.frozen import dataclass
from memopt.ir.scop import Apply, Constant, ElementType, Expression, Index, Read

_BY_BITS = {8: ElementType.I8, 16: ElementType.I16, 32: ElementType.I32, 64: ElementType.I64}
_MODULAR = ("add", "sub", "mul", "and", "or", "xor", "andnot", "not")
_EXTREMES = {"smin": "umin", "smax": "umax", "umin": "umin", "umax": "umax"}

Interval = tuple[int, int]
"""Least and greatest value of an operand, its bits read as a signed number."""


def narrowed(expression: Expression, reads: Sequence[ElementType]) -> Expression:
    """An expression of the same type and value as ``expression``, in fewer bits; ``reads``: the types of its reads."""
    return _Narrowing(tuple(reads)).narrow(expression)


@dataclass(frozen=True, slots=True)
class _Narrowing:
    reads: tuple[ElementType, ...]

    def element(self, node: Expression) -> ElementType:
        return self.reads[node.index] if isinstance(node, Read) else node.element

    def narrow(self, node: Expression) -> Expression:
        if not isinstance(node, Apply):
            return node
        if node.operator == "trunc":
            return self.to(node.operands[0], node.element)
        return replace(node, operands=tuple(map(self.narrow, node.operands)))

    def to(self, node: Expression, element: ElementType) -> Expression:
        """``node`` truncated to ``element``, which is at most as wide, with the truncation moved into its operands."""
        if self.element(node).size == element.size:
            return self.narrow(node)
        if isinstance(node, Constant):
            return Constant(node.bits & (1 << 8 * element.size) - 1, element)
        if isinstance(node, Index) and element is ElementType.I32:
            return Index(node.value, element)
        if isinstance(node, Apply):
            return self._operation(node, element)
        return Apply("trunc", (node,), element)

    def _operation(self, node: Apply, element: ElementType) -> Expression:
        name, operands = node.operator, node.operands
        if name in ("sext", "zext"):
            source = self.element(operands[0])
            if source.size >= element.size:
                return self.to(operands[0], element)
            return Apply(name, (self.narrow(operands[0]),), element)
        if name == "trunc":
            return self.to(operands[0], element)
        if name in _MODULAR:
            return Apply(name, tuple(self.to(o, element) for o in operands), element)
        if name == "select":
            return Apply(name, (self.narrow(operands[0]), *(self.to(o, element) for o in operands[1:])), element)
        if name == "shl" and isinstance(operands[1], Constant):
            if operands[1].bits >= 8 * element.size:
                return Constant(0, element)
            return Apply(name, (self.to(operands[0], element), operands[1]), element)
        found = self._bounded(node, element)
        return Apply("trunc", (self.narrow(node),), element) if found is None else found

    def _bounded(self, node: Apply, element: ElementType) -> Expression | None:
        """A right shift, minimum or maximum in the narrowest type that holds all values of its operands; else None."""
        shift = node.operator in ("shr", "sar") and isinstance(node.operands[1], Constant)
        if not shift and node.operator not in _EXTREMES:
            return None
        values = node.operands[:1] if shift else node.operands
        count = node.operands[1].bits if shift and isinstance(node.operands[1], Constant) else 0
        intervals = [self.interval(v) for v in values]
        low, high = min(i[0] for i in intervals), max(i[1] for i in intervals)
        for bits, kind in _BY_BITS.items():
            if bits < 8 * element.size or bits >= 8 * self.element(node).size or count >= bits:
                continue
            if low >= 0 and high < 1 << bits:
                name = "shr" if shift else _EXTREMES[node.operator]
            elif node.operator in ("sar", "smin", "smax") and -(1 << bits - 1) <= low and high < 1 << bits - 1:
                name = node.operator
            else:
                continue
            operands = tuple(self.to(v, kind) for v in values) + (node.operands[1:] if shift else ())
            found = Apply(name, operands, kind)
            return found if kind is element else self.to(found, element) if kind.size == element.size \
                else Apply("trunc", (found,), element)
        return None

    def interval(self, node: Expression) -> Interval:
        bits = 8 * self.element(node).size
        whole = -(1 << bits - 1), (1 << bits - 1) - 1
        found = self._interval(node, bits)
        return found if found is not None and whole[0] <= found[0] and found[1] <= whole[1] else whole

    def _interval(self, node: Expression, bits: int) -> Interval | None:
        if isinstance(node, Constant):
            value = signed(node.bits, bits)
            return value, value
        if not isinstance(node, Apply):
            return None
        name, operands = node.operator, node.operands
        if name == "zext":
            low, high = self.interval(operands[0])
            return (low, high) if low >= 0 else (0, (1 << 8 * self.element(operands[0]).size) - 1)
        if name == "sext":
            return self.interval(operands[0])
        if name in ("shl", "shr", "sar"):
            return self._shifted(name, operands, bits)
        if name not in ("add", "sub", "mul", "and", "select", "smin", "smax"):
            return None
        (a, b), (c, d) = (self.interval(o) for o in operands[-2:])
        if name == "and":
            tops = [high for low, high in ((a, b), (c, d)) if low >= 0]
            return (0, min(tops)) if tops else None
        products = (a * c, a * d, b * c, b * d)
        return {"add": (a + c, b + d), "sub": (a - d, b - c), "mul": (min(products), max(products)),
                "select": (min(a, c), max(b, d)), "smin": (min(a, c), min(b, d)),
                "smax": (max(a, c), max(b, d))}[name]

    def _shifted(self, name: str, operands: tuple[Expression, ...], bits: int) -> Interval | None:
        if not isinstance(operands[1], Constant) or operands[1].bits >= bits:
            return None
        (low, high), count = self.interval(operands[0]), operands[1].bits
        if name == "shl":
            return low << count, high << count
        if name == "shr" and low < 0:
            return (0, (1 << bits - count) - 1) if count else None
        return low >> count, high >> count
