"""The static control part: arrays, statements and their iteration domains, as lifted from machine code.

Dimensions count from 0. The outermost dimension of every statement is the patched loop; its trip count is the
run-time symbol ``R`` (iterations that remain, the current one included). Inner trip counts are Linear over
outer dimensions and live-in symbols; where sizes were specialised they are plain numbers. A trip count that is zero
or negative for some outer iteration means that the loop does not run there (triangles start and end so).

Text form (golden tests)::

    array A0: f64 at p0 + 8, strides (16384, 8)
    S0[i<R, j<2048, k<2048]: A2[i, j] = add(A2[i, j], mul(A0[i, k], A1[k, j]))
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from memopt.ir.identity import by_identity
from memopt.ir.linear import Linear
from memopt.ir.operations import called

TRIPS = "R"  # symbol: iterations of the patched loop that remain at entry, the current one included
LIMIT = "H"  # symbol: iterations the version runs, 1 <= H <= R - 1 (Region.left)


class ElementType(Enum):
    """What one element is. Integers are bit patterns; signedness is the operators' business."""

    F64 = "f64"
    F32 = "f32"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"

    size: int

    def __init__(self, text: str) -> None:
        self.size = int(text[1:]) // 8  # bytes

    @property
    def is_float(self) -> bool:
        return self in (ElementType.F64, ElementType.F32)


FLOATS = (ElementType.F64, ElementType.F32)
# The bits of +infinity by bytes: what is beyond them, the sign left out, is a NaN (Intel SDM 1, table 4-3).
INFINITY = {4: 0x7f800000, 8: 0x7ff0000000000000}


@dataclass(frozen=True, slots=True)
class Dimension:
    """One loop counter, 0 <= name < trips."""

    name: str
    trips: Linear

    def __str__(self) -> str:
        return f"{self.name}<{self.trips}"


@dataclass(frozen=True, slots=True)
class Array:
    """A delinearised array: ``address = base + sum(stride * subscript)``, all in bytes.

    ``base`` is Linear over live-in symbols. ``strides`` are positive, in decreasing order, the last one usually
    the element size. For every access the inner subscripts are proved in range (0 <= subscript * stride < the
    next outer stride), so two cells are equal exactly when all their subscripts are.

    ``private``: values that the original keeps in registers, expanded so that each subscript has a cell of its own.
    Nothing outside the nest sees them; ``base`` is 0, ``strides`` only give their rank, a plan's Storage says where
    they lie. Every cell is written before it is read.
    """

    name: str
    element: ElementType
    base: Linear
    strides: tuple[int, ...]
    private: bool = False

    def __str__(self) -> str:
        if self.private:
            return f"private {self.name}: {self.element.value}, {len(self.strides)} subscripts"
        strides = ", ".join(map(str, self.strides))
        return f"array {self.name}: {self.element.value} at {self.base}, strides ({strides})"


@dataclass(frozen=True, slots=True)
class Access:
    """``array[subscripts]``; subscripts are Linear over dimension names, one per array stride."""

    array: str
    subscripts: tuple[Linear, ...]

    def __str__(self) -> str:
        return f"{self.array}[{', '.join(map(str, self.subscripts))}]"


@dataclass(frozen=True, slots=True)
class Read:
    """Operand: the value of ``Statement.reads[index]``."""

    index: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """Operand: a live-in value that the region never changes, as raw bits: the element at byte ``offset`` of a
    vector register ("xmm3"; offsets from 16 on lie in the upper half of ymm3)."""

    register: str
    element: ElementType = ElementType.F64
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.register}[{self.offset}]" if self.offset else self.register


@dataclass(frozen=True, slots=True)
class Constant:
    """Operand: raw bits of one element."""

    bits: int
    element: ElementType = ElementType.F64


@dataclass(frozen=True, slots=True)
class Index:
    """Operand: an integer (I64 or I32) that is the low bits of ``value``, Linear over dimension names and live-in
    symbols: a loop counter used as data, or an integer the region never changes."""

    value: Linear
    element: ElementType


@dataclass(frozen=True, slots=True)
class Apply:
    """Operation on elements; ``element`` is the type of the result.

    =====================================  ==================================================================
    add sub mul div min max                floating, as the machine: ``min(a, b)`` is ``a < b ? a : b``
    sqrt neg abs                           floating, one operand (``neg`` flips, ``abs`` clears the sign bit)
    fma fms fnma fnms                      floating, (a, b, c): a*b+c, a*b-c, c-a*b, -(a*b)-c, rounded once
    and or xor andnot not                  on bit patterns, floating ones included; ``andnot`` is ~a & b
    add sub mul shl shr sar                integer, modulo 2**bits; counts are Constants below the width
    smin smax umin umax                    integer
    eq slt sle ult ule                     integer comparison, two operands of one type
    feq flt fle funord fqlt fqle           floating comparison; false when unordered (``funord``: either is NaN); quiet
                                           NaNs raise the invalid flag in ``flt`` and ``fle`` only
    select                                 (comparison, value if it holds, value if not)
    sext zext trunc                        integer to a wider or narrower integer
    i32tof64 i64tof64 i32tof32 i64tof32    signed integer to floating, rounded as MXCSR says
    f32to64 f64to32                        between floating formats
    f64toi32z f64toi64z f32toi32z f32toi64z  to a signed integer, towards zero; 0x80..0 when out of range
    bits                                   the same bits as another type of equal size
    beside                                 the first operand; floating-point operations beside it, of its type, are
                                           done for the flags they raise
    =====================================  ==================================================================

    A comparison's result is a truth value, used by ``select`` and by ``and or xor not`` of comparisons only; its
    ``element`` is the integer type as wide as the compared operands. Operand order is the machine's: the first is the
    destructive first source. It decides NaN payloads and must be kept by code generation.
    """

    operator: str
    operands: tuple[Expression, ...]
    element: ElementType = ElementType.F64


Expression = Read | Scalar | Constant | Index | Apply


@dataclass(frozen=True, slots=True)
class Statement:
    """``write = expression(reads)`` for every point of ``dimensions`` (outermost first) where every one of
    ``conditions``, Linear over dimension names and live-in symbols, is >= 0.

    ``position``: order among statements that share loops, the textual part of a 2d+1 schedule: statement order
    is lexicographic on (position[0], dim 0, position[1], dim 1, ..., position[d]).
    """

    name: str
    dimensions: tuple[Dimension, ...]
    write: Access
    reads: tuple[Access, ...]
    expression: Expression
    position: tuple[int, ...]
    conditions: tuple[Linear, ...] = ()

    def __str__(self) -> str:
        dimensions = ", ".join(map(str, self.dimensions))
        where = "".join(f", {c} >= 0" for c in self.conditions)
        return f"{self.name}[{dimensions}{where}]: {self.write} = {render(self.expression, self.reads)}"


@dataclass(frozen=True, slots=True)
class Scop:
    """Arrays with different names never share a byte inside the accessed footprints (proved or guarded)."""

    arrays: tuple[Array, ...]
    statements: tuple[Statement, ...]

    def array(self, name: str) -> Array:
        return next(a for a in self.arrays if a.name == name)

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.arrays, *self.statements)))


@by_identity
def has_calls(expression: Expression) -> bool:
    """Whether functions are called."""
    return isinstance(expression, Apply) and (
        called(expression.operator) is not None or any(map(has_calls, expression.operands)))


@by_identity
def has_extremes(expression: Expression) -> bool:
    """Whether a floating-point minimum or maximum is taken."""
    return isinstance(expression, Apply) and (
        expression.operator in ("min", "max") or any(map(has_extremes, expression.operands)))


def render(expression: Expression, reads: tuple[Access, ...]) -> str:
    return render_operands(expression, tuple(map(str, reads)))


def render_operands(expression: Expression, names: tuple[str, ...]) -> str:
    """The expression as text, with ``names`` for its reads."""
    match expression:
        case Read(index):
            return names[index]
        case Scalar():
            return str(expression)
        case Constant(bits):
            return f"{bits:#x}"
        case Index(value, element):
            return f"{element.value}({value})"
        case Apply(operator, operands, element):
            kind = "" if element is ElementType.F64 else f".{element.value}"
            return f"{operator}{kind}({', '.join(render_operands(o, names) for o in operands)})"
