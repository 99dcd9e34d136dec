"""Estimated cycles of one statement in a loop schedule: arithmetic and loads of its register tiles, and the lines
that its loops move (memopt.models.contraction_cost).

It ranks schedules and tells when nothing is to be gained; the trial run measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import ceil, prod

from memopt.ir.identity import by_identity
from memopt.ir.linear import Linear
from memopt.ir.operations import called
from memopt.ir.plan import Isa
from memopt.ir.scop import TRIPS, Access, Apply, Expression, Read, Scop, Statement, has_calls
from memopt.machine.description import Machine
from memopt.models.contraction_cost import AccessCost, traffic

# Cycles on current server cores: throughput of one vector operation of each kind, latency of an addition.
VECTOR_LOAD = 0.6
BROADCAST = 0.5
STORE = 1.0
GATHERED = 1.2  # for each element
SCATTERED = 1.5
ARITHMETIC = 0.5
DIVIDED = 1.25  # for each element of a vector
DIVIDED_ALONE = 4.5
CALLED = 8  # divisions that a call of a library function is worth
LATENCY = 4.0
LONG_LATENCY = 13.0
INSTANCE = 15.0  # to enter and leave one macro instance
TILE = 4.0

SCALAR_CYCLES = 1.5
CHOICE = 2.0  # what a branch that is predicted now and then costs more than an operation
EXPOSED = 0.3  # the part of the shorter of arithmetic and lines that the longer does not hide

LINE = 64
SEQUENCES = 32  # of lines that hardware prefetches at a time
STARTS = 4  # lines of a sequence, before it is prefetched
MOST_SEQUENCES = 16  # that rows of a tile may make of theirs, before most of them are no longer prefetched

MOST_ROWS = 12
MOST_NEIGHBOURS = 4  # rows that share loads alone: each is a sequence of lines for every access


class DimensionMap:
    """A statement's dimensions as Linear over the variables of its loops."""

    def __init__(self, dimensions: Mapping[str, Linear]) -> None:
        self.dimensions = dimensions
        self._known: dict[int, tuple[Access, dict[str, int]]] = {}  # by identity

    def strides(self, scop: Scop, access: Access) -> dict[str, int]:
        """Bytes that ``access`` moves by from one iteration of each variable to the next, where it does."""
        known = self._known.get(id(access))
        if known is None:
            moved: dict[str, int] = {}
            for stride, subscript in zip(scop.array(access.array).strides, access.subscripts, strict=True):
                for name, coefficient in subscript.terms:
                    for variable, factor in self.dimensions.get(name, Linear()).terms:
                        moved[variable] = moved.get(variable, 0) + stride * coefficient * factor
            known = self._known[id(access)] = access, moved
        return known[1]


@dataclass(frozen=True)
class LeafNest:
    """A statement's loops, outermost first, as (variable, iterations); the last ones are those of ``rows``, ``vector``
    and ``sequential`` that are named. ``place``: where these variables put an instance.
    ``latency``: cycles that one step of the innermost loop waits for the one before."""

    levels: tuple[tuple[str, int], ...]
    place: DimensionMap
    rows: str | None = None
    vector: str | None = None
    sequential: str | None = None
    latency: float = 0.0

    @cached_property
    def counts(self) -> dict[str, int]:
        return dict(self.levels)

    @property
    def instances(self) -> int:
        leaf = (self.rows, self.vector, self.sequential)
        return prod(count for name, count in self.levels if name not in leaf)


def average_trips(statement: Statement, first: int) -> dict[str, int]:
    """Iterations of each loop, those that vary taken at the middle of the loops around them; ``first``: of the
    patched one, and what other symbols are taken for. A condition on one loop and the patched loop's trips cuts it; one
    on several is taken to halve the innermost, a pair that holds it near a plane to leave those few."""
    middles: dict[str, int] = {}
    trips: dict[str, int] = {}
    for number, dimension in enumerate(statement.dimensions):
        name, low, high = dimension.name, 0, first
        if number:
            known = {s: middles.get(s, first) for s in dimension.trips.symbols}
            high = max(1, dimension.trips.evaluate(known))
        for condition in statement.conditions:
            if name in condition.symbols <= {name, TRIPS}:
                factor, rest = condition.coefficient(name), condition.evaluate({name: 0, TRIPS: first})
                if factor > 0:
                    low = max(low, -(rest // factor))
                else:
                    high = min(high, rest // -factor + 1)
        trips[name] = max(1, high - low)
        middles[name] = low + trips[name] // 2
    for condition in statement.conditions:
        names = [d.name for d in statement.dimensions if condition.coefficient(d.name)]
        apart = [total.constant for other in statement.conditions if (total := condition + other).is_constant]
        if names and apart:
            trips[names[-1]] = max(1, min(trips[names[-1]], min(apart) // abs(condition.coefficient(names[-1])) + 1))
        elif len(names) > 1:
            trips[names[-1]] = max(1, trips[names[-1]] // 2)
    return trips


def step(scop: Scop, access: Access, nest: LeafNest, variable: str | None) -> int:
    """Bytes from one iteration of ``variable`` to the next."""
    return nest.place.strides(scop, access).get(variable, 0) if variable else 0


@by_identity
def lanes(scop: Scop, statement: Statement, isa: Isa) -> int:
    """Iterations that one vector of the widest element holds; functions are called for one at a time."""
    if has_calls(statement.expression):
        return 1
    return isa.vector_bytes // max(scop.array(a.array).element.size for a in (statement.write, *statement.reads))


@dataclass(frozen=True, slots=True)
class TileCost:
    """Cycles of one step of a register tile of ``rows`` x ``vectors``, spread over its iterations."""

    rows: int
    vectors: int
    cycles: float


def best_tile(
    scop: Scop, statement: Statement, nest: LeafNest, isa: Isa, promote: bool, rough: bool = False
) -> TileCost:
    """The register tile that costs least for an iteration, among those the register file holds; ``rough``: only one
    of them is looked at."""
    if rough or has_calls(statement.expression):
        shape = min(4, nest.counts[nest.rows]) if nest.rows else 1, 2 if nest.vector else 1
        shape = (1, 1) if has_calls(statement.expression) else shape
        return TileCost(*shape, _step_cycles(scop, statement, nest, isa, promote, *shape))
    along = [a for a in (statement.write, *statement.reads) if step(scop, a, nest, nest.vector)]
    most_rows = MOST_NEIGHBOURS if along and all(step(scop, a, nest, nest.rows) for a in along) else MOST_ROWS
    row_counts = [r for r in (1, 2, 3, 4, 6, 8, 12) if nest.rows and r <= min(most_rows, nest.counts[nest.rows])] or [1]
    width = lanes(scop, statement, isa) if nest.vector else 1
    most = ceil(nest.counts[nest.vector] / width) if nest.vector else 1
    vector_counts = [v for v in (1, 2, 3, 4) if v <= most] or [1]
    tiles = [TileCost(r, v, _step_cycles(scop, statement, nest, isa, promote, r, v))
             for r in row_counts for v in vector_counts if _fits(scop, statement, nest, isa, promote, r, v)]
    return min(tiles, key=lambda t: (round(t.cycles, 4), t.rows * t.vectors)) if tiles else TileCost(
        1, 1, _step_cycles(scop, statement, nest, isa, promote, 1, 1))


def _fits(scop: Scop, statement: Statement, nest: LeafNest, isa: Isa, promote: bool, rows: int, vectors: int) -> bool:
    """Accumulators, and the operands of one row, in registers at once; of neighbours those that the next row reads."""
    operands = [a for a in dict.fromkeys(statement.reads) if not (promote and a == statement.write)]
    varying = sum(step(scop, a, nest, nest.vector) != 0 for a in operands)
    constant = len(operands) - varying
    if rows > 1:
        for access, offsets in neighbours(scop, statement):
            by = step(scop, access, nest, nest.rows)
            again = len(offsets) - len({o + by for o in offsets} - set(offsets))
            if again and by and step(scop, access, nest, nest.vector):
                varying -= len(offsets) - again - 1
    kept = rows * vectors if promote else 0
    return kept + varying * vectors + constant + 2 <= isa.registers or rows * vectors == 1


def _step_cycles(
    scop: Scop, statement: Statement, nest: LeafNest, isa: Isa, promote: bool, rows: int, vectors: int
) -> float:
    width = lanes(scop, statement, isa) if nest.vector else 1
    depth = nest.counts[nest.sequential] if nest.sequential else 1
    loads = 0.0
    for access, copies in _loaded(scop, statement, nest, rows):
        along = step(scop, access, nest, nest.vector)
        still = nest.sequential is not None and not step(scop, access, nest, nest.sequential)
        often = 1 / depth if still and (promote or access != statement.write) else 1.0
        if not along:
            loads += copies * BROADCAST * often
        else:
            size = scop.array(access.array).element.size
            loads += copies * vectors * often * (VECTOR_LOAD if along == size else width * GATHERED)
    along = step(scop, statement.write, nest, nest.vector)
    size = scop.array(statement.write.array).element.size
    store = STORE if along == size or not nest.vector else width * SCATTERED
    store *= rows * vectors * (1 / depth if promote else 1.0)
    simple, long = operation_counts(statement.expression)
    division = width * DIVIDED if width > 1 else DIVIDED_ALONE
    arithmetic = rows * vectors * (simple * ARITHMETIC + long * division)
    idle = 1.0
    if nest.vector:
        count = nest.counts[nest.vector]
        idle = ceil(count / (width * vectors)) * width * vectors / count
    if nest.rows:
        idle *= ceil(nest.counts[nest.rows] / rows) * rows / nest.counts[nest.rows]
    start = TILE / depth
    busy = overlapped(max(loads, store, arithmetic), loads + store + arithmetic - max(loads, store, arithmetic))
    return (max(busy, nest.latency) + start) / (rows * vectors * width) * idle


def _loaded(scop: Scop, statement: Statement, nest: LeafNest, rows: int) -> Iterator[tuple[Access, int]]:
    """An access of each group of neighbours, with the cells that all of them read in one vector of ``rows`` rows."""
    for access, offsets in neighbours(scop, statement):
        by = step(scop, access, nest, nest.rows)
        yield access, len({offset + row * by for offset in offsets for row in range(rows)})


@by_identity
def neighbours(scop: Scop, statement: Statement) -> tuple[tuple[Access, tuple[int, ...]], ...]:
    """The reads in groups that differ by constants: the first access of each, and how many bytes apart all are."""
    groups: dict[tuple[str, tuple[object, ...]], list[Access]] = {}
    for access in dict.fromkeys(statement.reads):
        groups.setdefault((access.array, tuple(s.terms for s in access.subscripts)), []).append(access)
    return tuple((found[0], tuple(sum(
        stride * subscript.constant
        for stride, subscript in zip(scop.array(array).strides, access.subscripts, strict=True)) for access in found))
        for (array, _), found in groups.items())


@by_identity
def operation_counts(expression: Expression) -> tuple[int, int]:
    """Operations, and those among them that take a divider; a call is worth several."""
    if not isinstance(expression, Apply):
        return 0, 0
    simple, long = (0, 1) if expression.operator in ("div", "sqrt") else (1, 0)
    if called(expression.operator) is not None:
        long = CALLED
    for operand in expression.operands:
        more = operation_counts(operand)
        simple, long = simple + more[0], long + more[1]
    return simple, long


def chain(statement: Statement, read: Access) -> float:
    """Cycles from the value of ``read`` to the value written; 0 when it is not used."""

    def depth(node: Expression) -> float | None:
        if isinstance(node, Read):
            return 0.0 if statement.reads[node.index] == read else None
        if isinstance(node, Apply):
            found = [d for d in map(depth, node.operands) if d is not None]
            return (LONG_LATENCY if node.operator in ("div", "sqrt") else LATENCY) + max(found) if found else None
        return None

    return depth(statement.expression) or 0.0


def original_cycles(
    scop: Scop, statement: Statement, latency: float, trips: Mapping[str, int], machine: Machine, width: int = 1
) -> float:
    """A loop as compiled that waits ``latency`` cycles in each iteration for the one before, or computes with
    ``width`` of them at a time."""
    counts = tuple(trips[d.name] for d in statement.dimensions)
    nest = LeafNest(tuple(trips.items()), DimensionMap({n: Linear.symbol(n) for n in trips}))
    simple, long = operation_counts(statement.expression)
    latency += CHOICE * _choices(statement.expression)
    compute = max(SCALAR_CYCLES, (simple + len(statement.reads)) * ARITHMETIC, long * LONG_LATENCY / 2, latency)
    levels = tuple((n, 1, count) for n, count in trips.items())
    streams = [_stream(scop, a, nest, levels, 0, a == statement.write) for a in _distinct(statement)
               if not scop.array(a.array).private]  # those are registers
    return overlapped(prod(counts) * compute / width, traffic(streams, counts, machine))


def _choices(expression: Expression) -> int:
    """Operations that compilers make of branches as often as not."""
    if not isinstance(expression, Apply):
        return 0
    return (expression.operator in ("min", "max", "select", "smin", "smax", "umin", "umax")) + sum(
        map(_choices, expression.operands))


def overlapped(compute: float, lines: float) -> float:
    """Arithmetic and the movement of lines hide each other for the most part."""
    return max(compute, lines) + EXPOSED * min(compute, lines)


def leaf_cycles(
    scop: Scop, statement: Statement, nest: LeafNest, tile: TileCost, isa: Isa, machine: Machine
) -> float:
    """All of a statement's instances: its register tiles or its lines, whichever takes longer, and what it costs to
    enter each macro instance."""
    iterations = prod(count for _, count in nest.levels)
    width = lanes(scop, statement, isa) if nest.vector else 1
    levels = [(name, 1, count) for name, count in nest.levels
              if name not in (nest.rows, nest.vector, nest.sequential)]
    sizes = {nest.rows: tile.rows, nest.vector: tile.vectors * width}
    for name, size in sizes.items():
        if name is not None:
            levels.append((name, size, ceil(nest.counts[name] / size)))
    if nest.sequential is not None:
        levels.append((nest.sequential, 1, nest.counts[nest.sequential]))
    inside = {name: min(size, nest.counts[name]) for name, size in sizes.items() if name is not None}
    levels += [(name, 1, count) for name, count in inside.items()]
    many = tile.rows > 1 and _sequences(scop, statement, nest, tile.rows) > MOST_SEQUENCES
    streams = [replace(_stream(scop, a, nest, tuple(levels), len(inside), a == statement.write),
                       starts=1.0 if many else _starts(scop, a, nest, tile.rows, machine.page_size))
               for a in _distinct(statement)]
    lines = traffic(streams, tuple(count for _, _, count in levels), machine)
    return overlapped(iterations * tile.cycles, lines) + nest.instances * INSTANCE


@by_identity
def _distinct(statement: Statement) -> tuple[Access, ...]:
    """One access of each group that differs by constants: they walk over the same lines, one after the other."""
    first: dict[tuple[str, tuple[object, ...]], Access] = {}
    for access in (statement.write, *statement.reads):
        first.setdefault((access.array, tuple(s.terms for s in access.subscripts)), access)
    return tuple(first.values())


def _starts(scop: Scop, access: Access, nest: LeafNest, rows: int, page: int) -> float:
    """The part of the lines that begin a sequence. Rows that follow each other in memory are one sequence, which goes
    on from row to row; where several of them are gone over at once, each begins anew. At a page any sequence does."""
    moved, by = step(scop, access, nest, nest.vector), abs(step(scop, access, nest, nest.rows))
    row = abs(moved) * nest.counts[nest.vector] if nest.vector else 0
    return min(1.0, STARTS * LINE / row) if rows > 1 and 0 < row <= by < min(2 * row, page) else 0.0


def _sequences(scop: Scop, statement: Statement, nest: LeafNest, rows: int) -> int:
    """Sequences of lines that the vectors of ``rows`` rows walk along at once."""
    groups = [*neighbours(scop, statement)]
    if statement.write not in statement.reads:
        groups.append((statement.write, (0,)))
    found = 0
    for access, offsets in groups:
        by = step(scop, access, nest, nest.rows)
        cells = sorted({offset + row * by for offset in offsets for row in range(rows)})
        found += 1 + sum(b - a > LINE for a, b in pairwise(cells))
    return found


def _stream(
    scop: Scop, access: Access, nest: LeafNest, levels: tuple[tuple[str, int, int], ...], tile: int, written: bool
) -> AccessCost:
    """``levels``: variables with the factor each of their loops steps by and its count, outermost first, the last
    ``tile`` of them those of the register tile.

    Hardware prefetches lines in sequence, for a few dozen sequences at a time: an access that comes back to the next
    line later than that, or never, moves scattered lines.
    """
    strides = tuple(step(scop, access, nest, name) * factor for name, factor, _ in levels)
    element = scop.array(access.array).element.size
    run, sequences = 0, 1
    for number in range(len(levels) - 1, -1, -1):
        moved, count = abs(strides[number]), levels[number][2]
        if moved == element and number >= len(levels) - tile:
            run = element * count
        elif moved > max(run, LINE):
            sequences *= count
        elif moved:
            break
    return AccessCost(strides, element, 2 if written else 1, 0 if sequences <= SEQUENCES else SEQUENCES * LINE,
                      scop.array(access.array).private)
