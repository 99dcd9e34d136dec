"""Comparisons of floating-point numbers that the region never changes go one way: that of the captured numbers.

The code for ``beta == 0`` inside a nest is such a one. What is decided holds as long as the registers hold the same
numbers at entry, which becomes a guard. A NaN is not decided: its comparison may raise a flag in every iteration;
nor is a subnormal number, which the processor may be told to take for zero.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Mapping

from memopt.ir.linear import Linear
from memopt.ir.scop import ElementType
from memopt.lifting.values.canonical import canonical
from memopt.lifting.values.values import Integer, LiveVector, Node, Value, constant_of

Fixed = dict[tuple[str, ElementType], bytes]
"""Lanes ("xmm2.0") that hold these numbers at entry."""

COMPARISONS = ("fcompare", "fqcompare")
_LESS, _EQUAL, _GREATER = 0x01, 0x40, 0x00  # as in memopt.ir.operations
_NUMBERS = {32: (ElementType.F32, "<f", 2.0 ** -126), 64: (ElementType.F64, "<d", sys.float_info.min)}


def compared(left: Value, right: Value, vectors: Mapping[str, bytes], fixed: Fixed) -> int | None:
    """The flags of a comparison, None when an operand may change or is not known; adds to ``fixed``."""
    found: Fixed = {}
    one, two = (_number(v, vectors, found) for v in (left, right))
    if one is None or two is None:
        return None
    fixed |= found
    return _LESS if one < two else _GREATER if one > two else _EQUAL


def normal(value: Value, vectors: Mapping[str, bytes], fixed: Fixed) -> bool:
    """Whether ``value`` is one number throughout, zero or normal; adds to ``fixed``."""
    found: Fixed = {}
    known = _number(value, vectors, found) is not None
    fixed |= found if known else {}
    return known


def _number(value: Value, vectors: Mapping[str, bytes], found: Fixed) -> float | None:
    match value:
        case Node("f32to64", (single,), _):  # as single precision is compared
            return _number(single, vectors, found)
    if value.width not in _NUMBERS:
        return None
    element, form, smallest = _NUMBERS[value.width]
    match canonical(value):
        case Integer() as literal if (bits := constant_of(literal)) is not None:
            held = bits.to_bytes(element.size, "little")
        case LiveVector(location) | Node("part", (LiveVector(location), Integer(Linear((), 0))), 32):
            name, _, number = location.partition(".")
            held = vectors.get(name, b"")[8 * int(number):][:element.size]
            if len(held) < element.size:
                return None
            found[location, element] = held
        case _:
            return None
    result: float = struct.unpack(form, held)[0]
    return None if math.isnan(result) or 0 < abs(result) < smallest else result
