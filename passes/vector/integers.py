"""Integer operators on vectors. Where an instruction set lacks one, a sequence gives the same result modulo 2**bits.

Example: SSE2 has no 32-bit ``pmulld``; two ``pmuludq`` (even and odd elements) and shuffles give the same.

Integer instructions raise no flags, so they may compute on bytes of unknown content and need no mask.
"""

from __future__ import annotations

from collections.abc import Callable

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import ElementType
from passes.vector.instructions import I8, I16, I32, I64, VectorCode, VectorValue, letter

Constants = Callable[[int, ElementType], VectorValue]
"""Gives a value with the constant in every lane: one that exists already, or a new temporary."""

# Minimum and maximum: the instruction; else the comparison to select by, and whether its operands are swapped.
EXTREMES = {"smin": ("pmins", "slt", False), "smax": ("pmaxs", "slt", True),
            "umin": ("pminu", "ult", False), "umax": ("pmaxu", "ult", True)}


def add(code: VectorCode, element: ElementType, first: VectorValue, second: VectorValue,
        target: str | None = None) -> VectorValue:
    """Addition modulo 2**bits."""
    return code.binary("padd" + letter(element), element, first, second, target, broadcasts=True)


def subtract(code: VectorCode, element: ElementType, first: VectorValue, second: VectorValue,
             target: str | None = None) -> VectorValue:
    """Subtraction modulo 2**bits."""
    return code.binary("psub" + letter(element), element, first, second, target, broadcasts=True)


def multiply(code: VectorCode, element: ElementType, first: VectorValue, second: VectorValue,
             target: str | None = None) -> VectorValue:
    """Multiplication modulo 2**bits: one instruction, or a sequence for bytes, 64 bits, and 32 bits on SSE2."""
    if element is I16:
        return code.binary("pmullw", element, first, second, target)
    if element is I32 and code.unit.three_operands:
        return code.binary("pmulld", element, first, second, target, broadcasts=True)
    first, second = code.in_register(first, element), code.in_register(second, element)
    sequence = {I64: _multiply_quadwords, I32: _multiply_doublewords, I8: _multiply_bytes}[element]
    return sequence(code, first, second, target)


def multiply_extended(code: VectorCode, signed: bool, first: VectorValue, second: VectorValue,
                      target: str | None = None) -> VectorValue:
    """The product of 64-bit values that are extensions of 32-bit ones. SSE2 does not have the signed form."""
    return code.binary("pmuldq" if signed else "pmuludq", I64, first, second, target, broadcasts=True)


def _multiply_quadwords(code: VectorCode, first: VectorValue, second: VectorValue, target: str | None) -> VectorValue:
    """low * low + ((high * low + low * high) << 32), from products of 32-bit halves."""
    left = code.binary("pmuludq", I64, code.shift("psrlq", I64, first.kept, 32), second.kept)
    right = code.binary("pmuludq", I64, code.shift("psrlq", I64, second.kept, 32), first.kept)
    crossed = code.shift("psllq", I64, code.binary("paddq", I64, left, right), 32)
    return code.binary("paddq", I64, code.binary("pmuludq", I64, first, second), crossed, target)


def _multiply_doublewords(code: VectorCode, first: VectorValue, second: VectorValue, target: str | None) -> VectorValue:
    """SSE2: multiplies even and odd elements separately, then interleaves them."""
    odd = code.binary("pmuludq", I32, code.shift("psrlq", I32, first.kept, 32),
                      code.shift("psrlq", I32, second.kept, 32))
    even = code.unary("pshufd", I32, code.binary("pmuludq", I32, first, second), immediate=0x08)
    return code.binary("punpckldq", I32, even, code.unary("pshufd", I32, odd, immediate=0x08), target)


def _multiply_bytes(code: VectorCode, first: VectorValue, second: VectorValue, target: str | None) -> VectorValue:
    """Multiplies even and odd bytes separately, as words whose upper bytes are dropped."""
    odd = code.binary("pmullw", I8, code.shift("psrlw", I8, first.kept, 8), code.shift("psrlw", I8, second.kept, 8))
    odd = code.shift("psllw", I8, odd, 8)
    even = code.shift("psllw", I8, code.binary("pmullw", I8, first, second), 8)
    return code.binary("por", I8, code.shift("psrlw", I8, even, 8), odd, target)


def shift(code: VectorCode, name: str, element: ElementType, value: VectorValue, count: int, constants: Constants,
          target: str | None = None) -> VectorValue:
    """shl, shr or sar by the constant ``count``, which is smaller than the width in bits."""
    if count == 0:
        return value
    width = 8 * element.size
    if element is I8:
        return _shift_bytes(code, name, value, count, constants, target)
    if name == "sar" and element is I64 and not code.unit.evex:
        if count == 63:
            return code.unary("pshufd", I64, code.shift("psrad", I64, value, 31), target=target, immediate=0xF5)
        shifted = code.shift("psrlq", I64, value, count)
        return _extend_sign(code, I64, shifted, 1 << width - 1 - count, constants, target)
    mnemonic = {"shl": "psll", "shr": "psrl", "sar": "psra"}[name] + letter(element)
    return code.shift(mnemonic, element, value, count, target)


def _shift_bytes(code: VectorCode, name: str, value: VectorValue, count: int, constants: Constants,
                 target: str | None) -> VectorValue:
    """Shifts words, then clears the bits that crossed into the neighbouring byte."""
    left = name == "shl"
    shifted = code.shift("psllw" if left else "psrlw", I8, value, count)
    kept = constants((0xFF << count) & 0xFF if left else 0xFF >> count, I8)
    if name != "sar":
        return code.binary("pand", I8, shifted, kept, target)
    return _extend_sign(code, I8, code.binary("pand", I8, shifted, kept), 0x80 >> count, constants, target)


def _extend_sign(code: VectorCode, element: ElementType, value: VectorValue, sign: int, constants: Constants,
                 target: str | None) -> VectorValue:
    """(value ^ sign) - sign: sign extension from the bit ``sign``. The bits above it must be zero."""
    moved = constants(sign, element)
    flipped = code.binary("pxor", element, value, moved.kept)
    return code.binary("psub" + letter(element), element, flipped, moved, target)


def has_extreme(code: VectorCode, name: str, element: ElementType) -> bool:
    """Whether there is one instruction for this minimum or maximum."""
    if not code.unit.three_operands:
        return (name, element) in (("umin", I8), ("umax", I8), ("smin", I16), ("smax", I16))
    return element is not I64 or code.unit.evex


def extreme(code: VectorCode, name: str, element: ElementType, first: VectorValue, second: VectorValue,
            target: str | None = None) -> VectorValue:
    """smin, smax, umin or umax, where ``has_extreme``."""
    return code.binary(EXTREMES[name][0] + letter(element), element, first, second, target, broadcasts=True)


def shift_count(bits: int, element: ElementType) -> int:
    """``bits`` as a shift count. Raises ``Rejected(NO_PLAN)`` where it is not in [0, width)."""
    if not 0 <= bits < 8 * element.size:
        raise Rejected(Reason.NO_PLAN, f"a shift of {element.value} by {bits} bits has no vector instruction")
    return bits
