"""Small statements run instance by instance: conflicts counted by hand, and values as terms.

Memory holds terms ("what was computed from what") instead of numbers: two runs agree exactly when every cell saw
the same operations on the same operands in the same order. Nothing here uses isl or shares code with the passes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from memopt.ir.linear import Linear
from memopt.ir.plan import Pack, Plan
from memopt.ir.scop import Access, Apply, Constant, Expression, Index, Read, Scalar, Scop, Statement

Point = dict[str, int]
Cell = tuple[str, tuple[int, ...]]
Term = tuple[object, ...]


def cell(access: Access, point: Mapping[str, int]) -> Cell:
    return access.array, tuple(s.evaluate(point) for s in access.subscripts)


def points(statement: Statement, values: Mapping[str, int] | None = None) -> Iterator[Point]:
    """Instances in the original order; trip counts and conditions may depend on outer dimensions and on ``values``."""
    known = dict(values or {})

    def inside(position: int, outer: Point) -> Iterator[Point]:
        if position == len(statement.dimensions):
            if all(c.evaluate(known | outer) >= 0 for c in statement.conditions):
                yield dict(outer)
            return
        dimension = statement.dimensions[position]
        for value in range(dimension.trips.evaluate(known | outer)):
            yield from inside(position + 1, {**outer, dimension.name: value})

    yield from inside(0, {})


def conflicts(scop: Scop) -> Iterator[tuple[Statement, Point, Statement, Point, str]]:
    """Every dependence, earlier instance first, with its kind: "flow", "anti", "output"."""
    instances = [(date(s, p), s, p) for s in scop.statements for p in points(s)]
    for (early, s, p), (late, t, q) in itertools.product(instances, repeat=2):
        if early < late:
            writes = cell(s.write, p), cell(t.write, q)
            if writes[0] in {cell(r, q) for r in t.reads}:
                yield s, p, t, q, "flow"
            if writes[1] in {cell(r, p) for r in s.reads}:
                yield s, p, t, q, "anti"
            if writes[0] == writes[1]:
                yield s, p, t, q, "output"


def date(statement: Statement, point: Point) -> tuple[int, ...]:
    """The 2d+1 date; shorter statements compare as if padded, for positions differ before that matters."""
    dates = [statement.position[0]]
    for dimension, position in zip(statement.dimensions, statement.position[1:], strict=True):
        dates += [point[dimension.name], position]
    return tuple(dates)


def evaluate(expression: Expression, values: list[Term]) -> Term:
    match expression:
        case Read(index):
            return values[index]
        case Apply(operator, operands):
            return (operator, *(evaluate(o, values) for o in operands))
        case Scalar(register):
            return (register,)
        case Constant(bits):
            return (bits,)
        case Index(value):
            return ("index", str(value))


class Memory:
    """Terms by cell; a cell not written yet holds its own name."""

    def __init__(self) -> None:
        self.cells: dict[Cell, Term] = {}

    def load(self, at: Cell) -> Term:
        return self.cells.get(at, ("initial", at))

    def store(self, at: Cell, value: Term) -> None:
        self.cells[at] = value


def run_original(scop: Scop) -> dict[Cell, Term]:
    """Memory after a SCoP of one statement."""
    (statement,) = scop.statements
    memory = Memory()
    for point in points(statement):
        values = [memory.load(cell(r, point)) for r in statement.reads]
        memory.store(cell(statement.write, point), evaluate(statement.expression, values))
    return memory.cells


class Undefined(Exception):
    """The plan reads something it never made."""


@dataclass
class PlanRun:
    """The loop nest of memopt.ir.plan, taken at its word: packs are copies made where the plan says, results stay
    in registers over a block of the reduction. Trip counts must be constant."""

    scop: Scop
    plan: Plan
    memory: Memory = field(default_factory=Memory)
    panels: dict[int, dict[tuple[int, int], Term]] = field(default_factory=dict)

    def run(self) -> dict[Cell, Term]:
        self._loop(0, {n: (0, t) for n, t in self._trips().items()})
        return self.memory.cells

    @property
    def _statement(self) -> Statement:
        return self.scop.statements[0]

    def _trips(self) -> dict[str, int]:
        return {d.name: d.trips.constant for d in self._statement.dimensions}

    def _loop(self, level: int, ranges: dict[str, tuple[int, int]]) -> None:
        if level == len(self.plan.loops):
            self._tile(ranges)
            return
        loop = self.plan.loops[level]
        start, end = ranges[loop.dimension]
        for first in range(start, end, loop.size):
            inner = {**ranges, loop.dimension: (first, min(first + loop.size, end))}
            for pack in self.plan.packs:
                if pack.level == level:
                    self.panels[pack.read] = self._pack(pack, inner)
            self._loop(level + 1, inner)

    def _pack(self, pack: Pack, ranges: dict[str, tuple[int, int]]) -> dict[tuple[int, int], Term]:
        access, reduction = self._statement.reads[pack.read], self.plan.tile.reduction
        point = {name: start for name, (start, _) in ranges.items()}
        return {
            (p, k): self.memory.load(cell(access, {**point, pack.dimension: p, reduction: k}))
            for p in range(*ranges[pack.dimension])
            for k in range(*ranges[reduction])
        }

    def _tile(self, ranges: dict[str, tuple[int, int]]) -> None:
        """One register tile: what the loops left open beyond the tile's own rows and lanes is lost."""
        tile = self.plan.tile
        counts = {tile.rows: tile.row_count, tile.vector: tile.vector_count * tile.lanes}
        base = {name: start for name, (start, _) in ranges.items()}
        bounds = {n: (ranges[n][0], min(ranges[n][0] + c, ranges[n][1])) for n, c in counts.items()}
        spots = [{**base, tile.rows: r, tile.vector: v} for r in range(*bounds[tile.rows])
                 for v in range(*bounds[tile.vector])]
        write = self._statement.write
        registers = [self.memory.load(cell(write, spot)) for spot in spots]
        for k in range(*ranges[tile.reduction]):
            for number, spot in enumerate(spots):
                point = {**spot, tile.reduction: k}
                values = [self._operand(i, r, point, registers[number]) for i, r in enumerate(self._statement.reads)]
                registers[number] = evaluate(self._statement.expression, values)
        for register, spot in zip(registers, spots, strict=True):
            self.memory.store(cell(write, spot), register)

    def _operand(self, index: int, access: Access, point: Point, result: Term) -> Term:
        if access == self._statement.write:
            return result
        if index not in self.panels:
            return self.memory.load(cell(access, point))
        pack = next(p for p in self.plan.packs if p.read == index)
        try:
            return self.panels[index][point[pack.dimension], point[self.plan.tile.reduction]]
        except KeyError as missing:
            raise Undefined(str(pack)) from missing


def with_trips(scop: Scop, trips: Mapping[str, int]) -> Scop:
    """``scop`` with constant trip counts."""
    statements = tuple(
        replace(s, dimensions=tuple(replace(d, trips=Linear.of(trips[d.name])) for d in s.dimensions))
        for s in scop.statements
    )
    return replace(scop, statements=statements)
