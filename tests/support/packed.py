"""Random values that pack and unpack bits, and the bits that they have."""

from __future__ import annotations

import random
from collections.abc import Callable

from memopt.ir.evaluate import evaluate
from memopt.lifting.values.values import Loaded, Node, Value, constant, constant_of

CELLS = {0: 0x8123_4567_89AB_CDEF, 1: 0xFEDC_BA98_7654_3210, 2: 0x0000_0000_FFFF_0080}


def bits_of(value: Value) -> int:
    """The bits of ``value`` where the loads have read ``CELLS``."""
    match value:
        case Loaded(event, width):
            return CELLS[event] % (1 << width)
        case Node("part", (base, low), width):
            return bits_of(base) >> bits_of(low) & ((1 << width) - 1)
        case Node("umin" | "umax" as operator, operands, _):
            return (min if operator == "umin" else max)(map(bits_of, operands))
        case Node(operator, operands, width):
            found = evaluate(operator, tuple(map(bits_of, operands)), tuple(o.width for o in operands), width)
            assert found is not None
            return found
    number = constant_of(value)
    assert number is not None
    return number


def drawn(source: random.Random, depth: int, width: int) -> Value:
    """A random value of ``width`` bits from loads, numbers, and operations that pack and unpack."""
    if depth == 0:
        return source.choice((Loaded(source.randrange(3), width),
                              constant(source.choice((0, 1, 0xFF, -1, source.getrandbits(width))), width)))

    def inner(wide: int = width) -> Value:
        return drawn(source, depth - 1, wide)

    made: list[Callable[[], Node]] = [
        lambda: Node(source.choice(("and", "or", "xor")), (inner(), inner()), width),
        lambda: Node("not", (inner(),), width),
        lambda: Node(source.choice(("shl", "shr", "sar")), (inner(), constant(source.randrange(width), 8)), width),
        lambda: Node("select", (Node("ult", (inner(8), inner(8)), 1), inner(), inner()), width)]
    made += [lambda: Node("sext", (Node("ult", (inner(8), inner(8)), 1),), width)]
    if width > 8:
        made += [lambda: Node(source.choice(("zext", "sext")), (inner(width // 2),), width),
                 lambda: Node("concat", (inner(width // 2), inner(width // 2)), width)]
    if width < 64:
        made += [lambda: Node(source.choice(("trunc", "high")), (inner(2 * width),), width)]
    return source.choice(made)()
