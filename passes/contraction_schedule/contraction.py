"""A contraction seen through its plan: the strides, roles and panel sizes that the generator needs.

The statement is ``W = expression(W, reads)`` over a box of iterations, or ``if (x < W) W = x``. W has stride 0 along
the reduction dimension. Every other read varies along the rows or along the vector dimension of the register tile, not
along both.

Example: in ``C[i][j] += A[i][k] * B[k][j]`` with rows i and vector dimension j, A is broadcast (one value for a row), B
is a vector operand (one value for each lane).

In: a ``Region`` of one statement and its ``Plan``. Out: a ``Contraction``, or ``Rejected`` for any other shape.
Invariant: constructing a ``Contraction`` checks everything that code generation relies on, so that the generator needs
no checks of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear, product
from memopt.ir.plan import Isa, Pack, Plan
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.ir.region import Region
from memopt.ir.scop import (
    LIMIT,
    TRIPS,
    Access,
    Apply,
    ElementType,
    Expression,
    Index,
    Read,
    Scop,
    Statement,
    bytes_of,
    extreme,
    largest,
    reads_of,
)

_OPERATORS = {"add": 2, "sub": 2, "mul": 2, "div": 2, "min": 2, "max": 2, "sqrt": 1}


class Role(Enum):
    """How an operand enters the register tile: one value for a whole row (broadcast), or one value for each lane
    (vector)."""

    BROADCAST = "broadcast"
    VECTOR = "vector"


@dataclass(frozen=True, slots=True)
class AffineAccess:
    """An affine access in bytes: ``address = base + sum(stride * dimension)``. ``base`` and strides are Linear over
    live-in symbols; dimensions that do not move the access are left out."""

    base: Linear
    strides: tuple[tuple[str, Linear], ...]

    def stride(self, dimension: str) -> Linear:
        """Bytes from one iteration of ``dimension`` to the next."""
        return next((s for d, s in self.strides if d == dimension), Linear())

    def moves(self, dimension: str) -> bool:
        """Whether the access moves along ``dimension``."""
        return any(d == dimension for d, _ in self.strides)


@dataclass(frozen=True, slots=True)
class Operand:
    """A packed operand: panels of ``pack.width`` elements along ``pack.dimension``, by the reduction.

    A panel holds, for each k in ascending order, ``width`` elements, each repeated ``copies`` times (SSE2 has no
    broadcasting load). ``computed``: it holds the values of this expression over the element and live-in values.
    """

    stream: AffineAccess
    role: Role
    pack: Pack
    copies: int
    depth: int  # iterations of the reduction that a panel has room for
    panels: int  # panels that the scratch memory has room for
    computed: Expression | None = None

    def step(self, element: int) -> int:
        """Bytes from one k to the next inside a panel. ``element``: bytes of an element."""
        return self.pack.width * element * self.copies

    def panel_bytes(self, element: int) -> int:
        """Bytes of one panel: a multiple of ``step`` and of 64."""
        return -(-self.depth // 16) * 16 * self.step(element)

    def size(self, element: int) -> int:
        """Bytes of all panels."""
        return self.panels * self.panel_bytes(element)


@dataclass(frozen=True, slots=True)
class Contraction:
    """A contraction as the generator sees it: statement, plan, and affine accesses of the result and the operands."""

    plan: Plan
    statement: Statement
    element: ElementType
    # Trip count of each dimension, outermost first: a number, or known at entry only (H for the patched loop).
    extents: tuple[tuple[str, Linear], ...]
    result: AffineAccess
    # Indices of the reads that are the written cell; ``operands``: the other reads, by index.
    accumulators: frozenset[int]
    operands: tuple[tuple[int, Operand], ...]
    # A result is stored only where its bits have changed (memopt.ir.scop.extreme).
    changed: bool = False

    @property
    def isa(self) -> Isa:
        """The instruction set of the plan."""
        return self.plan.isa

    @property
    def row_count(self) -> int:
        """Rows of the register tile."""
        return self.plan.tile.row_count

    @property
    def column_count(self) -> int:
        """Elements in one row of the register tile."""
        return self.plan.tile.vector_count * self.plan.tile.lanes


def contraction(region: Region, plan: Plan) -> Contraction:
    """The region's statement seen through ``plan``.

    Raises ``Rejected`` when the statement does not have the shape of a contraction, and ``VerifyError`` when the plan
    contradicts the region. Which dimensions are parallel is for the scheduler to prove; checked here is only that the
    reductions of each result keep their order.
    """
    statement = next(s for s in region.scop.statements if s.name == plan.statement)
    if len(region.scop.statements) != 1:
        raise Rejected(Reason.NO_SCHEDULE, "the nest has several statements; a contraction has one")
    element = element_of(region.scop, statement)
    dimensions = tuple(d.name for d in statement.dimensions)
    extents = tuple(_extents(statement))
    result = _stream(region.scop, statement.write, dimensions)
    _check_tile(plan, element, dimensions)
    _check_order(plan, result, dimensions)
    accumulators = frozenset(i for i, r in enumerate(statement.reads) if r == statement.write)
    operands = []
    known = {d: e.constant if e.is_constant else None for d, e in extents}
    for index, access in enumerate(statement.reads):
        if index not in accumulators:
            if access.array == statement.write.array:
                raise Rejected(Reason.NO_SCHEDULE, f"the operand {access} is also written")
            stream = _stream(region.scop, access, dimensions)
            operands.append((index, _operand(plan, known, stream, index)))
    smaller = extreme(statement)
    expression, packed = _computed_when_packed(smaller or statement.expression, operands)
    return Contraction(plan, replace(statement, expression=expression), element, extents, result, accumulators, packed,
                       smaller is not None)


def _computed_when_packed(expression: Expression, operands: Iterable[tuple[int, Operand]]
                          ) -> tuple[Expression, tuple[tuple[int, Operand], ...]]:
    """``expression`` with a read in place of each subtree that depends on one element and live-in values, and the
    operands that hold the value of that subtree. It is computed when its element is packed, not for each result.

    Example: in ``c + (alpha * b) * a``, the panels of b hold ``alpha * b``. An element that is used in other ways, too,
    stays as it is. Sound: the original computes the subtree for each packed element, with the same operands, so its
    exception flags are raised there, too."""
    packed = list[tuple[int, Operand]]()
    for index, operand in operands:
        match list(dict.fromkeys(largest(expression, _reading(index)))):
            case [Apply() as tree]:
                expression = _with(expression, tree, Read(index))
                operand = replace(operand, computed=tree)
        packed.append((index, operand))
    return expression, tuple(packed)


def _reading(index: int) -> Callable[[Expression], bool]:
    """Whether an expression reads the operand with this index, and nothing else."""
    return lambda node: set(reads_of(node)) == {index}


def _with(node: Expression, old: Expression, new: Expression) -> Expression:
    """``node`` with ``new`` in place of ``old``."""
    if node == old:
        return new
    return replace(node, operands=tuple(_with(n, old, new) for n in node.operands)) if isinstance(node, Apply) else node


def element_of(scop: Scop, statement: Statement) -> ElementType:
    """The element type of a statement that computes in one floating-point type throughout.

    Raises ``Rejected(NO_PLAN)`` or ``Rejected(NO_SCHEDULE)`` for mixed types, integers, conditions, private arrays and
    operators that the micro-kernel does not have.
    """
    arrays = [scop.array(a.array) for a in (statement.write, *statement.reads)]
    elements = {a.element for a in arrays}
    if len(elements) != 1:
        raise Rejected(Reason.NO_PLAN, "float and double are mixed in the statement")
    element = elements.pop()
    if not element.is_float or statement.conditions or any(a.private for a in arrays):
        raise Rejected(Reason.NO_PLAN, "contractions have no integers, no conditions and no values kept in registers")
    _check_expression(extreme(statement) or statement.expression, element)
    return element


def _extents(statement: Statement) -> Iterator[tuple[str, Linear]]:
    names = {d.name for d in statement.dimensions}
    for position, dimension in enumerate(statement.dimensions):
        if position == 0:
            if dimension.trips != Linear.symbol(TRIPS):
                raise VerifyError(f"outermost trip count is {dimension.trips}, not {TRIPS}")
            yield dimension.name, Linear.symbol(LIMIT)
        elif dimension.trips.symbols & names or dimension.trips.quotients:
            raise Rejected(Reason.NO_SCHEDULE, f"the bound {dimension.trips} of loop {dimension.name} varies")
        else:
            yield dimension.name, dimension.trips


def _stream(scop: Scop, access: Access, dimensions: tuple[str, ...]) -> AffineAccess:
    array = scop.array(access.array)
    base, strides = array.base, dict.fromkeys(dimensions, Linear())
    for stride, subscript in zip(map(bytes_of, array.strides), access.subscripts, strict=True):
        base = base + product(subscript.without(*dimensions), stride)
        for dimension in dimensions:
            strides[dimension] += stride * subscript.coefficient(dimension)
    return AffineAccess(base, tuple((d, s) for d, s in strides.items() if s != Linear()))


def _check_tile(plan: Plan, element: ElementType, dimensions: tuple[str, ...]) -> None:
    tile = plan.tile
    if tile.lanes * element.size != plan.isa.vector_bytes:
        raise VerifyError(f"{tile.lanes} lanes of {element.value} are not one {plan.isa.value} vector")
    if len({tile.rows, tile.vector, tile.reduction}) != 3 or not {tile.rows, tile.vector, tile.reduction} <= set(
            dimensions):
        raise VerifyError(f"{tile} does not name three dimensions of the statement")
    innermost = {loop.dimension: loop.size for loop in plan.loops}
    for dimension in dimensions:
        if dimension == tile.reduction:
            continue
        size = {tile.rows: tile.row_count, tile.vector: tile.vector_count * tile.lanes}.get(dimension, 1)
        if innermost.get(dimension) != size:
            raise VerifyError(f"innermost tile of {dimension} is {innermost.get(dimension)}, not {size}")


def _check_expression(expression: Expression, element: ElementType) -> None:
    if isinstance(expression, Read):
        return
    if isinstance(expression, Index) or expression.element is not element:
        raise Rejected(Reason.NO_SCHEDULE, "the operands of the contraction have several types")
    if isinstance(expression, Apply):
        if _OPERATORS.get(expression.operator) != len(expression.operands):
            raise Rejected(Reason.NO_SCHEDULE, f"contractions cannot compute {expression.operator}")
        for operand in expression.operands:
            _check_expression(operand, element)


def _check_order(plan: Plan, result: AffineAccess, dimensions: tuple[str, ...]) -> None:
    """Each result must get its reductions in the original order. The innermost reduction ascends by construction of the
    loops. Further reduction dimensions must be outside it and run in their order, one iteration at a time."""
    reductions = [d for d in dimensions if not result.moves(d)]
    if {plan.tile.rows, plan.tile.vector} & set(reductions):
        raise VerifyError(f"{plan.tile}: several iterations would write one result")
    if not reductions or reductions[-1] != plan.tile.reduction:
        raise Rejected(Reason.NO_SCHEDULE, "the plan's reduction is not the innermost reduction loop")
    order = [loop.dimension for loop in plan.loops if loop.dimension in reductions]
    if [d for i, d in enumerate(order) if d not in order[:i]] != [d for d in reductions if d in order]:
        raise Rejected(Reason.NO_SCHEDULE, "the plan would reorder the reductions")
    if any(order.count(d) > 1 for d in reductions[:-1]) or (reductions[-1] in order
                                                           and order.index(reductions[-1]) < len(reductions) - 1):
        raise Rejected(Reason.NO_SCHEDULE, "the plan would reorder the reductions")


def _operand(plan: Plan, extents: dict[str, int | None], stream: AffineAccess, index: int) -> Operand:
    """The operand's role and panels. Without a ``Pack`` in the plan it is packed at the outermost loop where that is
    possible."""
    tile = plan.tile
    if not stream.moves(tile.vector):
        role, dimension, width = Role.BROADCAST, tile.rows, tile.row_count
    elif not stream.moves(tile.rows):
        role, dimension, width = Role.VECTOR, tile.vector, tile.vector_count * tile.lanes
    else:
        raise Rejected(Reason.NO_SCHEDULE, f"read {index} varies along rows and vectors of the register tile")
    pack = next((p for p in plan.packs if p.read == index), None)
    if pack is None:
        pack = Pack(index, dimension, width, _default_level(plan, extents, stream, dimension))
    if (pack.dimension, pack.width) != (dimension, width):
        raise VerifyError(f"{pack}: the register tile wants {dimension}-panels of {width}")
    depth = _room(plan, extents, tile.reduction, pack.level)
    count = _room(plan, extents, dimension, pack.level)
    late = [loop.dimension for loop in plan.loops[pack.level + 1:]
            if loop.dimension not in (tile.reduction, dimension) and stream.moves(loop.dimension)]
    if depth is None or count is None or late:
        raise VerifyError(f"{pack}: the packed block is not fixed inside that loop")
    copies = tile.lanes if plan.isa is Isa.SSE2 and role is Role.BROADCAST else 1
    return Operand(stream, role, pack, copies, depth, -(-count // width))


def _room(plan: Plan, extents: dict[str, int | None], dimension: str, level: int) -> int | None:
    """The most iterations of ``dimension`` inside loop number ``level``; None when that is unbounded at compile time.
    """
    sizes = [loop.size for loop in plan.loops[:level + 1] if loop.dimension == dimension]
    extent = extents[dimension]
    return min([*sizes[-1:], *([extent] if extent is not None else [])], default=None)


def _default_level(plan: Plan, extents: dict[str, int | None], stream: AffineAccess, dimension: str) -> int:
    """The outermost loop inside which every loop that the operand depends on is fixed, except the loops over its
    panels."""
    level = max((i for i, loop in enumerate(plan.loops)
                 if loop.dimension != dimension
                 and (loop.dimension == plan.tile.reduction or stream.moves(loop.dimension))), default=-1)
    while level < len(plan.loops) - 1 and _room(plan, extents, dimension, level) is None:
        level += 1
    return level
