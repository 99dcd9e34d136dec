"""Blocking: a loop that carries dependences, in blocks, so that most of the work can wait for the end of each block.

Before (factorisation): ``for k { for i S0(k, i); for i, j S1(k, i, j) }``, where S1 updates the whole rest of the
matrix for every k. After: blocks of k; inside a block the pieces of S0 and S1 that the block's own steps need, then the
piece of S1 that lies beyond the block, as a product over the block's steps (Golub and Van Loan, "Matrix Computations",
3.2).

Every statement gets one more dimension, the number of its block, which its other dimensions determine, and falls into
pieces by where the cells it touches lie: before the block, in it, or beyond.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, product
from math import ceil, prod

from memopt.ir.linear import Linear
from memopt.ir.plan import Date
from memopt.ir.scop import Dimension, Scop, Statement
from memopt.models.loop_cost import average_trips
from memopt.polyhedral.dependence_pieces import between
from memopt.polyhedral.isl import Polyhedron, instances
from passes.loop_schedule.carried_dependences import DependencePieces, carry, equal, keeps
from passes.loop_schedule.leaf_options import Position
from passes.loop_schedule.row_alignment import RowAlignment

BLOCK = "block"
STEPS = 64
MOST_CHOICES = 64
MOST_BLOCKINGS = 1
MOST_PIECES = 24


@dataclass(frozen=True, slots=True)
class Blocking:
    """``scop`` in pieces, the last dimension of each statement its block; ``counts``: iterations of the loops of each
    inside a block, and of the blocks; ``steps``: of the blocked loop."""

    scop: Scop
    steps: int
    loops: Mapping[str, str]
    counts: Mapping[str, Mapping[str, int]]

    def start(self, statement: Statement, conflicts: DependencePieces) -> Position:
        """The statement behind the date of its block; ``conflicts``: its own, of which none lead back to an earlier
        block."""
        counts = dict(self.counts[statement.name])
        loop = self.loops[statement.name]
        place = {n: Linear.symbol(n) for n in counts}
        place[loop] = Linear.build({BLOCK: self.steps, loop: 1})
        blocks = counts.pop(BLOCK)
        return Position(statement, (Date(Linear.symbol(BLOCK)),), tuple(counts.items()), ((BLOCK, blocks),),
                        tuple(place.items()), conflicts)


_Piece = tuple[Statement, dict[str, int]]  # with iterations of its loops inside a block, and of the blocks
_Cut = Callable[[Statement, str, Linear, tuple[Linear, ...], int, int], tuple[_Piece, ...]]


def blockings(
    scop: Scop, conflicts: DependencePieces, trips: int, steps: int = STEPS, facts: tuple[Linear, ...] = ()
) -> Iterator[Blocking]:
    """Blocks of loops that may come first, the original one before others, where most of the work is a reduction that
    can wait for the rest of its block, or the rest for it; every one of ``facts`` is >= 0."""
    made, rows, cut = 0, RowAlignment.of(scop), functools.cache(_pieces)
    values = [c for c in conflicts if scop.array(c.first.array).private]  # live no longer than a block
    for chosen in islice(product(*([d.name for d in s.dimensions] for s in scop.statements)), MOST_CHOICES):
        loops = {s.name: d for s, d in zip(scop.statements, chosen, strict=True)}
        date = {s.name: rows.date(s, loops[s.name]) for s in scop.statements}
        if made < MOST_BLOCKINGS and keeps(conflicts, date) and equal(values, date):
            blocking = _blocked(scop, loops, _from_zero(rows, scop, loops, facts), cut, trips, steps)
            if blocking is not None and _promising(blocking, facts):
                made += 1
                yield blocking


def _from_zero(rows: RowAlignment, scop: Scop, loops: Mapping[str, str], facts: tuple[Linear, ...]) -> RowAlignment:
    """``rows``, from the first iteration of the first statement's loop on where their numbers would be negative: those
    of blocks are not."""
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
    """``cut``: ``_pieces``, which choices of loops have in common."""
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
    """Subscripts of written arrays that advance with the blocked loop in some access, and in which direction."""
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
    """Whether the largest piece only accumulates inside a block, before or after everything else there."""
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
    """The statement with its block as last dimension, cut where its cells, at ``forms``, enter and leave the block;
    ``start``: the date of the loop's first iteration."""
    whole, step = instances(statement), start + Linear.symbol(loop)
    ways = []
    for form in forms:
        least, most = _range(form - step, whole)
        if (least, most) != (0, 0):  # a cell a few steps ahead is in the next block at the end of each
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
    form: Linear
    conditions: tuple[Linear, ...]
    within: bool = False


def _inside(form: Linear, steps: int) -> tuple[Linear, ...]:
    first = Linear.symbol(BLOCK, steps)
    return form - first, first + (steps - 1) - form


def _range(ahead: Linear, whole: Polyhedron) -> tuple[int | None, int | None]:
    """The least and the largest value of ``ahead`` in ``whole``; a symbol that nothing there bounds may be anything."""
    if not ahead.symbols <= {*whole.variables, *whole.symbols}:
        return None, None
    return whole.least(ahead), whole.most(ahead)


def _before(form: Linear, least: int | None, steps: int) -> _Way | None:
    """Cells before the block, unless none is."""
    return None if least is not None and least >= 0 else _Way(form, (Linear.symbol(BLOCK, steps) - form - 1,))


def _beyond(form: Linear, most: int | None, steps: int) -> _Way | None:
    return None if most is not None and most <= 0 else _Way(form, (form - Linear.symbol(BLOCK, steps) - steps,))


def _within(form: Linear, least: int | None, most: int | None, steps: int) -> _Way:
    low, high = _inside(form, steps)
    conditions = [low] if least is None or least < 0 else []
    return _Way(form, (*conditions, *([high] if most is None or most > 0 else [])), True)


def _innermost(statement: Statement, form: Linear, loop: str) -> str:
    names = [d.name for d in statement.dimensions if form.coefficient(d.name) and d.name != loop]
    return names[-1] if names else loop


def _trips(statement: Statement, loop: str) -> Linear:
    """More than the number of blocks: a block's number is at most its loop's counter."""
    return next(d.trips for d in statement.dimensions if d.name == loop)
