"""Evaluation (constant folding) of the integer operators of memopt.ir.operations on numbers.

In: bit patterns and their widths. Out: the bit pattern of the result, or None where there is none.
"""

from __future__ import annotations

from collections.abc import Callable


def signed(value: int, width: int) -> int:
    """``value``, a bit pattern of ``width`` bits, as a two's complement number."""
    return value - (1 << width) if value >> (width - 1) & 1 else value


def evaluate(operator: str, values: tuple[int, ...], widths: tuple[int, ...], width: int) -> int | None:
    """The ``width``-bit result of an integer operator on bit patterns; ``widths`` are the operands' widths.

    None if the operator is no integer operator or has no defined result here: a division by zero or with overflow, a
    shift count that is not below the width.
    """
    if operator in _UNSIGNED:
        result = _UNSIGNED[operator](*values)
    elif operator in _SIGNED:
        result = _SIGNED[operator](*(signed(v, w) for v, w in zip(values, widths, strict=True)))
    elif operator in ("shl", "shr", "sar"):
        if values[1] >= width:
            return None
        value = signed(values[0], width) if operator == "sar" else values[0]
        result = value << values[1] if operator == "shl" else value >> values[1]
    elif operator in ("udiv", "umod", "sdiv", "smod"):
        return _divide(operator, values, widths, width)
    elif operator in ("umulhi", "smulhi"):
        left, right = values if operator == "umulhi" else (signed(v, width) for v in values)
        result = left * right >> width
    elif operator == "high":
        result = values[0] >> width
    elif operator == "concat":
        result = values[0] << widths[1] | values[1]
    elif operator in ("clz", "ctz"):
        lowest = (values[0] & -values[0]).bit_length() - 1 if values[0] else width
        result = width - values[0].bit_length() if operator == "clz" else lowest
    else:
        return None
    return result & ((1 << width) - 1)


def _divide(operator: str, values: tuple[int, ...], widths: tuple[int, ...], width: int) -> int | None:
    left, right = values if operator[0] == "u" else (signed(v, w) for v, w in zip(values, widths, strict=True))
    if right == 0:
        return None
    quotient = abs(left) // abs(right)
    if (left < 0) != (right < 0):
        quotient = -quotient
    if operator == "sdiv" and quotient == 1 << (width - 1):
        return None
    return (quotient if operator.endswith("div") else left - quotient * right) & ((1 << width) - 1)


_UNSIGNED: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
    "trunc": lambda a: a,
    "zext": lambda a: a,
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "ult": lambda a, b: int(a < b),
    "ule": lambda a, b: int(a <= b),
    "select": lambda c, a, b: a if c else b,
}
_SIGNED: dict[str, Callable[..., int]] = {
    "sext": lambda a: a,
    "slt": lambda a, b: int(a < b),
    "sle": lambda a, b: int(a <= b),
}
