"""A concrete interpreter of memopt's operations, slow and plain: the reading of memopt.ir.operations that tests use.

Floating point is done on numpy scalars (numpy rounds to nearest even) with the x86 rules for NaNs written out here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from memopt.ir.evaluate import evaluate, signed
from memopt.ir.operations import (
    AS_MXCSR_SAYS,
    AlignmentCheck,
    Block,
    Compute,
    Exit,
    Get,
    Jump,
    Literal,
    Load,
    Operand,
    Put,
    Store,
)
from memopt.x86.conditions import CARRY, expand_condition
from memopt.x86.decoder import decode
from memopt.x86.semantics import lift_block

_QUIET = {32: 0x00400000, 64: 0x0008000000000000}
_DEFAULT_NAN = {32: 0xFFC00000, 64: 0xFFF8000000000000}
_MANTISSA = {32: 23, 64: 52}


def _block(code: bytes, address: int) -> bytes:
    """What ``code`` begins with, up to and including the first instruction that ends a block."""
    size = 0
    for instruction in decode(code, address):
        size += instruction.size
        if instruction.kind.ends_block:
            break
    return code[:size]


class Machine:
    """Guest locations by name, and memory given as (base address, contents)."""

    def __init__(self, locations: dict[str, int], base: int, memory: bytes) -> None:
        self.locations = locations
        self.base = base
        self.memory = bytearray(memory)

    def run(self, code: bytes, start: int) -> None:
        """Run ``code``, which lies at ``start``, until control reaches its end."""
        blocks: dict[int, Block] = {}
        at = start
        while at != start + len(code):
            assert start <= at < start + len(code), f"left the snippet to {at:#x}"
            if at not in blocks:
                blocks[at] = lift_block(_block(code[at - start:], at), at)
            at = self.step(blocks[at])

    def step(self, block: Block) -> int:
        """Run one block; return the address of the next."""
        values: dict[int, tuple[int, int]] = {}  # temporary -> (bits, width)

        def bits(operand: Operand) -> int:
            return operand.value if isinstance(operand, Literal) else values[operand.index][0]

        def width(operand: Operand) -> int:
            return operand.width if isinstance(operand, Literal) else values[operand.index][1]

        for operation in block.operations:
            match operation:
                case Get(_, result, location, size):
                    values[result] = self.locations[location], size
                case Put(_, location, value):
                    assert width(value) == 64
                    self.locations[location] = bits(value)
                case Load(_, result, pointer, size):
                    offset = bits(pointer) - self.base
                    assert 0 <= offset <= len(self.memory) - size // 8
                    values[result] = int.from_bytes(self.memory[offset:offset + size // 8], "little"), size
                case Store(_, pointer, value, size):
                    offset = bits(pointer) - self.base
                    assert 0 <= offset <= len(self.memory) - size // 8
                    assert size == width(value)
                    self.memory[offset:offset + size // 8] = bits(value).to_bytes(size // 8, "little")
                case Compute(_, result, operator, operands, size):
                    numbers = tuple(map(bits, operands))
                    widths = tuple(map(width, operands))
                    value = compute(operator, numbers, widths, size)
                    assert 0 <= value < 1 << size
                    values[result] = value, size
                case AlignmentCheck(_, pointer, size):
                    assert bits(pointer) % size == 0
                case Exit(_, condition, target):
                    assert width(condition) == 1
                    if bits(condition):
                        return target
                case Jump(_, target, _):
                    return target if isinstance(target, int) else bits(target)
        raise AssertionError("block without a jump")


def compute(operator: str, values: tuple[int, ...], widths: tuple[int, ...], width: int) -> int:
    """The result of any operator of memopt.ir.operations."""
    if operator in ("condition", "carry"):
        number, *flags = values if operator == "condition" else (CARRY, *values)
        cc_op, dep1, dep2, ndep = flags
        found = expand_condition(number, cc_op, (dep1, 64), (dep2, 64), (ndep, 64), _build, lambda v, w: (v, w))
        return _build(found.operator, (found.left, found.right), 1)[0]
    if operator == "flags":
        assert values[0] == 0, "flags are known only where they are stored as such"
        return values[1] & 0x8D5
    if operator in _FLOAT:
        return _FLOAT[operator](values, widths[0], width)
    result = evaluate(operator, values, widths, width)
    assert result is not None, (operator, values)
    return result


def _build(operator: str, operands: tuple[tuple[int, int], ...], width: int) -> tuple[int, int]:
    result = evaluate(operator, tuple(v for v, _ in operands), tuple(w for _, w in operands), width)
    assert result is not None
    return result, width


# -- floating point ------------------------------------------------------------------------------------------------


def number(bits: int, width: int) -> np.floating:
    if width == 32:
        return np.array([bits], dtype=np.uint32).view(np.float32)[0]
    return np.array([bits], dtype=np.uint64).view(np.float64)[0]


def pattern(value: np.floating, width: int) -> int:
    kind = (np.float32, np.uint32) if width == 32 else (np.float64, np.uint64)
    return int(np.array([value], dtype=kind[0]).view(kind[1])[0])


def is_nan(bits: int, width: int) -> bool:
    return bool(np.isnan(number(bits, width)))


def _nan_of(values: tuple[int, ...], width: int) -> int | None:
    """The first NaN among the operands, made quiet."""
    return next((v | _QUIET[width] for v in values if is_nan(v, width)), None)


def _arithmetic(function: Callable[..., np.floating]) -> Callable[[tuple[int, ...], int, int], int]:
    def run(values: tuple[int, ...], _: int, width: int) -> int:
        nan = _nan_of(values, width)
        if nan is not None:
            return nan
        with np.errstate(all="ignore"):
            result = pattern(function(*(number(v, width) for v in values)), width)
        return _DEFAULT_NAN[width] if is_nan(result, width) else result
    return run


def _extreme(less: bool) -> Callable[[tuple[int, ...], int, int], int]:
    def run(values: tuple[int, ...], _: int, width: int) -> int:
        left, right = (number(v, width) for v in values)
        return values[0] if (left < right if less else left > right) else values[1]
    return run


def _compare(test: Callable[[np.floating, np.floating], bool]) -> Callable[[tuple[int, ...], int, int], int]:
    return lambda values, width, _: int(bool(test(*(number(v, width) for v in values))))


def _compare_code(values: tuple[int, ...], width: int, _: int) -> int:
    left, right = (number(v, width) for v in values)
    if np.isnan(left) or np.isnan(right):
        return 0x45
    return 0x01 if left < right else 0x40 if left == right else 0x00


def _convert(values: tuple[int, ...], source: int, width: int) -> int:
    if is_nan(values[0], source):
        shift = 29
        sign = values[0] >> (source - 1)
        mantissa = values[0] & ((1 << _MANTISSA[source]) - 1)
        mantissa = mantissa >> shift if width == 32 else mantissa << shift
        ones = (1 << (width - 1 - _MANTISSA[width])) - 1
        return sign << (width - 1) | ones << _MANTISSA[width] | mantissa | _QUIET[width]
    with np.errstate(all="ignore"):
        return pattern((np.float32 if width == 32 else np.float64)(number(values[0], source)), width)


def _from_integer(values: tuple[int, ...], source: int, width: int) -> int:
    value = Fraction(signed(values[0], source))
    return _rounded(value, width)


def _integral(mode: int, value: float) -> int:
    ways = (round, math.floor, math.ceil, math.trunc)
    return ways[0 if mode & AS_MXCSR_SAYS else mode & 3](value)  # MXCSR says: to the nearest


def _to_integer(values: tuple[int, ...], _: int, width: int, source: int) -> int:
    value = float(number(values[1], source))
    indefinite = 1 << (width - 1)
    if math.isnan(value) or math.isinf(value):
        return indefinite
    result = _integral(values[0], value)
    return result & ((1 << width) - 1) if -indefinite <= result < indefinite else indefinite


def _round(values: tuple[int, ...], _: int, width: int) -> int:
    value = float(number(values[1], width))
    if math.isnan(value):
        return values[1] | _QUIET[width]
    if math.isinf(value):
        return values[1]
    result = math.copysign(float(_integral(values[0], value)), value)
    return pattern((np.float32 if width == 32 else np.float64)(result), width)


def _rounded(value: Fraction, width: int) -> int:
    """The bits of the float nearest to ``value`` (ties to even); zero is positive."""
    mantissa, least = _MANTISSA[width], (-149 if width == 32 else -1074)
    if not value:
        return 0
    sign, value = (1, -value) if value < 0 else (0, value)
    exponent = value.numerator.bit_length() - value.denominator.bit_length() - mantissa
    if value / Fraction(2) ** exponent >= 1 << (mantissa + 1):
        exponent += 1
    if value / Fraction(2) ** exponent < 1 << mantissa:
        exponent -= 1
    exponent = max(exponent, least)
    units = round(value / Fraction(2) ** exponent)
    magnitude = units if exponent == least else units + ((exponent - least) << mantissa)
    infinity = ((1 << (width - 1 - mantissa)) - 1) << mantissa
    return sign << (width - 1) | min(magnitude, infinity)


def _fused(product_sign: int, addend_sign: int) -> Callable[[tuple[int, ...], int, int], int]:
    def run(values: tuple[int, ...], _: int, width: int) -> int:
        nan = _nan_of(values, width)
        if nan is not None:
            return nan
        first, second, third = (float(number(v, width)) for v in values)
        third *= addend_sign
        if math.isinf(third) and math.isfinite(first) and math.isfinite(second):
            return pattern(np.float64(third), width) if width == 64 else pattern(np.float32(third), width)
        if not all(map(math.isfinite, (first, second, third))):
            with np.errstate(all="ignore"):
                result = product_sign * (np.float64(first) * np.float64(second)) + np.float64(third)
                return _DEFAULT_NAN[width] if np.isnan(result) else pattern(result, width)
        exact = product_sign * Fraction(first) * Fraction(second) + Fraction(third)
        if exact:
            return _rounded(exact, width)
        signs = math.copysign(1, first) * math.copysign(1, second) * product_sign, math.copysign(1, third)
        negative = signs[0] < 0 and signs[1] < 0 and not (Fraction(first) * Fraction(second))
        return int(negative) << (width - 1)
    return run


def _sign_bit(operation: Callable[[int, int], int]) -> Callable[[tuple[int, ...], int, int], int]:
    return lambda values, _, width: operation(values[0], 1 << (width - 1))


def _sized(source: int) -> Callable[[tuple[int, ...], int, int], int]:
    return lambda values, first, width: _to_integer(values, first, width, source)


_FLOAT: dict[str, Callable[[tuple[int, ...], int, int], int]] = {
    "fadd": _arithmetic(lambda a, b: a + b),
    "fsub": _arithmetic(lambda a, b: a - b),
    "fmul": _arithmetic(lambda a, b: a * b),
    "fdiv": _arithmetic(lambda a, b: a / b),
    "fsqrt": _arithmetic(np.sqrt),
    "fmin": _extreme(True),
    "fmax": _extreme(False),
    "fneg": _sign_bit(lambda value, sign: value ^ sign),
    "fabs": _sign_bit(lambda value, sign: value & (sign - 1)),
    "fma": _fused(1, 1), "fms": _fused(1, -1), "fnma": _fused(-1, 1), "fnms": _fused(-1, -1),
    "fcompare": _compare_code, "fqcompare": _compare_code,
    "feq": _compare(lambda a, b: a == b), "fseq": _compare(lambda a, b: a == b),
    "flt": _compare(lambda a, b: a < b), "fqlt": _compare(lambda a, b: a < b),
    "fle": _compare(lambda a, b: a <= b), "fqle": _compare(lambda a, b: a <= b),
    "funord": _compare(lambda a, b: np.isnan(a) or np.isnan(b)),
    "fsunord": _compare(lambda a, b: np.isnan(a) or np.isnan(b)),
    "f32to64": _convert, "f64to32": _convert,
    "i32tof64": _from_integer, "i64tof64": _from_integer, "i32tof32": _from_integer, "i64tof32": _from_integer,
    "f64toi32": _sized(64), "f64toi64": _sized(64), "f32toi32": _sized(32), "f32toi64": _sized(32),
    "fround": _round,
}
