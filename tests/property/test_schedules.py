"""Dependences, legality and plans against brute-force enumeration of small domains."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from memopt.ir.linear import Linear
from memopt.ir.plan import Isa, Pack, Plan, RegisterTile, TileLoop
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import FLOATS, Access, Apply, Array, Dimension, ElementType, Read, Scop, Statement
from memopt.polyhedral.dependences import dependences
from memopt.polyhedral.isl import IntegerMap
from passes.legality.contractions import check, order_violations
from tests.support.effort import some
from tests.support.enumeration import PlanRun, Point, Undefined, conflicts, run_original, with_trips
from tests.support.machines import HASWELL, SMALL, ZEN5
from tests.support.plans import plan
from tests.support.products import product

_ARRAYS = ("X", "Y")


def _subscript(source: random.Random, names: list[str]) -> Linear:
    """Mostly one dimension, now and then two, a stride, a negative step or a constant."""
    count = min(source.choice((0, 1, 1, 1, 2)), len(names))
    terms = {n: source.choice((1, 1, 1, 1, 2, -1)) for n in source.sample(names, count)}
    return Linear.build(terms, source.choice((0, 0, 0, 1, -1)))


def _access(source: random.Random, names: list[str], arrays: tuple[str, ...] = _ARRAYS) -> Access:
    return Access(source.choice(arrays), (_subscript(source, names), _subscript(source, names)))


def _statement(source: random.Random, name: str, position: tuple[int, ...]) -> Statement:
    names = ["i", "j", "k"][: len(position) - 1]
    dimensions = []
    for number, dimension in enumerate(names):
        trips = Linear.of(source.randrange(1, 5))
        if number and source.random() < 0.2:  # a triangle
            trips = Linear.symbol(names[number - 1], 1, 1)
        dimensions.append(Dimension(dimension, trips))
    reads = tuple(_access(source, names) for _ in range(source.randrange(1, 3)))
    return Statement(name, tuple(dimensions), _access(source, names), reads, Read(0), position)


def _scop(source: random.Random, statements: int) -> Scop:
    """One statement, or two: in one nest, or in two nests one after the other."""
    first = _statement(source, "S0", (0,) * (source.randrange(1, 4) + 1))
    made = [first]
    if statements == 2:
        one_nest = source.random() < 0.5
        position = (*first.position[:-1], 1) if one_nest else (1,) * source.randrange(2, 5)
        second = _statement(source, "S1", position)
        made.append(replace(second, dimensions=first.dimensions) if one_nest else second)
    arrays = tuple(Array(n, ElementType.F64, Linear.symbol(n), (800, 8)) for n in _ARRAYS)
    return Scop(arrays, tuple(made))


@pytest.mark.parametrize("seed", some(range(60), 15))
def test_dependences_are_exactly_the_conflicting_pairs(seed: int) -> None:
    source = random.Random(seed)
    scop = _scop(source, 1 + seed % 2)
    found = dependences(scop)
    expected: dict[str, list[str]] = {"flow": [], "anti": [], "output": []}
    for s, p, t, q, kind in conflicts(scop):
        first, second = (f"{x.name}[{', '.join(map(str, y.values()))}]" for x, y in ((s, p), (t, q)))
        expected[kind].append(f"{first} -> {second}")
    for kind, pairs in expected.items():
        assert getattr(found, kind) == IntegerMap.parse("{ " + "; ".join(pairs) + " }"), (kind, str(scop))


Term = tuple[int, int, int]
"""floor(sign * dimension / divisor): sign, number of the dimension, divisor."""


def _times(source: random.Random, count: int) -> list[Term]:
    """Some order of the dimensions, tiled here and there, with seeded faults: a reversed or a dropped dimension."""
    order = source.sample(range(count), count)
    if count > 1 and source.random() < 0.2:
        order.pop()
    tiles = [(1, n, source.choice((2, 3))) for n in order if source.random() < 0.4]
    return tiles + [(-1 if source.random() < 0.15 else 1, n, 1) for n in order]


def _text(term: Term) -> str:
    sign, number, divisor = term
    return f"floor({sign}*{{{number}}}/{divisor})"


def _date(times: list[Term], point: Point) -> tuple[int, ...]:
    values = list(point.values())
    return tuple(sign * values[number] // divisor for sign, number, divisor in times)


def test_order_is_accepted_exactly_when_every_conflict_keeps_it() -> None:
    seen: Counter[bool] = Counter()
    for seed in range(400):
        source = random.Random(seed)
        scop = _scop(source, 1)
        times = _times(source, len(scop.statements[0].dimensions))
        kept = all(_date(times, p) < _date(times, q) for _, p, _, q, _ in conflicts(scop))
        violations = list(order_violations(scop, tuple(map(_text, times))))
        assert (not violations) == kept, (seed, times, str(scop))
        seen[kept] += 1
    assert min(seen.values()) > 80, seen


def _contraction(source: random.Random) -> Scop:
    """Something between a matrix product and nonsense, over a box."""
    names = ["i", "j", "k", "l"][: source.choice((3, 3, 3, 4))]
    source.shuffle(names)
    trips = {n: Linear.of(source.randrange(1, 5)) for n in names}
    symbol = Linear.symbol
    accesses = [("C", "i", "j"), ("A", "i", "k"), ("B", "k", "j")]
    made = [Access(array, (symbol(x), symbol(y))) for array, x, y in accesses]
    for number in range(3):
        if source.random() < 0.25:
            made[number] = _access(source, names, ("C", "A", "B") if source.random() < 0.5 else (made[number].array,))
    reads = (made[0], *made[1:])
    statement = Statement("S0", tuple(Dimension(n, trips[n]) for n in names), made[0], reads,
                          Apply("add", (Read(0), Apply("mul", (Read(1), Read(2))))), (0,) * (len(names) + 1))
    return Scop(tuple(Array(a, ElementType.F64, symbol(a), (800, 8)) for a in "CAB"), (statement,))


def _plan(source: random.Random, scop: Scop) -> Plan:
    """A plan for a product, with now and then a fault of each kind."""
    names = [d.name for d in scop.statements[0].dimensions]
    rows, vector, reduction = ("i", "j", "k") if source.random() < 0.8 else source.sample(names, 3)
    counts = source.choice((1, 2, 3)), source.choice((1, 2)), source.choice((1, 2))
    tile = RegisterTile(rows, counts[0], vector, counts[1], counts[2], reduction)
    inner = {rows: counts[0], vector: counts[1] * counts[2]}
    loops = [TileLoop(n, 1) for n in names if n not in (rows, vector, reduction)]
    blocks = [TileLoop(vector, inner[vector] * source.choice((1, 2))), TileLoop(reduction, source.choice((1, 2, 3))),
              TileLoop(rows, inner[rows] * source.choice((1, 2)))]
    if source.random() < 0.3:
        source.shuffle(blocks)
    loops += [*blocks, TileLoop(vector, inner[vector]), TileLoop(rows, inner[rows])]
    if source.random() < 0.1:
        loops.pop(source.randrange(len(loops)))
    if source.random() < 0.1:
        loops.insert(source.randrange(len(loops)), TileLoop(source.choice(names), source.choice((1, 2, 3))))
    packs = [Pack(1, rows, counts[0], _level(source, loops)), Pack(2, vector, inner[vector], _level(source, loops))]
    packs = [p for p in packs if source.random() < 0.7]
    if source.random() < 0.05:
        packs.append(Pack(0, rows, counts[0], 1))
    return Plan(Isa.AVX2, "S0", tuple(loops), tuple(packs), tile)


def _level(source: random.Random, loops: list[TileLoop]) -> int:
    return source.choice((1, 2, len(loops) - 1, source.randrange(len(loops))))


def _is_legal(scop: Scop, made: Plan) -> bool:
    try:
        check(scop, made)
    except Rejected as refusal:
        if refusal.reason is not Reason.NO_SCHEDULE:
            raise
        return False
    return True


def test_a_legal_plan_computes_the_same_terms() -> None:
    """Soundness, packing and registers included; what is refused need not be wrong (lanes must be neighbours)."""
    seen: Counter[str] = Counter()
    for seed in range(500):
        source = random.Random(seed)
        scop = _contraction(source)
        made = _plan(source, scop)
        try:
            same = PlanRun(scop, made).run() == run_original(scop)
        except (Undefined, KeyError):
            same = False
        if _is_legal(scop, made):
            assert same, (seed, str(scop), str(made))
            seen["legal"] += 1
        else:
            seen["refused, right" if same else "refused, wrong"] += 1
    assert seen["legal"] > 80, seen
    assert seen["refused, wrong"] > 80, seen
    # Refusals of what would have been right are lanes that are not neighbours, and arrays that are written elsewhere.
    assert seen["refused, right"] < 150, seen


@pytest.mark.parametrize("order", some(["ijk", "ikj", "jik", "jki", "kij", "kji"], 2))
@pytest.mark.parametrize("isa", list(Isa))
def test_plans_of_the_pipeline_compute_the_same_terms(order: str, isa: Isa) -> None:
    """Plans for any number of iterations, run with small ones; sizes around the register tile and below."""
    for seed in range(4):
        source = random.Random(f"{order} {isa} {seed}")
        sizes = {n: source.choice((2, 3, 5, 7, 13, 17)) for n in "ijk"}
        element = source.choice(list(FLOATS))
        region = product(order, sizes, element)
        machine = {Isa.SSE2: SMALL, Isa.AVX2: HASWELL, Isa.AVX512: ZEN5}[isa]
        try:
            made = plan(region, machine, isa)
        except Rejected as refusal:
            if refusal.reason is not Reason.NO_PLAN:
                raise
            continue
        scop = with_trips(region.scop, {**sizes, order[0]: source.randrange(1, 20)})
        assert PlanRun(scop, made).run() == run_original(scop)
        check(scop, made)
