"""Blocking of a loop that carries dependences: most of the work waits for the end of each block of its iterations.

Before (factorisation): ``for k { for i S0(k, i); for i, j S1(k, i, j) }``, where S1 updates the whole rest of the
matrix for every k. After: blocks of k. Inside a block come first the pieces of S0 and S1 that the steps of this block
need, then the piece of S1 beyond the block, as a product over the block's steps (Golub and Van Loan, "Matrix
Computations", 3.2).

Every statement gets one more dimension, the number of its block, which its other dimensions determine. It is split into
pieces by where the cells that it touches lie: before the block, inside it, or beyond it.

In: a ``Scop``, its dependences, usual trip counts. Out: ``Blocking``s, which ``allen_kennedy`` schedules. Legal where
no dependence goes back along the blocked loop. Values that the original keeps in registers must be used in the
iteration that makes them, so that they live no longer than a block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice, product
from math import ceil, prod

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.plan import Date
from memopt.ir.scop import Dimension, Scop, Statement
from memopt.models.loop_cost import average_trips
from memopt.polyhedral.dependence_pieces import between
from memopt.polyhedral.isl import Polyhedron, instances
from passes.loop_schedule.carried_dependences import DependencePieces, carry, equal, keeps
from passes.loop_schedule.leaf_options import Position
from passes.loop_schedule.row_alignment import RowAlignment

BLOCK = "block"  # name of the dimension that numbers the blocks
STEPS = 64  # iterations of the blocked loop in a block
MOST_CHOICES = 64  # combinations of loops that are looked at
MOST_BLOCKINGS = 1
MOST_PIECES = 24


@dataclass(frozen=True, slots=True)
class Blocking:
    """A blocked loop: the statements of ``scop`` are the pieces, and the last dimension of each is its block."""

    scop: Scop
    # Iterations of the blocked loop in a block.
    steps: int
    # For each piece, by its name: its blocked loop; and the usual iterations of its loops inside a block, with the
    # number of blocks under ``BLOCK``.
    loops: Mapping[str, str]
    counts: Mapping[str, Mapping[str, int]]

    def start(self, statement: Statement, conflicts: DependencePieces) -> Position:
        """The position of ``statement`` behind the date of its block. ``conflicts``: its dependences on itself inside a
        block."""
        counts = dict(self.counts[statement.name])
        loop = self.loops[statement.name]
        place = {n: Linear.symbol(n) for n in counts}
        place[loop] = Linear.build({BLOCK: self.steps, loop: 1})
        blocks = counts.pop(BLOCK)
        return Position(statement, (Date(Linear.symbol(BLOCK)),), tuple(counts.items()), ((BLOCK, blocks),),
                        tuple(place.items()), conflicts)


_Piece = tuple[Statement, dict[str, int]]  # with the iterations of its loops inside a block, and the number of blocks
_Cut = Callable[[Statement, str, Linear, tuple[Linear, ...], int, int], tuple[_Piece, ...]]


def blockings(
    scop: Scop, conflicts: DependencePieces, trips: int, steps: int = STEPS, facts: tuple[Linear, ...] = ()
) -> Iterator[Blocking]:
    """Blocked loops that are legal and promise a gain, the original outermost loop before others.

    A loop is legal as blocked loop when no dependence goes back along it. It promises a gain when most of the work is a
    reduction that can wait for the rest of its block, or for which the rest of the block can wait. ``trips``: usual
    trip count of the patched loop. Every one of ``facts`` is >= 0.
    """
    made, rows, cut = 0, RowAlignment.of(scop), functools.cache(_pieces)
    values = [c for c in conflicts if scop.array(c.first.array).private]  # these must not outlive a block
    for chosen in islice(product(*([d.name for d in s.dimensions] for s in scop.statements)), MOST_CHOICES):
        loops = {s.name: d for s, d in zip(scop.statements, chosen, strict=True)}
        date = {s.name: rows.date(s, loops[s.name]) for s in scop.statements}
        if made < MOST_BLOCKINGS and keeps(conflicts, date) and equal(values, date):
            blocking = _blocked(scop, loops, _from_zero(rows, scop, loops, facts), cut, trips, steps)
            if blocking is not None and _promising(blocking, facts):
                made += 1
                yield blocking


def _from_zero(rows: RowAlignment, scop: Scop, loops: Mapping[str, str], facts: tuple[Linear, ...]) -> RowAlignment:
    """``rows`` with numbers that do not start below 0, because block numbers do not. Where they would, they count from
    the first iteration of the first statement's loop."""
    for statement in scop.statements:
        whole = instances(statement)
        known = whole.where(nonnegative=[f for f in facts if f.symbols <= set(whole.symbols)])
        least = None if known.is_empty else _range(rows.date(statement, loops[statement.name]), known)[0]
        if least is not None and least < 0:
            first = scop.statements[0]
            return replace(rows, start=rows.date(first, loops[first.name]) - Linear.symbol(loops[first.name]))
    return rows


def _blocked(scop: Scop, loops: Mapping[str, str], rows: RowAlignment, cut: _Cut, trips: int,
             steps: int) -> Blocking | None:
    """The blocking along ``loops``; None when it has too many pieces or splits nothing. ``cut`` is ``_pieces``, cached
    over the combinations of loops."""
    stepping = _stepping(scop, loops, rows)
    statements: list[Statement] = []
    kept: dict[str, str] = {}
    counts: dict[str, Mapping[str, int]] = {}
    for statement in scop.statements:
        loop = loops[statement.name]
        step = rows.date(statement, loop) - Linear.symbol(loop)
        forms = [rows.row((a.array, n), f, stepping[a.array, n]) for a in (statement.write, *statement.reads)
                 for n, f in enumerate(a.subscripts) if (a.array, n) in stepping]
        cells = tuple(f for f in dict.fromkeys(forms) if f is not None)
        for piece, count in cut(statement, loop, step, cells, trips, steps):
            statements.append(piece)
            kept[piece.name], counts[piece.name] = loop, count
        if len(statements) > MOST_PIECES:
            return None
    if len(statements) <= len(scop.statements):
        return None
    return Blocking(replace(scop, statements=tuple(statements)), steps, kept, counts)


def _stepping(scop: Scop, loops: Mapping[str, str], rows: RowAlignment) -> dict[tuple[str, int], int]:
    """Subscripts of written arrays that advance with the blocked loop in some access, each with its direction (1 or
    -1)."""
    written = {s.write.array for s in scop.statements}
    found: dict[tuple[str, int], int] = {}
    for statement in scop.statements:
        date = rows.date(statement, loops[statement.name])
        for access in (statement.write, *statement.reads):
            for number, subscript in enumerate(access.subscripts if access.array in written else ()):
                for direction in (1, -1):
                    row = rows.row((access.array, number), subscript, direction)
                    if row is not None and (row - date).is_constant:
                        found[access.array, number] = direction
    return found


def _promising(blocking: Blocking, facts: tuple[Linear, ...]) -> bool:
    """Whether the largest piece only accumulates inside a block, and can run there as a whole: no piece that must come
    before it depends on one that must come after it."""
    statements = blocking.scop.statements
    largest = max(statements, key=lambda s: prod(blocking.counts[s.name].values()))

    def inside(earlier: Statement, later: Statement) -> DependencePieces:
        date = {s.name: Linear.symbol(BLOCK) for s in (earlier, later)}
        return carry(between(earlier, later, facts), date) or ()

    own = inside(largest, largest)
    if not own or any(c.first != largest.write or c.second != largest.write for c in own):
        return False
    others = [s for s in statements if s is not largest]
    after = [s for s in others if inside(largest, s)]
    before = [s for s in others if inside(s, largest)]
    return not any(a is b or inside(a, b) for a in after for b in before)


def _pieces(
    statement: Statement, loop: str, start: Linear, forms: tuple[Linear, ...], trips: int, steps: int
) -> tuple[_Piece, ...]:
    """The statement with its block as last dimension, split where its cells, at the rows ``forms``, enter and leave the
    block. ``start``: the date of the loop's first iteration."""
    whole, step = instances(statement), start + Linear.symbol(loop)
    ways = []
    for form in forms:
        least, most = _range(form - step, whole)
        if (least, most) != (0, 0):  # a cell a few steps ahead lies in the next block near the end of each block
            parts = (_before(form, least, steps), _within(form, least, most, steps), _beyond(form, most, steps))
            ways.append([w for w in parts if w])
    blocked = replace(
        statement, dimensions=(*statement.dimensions, Dimension(BLOCK, _trips(statement, loop) + start)),
        position=(*statement.position, 0),
        conditions=(*statement.conditions, *_inside(step, steps)))
    usual = average_trips(statement, trips)
    found: list[_Piece] = []
    for number, chosen in enumerate(product(*ways)):
        conditions = tuple(c for way in chosen for c in way.conditions)
        piece = replace(blocked, name=f"{statement.name}p{number}", conditions=(*blocked.conditions, *conditions))
        if not instances(piece).is_empty:
            short = {loop} | {_innermost(statement, way.form, loop) for way in chosen if way.within}
            count = {n: min(c, steps) if n in short else c for n, c in usual.items()}
            found.append((piece, count | {BLOCK: ceil(usual[loop] / steps)}))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Way:
    """One place of a cell relative to the block (before, inside, beyond), as conditions that are >= 0 there."""

    form: Linear
    conditions: tuple[Linear, ...]
    within: bool = False


def _inside(form: Linear, steps: int) -> tuple[Linear, ...]:
    """Expressions that are >= 0 where ``form`` lies in the block."""
    first = Linear.symbol(BLOCK, steps)
    return form - first, first + (steps - 1) - form


def _range(ahead: Linear, whole: Polyhedron) -> tuple[int | None, int | None]:
    """The least and the largest value of ``ahead`` in ``whole``; None where it is unbounded. A symbol that ``whole``
    does not have is unbounded."""
    if not ahead.symbols <= {*whole.variables, *whole.symbols}:
        return None, None
    return whole.least(ahead), whole.most(ahead)


def _before(form: Linear, least: int | None, steps: int) -> _Way | None:
    """Cells before the block; None when there are none."""
    return None if least is not None and least >= 0 else _Way(form, (Linear.symbol(BLOCK, steps) - form - 1,))


def _beyond(form: Linear, most: int | None, steps: int) -> _Way | None:
    """Cells beyond the block; None when there are none."""
    return None if most is not None and most <= 0 else _Way(form, (form - Linear.symbol(BLOCK, steps) - steps,))


def _within(form: Linear, least: int | None, most: int | None, steps: int) -> _Way:
    """Cells inside the block, without conditions that always hold."""
    low, high = _inside(form, steps)
    conditions = [low] if least is None or least < 0 else []
    return _Way(form, (*conditions, *([high] if most is None or most > 0 else [])), True)


def _innermost(statement: Statement, form: Linear, loop: str) -> str:
    """The innermost loop that moves ``form``, other than the blocked one."""
    names = [d.name for d in statement.dimensions if form.coefficient(d.name) and d.name != loop]
    return names[-1] if names else loop


def _trips(statement: Statement, loop: str) -> Linear:
    """An upper bound on the number of blocks: a block's number is at most the counter of its loop."""
    return next(d.trips for d in statement.dimensions if d.name == loop)
