"""VEX operators (libvex_ir.h) as operators of our own: packed ones lane by lane, conversions, rounding modes.

A value is a tuple of 64-bit lanes for the types of 128 and 256 bits, else one operand. Nothing here imports pyvex:
operators are known by their names without "Iop_".
"""

from __future__ import annotations

import re
from collections.abc import Callable

from memopt.ir.operations import Literal, Operand
from memopt.x86.folding import BlockBuilder

Value = Operand | tuple[Operand, ...]


class UnknownOperator(Exception):
    """The operator, or its use here, is outside what is modelled."""


def apply(builder: BlockBuilder, name: str, operands: tuple[Value, ...]) -> Value:
    """The value of VEX operator ``name``; raises UnknownOperator."""
    for pattern, rule in _TABLE:
        match = pattern.fullmatch(name)
        if match:
            return rule(builder, match, operands)
    raise UnknownOperator(name)


def scalar(value: Value) -> Operand:
    if isinstance(value, tuple):
        raise UnknownOperator("vector where a scalar is expected")
    return value


def lanes(value: Value) -> tuple[Operand, ...]:
    if not isinstance(value, tuple):
        raise UnknownOperator("scalar where a vector is expected")
    return value


def _scalars(operands: tuple[Value, ...]) -> tuple[Operand, ...]:
    return tuple(scalar(o) for o in operands)


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
    """Whether ``mode`` is VEX's constant for "as the host does" or the mode read from the MXCSR."""
    if mode == Literal(0, 32):
        return True
    inner = b.is_a(mode, "trunc", "and", "zext")
    while inner:
        mode = inner.operands[0]
        inner = b.is_a(mode, "trunc", "and", "zext")
    return mode == b.locations.get("mxcsr_round")


def _without_rounding(b: BlockBuilder, operands: tuple[Value, ...], count: int) -> tuple[Value, ...]:
    if len(operands) == count:
        return operands
    if len(operands) != count + 1 or not _follows_mxcsr(b, scalar(operands[0])):
        raise UnknownOperator("rounding mode")
    return operands[1:]


# -- scalar integers -----------------------------------------------------------------------------------------------

Rule = Callable[[BlockBuilder, "re.Match[str]", tuple[Value, ...]], Value]
_COMPARISONS = {"EQ": "eq", "NE": "ne", "LT": "lt", "LE": "le", "CasCmpEQ": "eq"}


def _integer(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.compute(match[1].lower(), _scalars(operands), int(match[2]))


def _integer_compare(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.compute(match[3].lower() + match[1].lower(), _scalars(operands), 1)


def _not_zero(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.compute("ne", (scalar(operands[0]), Literal(0, int(match[1]))), 1)


def _widening_multiply(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    signed, width = match[1] == "S", int(match[2])
    left, right = _scalars(operands)
    if width == 64:
        high = b.compute("smulhi" if signed else "umulhi", (left, right), 64)
        return b.compute("mul", (left, right), 64), high
    extension = "sext" if signed else "zext"
    wide = tuple(b.compute(extension, (o,), 2 * width) for o in (left, right))
    return b.compute("mul", wide, 2 * width)


def _divide(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.compute(f"{match[1].lower()}div", _scalars(operands), int(match[2]))


def _divide_modulo(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    """DivModU128to64 and the like: only dividends that are extensions of a single-width value."""
    sign, width = match[1].lower(), int(match[3])
    dividend, divisor = operands[0], scalar(operands[1])
    if isinstance(dividend, tuple):
        low, high = dividend
    elif int(match[2]) == width:
        low, high = dividend, None
    else:
        low, high = b.resize(dividend, width), b.compute("high", (dividend,), width)
    extension = Literal(0, width) if sign == "u" else b.compute("sar", (low, Literal(width - 1, 8)), width)
    if high is not None and high != extension:
        raise UnknownOperator("division of a double-width value")
    quotient, remainder = (b.compute(sign + n, (low, divisor), width) for n in ("div", "mod"))
    return (quotient, remainder) if width == 64 else b.compute("concat", (remainder, quotient), 2 * width)


def _extend(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.compute("sext" if match[2] == "S" else "zext", (scalar(operands[0]),), int(match[3]))


def _truncate(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.compute("trunc", (scalar(operands[0]),), int(match[2]))


def _high_half(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.compute("high", (scalar(operands[0]),), int(match[2]))


def _concatenate(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.compute("concat", _scalars(operands), int(match[2]))


def _count_zeros(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.compute(match[1].lower(), _scalars(operands), int(match[2]))


def _same(_b: BlockBuilder, _match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return operands[0]


# -- scalar floating point -----------------------------------------------------------------------------------------

_FLOAT_ARITY = {"Add": 2, "Sub": 2, "Mul": 2, "Div": 2, "Min": 2, "Max": 2, "Sqrt": 1, "Neg": 1, "Abs": 1}


def _float(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    used = _without_rounding(b, operands, _FLOAT_ARITY[match[1]])
    return b.compute("f" + match[1].lower(), _scalars(used), int(match[2]))


def _fused(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    """Multiply-add; VEX negates the addend where x86 subtracts it, which differs for NaNs: undo that."""
    first, second, third = _scalars(_without_rounding(b, operands, 3))
    subtracted = b.is_a(third, "fneg")
    if subtracted:
        return b.compute("fms", (first, second, subtracted.operands[0]), int(match[1]))
    return b.compute("fma", (first, second, third), int(match[1]))


def _negate(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    """VEX negates a rounded multiply-add where x86 negates the product, which differs for NaNs and zeros."""
    value = scalar(operands[0])
    fused = b.is_a(value, "fma", "fms")
    if fused:
        return b.compute("fnms" if fused.operator == "fma" else "fnma", fused.operands, fused.width)
    return b.compute("fneg", (value,), int(match[1]))


def _float_compare(b: BlockBuilder, _match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.compute("fcompare", _scalars(operands), 32)


def _float_convert(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    (value,) = _without_rounding(b, operands, 1)
    return b.compute(f"f{match[1]}to{match[2]}", (scalar(value),), int(match[2]))


def _from_integer(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    (value,) = _without_rounding(b, operands, 1)
    return b.compute(f"i{match[1]}tof{match[2]}", (scalar(value),), int(match[2]))


def _to_integer(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.compute(f"f{match[1]}toi{match[2]}", _scalars(operands), int(match[2]))


def _round(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.compute("fround", _scalars(operands), int(match[1]))


# -- vectors -------------------------------------------------------------------------------------------------------


def _elementwise(
    b: BlockBuilder, operator: str, operands: tuple[Value, ...], width: int, scalar_form: bool = False
) -> Value:
    """``operator`` on each element; in a scalar form on the lowest only, the others are the first operand's."""
    columns = list(zip(*(split(b, o, width) for o in operands), strict=True))
    count = 1 if scalar_form else len(columns)
    results = [b.compute(operator, column, width) for column in columns[:count]]
    return join(b, results + [column[0] for column in columns[count:]], width)


def _elementwise_mask(
    b: BlockBuilder, operator: str, operands: tuple[Value, ...], width: int, scalar_form: bool = False
) -> Value:
    """Like ``_elementwise`` for comparisons, whose results are all ones or all zeros."""
    columns = list(zip(*(split(b, o, width) for o in operands), strict=True))
    count = 1 if scalar_form else len(columns)
    results = [b.compute("sext", (b.compute(operator, column, 1),), width) for column in columns[:count]]
    return join(b, results + [column[0] for column in columns[count:]], width)


def _packed_float(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    used = _without_rounding(b, operands, _FLOAT_ARITY[match[1]])
    return _elementwise(b, "f" + match[1].lower(), used, int(match[2]), match[3] == "F0x")


def _packed_float_compare(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    name = {"EQ": "feq", "LT": "flt", "LE": "fle", "UN": "funord", "GT": "flt", "GE": "fle"}[match[1]]
    used = operands[::-1] if match[1] in ("GT", "GE") else operands
    return _elementwise_mask(b, name, used, int(match[2]), match[3] == "F0x")


def _packed_integer(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return _elementwise(b, match[1].lower(), operands, int(match[2]))


def _packed_shift(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    width, count = int(match[2]), scalar(operands[1])
    elements = [b.compute(match[1].lower(), (e, count), width) for e in split(b, operands[0], width)]
    return join(b, elements, width)


def _packed_compare(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    if match[1] == "EQ":
        return _elementwise_mask(b, "eq", operands, int(match[2]))
    return _elementwise_mask(b, match[3].lower() + "lt", operands[::-1], int(match[2]))


def _packed_extreme(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    width, less = int(match[2]), match[3].lower() + "lt"
    results = []
    for left, right in zip(split(b, operands[0], width), split(b, operands[1], width), strict=True):
        order = (left, right) if match[1] == "Min" else (right, left)
        results.append(b.compute("select", (b.compute(less, order, 1), left, right), width))
    return join(b, results, width)


def _absolute(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    width = int(match[1])
    zero = Literal(0, width)
    results = [b.compute("select", (b.compute("slt", (e, zero), 1), b.compute("sub", (zero, e), width), e), width)
               for e in split(b, operands[0], width)]
    return join(b, results, width)


def _bitwise(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return _elementwise(b, match[1].lower(), operands, 64)


def _interleave(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    width = int(match[2])
    left, right = (split(b, o, width) for o in operands)
    half = len(left) // 2
    chosen = range(half) if match[1] == "LO" else range(half, 2 * half)
    return join(b, [e for i in chosen for e in (right[i], left[i])], width)


def _every_second(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    width, start = int(match[2]), int(match[1] == "Odd")
    left, right = (split(b, o, width) for o in operands)
    return join(b, right[start::2] + left[start::2], width)


def _narrow(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    wide, narrow = int(match[1]), int(match[2])
    elements = split(b, operands[1], wide) + split(b, operands[0], wide)
    return join(b, [b.compute("trunc", (e,), narrow) for e in elements], narrow)


def _multiply_even(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    width, extension = int(match[1]), "sext" if match[2] == "S" else "zext"
    results = []
    for pair in zip(split(b, operands[0], width)[::2], split(b, operands[1], width)[::2], strict=True):
        wide = tuple(b.compute(extension, (e,), 2 * width) for e in pair)
        results.append(b.compute("mul", wide, 2 * width))
    return join(b, results, 2 * width)


def _shift_vector(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    """ShlV128, ShrV128: the whole vector by a literal number of bits, a multiple of 8."""
    count = scalar(operands[1])
    if not isinstance(count, Literal) or count.value % 8:
        raise UnknownOperator("vector shift by a variable count")
    elements = split(b, operands[0], 8)
    zeros: list[Operand] = [Literal(0, 8)] * (count.value // 8)
    moved = zeros + elements if match[1] == "Shl" else elements[len(zeros):] + zeros
    return join(b, moved[:len(elements)], 8)


def _slice(b: BlockBuilder, _match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    count = scalar(operands[2])
    if not isinstance(count, Literal):
        raise UnknownOperator("slice by a variable count")
    elements = split(b, operands[1], 8) + split(b, operands[0], 8)
    return join(b, elements[count.value:count.value + 16], 8)


def _set_element(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    width, index = int(match[1]), scalar(operands[1])
    if not isinstance(index, Literal):
        raise UnknownOperator("element of a variable index")
    elements = split(b, operands[0], width)
    elements[index.value % len(elements)] = scalar(operands[2])
    return join(b, elements, width)


def _get_element(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    index = scalar(operands[1])
    if not isinstance(index, Literal):
        raise UnknownOperator("element of a variable index")
    elements = split(b, operands[0], int(match[1]))
    return elements[index.value % len(elements)]


def _permute(b: BlockBuilder, _match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    elements, control = split(b, operands[0], 32), split(b, operands[1], 32)
    numbers = [c.value % len(elements) for c in control if isinstance(c, Literal)]
    if len(numbers) != len(elements):
        raise UnknownOperator("permutation that is not constant")
    return join(b, [elements[n] for n in numbers], 32)


def _to_lane(_b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return lanes(operands[0])[{"V128to64": 0, "V128HIto64": 1, "128to64": 0, "128HIto64": 1}[match[0]]]


def _lane_of_256(_b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    index = int(match[2])
    return lanes(operands[0])[index] if match[1] == "64" else lanes(operands[0])[2 * index:2 * index + 2]


def _build_vector(_b: BlockBuilder, _match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    """Operands from the highest to the lowest, scalars or vectors."""
    result: tuple[Operand, ...] = ()
    for operand in reversed(operands):
        result += operand if isinstance(operand, tuple) else (operand,)
    return result


def _widen_to_vector(b: BlockBuilder, _match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.resize(scalar(operands[0]), 64), Literal(0, 64)


def _set_low(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    low, high = lanes(operands[0])
    value = scalar(operands[1])
    if match[1] == "32":
        value = b.compute("concat", (b.compute("high", (low,), 32), value), 64)
    return value, high


def _low_32(b: BlockBuilder, _match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.compute("trunc", (lanes(operands[0])[0],), 32)


def _keep_low(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    kept = 128 - int(match[1])
    low = lanes(operands[0])[0]
    return (low if kept == 64 else b.compute("zext", (b.compute("trunc", (low,), kept),), 64)), Literal(0, 64)


_TABLE: tuple[tuple[re.Pattern[str], Rule], ...] = tuple((re.compile(pattern), rule) for pattern, rule in (
    (r"(Add|Sub|Mul|And|Or|Xor|Shl|Shr|Sar|Not)(1|8|16|32|64)", _integer),
    (r"(?:Exp)?Cmp(EQ|NE)(8|16|32|64)()", _integer_compare),
    (r"Cmp(LT|LE)(32|64)([SU])", _integer_compare),
    (r"CmpNEZ(8|16|32|64)", _not_zero),
    (r"Mull([SU])(8|16|32|64)", _widening_multiply),
    (r"Div([SU])(32|64)", _divide),
    (r"DivMod([SU])(64|128)to(32|64)", _divide_modulo),
    (r"(\d+)([SU])to(\d+)", _extend),
    (r"(64|32|16)to(32|16|8|1)", _truncate),
    (r"(64|32|16)HIto(32|16|8)", _high_half),
    (r"(32|16|8)HLto(64|32|16)", _concatenate),
    (r"(Clz|Ctz)(32|64)", _count_zeros),
    (r"Reinterp.*", _same),
    (r"(Add|Sub|Mul|Div|Sqrt|Abs)F(32|64)", _float),
    (r"NegF(32|64)", _negate),
    (r"MAddF(32|64)", _fused),
    (r"CmpF(32|64)", _float_compare),
    (r"F(32|64)toF(32|64)", _float_convert),
    (r"I(32|64)StoF(32|64)", _from_integer),
    (r"F(32|64)toI(32|64)S", _to_integer),
    (r"RoundF(32|64)toInt", _round),
    (r"(Add|Sub|Mul|Div|Min|Max|Sqrt|Neg|Abs)(32|64)(F0x|Fx)\d+", _packed_float),
    (r"Cmp(EQ|LT|LE|UN|GT|GE)(32|64)(F0x|Fx)\d+", _packed_float_compare),
    (r"(Add|Sub|Mul)(8|16|32|64)x\d+", _packed_integer),
    (r"(Shl|Shr|Sar)N(8|16|32|64)x\d+", _packed_shift),
    (r"Cmp(EQ|GT)(8|16|32|64)(S?)x\d+", _packed_compare),
    (r"(Min|Max)(8|16|32|64)([SU])x\d+", _packed_extreme),
    (r"Abs(8|16|32|64)x\d+", _absolute),
    (r"(And|Or|Xor|Not)V(?:128|256)", _bitwise),
    (r"Interleave(LO|HI)(8|16|32|64)x\d+", _interleave),
    (r"Cat(Even|Odd)Lanes(8|16|32)x\d+", _every_second),
    (r"NarrowBin(16|32|64)to(8|16|32)x\d+", _narrow),
    (r"MullEven(8|16|32)([SU])x\d+", _multiply_even),
    (r"(Shl|Shr)V128", _shift_vector),
    (r"SliceV128", _slice),
    (r"SetElem(8|16|32|64)x\d+", _set_element),
    (r"GetElem(8|16|32|64)x\d+", _get_element),
    (r"Perm32x(4|8)", _permute),
    (r"V128to64|V128HIto64|128to64|128HIto64", _to_lane),
    (r"V256to(64|V128)_([0-3])", _lane_of_256),
    (r"64HLtoV128|64HLto128|64x4toV256|V128HLtoV256", _build_vector),
    (r"(32|64)UtoV128", _widen_to_vector),
    (r"SetV128lo(32|64)", _set_low),
    (r"V128to32", _low_32),
    (r"ZeroHI(64|96|112|120)ofV128", _keep_low),
))
