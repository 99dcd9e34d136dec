"""Cost model of loop schedules: estimated cycles of one statement, given its loops and its leaf.

Example: ``b[i][j] = a[i-1][j] + a[i][j] + a[i+1][j]`` with rows i and vector j. A register tile of 4 rows and 1 vector
loads 6 vectors of ``a`` for 4 results, a tile of 1 row 3 for one.

In: a statement, its loops with their trip counts (``LeafNest``), the instruction set, a ``Machine``. Out: cycles of its
register tiles, and of the cache lines that its loops move (``memopt.models.contraction_cost``). Arithmetic and lines
hide each other for the most part.

The figures rank schedules and tell when nothing is to be gained; the trial run measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from math import ceil, prod

from memopt.ir.frozen import dataclass
from memopt.ir.identity import by_identity
from memopt.ir.linear import Linear
from memopt.ir.operations import called
from memopt.ir.plan import Isa
from memopt.ir.scop import TRIPS, Access, Apply, Expression, Read, Scop, Statement, has_calls
from memopt.machine.description import Machine
from memopt.models.contraction_cost import AccessCost, traffic

# Cycles on current server cores: reciprocal throughput of one vector operation of each kind, latency of an addition.
VECTOR_LOAD = 0.6
BROADCAST = 0.5
STORE = 1.0
GATHERED = 1.2  # per element
SCATTERED = 1.5  # per element
ARITHMETIC = 0.5
DIVIDED = 1.25  # a division or square root, per element of a vector
DIVIDED_ALONE = 4.5  # a scalar one
CALLED = 8  # a call of a library function, in divisions
LATENCY = 4.0
LONG_LATENCY = 13.0  # of a division or square root
INSTANCE = 15.0  # to enter and leave one macro instance
TILE = 4.0  # to enter and leave one register tile

SCALAR_CYCLES = 1.5  # of one iteration of a scalar loop, at least
CHOICE = 2.0  # a minimum, maximum or select as a branch that is sometimes mispredicted, beyond an operation
EXPOSED = 0.3  # the fraction of the shorter of arithmetic and lines that the longer does not hide

LINE = 64  # bytes of a cache line
SEQUENCES = 32  # sequences of lines that the hardware prefetches at the same time
STARTS = 4  # first lines of a sequence, which are not prefetched yet
MOST_SEQUENCES = 16  # of the rows of a tile; with more, most are no longer prefetched

MOST_ROWS = 12  # of a register tile
MOST_NEIGHBOURS = 4  # of a tile whose rows share loads only: each row adds a sequence of lines for every access


class DimensionMap:
    """The dimensions of a statement as ``Linear`` over the variables of its loops (tile loops, skewed loops)."""

    def __init__(self, dimensions: Mapping[str, Linear]) -> None:
        self.dimensions = dimensions
        self._known: dict[int, tuple[Access, dict[str, int]]] = {}  # strides by the identity of the access

    def strides(self, scop: Scop, access: Access) -> dict[str, int]:
        """Bytes that ``access`` moves by from one iteration of each variable to the next; no entry: it does not move.
        """
        known = self._known.get(id(access))
        if known is None:
            moved: dict[str, int] = {}
            for stride, subscript in zip(scop.array(access.array).known_strides, access.subscripts, strict=True):
                for name, coefficient in subscript.terms:
                    for variable, factor in self.dimensions.get(name, Linear()).terms:
                        moved[variable] = moved.get(variable, 0) + stride * coefficient * factor
            known = self._known[id(access)] = access, moved
        return known[1]


@dataclass(frozen=True)
class LeafNest:
    """The loops around a statement and inside its leaf."""

    # (variable, iterations), outermost first. The last ones are ``rows``, ``vector`` and ``sequential``, if named.
    levels: tuple[tuple[str, int], ...]
    place: DimensionMap  # the statement's dimensions by these variables
    rows: str | None = None
    vector: str | None = None
    sequential: str | None = None
    latency: float = 0.0  # cycles that one step of the innermost loop waits for the step before

    @cached_property
    def counts(self) -> dict[str, int]:
        """Iterations of each variable."""
        return dict(self.levels)

    @property
    def instances(self) -> int:
        """The number of macro instances."""
        leaf = (self.rows, self.vector, self.sequential)
        return prod(count for name, count in self.levels if name not in leaf)


def average_trips(statement: Statement, first: int) -> dict[str, int]:
    """The average trip count of each loop; ``first``: that of the patched loop, and the value of all other symbols.

    A trip count that depends on outer loops is taken in the middle of their ranges. A condition on one loop and R cuts
    the range of that loop. A condition on several loops (a triangle) is taken to halve the innermost of them. A pair of
    conditions that keeps the innermost within a constant distance of a plane (a band) leaves it the width of the band.
    """
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
    """Bytes that ``access`` moves by from one iteration of ``variable`` to the next; 0 without a variable."""
    return nest.place.strides(scop, access).get(variable, 0) if variable else 0


@by_identity
def lanes(scop: Scop, statement: Statement, isa: Isa) -> int:
    """Lanes of a vector: as many as it holds elements of the widest type; 1 where functions are called."""
    if has_calls(statement.expression):
        return 1
    return isa.vector_bytes // max(scop.array(a.array).element.size for a in (statement.write, *statement.reads))


@dataclass(frozen=True, slots=True)
class TileCost:
    """A register tile of ``rows`` x ``vectors`` and its ``cycles`` for one iteration of the statement."""

    rows: int
    vectors: int
    cycles: float


def best_tile(
    scop: Scop, statement: Statement, nest: LeafNest, isa: Isa, promote: bool, rough: bool = False
) -> TileCost:
    """The cheapest register tile per iteration among those that fit the register file; ``rough``: a typical one."""
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
    """Whether the tile's accumulators and the operands of one row fit the register file.

    Of neighbouring reads (``a[i-1]``, ``a[i]``, ``a[i+1]``) only those that the next row reads again stay in registers.
    """
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
    """One access of each group of neighbours, and the number of distinct vectors that the group loads for ``rows``
    rows.
    """
    for access, offsets in neighbours(scop, statement):
        by = step(scop, access, nest, nest.rows)
        yield access, len({offset + row * by for offset in offsets for row in range(rows)})


@by_identity
def neighbours(scop: Scop, statement: Statement) -> tuple[tuple[Access, tuple[int, ...]], ...]:
    """The reads in groups that differ by constants (``a[i-1]``, ``a[i+1]``): the first access, the offsets of all."""
    groups: dict[tuple[str, tuple[object, ...]], list[Access]] = {}
    for access in dict.fromkeys(statement.reads):
        groups.setdefault((access.array, tuple(s.terms for s in access.subscripts)), []).append(access)
    return tuple((found[0], tuple(sum(
        stride * subscript.constant
        for stride, subscript in zip(scop.array(array).known_strides, access.subscripts, strict=True))
        for access in found)) for (array, _), found in groups.items())


@by_identity
def operation_counts(expression: Expression) -> tuple[int, int]:
    """(simple operations, divisions and square roots); a call of a function counts as ``CALLED`` divisions."""
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
    """The latency in cycles from the value of ``read`` to the value written; 0 where the read is not used."""

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
    """Cycles of the loop as compiled.

    ``latency``: cycles that an iteration waits for the one before. ``width``: iterations that the compiled code
    computes at a time (vectorised).
    """
    counts = tuple(trips[d.name] for d in statement.dimensions)
    nest = LeafNest(tuple(trips.items()), DimensionMap({n: Linear.symbol(n) for n in trips}))
    simple, long = operation_counts(statement.expression)
    latency += CHOICE * _choices(statement.expression)
    compute = max(SCALAR_CYCLES, (simple + len(statement.reads)) * ARITHMETIC, long * LONG_LATENCY / 2, latency)
    levels = tuple((n, 1, count) for n, count in trips.items())
    streams = [_stream(scop, a, nest, levels, 0, a == statement.write) for a in _distinct(statement)
               if not scop.array(a.array).private]  # the original keeps private values in registers
    return overlapped(prod(counts) * compute / width, traffic(streams, counts, machine))


def _choices(expression: Expression) -> int:
    """The number of operations that compiled code often does by a branch: minima, maxima, selects."""
    if not isinstance(expression, Apply):
        return 0
    return (expression.operator in ("min", "max", "select", "when", "smin", "smax", "umin", "umax")) + sum(
        map(_choices, expression.operands))


def overlapped(compute: float, lines: float) -> float:
    """The cycles of arithmetic and of moving lines together: the longer hides most of the shorter."""
    return max(compute, lines) + EXPOSED * min(compute, lines)


def leaf_cycles(
    scop: Scop, statement: Statement, nest: LeafNest, tile: TileCost, isa: Isa, machine: Machine
) -> float:
    """Cycles of all instances of a statement: register tiles and cache lines (``overlapped``), and the entry of each
    macro instance."""
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
    """One access of each group that differs by constants: the accesses of a group walk over the same lines."""
    first: dict[tuple[str, tuple[object, ...]], Access] = {}
    for access in (statement.write, *statement.reads):
        first.setdefault((access.array, tuple(s.terms for s in access.subscripts)), access)
    return tuple(first.values())


def _starts(scop: Scop, access: Access, nest: LeafNest, rows: int, page: int) -> float:
    """The fraction of lines that begin a sequence, and so are not prefetched.

    Rows that are contiguous in memory are one sequence if they run one after the other. If a tile runs several of them
    at once, each row begins a sequence. Prefetching stops at a page in any case, so rows a page or more apart cost
    nothing extra.
    """
    moved, by = step(scop, access, nest, nest.vector), abs(step(scop, access, nest, nest.rows))
    row = abs(moved) * nest.counts[nest.vector] if nest.vector else 0
    return min(1.0, STARTS * LINE / row) if rows > 1 and 0 < row <= by < min(2 * row, page) else 0.0


def _sequences(scop: Scop, statement: Statement, nest: LeafNest, rows: int) -> int:
    """The number of sequences of lines along which the vectors of ``rows`` rows walk at the same time."""
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
    """The lines of ``access`` in this loop nest.

    ``levels``: (variable, step, iterations) of each loop, outermost first; the last ``tile`` of them are those inside
    the register tile. The hardware prefetches a few dozen sequences of lines at a time. An access that starts more
    sequences than that before it comes to the next line of the first, or never does, moves scattered lines.
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
