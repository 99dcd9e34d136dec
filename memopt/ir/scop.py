"""Static control parts (SCoPs): arrays, statements and their iteration domains, as lifted from machine code.

Dimensions count from 0. The outermost dimension of every statement is the patched loop; its trip count is the
run-time symbol ``R`` (the iterations that remain, the current one included). Inner trip counts are Linear over
outer dimensions and live-in symbols; specialised sizes are plain numbers. If a trip count is zero or negative in some
outer iteration, the loop does not run there (so triangular nests start or end).

Text form, which memopt.ir.parse reads back: defaults are not printed. ``at (...)`` is a statement's position, printed
unless it is all zeros. A scalar's or constant's type is printed where it is not that of the operation around it (f64
where there is none)::

    array A0: f64 at p0 + 8, strides (16384, 8)
    private P0: i64, strides (8)
    S0[i<R, j<2048, k<2048]: A2[i, j] = add(A2[i, j], mul(A0[i, k], A1[k, j]))
    S1[i<R, j<i, i - j - 4 >= 0] at (0, 1, 0): P0[i] = add.i64(P0[i], 0x1)

Names of arrays, statements, dimensions and vector registers are words (letters, digits, ``_``). A statement whose
reads are not those of its expression, each once and in that order, ends with the list of them
(``, reads B[i], A[i], B[i]``). An operand ``#2`` is the third of that list, where an equal one stands before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import TypeGuard

from memopt.ir.frozen import dataclass
from memopt.ir.identity import by_identity
from memopt.ir.linear import Linear
from memopt.ir.operations import COMPARING, PREDICATES, ROUNDINGS, called
from memopt.ir.reasons import Reason, Rejected

TRIPS = "R"  # symbol: iterations of the patched loop that remain at entry, the current one included
LIMIT = "H"  # symbol: iterations the version runs, 1 <= H <= R - 1 (Region.left)


class ElementType(Enum):
    """The type of an array element. Integers are bit patterns; operators decide whether they are signed."""

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


# Roundings to integral numbers, with the immediate of the instruction ("round9" is floor).
ROUNDS = {f"round{rounding}": rounding for rounding in ROUNDINGS}
# The operators of ``Apply``, beside calls of functions.
OPERATORS = frozenset((
    "add", "sub", "mul", "div", "min", "max", "sqrt", "neg", "abs", "fma", "fms", "fnma", "fnms", "and", "or",
    "xor", "andnot", "not", "shl", "shr", "sar", "smin", "smax", "umin", "umax", "eq", "slt", "sle", "ult", "ule",
    *PREDICATES, "select", "sext", "zext", "trunc", "i32tof64", "i64tof64", "i32tof32", "i64tof32", "f32to64",
    "f64to32", "f64toi32", "f64toi64", "f32toi32", "f32toi64", "f64toi32z", "f64toi64z", "f32toi32z", "f32toi64z",
    "bits", "beside", "when", *ROUNDS,
))
_ONE_OPERAND = frozenset((
    "sqrt", "neg", "abs", "not", "sext", "zext", "trunc", "i32tof64", "i64tof64", "i32tof32", "i64tof32", "f32to64",
    "f64to32", "f64toi32", "f64toi64", "f32toi32", "f32toi64", "f64toi32z", "f64toi64z", "f32toi32z", "f32toi64z",
    "bits", *ROUNDS,
))
_THREE_OPERANDS = frozenset(("fma", "fms", "fnma", "fnms", "select"))
FLOATS = (ElementType.F64, ElementType.F32)
_COMPARED = {ElementType.I64: ElementType.F64, ElementType.I32: ElementType.F32}
# The bits of +infinity, by bytes. Larger bit patterns, with the sign bit cleared, are NaNs (Intel SDM 1, table 4-3).
INFINITY = {4: 0x7f800000, 8: 0x7ff0000000000000}


def operand_counts(operator: str) -> tuple[int, int]:
    """The least and the greatest number of operands of an operator of ``Apply``. Functions take one or two; ``beside``
    takes a value, and operations that are done for their exception flags.
    """
    if operator in OPERATORS and operator != "beside":
        count = 1 if operator in _ONE_OPERAND else 3 if operator in _THREE_OPERANDS else 2
        return count, count
    return (1, 2) if operator != "beside" else (2, 1 << 16)


@dataclass(frozen=True, slots=True)
class Dimension:
    """A loop of the iteration domain: its counter ``name`` with ``0 <= name < trips``."""

    name: str
    trips: Linear

    def __str__(self) -> str:
        return f"{self.name}<{self.trips}"


@dataclass(frozen=True, slots=True)
class SymbolicStride:
    """A stride in bytes that differs between entries: ``value`` over live-in symbols, ``seen`` at the captured one.
    Cost models use ``seen``; code and proofs use ``value``."""

    value: Linear
    seen: int

    def __str__(self) -> str:
        return f"{self.value} = {self.seen}"


Stride = int | SymbolicStride


def bytes_of(stride: Stride) -> Linear:
    """``stride`` as an expression."""
    return stride.value if isinstance(stride, SymbolicStride) else Linear.of(stride)


@dataclass(frozen=True, slots=True)
class Array:
    """A delinearised array: ``address = base + sum(stride * subscript)``, all in bytes.

    ``base`` is Linear over live-in symbols. ``strides`` are positive, in decreasing order, the last one usually
    the element size. For every access the inner subscripts are proved in range (0 <= subscript * stride < the
    next outer stride), so two cells are equal exactly when all their subscripts are. A stride may be a symbol, as in
    ``a[i * n + k]`` with n = 1000 at one entry and 1200 at the next: ``strides (8*n:rcx = 8000, 8)``.

    ``private``: the result of scalar expansion. It holds values that the original keeps in registers, each subscript
    in a cell of its own. Nothing outside the nest sees it. ``base`` is 0, and ``strides`` only give the rank; the
    plan's ``Storage`` says where it lies. Every cell is written before it is read.
    """

    name: str
    element: ElementType
    base: Linear
    strides: tuple[Stride, ...]
    private: bool = False

    @property
    def known_strides(self) -> tuple[int, ...]:
        """The strides as numbers. Raises ``Rejected(NO_PLAN)`` where one differs between entries."""
        if any(isinstance(s, SymbolicStride) for s in self.strides):
            raise Rejected(Reason.NO_PLAN, "rows are as long as the entry says, and the loop is no contraction")
        return tuple(s for s in self.strides if isinstance(s, int))

    @property
    def seen_strides(self) -> tuple[int, ...]:
        """The strides at the captured entry, for cost models."""
        return tuple(s.seen if isinstance(s, SymbolicStride) else s for s in self.strides)

    def __str__(self) -> str:
        kind = "private" if self.private else "array"
        base = "" if self.private and self.base == Linear() else f" at {self.base}"
        return f"{kind} {self.name}: {self.element.value}{base}, strides ({', '.join(map(str, self.strides))})"


@dataclass(frozen=True, slots=True)
class Access:
    """The access relation ``array[subscripts]``: Linear over dimension names, one subscript for each stride."""

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
        return f"{self.register}[{self.offset}:{self.offset + self.element.size}]" if self.offset else self.register


@dataclass(frozen=True, slots=True)
class Constant:
    """Operand: raw bits of one element."""

    bits: int
    element: ElementType = ElementType.F64


@dataclass(frozen=True, slots=True)
class Index:
    """Operand: an integer (I64 or I32), the low bits of ``value``, which is Linear over dimension names and live-in
    symbols: a loop counter used as data, or a loop-invariant integer."""

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
    feq flt fle funord                     floating comparison; false when unordered (``funord``: either is NaN); quiet
                                           NaNs raise the invalid flag in ``flt`` and ``fle`` only
    fseq fqlt fqle fsunord                 the same; quiet NaNs raise it in ``fseq`` and ``fsunord`` only
    select                                 (comparison, value if it holds, value if not)
    sext zext trunc                        integer to a wider or narrower integer
    i32tof64 i64tof64 i32tof32 i64tof32    signed integer to floating, rounded as MXCSR says
    f32to64 f64to32                        between floating formats
    f64toi32z f64toi64z f32toi32z f32toi64z  to a signed integer, towards zero; 0x80..0 when out of range
    f64toi32 f64toi64 f32toi32 f32toi64    the same, rounded as MXCSR says
    round0 ... round4, round8 ... round12  to an integral floating-point number; the number is the immediate of ROUNDPD
                                           (``memopt.ir.operations``, rounding)
    bits                                   the same bits as another type of equal size
    beside                                 the first operand; floating-point operations beside it, of its type, are
                                           done for the flags they raise
    when                                   (comparison, value): see below
    =====================================  ==================================================================

    ``when`` is the only operator that decides about an access to memory. As the whole expression of a statement it says
    that the statement stores the value only where the comparison holds: ``A[i] = when(flt.i64(A[i], x), x)``. Its value
    is computed everywhere. Anywhere else its second operand is a ``Read``, which is performed only where the comparison
    holds; elsewhere the operation is 0. A cell that is passed over is neither read nor written.

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
    """``write = expression(reads)`` at every point of the iteration domain: all values of ``dimensions`` (outermost
    first) at which each of ``conditions``, Linear over dimension names and live-in symbols, is >= 0.

    ``position``: the textual part of a 2d+1 schedule, which orders statements that share loops. Instances run in
    lexicographic order of (position[0], dim 0, position[1], dim 1, ..., position[d]).
    """

    name: str
    dimensions: tuple[Dimension, ...]
    write: Access
    reads: tuple[Access, ...]
    expression: Expression
    position: tuple[int, ...]
    conditions: tuple[Linear, ...] = ()

    @property
    def condition(self) -> Expression | None:
        """The comparison where the statement stores; None: it stores at every point."""
        return self.expression.operands[0] if _is_when(self.expression) else None

    @property
    def value(self) -> Expression:
        """What is stored."""
        return self.expression.operands[1] if _is_when(self.expression) else self.expression

    def __str__(self) -> str:
        domain = ", ".join((*map(str, self.dimensions), *(f"{c} >= 0" for c in self.conditions)))
        at = f" at ({', '.join(map(str, self.position))})" if self.position != unordered(self.dimensions) else ""
        used = tuple(dict.fromkeys(reads_of(self.expression)))
        implied = used == tuple(range(len(self.reads))) == tuple(map(self.reads.index, self.reads))
        reads = "" if implied else ", reads " + ", ".join(map(str, self.reads))
        names = tuple(str(r) if self.reads.index(r) == n else f"#{n}" for n, r in enumerate(self.reads))
        return f"{self.name}[{domain}]{at}: {self.write} = {render_operands(self.expression, names, FLOATS[0])}{reads}"


def _is_when(expression: Expression) -> TypeGuard[Apply]:
    return isinstance(expression, Apply) and expression.operator == "when"


_EXTREMES = {"flt": ("min", "max"), "slt": ("smin", "smax"), "ult": ("umin", "umax")}


@by_identity
def extreme(statement: Statement) -> Expression | None:
    """``min(x, W)`` for ``W = when(x < W, x)``, ``max(x, W)`` for ``W = when(W < x, x)``; None for other statements.

    It has the value of the cell afterwards, and the same exception flags. A store changes the bits of the cell, because
    only a number that is less (or greater) is stored. So after any number of such statements, at least one has stored
    exactly where the bits are not what they were. The statement reads its cell at every point.
    """
    match statement.expression:
        case Apply("when", (Apply("flt" | "slt" | "ult" as less, (first, second)), value), element):
            for number, (other, old) in enumerate(((first, second), (second, first))):
                if other == value and isinstance(old, Read) and statement.reads[old.index] == statement.write:
                    return Apply(_EXTREMES[less][number], (value, old), element)
    return None


def evaluated(node: Expression) -> tuple[Expression, ...]:
    """The operands of ``node`` that are values of their own: not the read that ``when`` performs or passes over."""
    if not isinstance(node, Apply):
        return ()
    return node.operands[:1] if _is_when(node) and isinstance(node.operands[1], Read) else node.operands


def plain_reads(expression: Expression) -> frozenset[int]:
    """The reads that a statement with this ``expression`` performs at every point, by index."""
    parts = expression.operands if _is_when(expression) else (expression,)
    return frozenset().union(*map(_plain, parts))


@by_identity
def _plain(node: Expression) -> frozenset[int]:
    return frozenset((node.index,)) if isinstance(node, Read) else frozenset().union(*map(_plain, evaluated(node)))


def misplaced(expression: Expression) -> bool:
    """Whether a ``when`` stands where it means nothing: below the top of the expression, over anything but a read."""
    parts = expression.operands if _is_when(expression) else (expression,)
    return any(map(_misplaced, parts))


@by_identity
def _misplaced(node: Expression) -> bool:
    if _is_when(node) and not isinstance(node.operands[1], Read):
        return True
    return any(map(_misplaced, evaluated(node)))


def unordered(dimensions: tuple[Dimension, ...]) -> tuple[int, ...]:
    """The position of a statement that is the first in each of its loops."""
    return (0,) * (len(dimensions) + 1)


def reads_of(expression: Expression) -> Iterator[int]:
    """Indices of the reads, from left to right."""
    if isinstance(expression, Read):
        yield expression.index
    elif isinstance(expression, Apply):
        for operand in expression.operands:
            yield from reads_of(operand)


def largest(expression: Expression, wanted: Callable[[Expression], bool]) -> Iterator[Expression]:
    """The subtrees that are ``wanted`` and lie in no larger one that is, from left to right."""
    if wanted(expression):
        yield expression
    elif isinstance(expression, Apply):
        for operand in expression.operands:
            yield from largest(operand, wanted)


@dataclass(frozen=True, slots=True)
class Scop:
    """Arrays and the statements over them. Arrays with different names never share a byte inside their footprints:
    that is proved or guarded."""

    arrays: tuple[Array, ...]
    statements: tuple[Statement, ...]

    @property
    def strided(self) -> bool:
        """Whether an array has a stride that differs between entries."""
        return any(isinstance(s, SymbolicStride) for a in self.arrays for s in a.strides)

    def array(self, name: str) -> Array:
        """The array called ``name``, which the SCoP has."""
        return next(a for a in self.arrays if a.name == name)

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.arrays, *self.statements)))


@by_identity
def has_calls(expression: Expression) -> bool:
    """Whether the expression calls functions (memopt.ir.operations: ``call F``)."""
    return isinstance(expression, Apply) and (
        called(expression.operator) is not None or any(map(has_calls, expression.operands)))


@by_identity
def has_extremes(expression: Expression) -> bool:
    """Whether the expression has a floating-point minimum or maximum."""
    return isinstance(expression, Apply) and (
        expression.operator in ("min", "max") or any(map(has_extremes, expression.operands)))


def render(expression: Expression, reads: tuple[Access, ...]) -> str:
    """The expression as text, over ``reads``."""
    return render_operands(expression, tuple(map(str, reads)))


def render_operands(expression: Expression, names: tuple[str, ...], usual: ElementType | None = None) -> str:
    """The expression as text, with ``names`` for its reads. A scalar or constant has its type as a suffix, unless that
    is ``usual``; None: no suffixes at all.
    """
    match expression:
        case Read(index):
            return names[index]
        case Scalar(_, element):
            return str(expression) + ("" if usual in (element, None) else f".{element.value}")
        case Constant(bits, element):
            return f"{bits:#x}" + ("" if usual in (element, None) else f".{element.value}")
        case Index(value, element):
            return f"{element.value}({value})"
        case Apply(operator, operands, element):
            kind = "" if element is ElementType.F64 else f".{element.value}"
            inner = usual_operand(operator, element)
            return f"{operator}{kind}({', '.join(render_operands(o, names, inner) for o in operands)})"


def usual_operand(operator: str, element: ElementType) -> ElementType:
    """The operand type that the text form omits: the operation's own type; for a floating-point comparison, the type of
    the compared operands, which is as wide.
    """
    return _COMPARED.get(element, element) if operator in COMPARING else element
