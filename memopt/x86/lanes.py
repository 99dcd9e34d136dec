"""Vector values as tuples of 64-bit lanes, and the helpers that the rules for VEX operators share.

A value of a type of 128 or 256 bits is a tuple of 64-bit lanes, the lowest first; every other value is one operand.
``split`` cuts a value into elements, ``join`` makes a value of elements.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from memopt.ir.operations import AS_MXCSR_SAYS, Literal, Operand
from memopt.x86.block_builder import BlockBuilder

Value = Operand | tuple[Operand, ...]
Rule = Callable[[BlockBuilder, "re.Match[str]", tuple[Value, ...]], Value]
FLOAT_ARITY = {"Add": 2, "Sub": 2, "Mul": 2, "Div": 2, "Min": 2, "Max": 2, "Sqrt": 1, "Neg": 1, "Abs": 1}


class UnknownOperator(Exception):
    """The VEX operator, or this use of it, is not modelled."""


def scalar(value: Value) -> Operand:
    """``value`` as one operand; raises ``UnknownOperator`` for a vector."""
    if isinstance(value, tuple):
        raise UnknownOperator("vector where a scalar is expected")
    return value


def lanes(value: Value) -> tuple[Operand, ...]:
    """The 64-bit lanes of a vector, the lowest first; raises ``UnknownOperator`` for a scalar."""
    if not isinstance(value, tuple):
        raise UnknownOperator("scalar where a vector is expected")
    return value


def _halves(b: BlockBuilder, value: Operand, width: int) -> list[Operand]:
    own = b.width(value)
    if own == width:
        return [value]
    low, high = b.compute("trunc", (value,), own // 2), b.compute("high", (value,), own // 2)
    return _halves(b, low, width) + _halves(b, high, width)


def split(b: BlockBuilder, value: Value, width: int) -> list[Operand]:
    """The elements of ``width`` bits of a vector (or of one lane), lowest first."""
    parts = value if isinstance(value, tuple) else (value,)
    return [element for lane in parts for element in _halves(b, lane, width)]


def join(b: BlockBuilder, elements: list[Operand], width: int) -> Value:
    """The vector (or the one lane) made of elements of ``width`` bits, lowest first."""
    while width < 64:
        elements = [b.compute("concat", (high, low), 2 * width)
                    for low, high in zip(elements[::2], elements[1::2], strict=True)]
        width *= 2
    return tuple(elements) if len(elements) > 1 else elements[0]


# -- rounding ------------------------------------------------------------------------------------------------------


def _follows_mxcsr(b: BlockBuilder, mode: Operand) -> bool:
    """Whether ``mode`` is the rounding mode of MXCSR, or VEX's constant 0, which stands for it."""
    if mode == Literal(0, 32):
        return True
    inner = b.is_a(mode, "trunc", "and", "zext")
    while inner:
        mode = inner.operands[0]
        inner = b.is_a(mode, "trunc", "and", "zext")
    return mode == b.locations.get("mxcsr_round")


def rounding(b: BlockBuilder, mode: Value) -> Literal:
    """The rounding operand (``memopt.ir.operations``) for VEX's rounding mode of an operator that has one of its own.

    Raises ``UnknownOperator`` for a mode that is neither a literal nor MXCSR's.
    """
    operand = scalar(mode)
    if isinstance(operand, Literal):
        return Literal(operand.value & 3, 32)
    if not _follows_mxcsr(b, operand):
        raise UnknownOperator("rounding mode")
    return Literal(AS_MXCSR_SAYS, 32)


def without_rounding(b: BlockBuilder, operands: tuple[Value, ...], count: int) -> tuple[Value, ...]:
    """The ``count`` operands of an operator, without the rounding mode that VEX may put in front of them.

    Raises ``UnknownOperator`` for a rounding mode other than MXCSR's.
    """
    if len(operands) == count:
        return operands
    if len(operands) != count + 1 or not _follows_mxcsr(b, scalar(operands[0])):
        raise UnknownOperator("rounding mode")
    return operands[1:]
