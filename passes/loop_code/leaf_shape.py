"""A leaf as code generation sees it: everything Linear over dates, symbols and the three axes of a macro instance.

Invariant: a point of the statement is its dates and its row, vector and sequential numbers; ``bounds`` hold exactly for
the points of a macro instance, given that it has any. A dimension the leaf does not name has the one number 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd

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
)
from memopt.polyhedral.isl import Polyhedron, budget
from passes.loop_code.fma import fused
from passes.loop_code.narrowing import narrowed

ROW, VECTOR, SEQUENTIAL = "its row", "its vector", "its sequence"  # no dimension is called so
AXES = (ROW, VECTOR, SEQUENTIAL)


def date_name(number: int) -> str:
    """The symbol that stands for a date; no live-in and no dimension is called so."""
    return f"date {number}"


@dataclass(frozen=True, slots=True)
class Along:
    """``row * r + vector * v + sequential * k + rest``; ``rest`` is Linear over dates and symbols."""

    row: int
    vector: int
    sequential: int
    rest: Linear

    def factor(self, axis: str) -> int:
        return {ROW: self.row, VECTOR: self.vector, SEQUENTIAL: self.sequential}[axis]

    def __str__(self) -> str:
        return f"{self.row}*r + {self.vector}*v + {self.sequential}*k + {self.rest}"


@dataclass(frozen=True, slots=True)
class AccessAlong:
    """An access: the byte address of its element at a point."""

    array: str
    element: ElementType
    address: Along


@dataclass(frozen=True, slots=True)
class LeafShape:
    """``bounds``: each is >= 0 at every point. ``reads`` are those of the statement, ``indices`` the values of its
    ``Index`` operands that are not the same everywhere."""

    leaf: Leaf
    statement: Statement
    bounds: tuple[Along, ...]
    write: AccessAlong
    reads: tuple[AccessAlong, ...]
    indices: Mapping[Index, Along]

    @property
    def row_bounds(self) -> tuple[Along, ...]:
        """Bounds of the rows that a macro instance may have."""
        return tuple(b for b in eliminate(self.row_vector_bounds, VECTOR) if b.row)

    @property
    def row_vector_bounds(self) -> tuple[Along, ...]:
        """Bounds of rows and vector numbers together, ``bounds`` of them alone among these."""
        return eliminate(self.bounds, SEQUENTIAL)

    @property
    def nodes(self) -> Iterator[Expression]:
        """Every node of the statement's expression."""
        return _nodes(self.statement.expression)

    def is_constant(self, node: Expression) -> bool:
        """Whether an operand is the same at every point."""
        return isinstance(node, Scalar | Constant) or (isinstance(node, Index) and node not in self.indices)

    def with_definitions(self) -> tuple[LeafShape, tuple[tuple[str, Linear], ...]]:
        """The shape with one symbol for each sum over dates and symbols, and what these symbols stand for."""
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


def leaf_shape(scop: Scop, plan: LoopPlan, leaf: Leaf, scratch: Mapping[str, int]) -> LeafShape:
    """``scratch``: where each array with a ``Storage`` lies. ``VerifyError`` when the dates and the axes do not fix a
    point of the statement, ``Rejected`` when an axis is not bounded."""
    statement = next(s for s in plan.statements if s.name == leaf.statement)
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
    shape = LeafShape(leaf, statement, bounds, stream(statement.write), tuple(map(stream, statement.reads)), indices)
    _check_bounded(shape)
    return _aligned(shape)


def _aligned(shape: LeafShape) -> LeafShape:
    """With each lane's sequential numbers counted from where its own steps start, if that makes lanes more alike: they
    are independent, so any lane may be any number of steps ahead. Not where neighbours in memory would part."""
    for axis in (ROW, VECTOR):
        ahead = {0, *(-b.factor(axis) * b.sequential for b in shape.bounds if abs(b.sequential) == 1)}
        candidates = [_shifted(shape, axis, by) for by in sorted(ahead, key=abs)]
        near = [c for c in candidates if _apart(c) <= _apart(shape)]
        shape = min(near, key=lambda c: sum(b.sequential != 0 and b.factor(axis) != 0 for b in c.bounds))
    return shape


def _apart(shape: LeafShape) -> int:
    """Accesses whose lanes are neither neighbours nor one."""
    return sum(s.address.vector not in (0, s.element.size) for s in (shape.write, *shape.reads))


def _shifted(shape: LeafShape, axis: str, by: int) -> LeafShape:
    """Sequential numbers smaller by ``by`` times those of ``axis``."""
    def moved(along: Along) -> Along:
        change = along.sequential * by
        return replace(along, row=along.row + change) if axis == ROW else replace(along, vector=along.vector + change)

    return replace(shape, bounds=tuple(map(moved, shape.bounds)),
                   write=replace(shape.write, address=moved(shape.write.address)),
                   reads=tuple(replace(r, address=moved(r.address)) for r in shape.reads),
                   indices={node: moved(along) for node, along in shape.indices.items()})


def domain(statement: Statement) -> Iterator[Linear]:
    """What is >= 0 at the points of a statement that a version runs."""
    for number, dimension in enumerate(statement.dimensions):
        yield Linear.symbol(dimension.name)
        trips = dimension.trips if number else Linear.symbol(LIMIT)
        yield trips - 1 - Linear.symbol(dimension.name)
    yield from statement.conditions


def eliminate(bounds: tuple[Along, ...], axis: str) -> tuple[Along, ...]:
    """Fourier and Motzkin: what the bounds say about the other axes, over the rationals."""
    kept = [b for b in bounds if not b.factor(axis)]
    for low in bounds:
        for high in bounds:
            if low.factor(axis) > 0 > high.factor(axis):
                down, up = low.factor(axis), -high.factor(axis)
                kept.append(Along(low.row * up + high.row * down, low.vector * up + high.vector * down,
                                  low.sequential * up + high.sequential * down, low.rest * up + high.rest * down))
    return tuple(dict.fromkeys(_reduced(b) for b in kept if b.row or b.vector or b.sequential))


def _reduced(bound: Along) -> Along:
    """Divided by what divides all of it."""
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
    """The leaf without the dimensions that have one number in each macro instance."""
    free = {s for value in point.values() for s in value.symbols}

    def kept(dimension: str | None) -> str | None:
        return dimension if dimension is not None and _axes(leaf)[dimension] in free else None

    return replace(leaf, rows=kept(leaf.rows), vector=kept(leaf.vector), sequential=kept(leaf.sequential))


def _point(statement: Statement, leaf: Leaf) -> dict[str, Linear]:
    """Every dimension of the statement, Linear over dates, symbols and the axes that those do not fix."""
    axes = {d: Linear.symbol(a) for d, a in _axes(leaf).items()}
    unknown = [d.name for d in statement.dimensions if d.name not in axes]
    equations = [date.expression - Linear.symbol(date_name(n)) for n, date in enumerate(leaf.dates)
                 if date.divisor == 1]
    equations += [c for c in statement.conditions if -c in statement.conditions]
    point: dict[str, Linear] = {}
    while unknown or (unknown := _fixed(equations, axes)):
        found = next(((e, d) for e in equations for d in unknown if abs(e.coefficient(d)) == 1), None)
        if found is None:
            raise VerifyError(f"{leaf} does not fix {', '.join(unknown)} of {statement}")
        equation, dimension = found
        axes.pop(dimension, None)
        value = equation.without(dimension) * -equation.coefficient(dimension)
        equations = [e.substitute({dimension: value}) for e in equations if e is not equation]
        point = {d: v.substitute({dimension: value}) for d, v in point.items()} | {dimension: value}
        unknown.remove(dimension)
    return {d: v.substitute(axes) for d, v in (point | axes).items()}


def _fixed(equations: list[Linear], axes: Mapping[str, Linear]) -> list[str]:
    """An axis' dimension that is alone among them in an equation."""
    return [d for e in equations for d in axes if e.symbols & set(axes) == {d} and abs(e.coefficient(d)) == 1][:1]


def _bounds(statement: Statement, leaf: Leaf, point: dict[str, Linear]) -> Iterator[Along]:
    return (_along(expression.substitute(point)) for expression in (*domain(statement), *_date_bounds(leaf)))


def _needed(bounds: tuple[Along, ...]) -> tuple[Along, ...]:
    """Those that say something the others do not say. One that no axis has a part in holds for all points of a macro
    instance or for none, and is left out."""
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


def _home(array: Array, access: Access, storage: Storage | None, scratch: Mapping[str, int]) -> Linear:
    """The byte address of an access, Linear over dimensions, dates and symbols."""
    if storage is None:
        return sum((u * s for u, s in zip(access.subscripts, array.strides, strict=True)), array.base)
    dates = {f"d{n}": Linear.symbol(date_name(n)) for n in range(_dates_named(storage))}
    address, stride = Linear.of(scratch[array.name]), array.element.size
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
            raise Rejected(Reason.NO_SCHEDULE, f"the {axis} dimension of {shape.leaf} is not bounded")
