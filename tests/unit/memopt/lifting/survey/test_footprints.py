"""Working sets from addresses and bounds, held against loops that are run."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy
import pytest

from memopt.ir.linear import Linear, quotient
from memopt.lifting.survey.footprints import LoopCurve, covered, curves, from_the_start
from memopt.lifting.values.loop_tree import Guarded, Item, LoadEvent, LoopNode

LINE, PAGE = 64, 4096


class Drawn:
    """A nest of random loops, some with bounds that depend on the counters around them; a part ``guards`` of what is
    in them has conditions."""

    def __init__(self, seed: int, guards: float) -> None:
        self.random, self.guards = random.Random(seed), guards
        self.loops = self.loads = 0
        self.node = self.loop((), 0)

    def loop(self, around: tuple[str, ...], depth: int) -> LoopNode:
        self.loops += 1
        counter = f"c:{self.loops}"
        trips = Linear.of(self.random.randrange(1, 9))
        if around and self.random.random() < 0.4:
            trips = trips + Linear.symbol(self.random.choice(around), self.random.choice((1, -1)))
        inside = (*around, counter)
        items: list[Item] = [self.load(inside) for _ in range(self.random.randrange(1, 3))]
        if depth < 2:
            items += [self.loop(inside, depth + 1) for _ in range(self.random.randrange(3))]
        items = [self.guarded(item, inside) if self.random.random() < self.guards else item for item in items]
        self.random.shuffle(items)
        return LoopNode(counter, trips, tuple(items), address=16 * self.loops)

    def guarded(self, item: Item, around: tuple[str, ...]) -> Guarded:
        """Where a random sum of counters is not below zero."""
        conditions: list[Linear] = []
        for _ in range(self.random.randrange(1, 3)):
            condition = Linear.of(self.random.randrange(-3, 8))
            for counter in self.random.sample(around, self.random.randrange(1, len(around) + 1)):
                term = Linear.symbol(counter, self.random.choice((1, -1, 2, -3)))
                condition += quotient(term, 2) if self.random.random() < 0.2 else term
            conditions.append(condition)
        return Guarded(tuple(conditions), (item,))

    def load(self, around: tuple[str, ...]) -> LoadEvent:
        self.loads += 1
        pointer = Linear.symbol("p") + self.random.randrange(0, 5000)
        for counter in around:
            stride = self.random.choice((0, 8, 8, -8, 24, 64, 200, 1000, 4096, -5000))
            pointer = pointer + Linear.symbol(counter, stride)
        return LoadEvent(self.loads, pointer, 8 * self.random.choice((1, 4, 8, 16, 32)), 0)


def touched(items: tuple[Item, ...], values: dict[str, int], unit: int) -> Iterator[int]:
    for item in items:
        if isinstance(item, LoopNode):
            assert item.trips is not None
            for n in range(item.trips.evaluate(values)):
                yield from touched(item.items, values | {item.counter: n}, unit)
        elif isinstance(item, Guarded):
            if all(c.evaluate(values) >= 0 for c in item.conditions):
                yield from touched(item.items, values, unit)
        elif isinstance(item, LoadEvent):
            first = item.pointer.evaluate(values)
            yield from range(first // unit, (first + item.width // 8 - 1) // unit + 1)


def expected(node: LoopNode, values: dict[str, int]) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
    """By header: iterations, bytes of lines, bytes of pages."""
    assert node.trips is not None
    trips = node.trips.evaluate(values)
    if trips <= 0:
        return
    points = []
    for n in sorted({1 << x for x in range(9) if 1 << x < trips} | {trips}):
        sets = [{u for i in range(n) for u in touched(node.items, values | {node.counter: i}, unit)}
                for unit in (LINE, PAGE)]
        points.append((n, LINE * len(sets[0]), PAGE * len(sets[1])))
    yield node.address, points
    middle = values | {node.counter: trips // 2}
    for item in node.items:
        while isinstance(item, Guarded) and all(c.evaluate(middle) >= 0 for c in item.conditions):
            (item,) = item.items
        if isinstance(item, LoopNode):
            yield from expected(item, middle)


def as_points(found: LoopCurve) -> list[tuple[int, int, int]]:
    return [(p.iterations, p.lines, p.pages) for p in found.curve]


@pytest.mark.parametrize("guards", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(150))
def test_curves_are_those_of_loops_that_run(seed: int, guards: float) -> None:
    node, values = Drawn(seed, guards).node, {"p": 1 << 20}
    assert {c.header: as_points(c) for c in curves(node, values, LINE, PAGE)} == dict(expected(node, values))


def test_what_is_divided_and_rounded_is_gone_through() -> None:
    rounded = LoadEvent(1, quotient(Linear.symbol("i"), 3) * 64, 64, 0)
    (found,) = curves(LoopNode("i", Linear.of(9), (rounded,)), {}, LINE, PAGE)
    assert as_points(found) == [(1, 64, PAGE), (2, 64, PAGE), (4, 128, PAGE), (8, 192, PAGE), (9, 192, PAGE)]


def test_a_large_product_takes_no_time() -> None:
    i, j, k = (Linear.symbol(c) for c in "ijk")
    n = 4000
    inner = LoopNode("k", Linear.of(n), (LoadEvent(1, i * (8 * n) + k * 8, 64, 0),
                                         LoadEvent(2, k * (8 * n) + j * 8 + (1 << 30), 64, 0)), address=3)
    nest = LoopNode("i", Linear.of(n), (LoopNode("j", Linear.of(n), (inner,), address=2),), address=1)
    found = {c.header: as_points(c)[-1][1] for c in curves(nest, {}, LINE, PAGE)}
    assert found == {1: 2 * 8 * n * n, 2: 8 * n * n + 8 * n, 3: 64 * n + 8 * n}


def test_no_units_are_none() -> None:
    assert covered(numpy.zeros((0, 2), numpy.int64)) == 0


@pytest.mark.parametrize("over", [0, 1, 5])
def test_a_nest_that_was_met_under_way_is_the_whole_one_again(over: int) -> None:
    """A triangle, met in its iteration of this number: bounds are over those that are left, R."""
    def triangle(first: int) -> LoopNode:
        row = Linear.symbol("c:1") + first
        inner = LoopNode("c:2", Linear.symbol("R", -1, 12 - first) + row + 2,
                         (LoadEvent(0, Linear.symbol("p") + row * 1000 + Linear.symbol("c:2", 8), 64, 0),), address=32)
        return LoopNode("c:1", Linear.of(9 - first), (inner,), address=16)

    def whole(nest: LoopNode, left: int) -> list[LoopCurve]:
        return list(curves(nest, {"p": 0x10000, "R": left}, LINE, PAGE))

    values = {"p": 0x10000, "R": 9 - over}
    assert whole(from_the_start(triangle(over), over, values), 9 - over) == whole(triangle(0), 9)


def test_a_loop_that_is_too_much_to_go_through_has_no_curve() -> None:
    """400 x 400 different bounds; the loop inside, around which the others stand still, has one."""
    inner = LoopNode("c:3", Linear.symbol("c:1") + Linear.symbol("c:2") + 1, (
        LoadEvent(0, Linear.symbol("p") + Linear.symbol("c:3", 8), 64, 0),), address=48)
    nest = LoopNode("c:1", Linear.of(400), (LoopNode("c:2", Linear.of(400), (inner,), address=32),), address=16)
    assert [bool(found.curve) for found in curves(nest, {"p": 0}, LINE, PAGE)] == [False, True, True]


def test_a_nest_whose_loops_would_have_run_backwards_stays_as_it_is() -> None:
    inner = LoopNode("c:2", Linear.symbol("c:1") + 3, (LoadEvent(0, Linear.symbol("p"), 64, 0),), address=32)
    nest = LoopNode("c:1", Linear.of(9), (inner,), address=16)
    assert from_the_start(nest, 4, {}) == nest
    assert from_the_start(nest, 3, {}).trips == Linear.of(12)
