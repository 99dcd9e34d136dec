"""A loop plan run instance by instance, taken at its word: dates first, then rows and lanes in any order, promoted
cells in registers, private arrays in the room they are given. Shares nothing with the passes and does not use isl."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from memopt.ir.plan import Leaf, LoopPlan
from memopt.ir.scop import TRIPS, Scop, Statement
from passes.loop_schedule.rebasing import counted_from
from tests.support.enumeration import Cell, Memory, Point, Term, cell, date, evaluate, points


def fitted(plan: LoopPlan, large: Scop, small: Scop) -> LoopPlan:
    """The plan made for ``large`` for a nest of the same shape with smaller loops."""
    def fit(piece: Statement) -> Statement:
        whole = _counted(next(s for s in large.statements if _is_piece(piece, s)), plan)
        own = _counted(next(s for s in small.statements if _is_piece(piece, s)), plan)
        return replace(own, name=piece.name, conditions=own.conditions + piece.conditions[len(whole.conditions):],
                       dimensions=own.dimensions + piece.dimensions[len(own.dimensions):], position=piece.position)

    return replace(plan, statements=tuple(map(fit, plan.statements)))


def _is_piece(piece: Statement, whole: Statement) -> bool:
    return piece.position[:len(whole.position)] == whole.position


def _counted(statement: Statement, plan: LoopPlan) -> Statement:
    for each in plan.rebases:
        if each.statement == statement.name:
            level = next(n for n, d in enumerate(statement.dimensions) if d.name == each.dimension)
            statement = counted_from(statement, level, each.by)
    return statement


def dates_of(leaf: Leaf, point: Point) -> tuple[int, ...]:
    return tuple(d.expression.evaluate(point) // d.divisor for d in leaf.dates)


def run_scop(scop: Scop, trips: int) -> dict[Cell, Term]:
    """What memory that is not private holds after the original."""
    memory = Memory()
    order = sorted(((_padded(date(s, p)), s, p) for s in scop.statements for p in _points(s, trips)),
                   key=lambda x: x[0])
    for _, statement, point in order:
        _run(memory, statement, point)
    return _visible(scop, memory.cells)


def _padded(date: tuple[int, ...]) -> tuple[int, ...]:
    return date + (0,) * (20 - len(date))


def _points(statement: Statement, trips: int) -> Iterator[Point]:
    for point in points(statement, {TRIPS: trips}):
        yield {**point, TRIPS: trips}


def _run(memory: Memory, statement: Statement, point: Point) -> None:
    values = [memory.load(cell(r, point)) for r in statement.reads]
    memory.store(cell(statement.write, point), _known(evaluate(statement.expression, values)))


_KNOWN: dict[Term, Term] = {}


def _known(term: Term) -> Term:
    """A short name for a term, so that long chains of operations stay small; equal terms have equal names."""
    return _KNOWN.setdefault(term, (len(_KNOWN),))


def _visible(scop: Scop, cells: dict[Cell, Term]) -> dict[Cell, Term]:
    private = {a.name for a in scop.arrays if a.private}
    return {c: t for c, t in cells.items() if c[0] not in private}


def run_plan(scop: Scop, plan: LoopPlan, trips: int, seed: int = 0) -> dict[Cell, Term]:
    """What memory that is not private holds after the plan; rows and lanes of a macro instance run in an order drawn
    from ``seed``."""
    source = random.Random(seed)
    memory = Memory()
    stored = {s.array: s for s in plan.storage}
    leaves = {leaf.statement: leaf for leaf in plan.leaves}
    instances: dict[tuple[tuple[int, ...], int], list[Point]] = {}
    for number, statement in enumerate(plan.statements):
        for point in _points(statement, trips):
            instances.setdefault((dates_of(leaves[statement.name], point), number), []).append(point)
    for (dates, number), inside in sorted(instances.items(), key=lambda x: x[0]):
        statement = plan.statements[number]
        leaf = leaves[statement.name]

        def place(at: Cell, dates: tuple[int, ...] = dates) -> Cell:
            if at[0] not in stored:
                return at
            storage = stored[at[0]]
            values = {f"d{n}": d for n, d in enumerate(dates)}
            index = tuple(s - o.evaluate(values) for s, o in zip(at[1], storage.origins, strict=True))
            assert all(0 <= i < size for i, size in zip(index, storage.sizes, strict=True)), (at, dates)
            return at[0], index

        _instance(memory, statement, leaf, inside, source, place)
    return _visible(scop, memory.cells)


def _instance(memory: Memory, statement: Statement, leaf: Leaf, inside: list[Point], source: random.Random,
              place: object) -> None:
    assert callable(place)
    chains: dict[tuple[int, ...], list[Point]] = {}
    for point in inside:
        chains.setdefault(tuple(point[n] for n in (leaf.rows, leaf.vector) if n), []).append(point)
    keys = list(chains)
    source.shuffle(keys)
    registers: dict[Cell, Term] = {}
    for key in keys:
        chain = sorted(chains[key], key=lambda p: p[leaf.sequential] if leaf.sequential else 0)
        assert leaf.sequential or len(chain) == 1, f"{leaf} does not say which instance runs"
        for point in chain:
            values = []
            for read in statement.reads:
                at = place(cell(read, point))
                values.append(registers[at] if leaf.promote and read == statement.write and at in registers
                              else memory.load(at))
            result = _known(evaluate(statement.expression, values))
            at = place(cell(statement.write, point))
            if leaf.promote:
                registers[at] = result
            else:
                memory.store(at, result)
    for at, result in registers.items():
        memory.store(at, result)
