"""Working sets of affine nests by counting: the distinct cache lines and pages that the first n iterations touch.

Example: ``for (i < 1000) s += a[8 * i]`` with 8-byte elements touches one new line of 64 bytes in each iteration.

In: a lifted nest, values of its live-in symbols. Out: a ``LoopCurve`` for each loop that runs. The addresses of an
access over a box of loops are runs of units (lines or pages). Loops are taken by stride, the smallest first; a loop
that skips no unit only makes the run longer. A condition on one counter shortens its loop. Only loops that skip units,
and loops that inner bounds or conditions depend on, are enumerated. (Compare Ghosh, Martonosi and Malik, Cache miss
equations, 1999.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy
from numpy.typing import NDArray

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.lifting.values.loop_tree import Guarded, Item, LoadEvent, LoopNode, StoreEvent, rewritten
from memopt.lifting.values.values import Substitution

MOST_RUNS = 1 << 24  # for one count
_MOST_BOXES = 1 << 14

Runs = NDArray[numpy.int64]
"""An array of shape (runs, 2): the first and the last unit of each run."""


@dataclass(frozen=True, slots=True)
class Touched:
    """The bytes of the lines and of the pages that an entry of a loop has touched after ``iterations``."""

    iterations: int
    lines: int
    pages: int


@dataclass(frozen=True, slots=True)
class LoopCurve:
    """The working set of one loop as a function of its iterations; the loops around it are halfway through."""

    header: int
    depth: int  # 1 for the outermost loop of the nest
    # After 1, 2, 4, ... iterations and at the end. Empty where there are too many to enumerate: addresses are too
    # scattered, or bounds depend on too many other counters.
    curve: tuple[Touched, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """An access with the loops around it, outermost first, as (counter, trip count), and the conditions (>= 0)."""

    pointer: Linear
    size: int
    loops: tuple[tuple[str, Linear], ...]
    conditions: tuple[Linear, ...]


class TooManyRuns(Exception):
    """There are too many runs of units to enumerate."""


def with_cells(nest: LoopNode, cells: Mapping[int, Sequence[tuple[int, int]]]) -> LoopNode:
    """``nest`` with accesses to fixed addresses (stack slots) added.

    ``cells``: (address, bytes) of each, by the header of the innermost loop around it.
    """
    own = tuple(LoadEvent(0, Linear.of(address), 8 * size, 0) for address, size in cells.get(nest.address, ()))
    return replace(nest, items=(*own, *_items_with_cells(nest.items, cells)))


def from_the_start(nest: LoopNode, over: int, values: Mapping[str, int]) -> LoopNode:
    """``nest`` from its first iteration on: ``over`` iterations were done when it was captured.

    Precondition: its own trip count is known. ``values``: of the live-in symbols. Unchanged where an inner trip count
    that depends on ``nest`` is negative, or not known, in the first iteration: it may have been another one then.
    """
    counter = nest.counter
    first = rewritten(nest, Substitution({counter: Linear.symbol(counter) - over}))
    assert isinstance(first, LoopNode)
    earlier = {**values, counter: 0}
    for trips in _bounds(first.items, earlier):
        if counter in trips.symbols and (not trips.symbols <= earlier.keys() or trips.evaluate(earlier) < 0):
            return nest
    return replace(first, trips=_trips(nest) + over)


def _bounds(items: Sequence[Item], values: Mapping[str, int]) -> Iterator[Linear]:
    """The trip counts of all loops inside, except under a condition that is false for ``values``."""
    for item in items:
        if isinstance(item, LoopNode):
            yield _trips(item)
        if isinstance(item, LoopNode) or (isinstance(item, Guarded) and not any(
                c.symbols <= values.keys() and c.evaluate(values) < 0 for c in item.conditions)):
            yield from _bounds(item.items, values)


def _items_with_cells(items: Sequence[Item], cells: Mapping[int, Sequence[tuple[int, int]]]) -> Iterator[Item]:
    for item in items:
        match item:
            case LoopNode():
                yield with_cells(item, cells)
            case Guarded():
                yield replace(item, items=tuple(_items_with_cells(item.items, cells)))
            case _:
                yield item


def addresses(items: Sequence[Item]) -> frozenset[int]:
    """The addresses of the instructions that perform the accesses of ``items``, those of inner loops included."""
    return frozenset(a for item in items for a in (
        addresses(item.items) if isinstance(item, (LoopNode, Guarded)) else (item.address,)))


def curves(nest: LoopNode, values: Mapping[str, int], line: int, page: int) -> Iterator[LoopCurve]:
    """The working-set curves of the loops that run, outer loops first.

    Precondition: the trip count of ``nest`` itself is known. ``values``: of the live-in symbols. ``line``, ``page``:
    sizes in bytes.
    """
    depth, loops = 1, [(nest, dict(values))]
    while loops:
        inside: list[tuple[LoopNode, dict[str, int]]] = []
        for loop, around in loops:
            trips = _trips(loop).evaluate(around)
            if trips <= 0:
                continue
            counts = [*(1 << n for n in range(trips.bit_length()) if 1 << n < trips), trips]
            try:
                points = tuple(Touched(n, *(unit * _units(loop, around, n, unit) for unit in (line, page)))
                               for n in counts)
            except TooManyRuns:
                points = ()
            yield LoopCurve(loop.address, depth, points)
            middle = around | {loop.counter: trips // 2}
            inside += [(inner, middle) for inner in _running(loop.items, middle)]
        depth, loops = depth + 1, inside


def _running(items: Sequence[Item], values: Mapping[str, int]) -> Iterator[LoopNode]:
    """The outermost loops of ``items`` whose conditions hold for ``values``."""
    for item in items:
        if isinstance(item, LoopNode):
            yield item
        elif isinstance(item, Guarded) and all(c.evaluate(values) >= 0 for c in item.conditions):
            yield from _running(item.items, values)


def _places(items: Sequence[Item], loops: tuple[tuple[str, Linear], ...], conditions: tuple[Linear, ...]
            ) -> Iterator[_Place]:
    for item in items:
        match item:
            case LoopNode():
                yield from _places(item.items, (*loops, (item.counter, _trips(item))), conditions)
            case Guarded():
                yield from _places(item.items, loops, (*conditions, *item.conditions))
            case LoadEvent() | StoreEvent():
                yield _Place(item.pointer, item.width // 8, loops, conditions)


def _trips(loop: LoopNode) -> Linear:
    assert loop.trips is not None  # the nest was lifted as a whole
    return loop.trips


def _units(loop: LoopNode, around: Mapping[str, int], iterations: int, unit: int) -> int:
    """The distinct units of ``unit`` bytes that the first ``iterations`` of ``loop`` touch.

    ``around``: values of all symbols except the counters of ``loop`` and of the loops in it.
    """
    places = dict.fromkeys(_places(loop.items, ((loop.counter, Linear.of(iterations)),), ()))
    runs = [_runs(place, around, unit) for place in places]
    return covered(numpy.concatenate(runs)) if runs else 0


def _runs(place: _Place, values: Mapping[str, int], unit: int) -> Runs:
    address = place.pointer
    rounded = frozenset[str]().union(*(q.numerator.symbols for q in address.quotients))
    found: list[Runs] = []
    total = 0
    for inside, box in _boxes(place.loops, place.conditions, rounded, dict(values)):
        start = address.evaluate(inside | {name: span.start for name, span in box})
        strides = [(address.factor(name), len(span)) for name, span in box]
        found.append(box_runs(start, strides, place.size, unit))
        total += len(found[-1])
        if len(found) > _MOST_BOXES or total > MOST_RUNS:
            raise TooManyRuns
    return numpy.concatenate(found) if found else numpy.zeros((0, 2), numpy.int64)


def _boxes(loops: Sequence[tuple[str, Linear]], conditions: Sequence[Linear], rounded: frozenset[str],
           values: dict[str, int]) -> Iterator[tuple[dict[str, int], list[tuple[str, range]]]]:
    """The iterations for which all ``conditions`` hold, as boxes.

    A box has values for the enumerated counters and ranges for the others. Counters that an inner bound or condition
    depends on are enumerated, and those in ``rounded`` (inside a quotient).
    """
    counters = {name for name, _ in loops}
    undecided = [c for c in conditions if not c.symbols.isdisjoint(counters)]
    if any(c.evaluate(values) < 0 for c in conditions if c not in undecided):
        return
    if not loops:
        yield values, []
        return
    (name, trips), inner = loops[0], loops[1:]
    own = [c for c in undecided if c.symbols & counters == {name}
           and all(name not in q.numerator.symbols for q in c.quotients)]
    span = _where(own, name, range(trips.evaluate(values)), values)
    rest = [c for c in undecided if c not in own]
    if name in rounded or any(name in bound.symbols for bound in (*rest, *(bound for _, bound in inner))):
        for value in span:
            yield from _boxes(inner, rest, rounded, values | {name: value})
    elif span:
        for inside, box in _boxes(inner, rest, rounded, values):
            yield inside, [(name, span), *box]


def _where(conditions: Sequence[Linear], name: str, span: range, values: Mapping[str, int]) -> range:
    """The part of ``span`` for which ``conditions``, which depend on ``name`` and ``values`` alone, hold."""
    low, high = span.start, span.stop
    for condition in conditions:
        factor, rest = condition.factor(name), condition.evaluate({**values, name: 0})
        if factor > 0:
            low = max(low, -(rest // factor))
        else:
            high = min(high, rest // -factor + 1)
    return range(low, high)


def box_runs(start: int, strides: Sequence[tuple[int, int]], size: int, unit: int) -> Runs:
    """The runs of units that accesses of ``size`` bytes touch, at ``start`` plus k * stride for all 0 <= k < count.

    ``strides``: (stride, count) of each loop, in bytes. Raises TooManyRuns beyond MOST_RUNS.
    """
    length, apart = size, []
    for stride, count in sorted((abs(stride), count) for stride, count in strides if stride and count > 1):
        if stride < length + unit:  # no whole unit lies between two successive accesses
            length += stride * (count - 1)
        else:
            apart.append((stride, count))
    start += sum(stride * (count - 1) for stride, count in strides if stride < 0)
    starts = numpy.array([start], numpy.int64)
    for stride, count in apart:
        if len(starts) * count > MOST_RUNS:
            raise TooManyRuns
        starts = (starts[:, None] + stride * numpy.arange(count, dtype=numpy.int64)).ravel()
    return numpy.stack((starts // unit, (starts + length - 1) // unit), axis=1)


def covered(runs: Runs) -> int:
    """The number of distinct units in ``runs``."""
    if not len(runs):
        return 0
    ordered = runs[numpy.argsort(runs[:, 0], kind="stable")]
    furthest = numpy.maximum.accumulate(ordered[:, 1])
    before = numpy.concatenate(([ordered[0, 0] - 1], furthest[:-1]))
    return int(numpy.maximum(0, ordered[:, 1] - numpy.maximum(ordered[:, 0] - 1, before)).sum())
