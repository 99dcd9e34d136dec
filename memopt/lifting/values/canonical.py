"""Canonical form of values: equal values look equal, whichever instructions made them.

Examples: flags and masks of a floating-point comparison become ``flt``; a blend ``(m & a) | (~m & b)`` becomes a
``select``; a 64-bit product put together from 32-bit ones becomes ``mul``.

In: a value, a formula or a lifted nest. Out: the same with packing as bit fields (memopt.lifting.values.bits), masks
as selects and truth values as single bits. Afterwards a ``Truth`` has one bit and stands for a comparison of affine
numbers; every other truth value is a ``Node`` of one bit. Every rule is an identity on bit patterns.
"""

from __future__ import annotations

import functools
from dataclasses import field, replace

from memopt.ir.frozen import dataclass
from memopt.lifting.values.bits import base_and_offset, bitwise, concat, extract, inverted, mask, select, truth_of, zext
from memopt.lifting.values.loop_tree import CarriedValue, Guarded, Item, LoadEvent, LoopNode, StoreEvent
from memopt.lifting.values.values import (
    Atom,
    Carried,
    Either,
    Final,
    Formula,
    Integer,
    Loaded,
    Node,
    Not,
    Opaque,
    Truth,
    Value,
    constant,
    constant_of,
)

_LESS = {"fcompare": "flt", "fqcompare": "fqlt"}
_NOT_ABOVE = {"fcompare": "fle", "fqcompare": "fqle"}
_UNORDERED = {"fcompare": "fsunord", "fqcompare": "funord"}
_FLAGS = 0x45  # the flags that a floating-point comparison sets: carry, parity, zero


def canonical_nest(node: LoopNode) -> LoopNode:
    """``node`` with all its values in canonical form."""
    return _Rewriter().loop(node)


def canonical(value: Value) -> Value:
    """``value`` in canonical form."""
    return _Rewriter().value(value)


def canonical_formula(formula: Formula) -> Value:
    """``formula`` as a canonical value of one bit."""
    return _Rewriter()._formula(formula)


@dataclass(frozen=True, slots=True)
class _Rewriter:
    known: dict[Value, Value] = field(default_factory=dict)

    def loop(self, node: LoopNode) -> LoopNode:
        carried = tuple(CarriedValue(c.location, self.value(c.entry), self.value(c.following)) for c in node.carried)
        finals = tuple((place, self.value(v)) for place, v in node.finals)
        return replace(node, items=tuple(map(self.item, node.items)), carried=carried, finals=finals,
                       raising=tuple((self.value(r), under) for r, under in node.raising))

    def item(self, item: Item) -> Item:
        match item:
            case LoadEvent(condition=condition) if condition is not None:
                condition = self.value(condition)
                return replace(item, condition=None if constant_of(condition) == 1 else condition)
            case StoreEvent():
                return replace(item, value=self.value(item.value))
            case LoopNode():
                return self.loop(item)
            case Guarded():
                return replace(item, items=tuple(map(self.item, item.items)))
        return item

    def value(self, value: Value) -> Value:
        if not isinstance(value, Node | Truth):
            return value
        if value not in self.known:
            self.known[value] = self._known(value)
        return self.known[value]

    def _known(self, value: Node | Truth) -> Value:
        if isinstance(value, Truth):
            return zext(self._formula(value.formula), value.width)
        return made(value.operator, tuple(map(self.value, value.operands)), value.width)

    def _formula(self, formula: Formula) -> Value:
        match formula:
            case bool():
                return constant(int(formula), 1)
            case Opaque(value):
                return self.value(value)
            case Not(operand):
                return inverted(self._formula(operand))
            case Either(left, right):
                return bitwise("or", (self._formula(left), self._formula(right)))
            case Atom():
                return Truth(formula, 1)


def made(name: str, operands: tuple[Value, ...], width: int) -> Value:
    """The operation ``name`` on canonical operands, in canonical form."""
    first = operands[0]
    match name:
        case "trunc":
            return extract(first, 0, width)
        case "high":
            return extract(first, width, width)
        case "part" if (low := constant_of(operands[1])) is not None:
            return extract(first, low, width)
        case "concat":
            return concat(first, operands[1])
        case "zext":
            return zext(first, width)
        case "sext" if first.width == 1 or truth_of(first) is not None:
            return mask(truth_of(first) or first, width)
        case "and" | "or" | "xor" | "not":
            return bitwise(name, operands)
        case "select":
            return select(*operands)
        case "when" if constant_of(first) == 1:
            return operands[1]
        case "sar" if truth_of(first) is not None:
            return first
        case "eq" | "ne":
            found = _flag_test(operands) or _not_above(operands) or _bit_test(operands) or Node("eq", operands, 1)
            return found if name == "eq" else inverted(found)
        case "add":
            return _long_product(operands) or Node(name, _ordered(operands), width)
        case "mul":
            return Node(name, _ordered(operands), width)
    return Node(name, operands, width)


def _ordered(operands: tuple[Value, ...]) -> tuple[Value, ...]:
    """The operands of a commutative integer operation in a fixed order, which unrolled copies are likely to share."""
    return tuple(sorted(operands, key=_rank))


@functools.lru_cache(maxsize=1 << 12)
def _rank(value: Value) -> tuple[int, int]:
    match value:
        case Carried() | Final():
            return 0, 0
        case Loaded(event, _):
            return 1, event
        case Node(_, operands, _):
            return 2, min(_rank(o)[1] for o in operands)
    return 3, 0


def _long_product(operands: tuple[Value, ...]) -> Value | None:
    """The 64-bit product for which vector code has three 32-bit ones: ``(ah * bl + al * bh << 32) + al * bl``.

    ah, al, bh and bl are the upper and lower halves of a and b. None where the operands are no such sum.
    """
    for crossed, low in (operands, operands[::-1]):
        match crossed, low:
            case (Node("shl", (Node("add", (Node("mul", one, _), Node("mul", two, _)), _), count), 64),
                  Node("mul", (Node("zext", (left,), _), Node("zext", (right,), _)), _)) if (
                      constant_of(count) == left.width == right.width == 32):
                (a, first), (b, second) = base_and_offset(left), base_and_offset(right)
                halves = {frozenset((zext(extract(a, 32, 32), 64), zext(right, 64))),
                          frozenset((zext(extract(b, 32, 32), 64), zext(left, 64)))}
                if (a.width, b.width, first, second) == (64, 64, 0, 0) and {frozenset(one), frozenset(two)} == halves:
                    return Node("mul", _ordered((a, b)), 64)
    return None


def _bit_test(operands: tuple[Value, ...]) -> Value | None:
    """``t == 0`` or ``t == 1`` of a truth value or its extension, as the truth value or its negation."""
    for value, other in (operands, operands[::-1]):
        number = constant_of(other)
        match value:
            case Node("zext", (inner,), _) if inner.width == 1 and number in (0, 1):
                return inner if number else inverted(inner)
        if value.width == 1 and number is not None:
            return value if number else inverted(value)
        truth = truth_of(value)
        if truth is not None and number in (0, (1 << value.width) - 1):
            return truth if number else inverted(truth)
    return None


def _not_above(operands: tuple[Value, ...]) -> Value | None:
    """``(flags | flags >> 6) & 1 == number`` after a floating-point comparison (carry or zero) as ``flt``."""
    match operands:
        case (Node("and", (Node("or", (flags, Node("shr", (again, six), _)), _), one), _), other) if (
                flags == again and constant_of(six) == 6 and constant_of(one) == 1):
            number = constant_of(other)
        case _:
            return None
    while isinstance(flags, Node) and flags.operator == "zext":
        flags = flags.operands[0]
    match flags:
        case Node("and", (Node("fcompare" | "fqcompare" as name, (left, right), _), Integer() as kept), _) if (
                constant_of(kept) == 0x45):
            above = Node(_LESS[name], (right, left), 1)
            return above if number == 0 else inverted(above) if number == 1 else None
    return None


def _flag_test(operands: tuple[Value, ...]) -> Value | None:
    """A test that some flags of a floating-point comparison are all 0, or that one is 1, as a comparison."""
    value, other = operands
    mask, shift, number = -1, 0, constant_of(other)
    while isinstance(value, Node):
        match value:
            case Node("zext", (inner,), _):
                value = inner
            case Node("and", (inner, Integer() as chosen), _) if (kept := constant_of(chosen)) is not None:
                value, mask = inner, mask & kept
            case Node("shr", (inner, Integer() as moved), _) if (count := constant_of(moved)) is not None:
                value, mask, shift = inner, mask << count, shift + count
            case _:
                break
    bits = mask & _FLAGS
    match value:
        case Node("fcompare" | "fqcompare" as name, (left, right), _) if number is not None:
            clear = _all_clear(name, left, right, bits)
        case _:
            return None
    if clear is None or not number:
        return clear
    return inverted(clear) if number << shift == bits and bits.bit_count() == 1 else None


def _all_clear(name: str, left: Value, right: Value, bits: int) -> Value | None:
    """The truth value of: the comparison of ``left`` with ``right`` sets none of the flags ``bits``."""
    less, greater = Node(_LESS[name], (left, right), 1), Node(_LESS[name], (right, left), 1)
    match bits:
        case 0x41 | 0x45:  # carry and zero are clear: greater
            return greater
        case 0x01 | 0x05:
            return Node(_NOT_ABOVE[name], (right, left), 1)
        case 0x04:
            return inverted(Node(_UNORDERED[name], (left, right), 1))
        case 0x40 | 0x44:
            return bitwise("or", (less, greater))
    return None
