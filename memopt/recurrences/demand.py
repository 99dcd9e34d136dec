"""Demanded bits: which bits of each value an effect depends on.

Example: ``addss xmm0, xmm1`` keeps the upper half of the lane, which nobody looks at. Without demanded bits, each sum
of single precision would carry a second value, the upper half, from one iteration to the next.

In: the values of a function. Out: the operands of each value that an effect depends on. The rules are those of LLVM's
DemandedBits; an operator without a rule demands all bits of its operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memopt.recurrences.values import LITERAL, PHI, Value, Values


def demanded(values: Values) -> Mapping[Value, frozenset[Value]]:
    """The operands of each value, and of each effect, that an effect depends on. A value on which no effect depends is
    missing."""
    masks: dict[Value, int] = {}
    edges: dict[Value, frozenset[Value]] = {}
    pending: list[Value] = []
    for effect in values.effects:
        edges[effect] = frozenset(values.operands(effect))
        for operand in edges[effect]:
            _demand(operand, _all(operand.width), masks, pending)
    while pending:
        value = pending.pop()
        found = [(operand, mask) for operand, mask in _of(values, value, masks[value]) if mask]
        edges[value] = frozenset(operand for operand, _ in found)
        for operand, mask in found:
            _demand(operand, mask, masks, pending)
    return edges


def _all(width: int) -> int:
    return (1 << width) - 1


def _demand(value: Value, mask: int, masks: dict[Value, int], pending: list[Value]) -> None:
    old = masks.get(value, 0)
    if mask & ~old:
        masks[value] = old | mask
        pending.append(value)


def _of(values: Values, value: Value, mask: int) -> Iterator[tuple[Value, int]]:
    """The operands of ``value`` with the bits that the bits ``mask`` of the value depend on."""
    operands = values.operands(value)
    match value.operator, operands:
        case (operator, _) if operator == PHI:
            yield from ((operand, mask) for operand in operands)
        case "trunc", (one,):
            yield one, mask
        case "zext", (one,):
            yield one, mask & _all(one.width)
        case "high", (one,):
            yield one, mask << value.width
        case "concat", (high, low):
            yield from ((high, mask >> low.width), (low, mask & _all(low.width)))
        case ("and", (one, other)) if other.operator == LITERAL:
            yield one, mask & other.number
        case ("or" | "xor" | "and" | "not", _):
            yield from ((operand, mask) for operand in operands)
        case "select", (condition, one, other):
            yield from ((condition, 1), (one, mask), (other, mask))
        case ("shl", (one, other)) if other.operator == LITERAL:
            yield one, mask >> other.number
        case ("shr", (one, other)) if other.operator == LITERAL:
            yield one, mask << other.number & _all(one.width)
        case ("add" | "sub" | "mul", _):  # a bit depends on those below it
            yield from ((operand, _all(mask.bit_length())) for operand in operands)
        case _:
            yield from ((operand, _all(operand.width)) for operand in operands)
