"""A random program as a value: arrays, a nest of loops, how it is called, and its text in C.

Invariant: everything an access touches is computed here, exactly, from the loops and the arguments of each call; so
arrays can end at a page that may not be touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy

from memopt.ir.linear import Linear

Points = dict[str, numpy.ndarray]
PAGE = 4096


@dataclass(frozen=True, slots=True)
class CType:
    name: str
    size: int
    real: bool
    unsigned: str = ""  # integers are computed in this type: no undefined overflow


DOUBLE, FLOAT = CType("double", 8, True), CType("float", 4, True)
INT32, INT64 = CType("int32_t", 4, False, "uint32_t"), CType("int64_t", 8, False, "uint64_t")
UINT8 = CType("uint8_t", 1, False, "uint32_t")


@dataclass(frozen=True, slots=True)
class Array:
    """``form``: "flat" (pointer, strides written out), "rows" (pointer to arrays of constant size), "global".

    ``strides``: elements per subscript for "flat", numbers or names of arguments; ``columns``: sizes of all but the
    first subscript for the others. ``fields``: members of a structure, 0 for a plain element.
    """

    name: str
    type: CType
    rank: int
    form: str
    strides: tuple[int | str, ...] = ()
    columns: tuple[int, ...] = ()
    fields: int = 0
    restrict: bool = False

    @property
    def element_size(self) -> int:
        return self.type.size * max(1, self.fields)

    @property
    def c_type(self) -> str:
        return f"struct {self.name}_of" if self.fields else self.type.name


@dataclass(frozen=True, slots=True)
class Access:
    array: str
    subscripts: tuple[Linear, ...]
    field: int = 0


@dataclass(frozen=True, slots=True)
class Expr:
    """``op``: ref, local, scalar, const, index, cast, an operator, min, max, abs, sqrt, neg, select (``text`` compares
    the first two operands), or text (C with places for ``args``). ``type``: of the value."""

    op: str
    type: CType
    args: tuple[Expr, ...] = ()
    text: str = ""
    access: Access | None = None
    linear: Linear = field(default_factory=Linear)


@dataclass(frozen=True, slots=True)
class Assign:
    target: Access
    value: Expr
    accumulate: str = ""  # "+", "-": target = target + value


@dataclass(frozen=True, slots=True)
class SetLocal:
    name: str
    value: Expr
    accumulate: str = ""


@dataclass(frozen=True, slots=True)
class Loop:
    """``lower <= var < upper`` (and ``< upper2``), every ``step``-th; downwards when ``step`` is negative."""

    var: str
    lower: Linear
    upper: Linear
    step: int
    type: str
    body: tuple[Node, ...]
    upper2: Linear | None = None


@dataclass(frozen=True, slots=True)
class If:
    """``relation``: ">=", "==" or "!=" between ``linear`` and 0; or, when there is a ``test``, between the two values
    that it is made of."""

    linear: Linear
    relation: str
    then: tuple[Node, ...]
    otherwise: tuple[Node, ...] = ()
    test: tuple[Expr, ...] = ()


Node = Loop | If | Assign | SetLocal


@dataclass(frozen=True, slots=True)
class Call:
    """``overlaps``: (array, inside which other, at how many elements from its first one)."""

    mxcsr: int = 0x1F80
    fresh: bool = True
    overlaps: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Build:
    compiler: str
    level: str
    flags: tuple[str, ...] = ()
    pie: bool = True

    @property
    def command(self) -> tuple[str, ...]:
        return (self.compiler, self.level, *self.flags, "-fPIE" if self.pie else "-fno-pie")

    @property
    def name(self) -> str:
        return " ".join((f"{self.compiler} {self.level}", *(f for f in self.flags if f.startswith("-march"))))


@dataclass(frozen=True, slots=True)
class Program:
    """``sizes``: integer arguments, (name, C type, value in each call). ``scalars``: (name, type, text of the value).

    ``guards``: where each array's memory touches a forbidden page: "start", "end" or "" for neither.
    ``isa`` ("" the machine's best), ``small_caches``, ``skip``, ``prefer``: how the nest is to be replaced.
    """

    seed: int
    build: Build
    arrays: tuple[Array, ...]
    sizes: tuple[tuple[str, str, tuple[int, ...]], ...]
    scalars: tuple[tuple[str, CType, str], ...]
    locals: tuple[tuple[str, CType], ...]
    body: tuple[Node, ...]
    calls: tuple[Call, ...]
    guards: tuple[str, ...]
    specials: bool = False
    result: str = ""  # a local that is returned
    isa: str = ""
    small_caches: bool = False
    skip: int = 0
    prefer: str = "contractions"

    def array(self, name: str) -> Array:
        return next(a for a in self.arrays if a.name == name)

    def arguments(self, call: int) -> dict[str, int]:
        return {name: values[call] for name, _, values in self.sizes}


# -- what is touched ------------------------------------------------------------------------------------------------

def accesses(program: Program, call: int) -> Iterator[tuple[Access, Points]]:
    """Every access with the points (values of the loop counters) at which it is made."""
    start = {name: numpy.array([value]) for name, value in program.arguments(call).items()}
    for node in program.body:
        yield from _node(node, start)


def evaluate(linear: Linear, points: Points) -> numpy.ndarray:
    """The value at each point."""
    total = numpy.full(_count(points), linear.constant)
    for name, coefficient in linear.terms:
        total = total + coefficient * points[name]
    return total


def condition(linear: Linear, relation: str, points: Points) -> numpy.ndarray:
    """Where ``linear`` has the relation to 0."""
    value = evaluate(linear, points)
    return {">=": value >= 0, "==": value == 0, "!=": value != 0}[relation]


def _count(points: Points) -> int:
    return len(next(iter(points.values()))) if points else 1


def _node(node: Node, points: Points) -> Iterator[tuple[Access, Points]]:
    if not _count(points):
        return
    match node:
        case Loop():
            inner = expand(node, points)
            for each in node.body:
                yield from _node(each, inner)
        case If(then=then, otherwise=otherwise, test=test) if test:
            for each in (*then, *otherwise):  # either may be
                yield from _node(each, points)
            yield from ((a, points) for value in test for a in references(value))
        case If(linear, relation, then, otherwise):
            holds = condition(linear, relation, points)
            for side, mask in ((then, holds), (otherwise, ~holds)):
                for each in side:
                    yield from _node(each, {n: v[mask] for n, v in points.items()})
        case Assign(target, value):
            yield target, points
            yield from ((a, points) for a in references(value))
        case SetLocal(_, value):
            yield from ((a, points) for a in references(value))


def expand(loop: Loop, points: Points) -> Points:
    """The points of all iterations of ``loop`` at ``points``."""
    lower, upper = evaluate(loop.lower, points), evaluate(loop.upper, points)
    if loop.upper2 is not None:
        upper = numpy.minimum(upper, evaluate(loop.upper2, points))
    step = abs(loop.step)
    trips = numpy.maximum(0, -((lower - upper) // step))
    index = numpy.repeat(numpy.arange(len(trips)), trips)
    number = numpy.arange(int(trips.sum())) - numpy.repeat(numpy.cumsum(trips) - trips, trips)
    values = upper[index] - 1 - number * step if loop.step < 0 else lower[index] + number * step
    return {**{n: v[index] for n, v in points.items()}, loop.var: values}


def references(value: Expr) -> Iterator[Access]:
    if value.access is not None:
        yield value.access
    for each in value.args:
        yield from references(each)


def strides(array: Array, arguments: Mapping[str, int]) -> tuple[int, ...]:
    """Elements per subscript."""
    if array.form == "flat":
        return tuple(arguments[s] if isinstance(s, str) else s for s in array.strides)
    result = [1]
    for columns in reversed(array.columns):
        result.insert(0, result[0] * columns)
    return tuple(result)


def extents(program: Program, call: int) -> dict[str, tuple[int, int]]:
    """Elements ``[low, high)`` of each array that the call touches, from where its pointer points."""
    found: dict[str, tuple[int, int]] = {}
    arguments = program.arguments(call)
    for access, points in accesses(program, call):
        if not _count(points):
            continue
        array = program.array(access.array)
        linear = Linear()
        for subscript, stride in zip(access.subscripts, strides(array, arguments), strict=True):
            linear = linear + subscript * stride
        offsets = evaluate(linear, points)
        low, high = found.get(array.name, (int(offsets[0]), int(offsets[0])))
        found[array.name] = min(low, int(offsets.min())), max(high, int(offsets.max()) + 1)
    return found


def ranges(program: Program, call: int) -> dict[tuple[str, int], tuple[int, int]]:
    """Values ``[low, high]`` of each subscript of each array in the call."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for access, points in accesses(program, call):
        if not _count(points):
            continue
        for number, subscript in enumerate(access.subscripts):
            values = evaluate(subscript, points)
            low, high = found.get((access.array, number), (int(values[0]), int(values[0])))
            found[access.array, number] = min(low, int(values.min())), max(high, int(values.max()))
    return found


def work(program: Program, call: int) -> int:
    """Accesses made in the call."""
    return sum(_count(points) for _, points in accesses(program, call))


@dataclass(frozen=True, slots=True)
class Layout:
    """Regions of memory, one for each array: bytes, and where each array's pointer points in each call."""

    sizes: tuple[int, ...]
    pointers: tuple[dict[str, tuple[int, int]], ...]  # by call: array -> (region, byte offset in it)


def layout(program: Program) -> Layout:
    number = {a.name: n for n, a in enumerate(program.arrays)}
    needs: list[list[tuple[int, int]]] = []  # by call, by region: bytes [low, high) from the owner's pointer
    shifts: list[dict[str, tuple[str, int]]] = []
    for index, call in enumerate(program.calls):
        found = extents(program, index)
        bytes_of = {a.name: tuple(x * a.element_size for x in found.get(a.name, (0, 0))) for a in program.arrays}
        inside = {name: (host, by * program.array(host).element_size) for name, host, by in call.overlaps}
        shifts.append(inside)
        bounds = [bytes_of[a.name] for a in program.arrays]
        for n, array in enumerate(program.arrays):
            if array.form == "global":  # it begins where the region begins
                bounds[n] = min(0, bounds[n][0]), bounds[n][1]
        for name, (host, by) in inside.items():
            low, high = bytes_of[name]
            host_low, host_high = bounds[number[host]]
            bounds[number[host]] = min(host_low, low + by), max(host_high, high + by)
        needs.append([(low, high) for low, high in bounds])
    sizes = []
    for region, array in enumerate(program.arrays):
        size = max(high - low for low, high in (n[region] for n in needs))
        size += 0 if program.guards[region] else 16 * array.element_size
        sizes.append(max(PAGE, -(-size // PAGE) * PAGE))
    pointers = []
    for need, inside in zip(needs, shifts, strict=True):
        start = {}
        for region, array in enumerate(program.arrays):
            low, high = need[region]
            if array.form == "global":
                start[array.name] = (region, 0)
            elif program.guards[region] == "end":
                start[array.name] = (region, sizes[region] - high)
            else:
                start[array.name] = (region, (0 if program.guards[region] else 8 * array.element_size) - low)
        for name, (host, by) in inside.items():
            region, offset = start[host]
            start[name] = (region, offset + by)
        pointers.append(start)
    return Layout(tuple(sizes), tuple(pointers))


def without_call(program: Program, call: int) -> Program:
    sizes = tuple((n, t, v[:call] + v[call + 1:]) for n, t, v in program.sizes)
    return replace(program, sizes=sizes, calls=program.calls[:call] + program.calls[call + 1:])
