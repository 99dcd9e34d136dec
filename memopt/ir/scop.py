"""The static control part: arrays, statements and their iteration domains, as lifted from machine code.

Dimensions count from 0. The outermost dimension of every statement is the patched loop; its trip count is the
run-time symbol ``R`` (iterations that remain, the current one included). Inner trip counts are Linear over
outer dimensions and live-in symbols; where sizes were specialised they are plain numbers.

Text form (golden tests)::

    array A0: f64 at p0 + 8, strides (16384, 8)
    S0[i<R, j<2048, k<2048]: A2[i, j] = add(A2[i, j], mul(A0[i, k], A1[k, j]))
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from memopt.ir.linear import Linear

TRIPS = "R"  # symbol: iterations of the patched loop that remain at entry, the current one included
LIMIT = "H"  # symbol: iterations the version runs, 1 <= H <= R - 1


class ElementType(Enum):
    F64 = "f64"
    F32 = "f32"

    @property
    def size(self) -> int:
        return 8 if self is ElementType.F64 else 4


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
    """

    name: str
    element: ElementType
    base: Linear
    strides: tuple[int, ...]

    def __str__(self) -> str:
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
    """Operand: a live-in value that the region never changes: a vector register's low element, as raw bits."""

    register: str  # "xmm3"


@dataclass(frozen=True, slots=True)
class Constant:
    """Operand: raw bits of one element."""

    bits: int


@dataclass(frozen=True, slots=True)
class Apply:
    """Operation on one element. ``operator``: add sub mul div min max (two operands), sqrt neg abs (one).

    Operand order is the machine's: the first is the destructive first source. It decides NaN payloads and must
    be kept by code generation.
    """

    operator: str
    operands: tuple[Expression, ...]


Expression = Read | Scalar | Constant | Apply


@dataclass(frozen=True, slots=True)
class Statement:
    """``write = expression(reads)`` for every point of the box of ``dimensions`` (outermost first).

    ``position``: order among statements that share loops, the textual part of a 2d+1 schedule: statement order
    is lexicographic on (position[0], dim 0, position[1], dim 1, ..., position[d]).
    """

    name: str
    dimensions: tuple[Dimension, ...]
    write: Access
    reads: tuple[Access, ...]
    expression: Expression
    position: tuple[int, ...]

    def __str__(self) -> str:
        dimensions = ", ".join(map(str, self.dimensions))
        return f"{self.name}[{dimensions}]: {self.write} = {render(self.expression, self.reads)}"


@dataclass(frozen=True, slots=True)
class Scop:
    """Arrays with different names never share a byte inside the accessed footprints (proved or guarded)."""

    arrays: tuple[Array, ...]
    statements: tuple[Statement, ...]

    def array(self, name: str) -> Array:
        return next(a for a in self.arrays if a.name == name)

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.arrays, *self.statements)))


def render(expression: Expression, reads: tuple[Access, ...]) -> str:
    return render_operands(expression, tuple(map(str, reads)))


def render_operands(expression: Expression, names: tuple[str, ...]) -> str:
    """The expression as text, with ``names`` for its reads."""
    match expression:
        case Read(index):
            return names[index]
        case Scalar(register):
            return register
        case Constant(bits):
            return f"{bits:#x}"
        case Apply(operator, operands):
            return f"{operator}({', '.join(render_operands(o, names) for o in operands)})"
