"""Leaf options of one statement: which loops become vector, rows and sequential dimension of its register tile.

Example: ``for i, j, k: C[i][j] += A[i][k] * B[k][j]`` may have vectors along j, rows i and k in sequence, or vectors
along j inside serial loops i and k.

In: a ``Position``, that is a statement whose first dates are fixed and whose other dimensions are free. Out: the
``Option``s that the dependences allow, with the order of the loops around the tile, cheapest first by the cost model.
Where no loop is parallel, a skewed front through two or three of them may be (Wolfe, "Loop skewing: the wavefront
method revisited", IJPP 15(4), 1986).

Legal because rows and vector are dimensions along which no remaining dependence goes, and the sequential one carries
all that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from itertools import combinations, permutations, product
from math import ceil

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.plan import MOST_LANES, Date, Leaf
from memopt.ir.scop import Access, Scop, Statement, extreme
from memopt.models.loop_cost import (
    LINE,
    MOST_NEIGHBOURS,
    DimensionMap,
    LeafNest,
    TileCost,
    best_tile,
    chain,
    lanes,
    leaf_cycles,
    neighbours,
    step,
)
from memopt.polyhedral.isl import instances
from passes.context import Context
from passes.loop_schedule.carried_dependences import DependencePieces, carry, equal, keeps

MOST_COEFFICIENT = 3  # largest coefficient of a skewed front
BLOCK_STEPS = 256  # steps of the sequential dimension in a block of a register tile's operands
STRIP = 64  # iterations in a strip of a vector dimension that goes across cache lines
FRONT_STRIP = 64  # rows in a strip along a front: with fewer the way to each front costs too much, more leave L1
_SHORT_LIST = 8  # options whose register tiles are searched in full


@dataclass(frozen=True, slots=True)
class Position:
    """How far the schedule of a statement has got: ``dates`` are fixed, ``free`` dimensions are not."""

    statement: Statement
    dates: tuple[Date, ...]
    # Free dimensions with their trip counts. One that a date has cut into tiles varies inside its tile only.
    free: tuple[tuple[str, int], ...]
    # For the cost model: the loops so far with their trip counts, and each dimension as Linear over all loops.
    levels: tuple[tuple[str, int], ...]
    place: tuple[tuple[str, Linear], ...]
    # Dependences of the statement on itself that the dates leave.
    left: DependencePieces

    def at(self, name: str, date: Linear, count: int, left: DependencePieces) -> Position:
        """The position behind one more date, which fixes the free dimension ``name``. ``left``: the dependences that it
        leaves."""
        return replace(self, dates=(*self.dates, Date(date)), levels=(*self.levels, (name, count)),
                       free=tuple(f for f in self.free if f[0] != name), left=left)


@dataclass(frozen=True, slots=True)
class Option:
    """A leaf with its dates and register tile, and the estimated cycles of all its instances."""

    leaf: Leaf
    nest: LeafNest
    tile: TileCost
    width: int  # lanes of a vector
    cycles: float


def options(scop: Scop, position: Position, context: Context) -> list[Option]:
    """The legal leaves for the free dimensions at ``position``, cheapest first. The original order is always among
    them."""
    place = DimensionMap(dict(position.place))
    found: list[Found] = []
    inside = _Inside(position)
    for *roles, order in _roles(scop, position):
        at = inside.ordered(order)
        leaf = at and _legal(scop, at, place, inside.parallel(order), *roles)
        if at and leaf:
            found += [*_joinable(scop, position.statement, leaf), leaf, *_blocked(scop, at, leaf, context)]
    found += _turned(scop, position)
    if not any(x.vector for x, _ in found):
        found += _fronts(position)
    return _priced(scop, position.statement, found, context)


Found = tuple[Leaf, LeafNest]


def _joinable(scop: Scop, statement: Statement, found: Found) -> Iterator[Found]:
    """The leaf as the generator runs it where its rows are contiguous: rows and vector collapsed into one loop."""
    leaf, nest = found
    one = _joined(scop, statement, nest)
    if one is not None:
        yield leaf, one


def _joined(scop: Scop, statement: Statement, nest: LeafNest) -> LeafNest | None:
    """For the cost model: ``nest`` with one loop for rows and vectors, where the generator will collapse them; else
    None."""
    rows, vector = nest.rows, nest.vector
    if rows is None or vector is None:
        return None
    trips = {d.name: d.trips for d in statement.dimensions}
    if not trips[vector].is_constant or vector in _coupled(statement) or nest.counts[vector] != trips[vector].constant:
        return None
    accesses: tuple[Access, ...] = (statement.write, *statement.reads)
    count = nest.counts[vector]
    follows = all(step(scop, a, nest, rows) == count * step(scop, a, nest, vector) for a in accesses)
    if not 1 < count <= MOST_LANES or not follows:
        return None
    levels = tuple((n, c * nest.counts[rows] if n == vector else c) for n, c in nest.levels if n != rows)
    return replace(nest, levels=levels, rows=None)


def _coupled(statement: Statement) -> set[str]:
    """Loops whose counter a condition or the length of another loop depends on."""
    expressions = [*statement.conditions, *(d.trips for d in statement.dimensions)]
    return {s for e in expressions for s in e.symbols}


def _roles(scop: Scop, position: Position) -> Iterator[tuple[str | None, str | None, str | None, tuple[str, ...]]]:
    """Choices of rows, vector and sequential dimension, each with an order of the other loops. Rows are taken where an
    access is invariant along them, where neighbouring rows read the same cells, or where they continue the vectors in
    memory."""
    names = [n for n, _ in position.free]
    whole = LeafNest(tuple(position.free), DimensionMap({n: Linear.symbol(n) for n in names}))
    accesses = (position.statement.write, *position.statement.reads)
    moves = {n: [step(scop, a, whole, n) for a in accesses] for n in names}
    still = {n for n in names if not all(moves[n]) or _rows_share(scop, position.statement, whole, n)}
    trips = dict(position.free)
    if not names:
        yield None, None, None, ()
    for vector in (*names, None):
        for sequential in (*names, None):
            for rows in (*names, None):
                taken = [n for n in (rows, vector, sequential) if n]
                if len(set(taken)) != len(taken) or not (vector or sequential) or (
                        rows and rows not in still and not (
                            vector and moves[rows] == [trips[vector] * m for m in moves[vector]])):
                    continue
                rest = [n for n in names if n not in taken]
                for order in permutations(rest) if len(rest) <= 3 else (tuple(rest),):
                    yield rows, vector, sequential, order


def _rows_share(scop: Scop, statement: Statement, nest: LeafNest, rows: str) -> bool:
    """Whether neighbouring rows read some of the same cells."""
    for access, offsets in neighbours(scop, statement):
        by = abs(step(scop, access, nest, rows))
        if {abs(a - b) for a, b in combinations(offsets, 2)} & {by * n for n in range(1, MOST_NEIGHBOURS) if by}:
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Inside:
    """A cache of positions behind serial loops: many leaves share the loops around them."""

    position: Position
    known: dict[tuple[str, ...], Position | None] = field(default_factory=dict)
    answers: dict[tuple[tuple[str, ...], str], bool] = field(default_factory=dict)

    def ordered(self, order: tuple[str, ...]) -> Position | None:
        """The position behind the serial loops of ``order``; None when they violate a dependence."""
        if not order:
            return self.position
        if order not in self.known:
            self.known[order] = self._behind(self.ordered(order[:-1]), order[-1])
        return self.known[order]

    def _behind(self, at: Position | None, name: str) -> Position | None:
        left = None if at is None else carry(at.left, {at.statement.name: Linear.symbol(name)})
        return None if at is None or left is None else at.at(name, Linear.symbol(name), dict(at.free)[name], left)

    def parallel(self, order: tuple[str, ...]) -> Callable[[str], bool]:
        """A test for a dimension: whether no dependence left inside the loops of ``order`` goes along it."""
        def along(name: str) -> bool:
            if (order, name) not in self.answers:
                at = self.ordered(order)
                assert at is not None
                self.answers[order, name] = equal(at.left, {at.statement.name: Linear.symbol(name)})
            return self.answers[order, name]

        return along


def _legal(scop: Scop, at: Position, place: DimensionMap, parallel: Callable[[str], bool], rows: str | None,
           vector: str | None, sequential: str | None) -> Found | None:
    """The leaf of all that is free at a position; None when its dependences forbid it. ``parallel`` tests a
    dimension."""
    statement, left = at.statement, at.left
    name = statement.name
    if any(d and not parallel(d) for d in (rows, vector)):
        return None
    nest = LeafNest((*at.levels, *at.free), place, rows, vector, sequential, latency(statement, left, sequential))
    if vector and not step(scop, statement.write, nest, vector):
        return None  # independent iterations that all write one cell: the loop has one iteration, so no vector
    if sequential is None:
        return None if left else (Leaf(name, at.dates, None, rows, 1, vector), nest)
    still = not step(scop, statement.write, nest, sequential)
    if not left and not still and (rows or vector):
        return None  # no dependence asks for a sequential dimension
    if carry(left, {name: Linear.symbol(sequential)}) != ():
        return None
    kept = statement.condition is None or extreme(statement) is not None
    promote = still and kept and _alone(statement, left)
    return Leaf(name, at.dates, sequential, rows, 1, vector, 1, promote), nest


def _blocked(scop: Scop, at: Position, found: Found, context: Context) -> Iterator[Found]:
    """A register tile over blocks of its operands (strip-mining). A block has as many steps of the sequential
    dimension, and as many vectors, as stay in half of L2 while all rows go over it."""
    leaf, nest = found
    if not (leaf.promote and leaf.rows and leaf.vector and leaf.sequential):
        return
    size = scop.array(at.statement.write.array).element.size
    sizes = {leaf.sequential: BLOCK_STEPS, leaf.vector: context.machine.level(2).share // 2 // (BLOCK_STEPS * size)}
    inside = at
    for name, most in sizes.items():
        # Legal: points that differ in the vector dimension are independent, and the sequential one still ascends.
        if dict(inside.free)[name] > most:
            inside = cut(inside, name, most)
    if inside is not at:
        levels = (*inside.levels, *inside.free)
        yield replace(leaf, dates=inside.dates), replace(nest, levels=levels, place=DimensionMap(dict(inside.place)))


def _turned(scop: Scop, position: Position) -> Iterator[Found]:
    """Strips of vectors around the other loops, where one access goes along cache lines and another one across them (a
    transposition). The lines of a strip stay in L1, and their pages in the TLB, until their next elements are used."""
    statement, free = position.statement, dict(position.free)
    whole = LeafNest(position.free, DimensionMap({n: Linear.symbol(n) for n in free}))
    for vector, count in position.free:
        steps = {abs(step(scop, a, whole, vector)) for a in (statement.write, *statement.reads)}
        others = [n for n in free if n != vector]
        if max(steps) <= LINE or min(steps - {0}) > LINE // 2 or count < 2 * STRIP or not 0 < len(others) <= 3 or (
                not keeps(position.left, {statement.name: Linear.symbol(vector)})):
            continue
        at = cut(position, vector, STRIP)
        inside, place = _Inside(at), DimensionMap(dict(at.place))
        for order in permutations(others):
            behind = inside.ordered(order)
            leaf = behind and _legal(scop, behind, place, inside.parallel(order), None, vector, None)
            if leaf:
                yield leaf


def latency(statement: Statement, left: DependencePieces, inner: str | None) -> float:
    """Cycles that a step of the loop ``inner`` waits for earlier steps, by the dependences ``left`` inside it."""
    waits = [0.0]
    for each in left:
        if inner is not None and each.first == statement.write:
            ahead = each.pairs.least(each.distance({statement.name: Linear.symbol(inner)}))
            if ahead:
                waits.append(chain(statement, each.second) / ahead)
    return max(waits)


def _alone(statement: Statement, left: DependencePieces) -> bool:
    """Whether no read but the accumulator meets the written cell in one macro instance, so that it may stay in a
    register."""
    if any(c.first != statement.write or c.second != statement.write for c in left):
        return False
    return not any(_meets(statement, read.subscripts) for read in statement.reads
                   if read != statement.write and read.array == statement.write.array)


def _meets(statement: Statement, subscripts: tuple[Linear, ...]) -> bool:
    """Whether some instance reads ``subscripts`` of the written array where it writes."""
    return not instances(statement).where(
        equal=[a - b for a, b in zip(statement.write.subscripts, subscripts, strict=True)]).is_empty


def _fronts(position: Position) -> Iterator[Found]:
    """Wavefronts: skewed dates that carry all dependences, smallest coefficients first, with a vector along each
    front."""
    counts = dict(position.free)
    names = [n for n, _ in position.free]
    for size in (2, 3):
        for chosen in combinations(names, size):
            rest = [n for n in names if n not in chosen]
            made = list(_front(position, counts, chosen, rest))
            if made:
                yield from made
                return


def _front(position: Position, counts: dict[str, int], chosen: tuple[str, ...], rest: list[str]) -> Iterator[Found]:
    """Leaves along the front with the smallest coefficients over the loops ``chosen``; the loops ``rest`` are serial
    around it."""
    statement, at = position.statement, position
    for each in rest:
        left = carry(at.left, {statement.name: Linear.symbol(each)})
        if left is None:
            return
        at = at.at(each, Linear.symbol(each), counts[each], left)
    ranked = sorted(product(range(MOST_COEFFICIENT + 1), repeat=len(chosen)), key=lambda c: (sum(c), c))
    for coefficients in ranked:
        if 1 not in coefficients or sum(c != 0 for c in coefficients) < 2:
            continue
        front = Linear.build(dict(zip(chosen, coefficients, strict=True)))
        left = carry(at.left, {statement.name: front})
        if left is None:
            continue
        legal = [x for fixed in chosen if front.coefficient(fixed) == 1
                 for x in _along_front(at, counts, chosen, front, fixed, left)]
        if legal:
            yield from legal
            return


def _along_front(at: Position, counts: dict[str, int], chosen: tuple[str, ...], front: Linear, fixed: str,
                 left: DependencePieces) -> Iterator[Found]:
    """The date ``front`` takes the place of the loop ``fixed``. One of the other loops is the vector, or scalar
    rows; the remaining ones get dates of their own. Strips along it, where they are legal, keep the lines of one
    front in L1."""
    name = at.statement.name
    for along in chosen:
        if along == fixed:
            continue
        starts = [at]
        if keeps(at.left, {name: Linear.symbol(along)}):
            starts.append(cut(at, along, FRONT_STRIP))
        for start in starts:
            across = dict(start.free)
            length = sum(c * (across[n] - 1) for n, c in front.terms) + 1
            inside, remaining = start.at(fixed, front, length, left), left
            for each in chosen:
                if each not in (along, fixed):
                    after = carry(remaining, {name: Linear.symbol(each)})
                    if after is None:
                        break
                    remaining = after
                    inside = inside.at(each, Linear.symbol(each), counts[each], remaining)
            if remaining:
                continue
            dimensions = dict(inside.place)
            dimensions[fixed] = Linear.symbol(fixed) - front.without(fixed).substitute(dimensions)
            place = DimensionMap(dimensions)
            points = max(1, across[fixed] * across[along] // length)
            levels = (*inside.levels, (along, points))
            yield Leaf(name, inside.dates, vector=along), LeafNest(levels, place, vector=along)
            yield Leaf(name, inside.dates, rows=along), LeafNest(levels, place, rows=along)


def cut(position: Position, name: str, size: int) -> Position:
    """Strip-mining: one more date, ``name`` in tiles of ``size``; ``name`` stays free inside a tile."""
    count = dict(position.free)[name]
    outer = name + "/"
    place = tuple((d, Linear.build({outer: size, name: 1}) if d == name else x) for d, x in position.place)
    return replace(position, dates=(*position.dates, Date(Linear.symbol(name), size)),
                   levels=(*position.levels, (outer, ceil(count / size))),
                   free=tuple((n, min(c, size) if n == name else c) for n, c in position.free), place=place)


def _priced(scop: Scop, statement: Statement, found: list[Found], context: Context) -> list[Option]:
    """The leaves with register tiles and costs, cheapest first. A rough cost selects the short list that is searched in
    full."""

    def rough(candidate: Found) -> float:
        leaf, nest = candidate
        return leaf_cycles(scop, statement, nest, best_tile(scop, statement, nest, context.isa, leaf.promote, True),
                           context.isa, context.machine)

    made = []
    for leaf, nest in sorted(found, key=rough)[:_SHORT_LIST]:
        tile = best_tile(scop, statement, nest, context.isa, leaf.promote)
        cycles = leaf_cycles(scop, statement, nest, tile, context.isa, context.machine)
        counted = replace(leaf, row_count=tile.rows if nest.rows else 1,
                          vector_count=tile.vectors if nest.vector else 1)
        width = lanes(scop, statement, context.isa) if leaf.vector else 1
        made.append(Option(counted, nest, tile, width, cycles))
    return sorted(made, key=lambda o: o.cycles)
