"""Cost model of contractions: estimated cycles of a nest as compiled and as planned, from the machine description.

Example: for ``C[i][j] += A[i][k] * B[k][j]`` of doubles, i, j, k < 2048, an L2 cache holds what one iteration of i
reads of A, but not B. So B's 2048*2048/8 cache lines are fetched 2048 times, once for each i.

In: the statement, trip counts, a ``Machine``, and for ``estimate`` a plan. Out: cycles. Lines moved between two levels
are counted by the reuse argument of Ferrante, Sarkar and Thrash ("On estimating and enhancing cache effectiveness",
LCPC 1991): the innermost loops whose joint footprint fits a cache fetch each of their lines once, and every iteration
of the loops outside them fetches these lines again. A footprint whose strides fall on few sets of the cache has only
those sets' room.

The figures rank candidates and tell when nothing is to be gained; the trial run measures. Latencies and bandwidths are
typical of current server cores, because the description has no measured ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import ceil, gcd, prod

from memopt.ir.frozen import dataclass
from memopt.ir.plan import Plan
from memopt.ir.scop import Access, Apply, Expression, Read, Scop, Statement
from memopt.machine.description import CacheLevel, Machine
from memopt.models.tile_sizes import INNER_PANEL_LINE, OUTER_PANEL_LINE

ADD_LATENCY = 3.0  # cycles of a dependent floating-point addition
SCALAR_CYCLES = 1.5  # of one iteration of a scalar loop without dependences: loads, arithmetic, store, counter
VECTOR_ARITHMETIC_PER_CYCLE = 3.0
LOADS_PER_CYCLE = 2.0
TILE_START = 20.0  # cycles to enter and leave one register tile
PACKED_PER_ELEMENT = 1.0  # cycles to copy an element, transposed or not, without the lines moved
WALK = 5.0  # cycles of a page walk that are not hidden by other work
TLB_ENTRIES = 2048  # second-level TLB; other work hides misses of the first level only
DEFAULT_FREQUENCY = 3000  # MHz

# Cycles per line fetched from outside cache level 1, 2, 3, net of what prefetching and other work hide: for lines in
# sequence, and for lines a stride apart.
_STREAMED = (1.5, 4.0, 12.0)
_SCATTERED = (3.0, 12.0, 45.0)

# The fraction of a cache that the lines of one nest can count on.
_USABLE = 0.75


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated cycles of one entry of the nest, with all its iterations, as compiled and as planned."""

    original: float  # as compiled
    compute: float  # the plan's arithmetic and loads
    traffic: float  # the plan's cache lines
    packing: float  # the plan's copies of operands
    frequency: int  # MHz

    @property
    def plan(self) -> float:
        """Cycles of the plan."""
        return self.compute + self.traffic + self.packing

    @property
    def gain(self) -> float:
        """The estimated speed-up."""
        return self.original / self.plan

    @property
    def original_microseconds(self) -> float:
        """Microseconds of one entry of the nest as compiled."""
        return self.original / self.frequency

    def __str__(self) -> str:
        parts = ", ".join(
            f"{name} {value / self.plan:.0%}"
            for name, value in (("arithmetic", self.compute), ("traffic", self.traffic), ("packing", self.packing))
        )
        return f"estimated {_time(self.original / self.frequency)} -> {_time(self.plan / self.frequency)} ({parts})"


def _time(microseconds: float) -> str:
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= scale:
            return f"{microseconds / scale:.3g} {unit}"
    return f"{microseconds:.3g} us"


def stride(scop: Scop, access: Access, dimension: str) -> int:
    """Bytes that ``access`` moves by from one iteration of ``dimension`` to the next, at the captured entry."""
    array = scop.array(access.array)
    return sum(s * e.coefficient(dimension) for s, e in zip(array.seen_strides, access.subscripts, strict=True))


def operations(expression: Expression) -> int:
    """The number of operations in ``expression``."""
    if isinstance(expression, Apply):
        return 1 + sum(operations(o) for o in expression.operands)
    return 0


@dataclass(frozen=True, slots=True)
class AccessCost:
    """One access of a nest, as far as its cache lines are concerned."""

    strides: tuple[int, ...]  # bytes along each loop, outermost first
    element: int  # bytes
    passes: int = 1  # times a line is moved: 2 where it is written back
    # Bytes from one line to the next in the order of use. None: the stride of the innermost loop. Lanes of a vector may
    # be lines apart although each of them walks along lines in sequence.
    advance: int | None = None
    reused: bool = False  # the memory is small and used again and again, so it never leaves the outermost cache
    starts: float = 0.0  # the fraction of lines in sequence that begin one, and so are not prefetched

    def lines(self, trips: tuple[int, ...], depth: int, line: int) -> int:
        """The number of distinct cache lines that the loops from ``depth`` inwards touch (``line``: bytes of one)."""
        return _lines(self.strides[depth:], trips[depth:], self.element, line)

    def room(self, trips: tuple[int, ...], depth: int, cache: CacheLevel) -> int:
        """The capacity of ``cache`` in lines for the loops from ``depth`` inwards.

        Where a single stride moves the access, its lines fall on some of the sets only. Outer caches hash their sets.
        """
        steps = [abs(s) for s, t in zip(self.strides[depth:], trips[depth:], strict=True) if s and t > 1]
        if len(steps) != 1 or cache.level >= 3:
            return cache.size // cache.line
        positions = cache.way_size // gcd(max(steps[0], cache.line), cache.way_size)
        return positions * cache.ways


@lru_cache(maxsize=1 << 14)
def _lines(strides: tuple[int, ...], trips: tuple[int, ...], element: int, line: int) -> int:
    run, apart = element, 1
    for step, count in sorted((abs(s), t) for s, t in zip(strides, trips, strict=True) if s):
        if step <= max(run, line):
            run += step * (count - 1)
        else:
            apart *= count
    return apart * ceil(run / line)


def original_cycles(scop: Scop, statement: Statement, trips: Mapping[str, int], machine: Machine) -> float:
    """Cycles of ``statement`` as compiled; ``trips``: the trip count of every dimension.

    It is taken for a scalar loop that waits for the longer of two: its operations (each for the one before, where the
    innermost loop accumulates), or its cache lines.
    """
    names = [d.name for d in statement.dimensions]
    counts = tuple(trips[name] for name in names)
    element = scop.array(statement.write.array).element.size
    waits = stride(scop, statement.write, names[-1]) == 0
    step = ADD_LATENCY * _chain(statement) if waits else SCALAR_CYCLES
    step = max(step, SCALAR_CYCLES * operations(statement.expression) / 2)
    streams = []
    for access in dict.fromkeys((statement.write, *statement.reads)):
        strides = tuple(stride(scop, access, n) for n in names)
        streams.append(AccessCost(strides, element, passes=2 if access == statement.write else 1))
    return max(prod(counts) * step, traffic(streams, counts, machine))


def _chain(statement: Statement) -> int:
    """The length of the dependence chain: operations between the accumulator and the result."""

    def depth(node: Expression) -> int | None:
        if isinstance(node, Read):
            return 0 if statement.reads[node.index] == statement.write else None
        if isinstance(node, Apply):
            depths = [d for d in map(depth, node.operands) if d is not None]
            return 1 + max(depths) if depths else None
        return None

    return depth(statement.expression) or 0


def traffic(streams: list[AccessCost], trips: tuple[int, ...], machine: Machine) -> float:
    """Cycles for the lines that ``streams`` move into each cache, and for their page walks."""
    cycles = 0.0
    lines = {line: [sum(s.lines(trips, depth, line) for s in streams) for depth in range(len(trips))]
             for line in {cache.line for cache in machine.levels[:3]}}
    for number, cache in enumerate(machine.levels[:3]):
        for access in streams:
            if access.reused and number > 1:
                continue
            depth = _reused_from(lines[cache.line], access, trips, cache)
            moved = access.passes * prod(trips[:depth]) * access.lines(trips, depth, cache.line)
            advance = access.strides[-1] if access.advance is None else access.advance
            scattered = 1.0 if abs(advance) > cache.line else access.starts if number else 0.0
            # A line from further out is counted at every cache on its way, each time with the difference in cost.
            cycles += moved * ((1 - scattered) * _further(_STREAMED, number) + scattered * _further(_SCATTERED, number))
    return cycles + WALK * sum(_walks(access, trips, machine.page_size) for access in streams)


def _further(cost: tuple[float, ...], number: int) -> float:
    return cost[number] - (cost[number - 1] if number else 0.0)


def _reused_from(lines: list[int], access: AccessCost, trips: tuple[int, ...], cache: CacheLevel) -> int:
    """The depth of the outermost loop that finds lines of ``access`` of its previous iteration still in ``cache``.

    All lines of one iteration of that loop fit the cache; for the innermost loop that is taken for granted. ``lines``:
    the lines of all streams together, from each depth inwards.
    """
    capacity = _USABLE * cache.share / cache.line
    for depth in range(len(trips)):
        fits = lines[depth] <= capacity
        if fits and access.lines(trips, depth, cache.line) <= access.room(trips, depth, cache):
            return max(depth - 1, 0)
    return len(trips) - 1


def _walks(access: AccessCost, trips: tuple[int, ...], page: int) -> float:
    """The number of page walks: one for each page where a run of the innermost loop exceeds the reach of the TLB."""
    depth = len(trips) - 1
    pages = access.lines(trips, depth, page)
    return float(prod(trips[:depth]) * pages) if pages > TLB_ENTRIES else 0.0


def estimate(scop: Scop, statement: Statement, plan: Plan, trips: Mapping[str, int], machine: Machine) -> Estimate:
    """The estimate for a contraction and a plan.

    ``trips``: the trip count of every dimension, for the patched loop the one that is expected.
    """
    original = original_cycles(scop, statement, trips, machine)
    return Estimate(
        original=original,
        compute=_compute(statement, plan, trips),
        traffic=_tile_traffic(scop, statement, plan, trips, machine),
        packing=sum(packing_cycles(scop, statement, plan, p.read, trips, machine) for p in plan.packs),
        frequency=machine.frequency or DEFAULT_FREQUENCY,
    )


def _compute(statement: Statement, plan: Plan, trips: Mapping[str, int]) -> float:
    """Cycles of all register tiles: arithmetic or loads, whichever is slower. Idle lanes and rows cost as busy ones."""
    tile = plan.tile
    columns = tile.vector_count * tile.lanes
    tiles = ceil(trips[tile.rows] / tile.row_count) * ceil(trips[tile.vector] / columns)
    outer = prod(trips[d.name] for d in statement.dimensions if d.name not in (tile.rows, tile.vector, tile.reduction))
    blocks = ceil(trips[tile.reduction] / _size(plan, tile.reduction, trips))
    work = operations(statement.expression) - plan.fuse_multiply_add
    arithmetic = work * tile.row_count * tile.vector_count / VECTOR_ARITHMETIC_PER_CYCLE
    loads = (tile.row_count + tile.vector_count) / LOADS_PER_CYCLE
    results = 2 * tile.row_count * tile.vector_count / LOADS_PER_CYCLE
    step = max(arithmetic, loads, ADD_LATENCY)
    return outer * tiles * (trips[tile.reduction] * step + blocks * (TILE_START + results))


def _size(plan: Plan, dimension: str, trips: Mapping[str, int]) -> int:
    """The size of the outermost tile of ``dimension``, at most its trip count."""
    return min(next((t.size for t in plan.loops if t.dimension == dimension), trips[dimension]), trips[dimension])


def _footprint(scop: Scop, access: Access, statement: Statement, trips: Mapping[str, int], line: int) -> int:
    names = [d.name for d in statement.dimensions]
    stream = AccessCost(tuple(stride(scop, access, n) for n in names), scop.array(access.array).element.size)
    return stream.lines(tuple(trips[n] for n in names), 0, line)


def _origin(size: int, machine: Machine) -> float:
    """Cycles per line, in sequence, from the cache in which ``size`` bytes stay that are used again and again."""
    for number, cache in enumerate(machine.levels):
        if size <= _USABLE * cache.share:
            return _STREAMED[min(number, 2) - 1] if number else 0.0
    return _STREAMED[2]


def _tile_traffic(
    scop: Scop, statement: Statement, plan: Plan, trips: Mapping[str, int], machine: Machine
) -> float:
    """Cycles for the lines of a tiled contraction.

    Results are read and written once for each block of the reduction and each iteration of the loops that do not move
    them. Packed panels come from the caches that their sizes were chosen for.
    """
    line = machine.levels[0].line
    results = _footprint(scop, statement.write, statement, trips, line)
    still = prod(
        trips[d.name]
        for d in statement.dimensions
        if d.name != plan.tile.reduction and stride(scop, statement.write, d.name) == 0
    )
    blocks = still * ceil(trips[plan.tile.reduction] / _size(plan, plan.tile.reduction, trips))
    cycles = 2.0 * blocks * results * _origin(results * line, machine)
    packed = {p.read for p in plan.packs}
    element = scop.array(statement.write.array).element.size
    tile = plan.tile
    for pack in plan.packs:
        # Row panels come from L2 once for every column of tiles, vector panels from further out once for every block
        # of rows.
        again, cost = (tile.vector_count * tile.lanes, INNER_PANEL_LINE)
        if pack.dimension != tile.rows:
            again, cost = (_size(plan, tile.rows, trips), OUTER_PANEL_LINE)
        cycles += prod(trips[d.name] for d in statement.dimensions) / again * element / line * cost
    unpacked = [a for i, a in enumerate(statement.reads) if i not in packed and a != statement.write]
    return cycles + sum(_unpacked(scop, a, statement, plan, trips, machine) for a in unpacked)


def _unpacked(
    scop: Scop, access: Access, statement: Statement, plan: Plan, trips: Mapping[str, int], machine: Machine
) -> float:
    """Cycles for the lines of an operand that is not packed: register tiles read it in place, in their loop order."""
    tile = plan.tile
    order = [d.name for d in statement.dimensions if d.name not in (tile.rows, tile.vector, tile.reduction)]
    order += [tile.vector, tile.rows, tile.reduction]
    counts = {**trips, tile.vector: ceil(trips[tile.vector] / (tile.vector_count * tile.lanes))}
    strides = {n: stride(scop, access, n) for n in order}
    strides[tile.vector] *= tile.vector_count * tile.lanes
    element = scop.array(access.array).element.size
    stream = AccessCost(tuple(strides[n] for n in order), element)
    return traffic([stream], tuple(counts[n] for n in order), machine)


def packing_cycles(
    scop: Scop, statement: Statement, plan: Plan, read: int, trips: Mapping[str, int], machine: Machine
) -> float:
    """Cycles to pack operand ``read`` into panels, each time its loop level is reached.

    The cost is that of the elements copied, of the lines in and out, and of a page walk for each page, or for each
    element where all its strides are at least a page.
    """
    access = statement.reads[read]
    pack = next(p for p in plan.packs if p.read == read)
    element, line = scop.array(access.array).element.size, machine.levels[0].line
    moved = [d.name for d in statement.dimensions if stride(scop, access, d.name)]
    again = prod(
        ceil(trips[t.dimension] / t.size) for t in plan.loops[: pack.level + 1] if t.dimension not in moved
    )
    elements = prod(trips[name] for name in moved)
    strides = [abs(stride(scop, access, name)) for name in moved]
    lines = _footprint(scop, access, statement, trips, line)
    pages = elements if min(strides, default=0) >= machine.page_size else elements * element / machine.page_size
    source = _origin(lines * line, machine)
    return again * (elements * PACKED_PER_ELEMENT + 2 * lines * source + pages * WALK)
