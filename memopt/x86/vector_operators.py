"""VEX's packed operators (libvex_ir.h) as scalar operators of ``memopt.ir.operations``, element by element.

Example: ``Iop_Add32x4`` becomes four ``add`` of width 32 on the elements of two 64-bit lanes.
"""

from __future__ import annotations

import functools
import re

from memopt.ir.operations import Literal, Operand
from memopt.x86.block_builder import BlockBuilder
from memopt.x86.lanes import FLOAT_ARITY, Rule, UnknownOperator, Value, join, lanes, scalar, split, without_rounding
from memopt.x86.predicates import comparisons


def _elementwise(
    b: BlockBuilder, operator: str, operands: tuple[Value, ...], width: int, scalar_form: bool = False
) -> Value:
    """``operator`` on each element. A scalar form computes the lowest only; the others are those of the first operand.
    """
    columns = list(zip(*(split(b, o, width) for o in operands), strict=True))
    count = 1 if scalar_form else len(columns)
    results = [b.compute(operator, column, width) for column in columns[:count]]
    return join(b, results + [column[0] for column in columns[count:]], width)


def _elementwise_mask(
    b: BlockBuilder, operators: tuple[str, ...], operands: tuple[Value, ...], width: int, scalar_form: bool = False
) -> Value:
    """As ``_elementwise``, for comparisons: each result is all ones where one of ``operators`` holds, else all zeros.
    """
    columns = list(zip(*(split(b, o, width) for o in operands), strict=True))
    count = 1 if scalar_form else len(columns)

    def mask(column: tuple[Operand, ...]) -> Operand:
        found = [b.compute(operator, column, 1) for operator in operators]
        return b.compute("sext", (functools.reduce(lambda x, y: b.compute("or", (x, y), 1), found),), width)

    return join(b, [mask(c) for c in columns[:count]] + [column[0] for column in columns[count:]], width)


def _packed_float(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    used, width = without_rounding(b, operands, FLOAT_ARITY[match[1]]), int(match[2])
    if b.begins("addsub") and match[1] in ("Add", "Sub"):
        return _every_other(b, match[1].lower(), used, width)
    return _elementwise(b, "f" + match[1].lower(), used, width, match[3] == "F0x")


def _every_other(b: BlockBuilder, name: str, operands: tuple[Value, ...], width: int) -> Value:
    """ADDSUBPD and ADDSUBPS add the odd elements and subtract the even ones. VEX does both with all of them and drops
    half of the results, whose flags nothing raises: 0 stands for those."""
    first = 1 if name == "add" else 0
    columns = zip(*(split(b, o, width) for o in operands), strict=True)
    return join(b, [b.compute("f" + name, column, width) if n % 2 == first else Literal(0, width)
                    for n, column in enumerate(columns)], width)


def _packed_float_compare(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    """CMPPD and its relatives. The immediate decides which NaNs are invalid, and more than VEX says of equality."""
    if b.instruction is None or not b.begins("cmp"):
        raise UnknownOperator("comparison by another instruction")
    names = comparisons(match[1], b.instruction.bytes[-1], vex=b.instruction.mnemonic[0] == "v")
    return _elementwise_mask(b, names, operands, int(match[2]), match[3] == "F0x")


def _packed_integer(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    return _elementwise(b, match[1].lower(), operands, int(match[2]))


def _packed_shift(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    width, count = int(match[2]), scalar(operands[1])
    elements = [b.compute(match[1].lower(), (e, count), width) for e in split(b, operands[0], width)]
    return join(b, elements, width)


def _packed_compare(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    if match[1] == "EQ":
        return _elementwise_mask(b, ("eq",), operands, int(match[2]))
    return _elementwise_mask(b, (match[3].lower() + "lt",), operands[::-1], int(match[2]))


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


def _narrow_saturating(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    """QNarrowBin: signed elements to the nearest narrower signed or unsigned number."""
    wide, narrow = int(match[1]), int(match[2])
    low, high = (0, (1 << narrow) - 1) if match[3] == "U" else (-(1 << narrow - 1), (1 << narrow - 1) - 1)
    least, most = (Literal(n & ((1 << wide) - 1), wide) for n in (low, high))

    def nearest(element: Operand) -> Operand:
        at_most = b.compute("select", (b.compute("slt", (most, element), 1), most, element), wide)
        nearest = b.compute("select", (b.compute("slt", (element, least), 1), least, at_most), wide)
        return b.compute("trunc", (nearest,), narrow)

    elements = split(b, operands[1], wide) + split(b, operands[0], wide)
    return join(b, [nearest(e) for e in elements], narrow)


def _saturating(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    """QAdd, QSub: the nearest number that the element can hold."""
    name, width, signed = match[1].lower(), int(match[2]), match[3] == "S"
    if name == "sub" and not signed:  # max(x, y) - y
        columns = zip(*(split(b, o, width) for o in operands), strict=True)
        return join(b, [b.compute("sub", (b.compute("select", (b.compute("ult", (y, x), 1), x, y), width), y), width)
                        for x, y in columns], width)
    wide = 2 * width
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    least, most = (Literal(n & ((1 << wide) - 1), wide) for n in (low, high))
    results = []
    for pair in zip(*(split(b, o, width) for o in operands), strict=True):
        exact = b.compute(name, tuple(b.compute("sext" if signed else "zext", (e,), wide) for e in pair), wide)
        nearest = b.compute("select", (b.compute("slt", (most, exact), 1), most, exact), wide)
        if signed:
            nearest = b.compute("select", (b.compute("slt", (exact, least), 1), least, nearest), wide)
        results.append(b.compute("trunc", (nearest,), width))
    return join(b, results, width)


def _average(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    """Of unsigned elements, rounded up."""
    width = int(match[1])
    wide = 2 * width
    results = []
    for pair in zip(*(split(b, o, width) for o in operands), strict=True):
        total = b.compute("add", tuple(b.compute("zext", (e,), wide) for e in pair), wide)
        rounded = b.compute("add", (total, Literal(1, wide)), wide)
        results.append(b.compute("trunc", (b.compute("shr", (rounded, Literal(1, 8)), wide),), width))
    return join(b, results, width)


def multiply_add_pairs(b: BlockBuilder, operands: tuple[Operand, ...]) -> Operand:
    """PMADDWD on 64 bits: the sums, modulo 2**32, of two products of signed 16-bit elements each."""
    columns = zip(*(split(b, o, 16) for o in operands), strict=True)
    products = [b.compute("mul", tuple(b.compute("sext", (e,), 32) for e in pair), 32) for pair in columns]
    sums = [b.compute("add", pair, 32) for pair in zip(products[::2], products[1::2], strict=True)]
    return scalar(join(b, sums, 32))


def _multiply_high(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    width, extension = int(match[1]), "sext" if match[2] == "S" else "zext"
    results = []
    for pair in zip(split(b, operands[0], width), split(b, operands[1], width), strict=True):
        wide = tuple(b.compute(extension, (e,), 2 * width) for e in pair)
        results.append(b.compute("high", (b.compute("mul", wide, 2 * width),), width))
    return join(b, results, width)


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


def _permute(b: BlockBuilder, match: re.Match[str], operands: tuple[Value, ...]) -> Value:
    """Perm8x, Perm32x. A control that is no literal gives a chain of selects: it may become known later."""
    width = int(match[1])
    elements, control = split(b, operands[0], width), split(b, operands[1], width)

    def chosen(number: Operand) -> Operand:
        if isinstance(number, Literal):
            return elements[number.value % len(elements)]
        found = elements[0]
        for place, element in enumerate(elements[1:], 1):
            here = b.compute("eq", (number, Literal(place, width)), 1)
            found = b.compute("select", (here, element, found), width)
        return found

    return join(b, [chosen(c) for c in control], width)


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


VECTOR_RULES: tuple[tuple[re.Pattern[str], Rule], ...] = tuple((re.compile(pattern), rule) for pattern, rule in (
    (r"(Add|Sub|Mul|Div|Min|Max|Sqrt|Neg|Abs)(32|64)(F0x|Fx)\d+", _packed_float),
    (r"Cmp(EQ|LT|LE|UN)(32|64)(F0x|Fx)\d+", _packed_float_compare),
    (r"(Add|Sub|Mul)(8|16|32|64)x\d+", _packed_integer),
    (r"(Shl|Shr|Sar)N(8|16|32|64)x\d+", _packed_shift),
    (r"Cmp(EQ|GT)(8|16|32|64)(S?)x\d+", _packed_compare),
    (r"(Min|Max)(8|16|32|64)([SU])x\d+", _packed_extreme),
    (r"Abs(8|16|32|64)x\d+", _absolute),
    (r"(And|Or|Xor|Not)V(?:128|256)", _bitwise),
    (r"Interleave(LO|HI)(8|16|32|64)x\d+", _interleave),
    (r"Cat(Even|Odd)Lanes(8|16|32)x\d+", _every_second),
    (r"NarrowBin(16|32|64)to(8|16|32)x\d+", _narrow),
    (r"QNarrowBin(16|32)Sto(8|16)([SU])x\d+", _narrow_saturating),
    (r"Q(Add|Sub)(8|16)([SU])x\d+", _saturating),
    (r"Avg(8|16)Ux\d+", _average),
    (r"MulHi(16)([SU])x\d+", _multiply_high),
    (r"MullEven(8|16|32)([SU])x\d+", _multiply_even),
    (r"(Shl|Shr)V128", _shift_vector),
    (r"SliceV128", _slice),
    (r"SetElem(8|16|32|64)x\d+", _set_element),
    (r"GetElem(8|16|32|64)x\d+", _get_element),
    (r"Perm(8|32)x(4|8)", _permute),
    (r"V128to64|V128HIto64|128to64|128HIto64", _to_lane),
    (r"V256to(64|V128)_([0-3])", _lane_of_256),
    (r"64HLtoV128|64HLto128|64x4toV256|V128HLtoV256", _build_vector),
    (r"(32|64)UtoV128", _widen_to_vector),
    (r"SetV128lo(32|64)", _set_low),
    (r"V128to32", _low_32),
    (r"ZeroHI(64|96|112|120)ofV128", _keep_low),
))
