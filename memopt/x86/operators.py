"""VEX's scalar operators, conversions and rounding modes (libvex_ir.h) as operators of ``memopt.ir.operations``.

Example: ``Iop_Add32`` becomes ``add`` of width 32. Operators go by their names without "Iop_", so pyvex is not
imported.
"""

from __future__ import annotations

import re

from memopt.ir.operations import NEVER_INEXACT, Literal, Operand
from memopt.x86.block_builder import BlockBuilder
from memopt.x86.lanes import FLOAT_ARITY, Rule, UnknownOperator, Value, rounding, scalar, without_rounding
from memopt.x86.vector_operators import VECTOR_RULES


def apply(builder: BlockBuilder, name: str, operands: tuple[Value, ...]) -> Value:
    """The value of the VEX operator ``name`` (without "Iop_"); raises ``UnknownOperator``."""
    for pattern, rule in (*_RULES, *VECTOR_RULES):
        match = pattern.fullmatch(name)
        if match:
            return rule(builder, match, operands)
    raise UnknownOperator(name)


def _scalars(operands: tuple[Value, ...]) -> tuple[Operand, ...]:
    return tuple(scalar(o) for o in operands)


# -- scalar integers -----------------------------------------------------------------------------------------------

# Between single precision and integers of 32 or 64 bits, or two operands of single precision.
_DIRECT = "cvtsi2ss", "cvtss2si", "cvttss2si", "cvtdq2ps", "cvtps2dq", "cvttps2dq", "comiss", "ucomiss"
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

def _float(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    used = without_rounding(b, operands, FLOAT_ARITY[match[1]])
    return b.compute("f" + match[1].lower(), _scalars(used), int(match[2]))


def _fused(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    """Multiply-add. VEX negates the addend where x86 subtracts it, and the rounded sum where x86 negates the product.
    Both differ for NaNs, the second for zeros and in the directed roundings, too. So what VEX negates once is negated
    a second time here, which leaves nothing of it."""
    first, second, third = _scalars(without_rounding(b, operands, 3))
    width, negated = int(match[1]), b.begins("fnm")
    subtracted = b.is_a(third, "fneg")
    name = ("fnma" if negated else "fms") if subtracted else "fnms" if negated else "fma"
    result = b.compute(name, (first, second, subtracted.operands[0] if subtracted else third), width)
    return b.compute("fneg", (result,), width) if negated else result


def _negate(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.compute("fneg", (scalar(operands[0]),), int(match[1]))


def _float_compare(b: BlockBuilder, _match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return b.compute("fqcompare" if b.begins("ucomis") else "fcompare", _scalars(operands), 32)


def _float_convert(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    """VEX goes by way of double precision where the processor does not (``_DIRECT``). That may round twice, and a
    denormal number raises a flag that it does not raise in a conversion to an integer, or beside a NaN."""
    (value,) = without_rounding(b, operands, 1)
    return scalar(value) if b.begins(*_DIRECT) else b.compute(
        f"f{match[1]}to{match[2]}", (scalar(value),), int(match[2]))


def _from_integer(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    (value,) = without_rounding(b, operands, 1)
    width = 32 if b.begins(*_DIRECT) else int(match[2])
    return b.compute(f"i{match[1]}tof{width}", (scalar(value),), width)


def _to_integer(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    value = scalar(operands[1])
    return b.compute(f"f{b.width(value)}toi{match[2]}", (rounding(b, operands[0]), value), int(match[2]))


def _round(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    """ROUNDPD and its relatives. Their immediate says whether the inexact flag is raised, which VEX does not."""
    mode, instruction = rounding(b, operands[0]), b.instruction
    if instruction is None or not b.begins("round"):
        raise UnknownOperator("rounding by another instruction")
    kept = Literal(mode.value | instruction.bytes[-1] & NEVER_INEXACT, 32)
    return b.compute("fround", (kept, scalar(operands[1])), int(match[1]))


_RULES: tuple[tuple[re.Pattern[str], Rule], ...] = tuple((re.compile(pattern), rule) for pattern, rule in (
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
))
