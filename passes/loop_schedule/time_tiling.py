"""Time tiling of stencils: several steps of a time loop over data while they are in a cache.

Before: ``for t: for i: S(t, i, j)``. After: blocks of steps, and inside a block a skewed front that advances over the
rows, ``u = i + slope*t + shift``. At one u all steps of the block run, one behind the other, so a row is fetched once
for each block (Wolf and Lam, "A data locality optimizing algorithm", PLDI 1991; the skewed band of Bondhugula et al.,
"A practical automatic polyhedral parallelizer and locality optimizer", PLDI 2008).

Rows are those of the written cells, so that statements over different arrays and loops advance together. The shifts of
the statements are the longest paths over the distances of their dependences (Bellman and Ford).

Legal because no dependence goes back along the front or along time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil, prod

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.plan import Date
from memopt.ir.scop import Access, Scop, Statement
from memopt.machine.description import Machine
from memopt.polyhedral.dependence_pieces import shared_loops
from passes.loop_schedule.carried_dependences import DependencePieces, carry, keeps, within
from passes.loop_schedule.leaf_options import Position, cut

STEPS = (4, 6, 8, 12, 16, 32)  # time steps of a tile that are tried, beside the trip count divided by 1, 2 and 3
_SENSIBLE = set(range(3, 40))  # numbers of steps that may pay
MOST_SLOPE = 4


@dataclass(frozen=True, slots=True)
class Front:
    """A skewed front: a date for each statement along which no dependence goes back."""

    # Rows that the front advances by in each time step.
    slope: int
    # The date of each statement, Linear over its dimensions.
    date: Mapping[str, Linear]
    # For each statement, the dimension besides the time loop that moves its date; None where there is none.
    loop: Mapping[str, str | None]


def fronts(scop: Scop, conflicts: DependencePieces, depth: int) -> Front | None:
    """The front over the rows of the written arrays with the smallest slope; None where there is none.

    ``depth``: 0 for a front over elements, 1 over lines of them, 2 over planes.
    """
    statements = scop.statements
    if min(shared_loops(statements[0], s) for s in statements) < 1:
        return None
    time = {s.name: Linear.symbol(s.dimensions[0].name) for s in statements}
    rows: dict[str, Linear] = {}
    loops: dict[str, str | None] = {}
    strides = {array: _row_strides(scop, array) for array in {s.write.array for s in statements}}
    for statement in statements:
        row = _row(scop, statement, strides[statement.write.array], depth)
        if row is None:
            return None
        rows[statement.name], loops[statement.name] = row
    if not keeps(conflicts, time):
        return None
    for slope in range(1, MOST_SLOPE + 1):
        skewed = {s: rows[s] + time[s] * slope for s in rows}
        shifts = _shifts(conflicts, skewed)
        if shifts is not None:
            return Front(slope, {s: skewed[s] + shifts[s] for s in skewed}, loops)
    return None


def _row(scop: Scop, statement: Statement, strides: list[int], depth: int) -> tuple[Linear, str | None] | None:
    """About which row of its array the statement writes, and the loop that moves the row by one; None where it is not
    that simple. Only the loop matters for legality. The constant makes the statements advance together."""
    if depth >= len(strides):
        return None
    offset = _offset(scop, statement.write)
    if offset.coefficient(statement.dimensions[0].name):
        return None
    row = strides[depth]
    names = [d.name for d in statement.dimensions if abs(offset.coefficient(d.name)) == row]
    if len(names) > 1 or any(offset.coefficient(n) < 0 for n in names):
        return None
    return Linear.build(dict.fromkeys(names, 1), offset.constant // row), names[0] if names else None


def _offset(scop: Scop, access: Access) -> Linear:
    """The address of the access in bytes from the array's base."""
    total = Linear()
    for stride, subscript in zip(scop.array(access.array).known_strides, access.subscripts, strict=True):
        total = total + subscript * stride
    return total


def _row_strides(scop: Scop, array: str) -> list[int]:
    """The strides in bytes by which loops walk over an array, the smallest first. One subscript may hold several
    loops."""
    offsets = [_offset(scop, a) for s in scop.statements for a in (s.write, *s.reads) if a.array == array]
    names = {d.name for s in scop.statements for d in s.dimensions[1:]}
    found = {abs(o.coefficient(n)) for o in offsets for n in names} - {0}
    return sorted(found | (set(scop.array(array).known_strides) if len(scop.array(array).strides) > 1 else set()))


def _shifts(conflicts: DependencePieces, skewed: Mapping[str, Linear]) -> dict[str, int] | None:
    """The smallest shifts with which no dependence goes back (Bellman and Ford); None when there are none."""
    distances: dict[tuple[str, str], int] = {}
    for each in conflicts:
        least = each.pairs.least(each.distance(skewed))
        if least is None:
            return None
        edge = each.earlier, each.later
        distances[edge] = min(distances.get(edge, least), least)
    shifts = dict.fromkeys(skewed, 0)
    for _ in range(len(shifts) + 1):
        changed = False
        for (earlier, later), least in distances.items():
            if shifts[later] < shifts[earlier] - least:
                shifts[later], changed = shifts[earlier] - least, True
        if not changed:
            return shifts
    return None


def time_tiled(scop: Scop, conflicts: DependencePieces, positions: tuple[Position, ...], machine: Machine) -> Iterator[
        tuple[tuple[Position, ...], DependencePieces, int]]:
    """Positions behind the dates of time tiles, with the dependences left there and the steps of a tile, for every
    shape and number of steps whose data stay in L2.

    The time loop is taken to consist of whole tiles, the last one included. ``positions``: of all statements, without a
    date.
    """
    depth = max(len(p.statement.dimensions) for p in positions) - 1
    for shape in _SHAPES.get(depth, ()):
        made = [(fronts(scop, conflicts, number), size) for number, size in shape]
        tiles = [(front, size) for front, size in made if front is not None]
        if len(tiles) == len(shape):
            trips = dict(positions[0].free)[positions[0].statement.dimensions[0].name]
            for steps in sorted({*(s for s in STEPS if s <= trips), *(ceil(trips / n) for n in (1, 2, 3))} & _SENSIBLE):
                if _resident(scop, positions, tiles, steps) <= _room(machine):
                    whole = tuple(replace(p, free=((p.free[0][0], ceil(trips / steps) * steps), *p.free[1:]))
                                  for p in positions)
                    yield *_behind(whole, conflicts, tiles, steps), steps


# Tile shapes, by the number of loops inside the time loop: skewed subscripts (counted from the last) and their rows.
_SHAPES: Mapping[int, tuple[tuple[tuple[int, int], ...], ...]] = {
    1: (((0, 512),), ((0, 2048),)),
    2: (((1, 1),), ((1, 16), (0, 256)), ((1, 16), (0, 512))),
    3: (((2, 1),), ((2, 4), (1, 8)), ((2, 4), (1, 16)), ((2, 8), (1, 16)), ((2, 4), (1, 8), (0, 128))),
}


def _room(machine: Machine) -> int:
    """Bytes that a tile may occupy: L2, because caches further out are not much faster than memory."""
    return machine.level(2).share


def _resident(scop: Scop, positions: tuple[Position, ...], tiles: list[tuple[Front, int]], steps: int) -> int:
    """The reuse distance of a tile in bytes: what it touches of every array between two uses of one cell, on its way
    through a block of steps. Each step moves it by the slope along every front."""
    total = 0
    arrays = {a.array for p in positions for a in (p.statement.write, *p.statement.reads)}
    for name in arrays:
        size = scop.array(name).element.size
        counts = [dict(p.free) for p in positions if name in {a.array for a in (p.statement.write, *p.statement.reads)}]
        skewed = {loop for front, _ in tiles for loop in front.loop.values()}
        inner = max(prod(c for d, c in list(count.items())[1:] if d not in skewed) for count in counts)
        box = [rows + 1 for _, rows in tiles]
        way = steps * max(front.slope for front, _ in tiles)
        total += (prod(box) + way * (prod(box) - prod(b - 1 for b in box))) * inner * size
    return total


def _behind(positions: tuple[Position, ...], conflicts: DependencePieces, tiles: list[tuple[Front, int]],
            steps: int) -> tuple[
        tuple[Position, ...], DependencePieces]:
    """The positions behind the dates of one tile shape: time tile, fronts, time step; and the dependences that are
    left."""
    inside = [cut(p, p.statement.dimensions[0].name, steps) for p in positions]
    left = conflicts
    for number, (front, rows) in enumerate(tiles):
        inside = [_skewed(p, front, rows, f"u{number}", steps) for p in inside]
        if rows == 1:
            carried = carry(left, front.date)
            assert carried is not None, "a front keeps all dependences"
            left = carried
    time = {p.statement.name: Linear.symbol(p.statement.dimensions[0].name) for p in inside}
    last = carry(left, time)
    assert last is not None, "time goes on"
    return tuple(p.at(str(time[p.statement.name]), time[p.statement.name], steps, within(last, (p.statement.name,)))
                 for p in inside), last


def _skewed(position: Position, front: Front, rows: int, name: str, steps: int) -> Position:
    """The position behind one more date: the front in tiles of ``rows``."""
    statement = position.statement.name
    date, loop = front.date[statement], front.loop[statement]
    dates = (*position.dates, Date(date, rows))
    if loop is None:
        return replace(position, dates=dates)
    count = dict(position.free)[loop]
    place = dict(position.place)
    place[loop] = Linear.symbol(name, rows) + Linear.symbol(loop, int(rows > 1)) - date.without(loop).substitute(place)
    levels = (*position.levels, (name, ceil((count + front.slope * steps) / rows)))
    free = tuple((n, min(c, rows) if n == loop else c) for n, c in position.free if n != loop or rows > 1)
    return replace(position, dates=dates, levels=levels, free=free, place=tuple(place.items()))
