"""Bit fields: which bits of a register or of a loaded cell a value is, through packing and unpacking.

Example: the upper half of ``concat(high, low)`` is ``high``; ``(x >> 8) & 0xff`` is ``part(x, 8, 8)``.

``part(value, low, width)`` is the bits [low, low + width). In: canonical values. Out: canonical values: a part of a
part is a part of the base; a part that no rule resolves is ``Node("part", (base, low), width)``. Every rule is an
identity on bit patterns. A truth value is a value of one bit. A mask is the sign extension of one: all ones or all
zeros.
"""

from __future__ import annotations

import functools

from memopt.ir.linear import Linear
from memopt.lifting.values.values import Integer, Node, Truth, Value, centred, constant, constant_of


def extract(value: Value, low: int, width: int) -> Value:
    """Bits [low, low + width) of a canonical value, canonical again."""
    if width == value.width:
        return value
    match value:
        case Integer(linear, _) if linear.is_constant:
            return constant(linear.constant >> low & ((1 << width) - 1), width)
        case Integer(linear, _) if low == 0:
            return Integer(Linear(linear.terms, centred(linear.constant, width)), width)
        case Truth(formula, _) if low == 0:
            return Truth(formula, width)
        case Node():
            return _part_of_node(value, low, width)
    return _opaque(value, low, width)


def _opaque(value: Value, low: int, width: int) -> Node:
    if width == 1 and low + 1 in (8, 16, 32, 64):  # the sign bit
        return Node("slt", (extract(value, 0, low + 1), constant(0, low + 1)), 1)
    return Node("part", (value, constant(low, 16)), width)


@functools.lru_cache(maxsize=1 << 14)
def _part_of_node(node: Node, low: int, width: int) -> Value:
    name, operands, whole = node.operator, node.operands, node.width
    inner = operands[0]
    match name:
        case "part":
            return extract(inner, low + _number(operands[1]), width)
        case "concat" if low >= whole // 2:
            return extract(inner, low - whole // 2, width)
        case "concat" if low + width <= whole // 2:
            return extract(operands[1], low, width)
        case "sext" if inner.width == 1:
            return mask(inner, width)
        case "zext" | "sext" if low + width <= inner.width:
            return extract(inner, low, width)
        case "zext" if low >= inner.width:
            return constant(0, width)
        case "zext" | "sext" if low == 0:
            return Node(name, operands, width)
        case "and" | "or" | "xor" | "not":
            return bitwise(name, tuple(extract(o, low, width) for o in operands))
        case "select":
            return select(inner, extract(operands[1], low, width), extract(operands[2], low, width))
        case "when":
            return Node(name, (inner, extract(operands[1], low, width)), width)
        case "shr" | "sar" if (count := constant_of(operands[1])) is not None and low + count + width <= whole:
            return extract(inner, low + count, width)
        case "shl" if (count := constant_of(operands[1])) is not None:
            return _part_of_left_shift(node, count, low, width)
        case "add" | "sub" | "mul" if low == 0 and width >= 8:  # modulo a power of two
            return Node(name, tuple(extract(o, 0, width) for o in operands), width)
    return _opaque(node, low, width)


def _part_of_left_shift(node: Node, count: int, low: int, width: int) -> Value:
    inner = node.operands[0]
    if low >= count:
        return extract(inner, low - count, width)
    if low + width <= count:
        return constant(0, width)
    if low == 0 and width > 1:
        return Node("shl", (extract(inner, 0, width), node.operands[1]), width)
    return _opaque(node, low, width)


def base_and_offset(value: Value) -> tuple[Value, int]:
    """The base that ``value`` is a part of, and the lowest bit of the part in it."""
    if isinstance(value, Node) and value.operator == "part":
        return value.operands[0], _number(value.operands[1])
    return value, 0


def _number(value: Value) -> int:
    number = constant_of(value)
    assert number is not None
    return number


# -- joining, masks, choices ----------------------------------------------------------------------------------------


def concat(high: Value, low: Value) -> Value:
    """The value twice as wide with these halves. Precondition: they have the same width."""
    whole, above = base_and_offset(high)
    below = above - low.width
    if below >= 0 and extract(whole, below, low.width) == low:
        return extract(whole, below, 2 * low.width)
    match high:
        case Node("sar", (inner, count), width) if (shift := constant_of(count)) is not None:
            whole, above = base_and_offset(inner)
            below = above - width
            if below >= 0 and extract(whole, below + shift, width) == low:
                return Node("sar", (extract(whole, below, 2 * width), count), 2 * width)
    one, two = constant_of(high), constant_of(low)
    if one is not None and two is not None:
        return constant(one << low.width | two, 2 * low.width)
    if one == 0:
        return zext(low, 2 * low.width)
    truth, other = truth_of(high), truth_of(low)
    if truth is not None and truth == other:
        return mask(truth, 2 * low.width)
    return Node("concat", (high, low), 2 * low.width)


def zext(value: Value, width: int) -> Value:
    """The zero extension of ``value`` to ``width`` bits."""
    number = constant_of(value)
    if number is not None:
        return constant(number, width)
    match value:
        case Node("zext", (inner,), _):
            return Node("zext", (inner,), width)
    return value if value.width == width else Node("zext", (value,), width)


def mask(truth: Value, width: int) -> Value:
    """``width`` bits that all are ``truth``, a value of one bit."""
    known = constant_of(truth)
    if known is not None:
        return constant(-known, width)
    return truth if width == 1 else Node("sext", (truth,), width)


def truth_of(value: Value) -> Value | None:
    """The truth value that the mask ``value`` repeats; None where ``value`` is not known to be a mask."""
    match value:
        case Node("sext", (inner,), _) if inner.width == 1:
            return inner
    return value if value.width == 1 and constant_of(value) is None else None


def inverted(truth: Value) -> Value:
    """The negation of ``truth``, a value of one bit."""
    known = constant_of(truth)
    if known is not None:
        return constant(1 - known, 1)
    match truth:
        case Node("not", (inner,), 1):
            return inner
    return Node("not", (truth,), 1)


def select(truth: Value, first: Value, second: Value) -> Value:
    """``first`` where ``truth`` holds, else ``second``."""
    known = constant_of(truth)
    if known is not None or first == second:
        return second if known == 0 else first
    match truth:
        case Node("not", (inner,), 1):
            return select(inner, second, first)
    width = first.width
    if (constant_of(first), constant_of(second)) == ((1 << width) - 1, 0):
        return mask(truth, width)
    if (constant_of(first), constant_of(second)) == (0, (1 << width) - 1):
        return mask(inverted(truth), width)
    return _extreme(truth, first, second) or Node("select", (truth, first, second), width)


def _extreme(truth: Value, first: Value, second: Value) -> Value | None:
    """A select as a minimum or maximum: x86's are exactly ``a < b ? a : b`` and ``a > b ? a : b``, for NaNs too."""
    match truth:
        case Node("flt", (left, right), 1) if (left, right) == (first, second):
            return Node("fmin", (first, second), first.width)
        case Node("flt", (left, right), 1) if (right, left) == (first, second):
            return Node("fmax", (first, second), first.width)
        case Node("slt" | "sle" | "ult" | "ule" as name, (left, right), 1) if {left, right} == {first, second}:
            return Node(f"{name[0]}{'min' if left == first else 'max'}", (first, second), first.width)
    return None


def bitwise(name: str, operands: tuple[Value, ...]) -> Value:
    """``and``, ``or``, ``xor`` or ``not`` of canonical values; a blend by masks becomes a ``select``."""
    width = operands[0].width
    if name == "not":
        return _complement(operands[0])
    left, right = operands if constant_of(operands[0]) is None else operands[::-1]
    for value, other in ((left, right), (right, left)):
        number = constant_of(value)
        if number == 0:
            return constant(0, width) if name == "and" else other
        if number == (1 << width) - 1:
            return other if name == "and" else value if name == "or" else _complement(other)
    if left == right:
        return constant(0, width) if name == "xor" else left
    if width > 1:
        found = _masked(name, left, right) or _extended(name, left, right)
        if name in ("or", "xor"):
            found = found or _side_by_side(left, right) or _side_by_side(right, left)
        if found is not None:
            return found
    return Node(name, (left, right), width)


def _complement(value: Value) -> Value:
    number = constant_of(value)
    if number is not None:
        return constant(~number, value.width)
    match value:
        case Node("not", (inner,), _):
            return inner
        case Node("sext", (truth,), width) if truth.width == 1:
            return mask(inverted(truth), width)
    return Node("not", (value,), value.width)


def _masked(name: str, left: Value, right: Value) -> Value | None:
    width = left.width
    one, two = truth_of(left), truth_of(right)
    if one is not None and two is not None:
        return mask(bitwise(name, (one, two)), width)
    zero = constant(0, width)
    if name == "and":
        for truth, other in ((one, right), (two, left)):
            if truth is not None:
                return select(truth, other, zero)
    match left, right:
        case Node("select", (condition, first, second), _), Node("select", (same, third, fourth), _) if (
                condition == same and name == "or"):
            if second == zero == third:
                return select(condition, first, fourth)
            if first == zero == fourth:
                return select(condition, third, second)
    return None


def _extended(name: str, left: Value, right: Value) -> Value | None:
    """A zero extension where the result is one: of ``x & 0xff``, and of two zero extensions from the same width."""
    number = constant_of(right)
    if name == "and" and number in (0xFF, 0xFFFF, 0xFFFFFFFF):
        return zext(extract(left, 0, number.bit_length()), left.width)
    match left, right:
        case Node("zext", (inner,), width), Integer() if name == "and" and number is not None:
            kept = constant(number & ((1 << inner.width) - 1), inner.width)
            return zext(bitwise("and", (inner, kept)), width)
        case Node("zext", (one,), width), Node("zext", (two,), _) if one.width == two.width:
            return zext(bitwise(name, (one, two)), width)
        case Node("and", (inner, Integer() as other), width), Integer() if name == "and" and number is not None:
            first = constant_of(other)
            return None if first is None else bitwise("and", (inner, constant(first & number, width)))
    return None


def _side_by_side(left: Value, right: Value) -> Value | None:
    """``x << 8 | y`` of two bytes (or wider halves) as their concatenation."""
    match left, right:
        case Node("shl", (Node("zext", (one,), _), count), width), Node("zext", (two,), _) if (
                one.width == two.width == constant_of(count) and one.width >= 8):
            return zext(concat(one, two), width)
    return None
