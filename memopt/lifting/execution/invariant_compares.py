"""Loop-invariant floating-point comparisons, decided by the captured numbers.

Example: ``for (...) for (...) { if (beta == 0.0) c[i] = s; else c[i] = beta * c[i] + s; }``. beta stays in a lane of a
vector register that the region never writes, so the comparison has one result throughout.

In: the operands, the captured vector registers. Out: the flags of the comparison, and in ``fixed`` the lanes with their
numbers. A guard compares these lanes at entry. Two kinds of numbers decide nothing: a NaN, whose comparison may raise a
flag in every iteration, and a subnormal number, which the processor takes for zero if MXCSR says so.
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
"""Lanes ("xmm2.0") and the type they are read as, with the bytes that they must hold at entry."""

COMPARISONS = ("fcompare", "fqcompare")
_LESS, _EQUAL, _GREATER = 0x01, 0x40, 0x00  # as in memopt.ir.operations
_NUMBERS = {32: (ElementType.F32, "<f", 2.0 ** -126), 64: (ElementType.F64, "<d", sys.float_info.min)}


def comparison_flags(left: Value, right: Value, vectors: Mapping[str, bytes], fixed: Fixed) -> int | None:
    """The flags of a comparison, as ucomisd sets them; None if an operand may change or is not known.

    ``vectors``: captured bytes of the vector registers. The lanes that were used are added to ``fixed``.
    """
    found: Fixed = {}
    one, two = (_number(v, vectors, found) for v in (left, right))
    if one is None or two is None:
        return None
    fixed |= found
    return _LESS if one < two else _GREATER if one > two else _EQUAL


def is_normal(value: Value, vectors: Mapping[str, bytes], fixed: Fixed) -> bool:
    """Whether ``value`` is the same number in all iterations, zero or normal. Adds its lane to ``fixed``."""
    found: Fixed = {}
    known = _number(value, vectors, found) is not None
    fixed |= found if known else {}
    return known


def _number(value: Value, vectors: Mapping[str, bytes], found: Fixed) -> float | None:
    """The number that ``value`` is throughout; None for a NaN, for a subnormal number or if it is not known."""
    match value:
        case Node("f32to64", (single,), _):  # single precision is compared after this exact conversion
            return _number(single, vectors, found)
    if value.width not in _NUMBERS:
        return None
    element, form, smallest = _NUMBERS[value.width]
    match canonical(value):
        case Integer() as literal if (bits := constant_of(literal)) is not None:
            raw = bits.to_bytes(element.size, "little")
        case LiveVector(location) | Node("part", (LiveVector(location), Integer(Linear((), 0))), 32):
            name, _, number = location.partition(".")
            raw = vectors.get(name, b"")[8 * int(number):][:element.size]
            if len(raw) < element.size:
                return None
            found[location, element] = raw
        case _:
            return None
    result: float = struct.unpack(form, raw)[0]
    return None if math.isnan(result) or 0 < abs(result) < smallest else result
