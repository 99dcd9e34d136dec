"""The iteration domain and the addresses of a leaf, as affine functions of the three axes of a macro instance.

Example: ``C[i][j] += A[i][k] * B[k][j]`` with dates floor(i/8) and floor(j/32), rows i, vector j, sequential k. The
address of A[i][k] is ``row*r + sequential*k + rest`` with row = bytes of a row of A and sequential = 8. The bounds
are r >= 0, r < trip count, 0 <= r - 8*date0 <= 7 and so on.

In: the SCoP, the plan and one of its leaves. Out: a ``LeafShape``. The dates and the numbers on the three axes fix a
point of the statement: every other dimension is computed from them by the dates with divisor 1 and the equalities among
the statement's conditions. In a macro instance that has points, ``bounds`` hold exactly for these points. An axis that
the leaf does not name has the single number 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import gcd

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.plan import Leaf, LoopPlan, Storage
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.ir.scop import (
    LIMIT,
    Access,
    Apply,
    Array,
    Constant,
    ElementType,
    Expression,
    Index,
    Scalar,
    Scop,
    Statement,
    extreme,
    misplaced,
)
from memopt.polyhedral.isl import Polyhedron, budget
from passes.loop_code.fma import fused
from passes.loop_code.narrowing import narrowed

ROW, VECTOR, SEQUENTIAL = "its row", "its vector", "its sequence"  # symbols of the axes; no dimension has these names
AXES = (ROW, VECTOR, SEQUENTIAL)


def date_name(number: int) -> str:
    """The symbol that stands for date ``number``; no live-in and no dimension has this name."""
    return f"date {number}"


@dataclass(frozen=True, slots=True)
class Along:
    """An affine function of the axes: ``row*r + vector*v + sequential*k + rest``.

    ``rest`` is Linear over dates and symbols.
    """

    row: int
    vector: int
    sequential: int
    rest: Linear

    def factor(self, axis: str) -> int:
        """The coefficient of ``axis``."""
        return {ROW: self.row, VECTOR: self.vector, SEQUENTIAL: self.sequential}[axis]

    def __str__(self) -> str:
        return f"{self.row}*r + {self.vector}*v + {self.sequential}*k + {self.rest}"


@dataclass(frozen=True, slots=True)
class AccessAlong:
    """The access relation of one read or write: the byte address of its element at each point."""

    array: str
    element: ElementType
    address: Along


@dataclass(frozen=True, slots=True)
class LeafShape:
    """A leaf in terms of the three axes: its iteration domain, its accesses, its loop counters used as data."""

    leaf: Leaf
    statement: Statement
    bounds: tuple[Along, ...]  # the iteration domain: each is >= 0 at every point
    write: AccessAlong
    reads: tuple[AccessAlong, ...]  # in the order of the statement's reads
    indices: Mapping[Index, Along]  # values of the ``Index`` operands that are not the same at every point
    # A result that stays in a register is stored only where its bits have changed (memopt.ir.scop.extreme). The
    # statement's expression is then the extreme.
    changed: bool = False

    @property
    def row_bounds(self) -> tuple[Along, ...]:
        """The bounds of the rows of a macro instance: the other axes are eliminated."""
        return tuple(b for b in eliminate(self.row_vector_bounds, VECTOR) if b.row)

    @property
    def row_vector_bounds(self) -> tuple[Along, ...]:
        """The bounds of row and vector numbers together: the sequential axis is eliminated."""
        return eliminate(self.bounds, SEQUENTIAL)

    @property
    def nodes(self) -> Iterator[Expression]:
        """Every node of the statement's expression."""
        return _nodes(self.statement.expression)

    def is_constant(self, node: Expression) -> bool:
        """Whether ``node`` is an operand (no operation, no read) with the same value at every point."""
        return isinstance(node, Scalar | Constant) or (isinstance(node, Index) and node not in self.indices)

    def with_definitions(self) -> tuple[LeafShape, tuple[tuple[str, Linear], ...]]:
        """The shape with each distinct sum over dates and symbols named, and the definitions of these names.

        Code evaluates a named sum once per macro instance (common subexpressions of bounds and addresses).
        """
        names: dict[Linear, str] = {}

        def named(along: Along) -> Along:
            varying = along.rest + -along.rest.constant
            if len(varying.terms) <= 1 and all(abs(c) == 1 for _, c in varying.terms):
                return along
            sign = 1 if varying.terms[0][1] > 0 else -1  # so that sums of opposite sign cancel
            name = names.setdefault(varying * sign, f"sum {len(names)}")
            return replace(along, rest=Linear.symbol(name, sign, along.rest.constant))

        def stream(old: AccessAlong) -> AccessAlong:
            return replace(old, address=named(old.address))

        shape = replace(self, bounds=tuple(map(named, self.bounds)), write=stream(self.write),
                        reads=tuple(map(stream, self.reads)),
                        indices={node: named(along) for node, along in self.indices.items()})
        return shape, tuple((name, definition) for definition, name in names.items())


def leaf_shape(scop: Scop, plan: LoopPlan, leaf: Leaf, scratch: Mapping[str, Linear]) -> LeafShape:
    """The shape of ``leaf``; ``scratch`` gives the address of each array that has a ``Storage``.

    Raises ``VerifyError`` where dates and axes do not fix a point of the statement, Rejected(NO_SCHEDULE) where an axis
    is not bounded.
    """
    statement = next(s for s in plan.statements if s.name == leaf.statement)
    smaller = extreme(statement) if leaf.promote else None
    statement = statement if smaller is None else replace(statement, expression=smaller)
    if misplaced(statement.expression) or (leaf.promote and statement.condition is not None):
        raise VerifyError(f"{leaf} does not keep the conditions of {statement}")
    types = [scop.array(r.array).element for r in statement.reads]
    expression = fused(statement.expression) if plan.fuse_multiply_add else statement.expression
    statement = replace(statement, expression=narrowed(expression, types))
    point = _point(statement, leaf)
    leaf = _with_free_axes(leaf, point)
    bounds = _needed(tuple(dict.fromkeys(_bounds(statement, leaf, point))))
    storage = {s.array: s for s in plan.storage}

    def stream(access: Access) -> AccessAlong:
        array = scop.array(access.array)
        home = _home(array, access, storage.get(array.name), scratch)
        return AccessAlong(array.name, array.element, _along(home.substitute(point)))

    dimensions = {dimension.name for dimension in statement.dimensions}
    indices = {node: _along(node.value.substitute(point)) for node in _nodes(statement.expression)
               if isinstance(node, Index) and (node.value.quotients or node.value.symbols & dimensions)}
    shape = LeafShape(leaf, statement, bounds, stream(statement.write), tuple(map(stream, statement.reads)), indices,
                      smaller is not None)
    _check_bounded(shape)
    return _aligned(shape)


def _aligned(shape: LeafShape) -> LeafShape:
    """Loop skewing: the steps of each lane counted from the lane's own first step, where more lanes then share steps.

    Example: in ``for (j) for (k = j; k < j+9; k++)`` with lanes j, the steps k - j are the same in all lanes. Legal
    because lanes are independent: one lane may be any number of steps ahead of another. Not done where more accesses
    would be to lanes apart in memory (``_apart``).
    """
    for axis in (ROW, VECTOR):
        ahead = {0, *(-b.factor(axis) * b.sequential for b in shape.bounds if abs(b.sequential) == 1)}
        candidates = [_shifted(shape, axis, by) for by in sorted(ahead, key=abs)]
        near = [c for c in candidates if _apart(c) <= _apart(shape)]
        shape = min(near, key=lambda c: sum(b.sequential != 0 and b.factor(axis) != 0 for b in c.bounds))
    return shape


def _apart(shape: LeafShape) -> int:
    """The number of accesses whose lanes neither are neighbours in memory nor read one cell."""
    return sum(s.address.vector not in (0, s.element.size) for s in (shape.write, *shape.reads))


def _shifted(shape: LeafShape, axis: str, by: int) -> LeafShape:
    """The shape with k = k' + by * (number on ``axis``) substituted for the sequential number k."""
    def moved(along: Along) -> Along:
        change = along.sequential * by
        return replace(along, row=along.row + change) if axis == ROW else replace(along, vector=along.vector + change)

    return replace(shape, bounds=tuple(map(moved, shape.bounds)),
                   write=replace(shape.write, address=moved(shape.write.address)),
                   reads=tuple(replace(r, address=moved(r.address)) for r in shape.reads),
                   indices={node: moved(along) for node, along in shape.indices.items()})


def domain(statement: Statement) -> Iterator[Linear]:
    """The iteration domain that a version runs: expressions that are >= 0 at its points and only there."""
    for number, dimension in enumerate(statement.dimensions):
        yield Linear.symbol(dimension.name)
        trips = dimension.trips if number else Linear.symbol(LIMIT)
        yield trips - 1 - Linear.symbol(dimension.name)
    yield from statement.conditions


def eliminate(bounds: tuple[Along, ...], axis: str) -> tuple[Along, ...]:
    """Fourier-Motzkin elimination of ``axis``: what ``bounds`` imply for the other axes, over the rationals.

    Bounds that name no axis are dropped.
    """
    kept = [b for b in bounds if not b.factor(axis)]
    for low in bounds:
        for high in bounds:
            if low.factor(axis) > 0 > high.factor(axis):
                down, up = low.factor(axis), -high.factor(axis)
                kept.append(Along(low.row * up + high.row * down, low.vector * up + high.vector * down,
                                  low.sequential * up + high.sequential * down, low.rest * up + high.rest * down))
    return tuple(dict.fromkeys(_reduced(b) for b in kept if b.row or b.vector or b.sequential))


def _reduced(bound: Along) -> Along:
    """``bound`` divided by the greatest common divisor of its coefficients and its constant."""
    factors = (bound.row, bound.vector, bound.sequential, bound.rest.constant, *(c for _, c in bound.rest.terms))
    common = gcd(*factors)
    if common == 1:
        return bound
    rest = Linear.build({s: c // common for s, c in bound.rest.terms}, bound.rest.constant // common)
    return Along(bound.row // common, bound.vector // common, bound.sequential // common, rest)


def _axes(leaf: Leaf) -> dict[str, str]:
    names = {leaf.rows: ROW, leaf.vector: VECTOR, leaf.sequential: SEQUENTIAL}
    return {dimension: axis for dimension, axis in names.items() if dimension is not None}


def _with_free_axes(leaf: Leaf, point: dict[str, Linear]) -> Leaf:
    """The leaf without those of its axes whose number the dates fix: one number in each macro instance."""
    free = {s for value in point.values() for s in value.symbols}

    def kept(dimension: str | None) -> str | None:
        return dimension if dimension is not None and _axes(leaf)[dimension] in free else None

    return replace(leaf, rows=kept(leaf.rows), vector=kept(leaf.vector), sequential=kept(leaf.sequential))


def _point(statement: Statement, leaf: Leaf) -> dict[str, Linear]:
    """Every dimension of the statement as Linear over dates, symbols and the axes that the dates do not fix.

    Solves the equations (dates with divisor 1, equalities among the conditions) for one dimension after another.
    """
    axes = {d: Linear.symbol(a) for d, a in _axes(leaf).items()}
    unknown = [d.name for d in statement.dimensions if d.name not in axes]
    equations = [date.expression - Linear.symbol(date_name(n)) for n, date in enumerate(leaf.dates)
                 if date.divisor == 1]
    equations += [c for c in statement.conditions if -c in statement.conditions]
    point: dict[str, Linear] = {}
    while unknown or (unknown := _fixed(equations, axes)):
        found = next(((e, d) for e in equations for d in unknown if abs(e.coefficient(d)) == 1), None)
        if found is None:
            raise VerifyError(f"the dates and axes of {leaf} do not fix {', '.join(unknown)} of {statement}")
        equation, dimension = found
        axes.pop(dimension, None)
        value = equation.without(dimension) * -equation.coefficient(dimension)
        equations = [e.substitute({dimension: value}) for e in equations if e is not equation]
        point = {d: v.substitute({dimension: value}) for d, v in point.items()} | {dimension: value}
        unknown.remove(dimension)
    return {d: v.substitute(axes) for d, v in (point | axes).items()}


def _fixed(equations: list[Linear], axes: Mapping[str, Linear]) -> list[str]:
    """At most one dimension of an axis that an equation fixes: it is the only one of the axes there."""
    return [d for e in equations for d in axes if e.symbols & set(axes) == {d} and abs(e.coefficient(d)) == 1][:1]


def _bounds(statement: Statement, leaf: Leaf, point: dict[str, Linear]) -> Iterator[Along]:
    return (_along(expression.substitute(point)) for expression in (*domain(statement), *_date_bounds(leaf)))


def _needed(bounds: tuple[Along, ...]) -> tuple[Along, ...]:
    """``bounds`` without the redundant ones, which the others imply.

    A bound that names no axis is dropped too: it holds for all points of a macro instance or for none.
    """
    symbols = sorted({s for b in bounds for s in b.rest.symbols})
    kept = list(bounds)
    with budget():
        for bound in sorted(bounds, key=lambda b: -sum(b.factor(axis) != 0 for axis in AXES)):
            others = [_expression(b) for b in kept if b is not bound]
            points = Polyhedron.build(AXES, tuple(symbols), nonnegative=others)
            least = None if points.is_empty else points.least(_expression(bound))
            if least is not None and least >= 0:
                kept.remove(bound)
    return tuple(b for b in bounds if b in kept and (b.row or b.vector or b.sequential))


def _expression(bound: Along) -> Linear:
    return bound.rest + sum((Linear.symbol(axis, bound.factor(axis)) for axis in AXES), Linear())


def _date_bounds(leaf: Leaf) -> Iterator[Linear]:
    for number, date in enumerate(leaf.dates):
        rest = date.expression - Linear.symbol(date_name(number), date.divisor)
        yield rest
        yield Linear.of(date.divisor - 1) - rest


def _along(expression: Linear) -> Along:
    row, vector, sequential = map(expression.coefficient, AXES)
    return Along(row, vector, sequential, expression.without(*AXES))


def _home(array: Array, access: Access, storage: Storage | None, scratch: Mapping[str, Linear]) -> Linear:
    """The byte address of an access, Linear over dimensions, dates and symbols."""
    if storage is None:
        return sum((u * s for u, s in zip(access.subscripts, array.known_strides, strict=True)), array.base)
    dates = {f"d{n}": Linear.symbol(date_name(n)) for n in range(_dates_named(storage))}
    address, stride = scratch[array.name], array.element.size
    for subscript, origin, size in reversed(list(zip(access.subscripts, storage.origins, storage.sizes, strict=True))):
        address = address + (subscript - origin.substitute(dates)) * stride
        stride *= size
    return address


def _dates_named(storage: Storage) -> int:
    return max((int(s[1:]) + 1 for o in storage.origins for s in o.symbols), default=0)


def _nodes(expression: Expression) -> Iterator[Expression]:
    yield expression
    if isinstance(expression, Apply):
        for operand in expression.operands:
            yield from _nodes(operand)


def _check_bounded(shape: LeafShape) -> None:
    for axis, bounds in ((ROW, shape.row_bounds), (VECTOR, shape.row_vector_bounds), (SEQUENTIAL, shape.bounds)):
        factors = [b.factor(axis) for b in bounds]
        if axis in _axes(shape.leaf).values() and not min(factors, default=0) < 0 < max(factors, default=0):
            raise Rejected(Reason.NO_SCHEDULE, f"a macro instance of {shape.leaf} is not bounded along {axis}")
