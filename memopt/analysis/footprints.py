"""Working sets of affine nests without running them: the different lines and pages that the first iterations of each
loop touch, counted from subscripts and bounds.

Addresses of an access over a box of loops are runs of units (lines, pages): loops are taken by their strides from the
smallest on, and what leaves no unit out is one run. Only loops that leave units out, and those that bounds of others
depend on, are gone through. (Compare Ghosh, Martonosi and Malik, Cache miss equations, 1999.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy
from numpy.typing import NDArray

from memopt.analysis.nest import Guarded, Item, LoadEvent, LoopNode, StoreEvent, rewritten
from memopt.analysis.values import Substitution
from memopt.ir.linear import Linear

MOST_RUNS = 1 << 24  # that one count may go through
_MOST_BOXES = 1 << 14

Runs = NDArray[numpy.int64]
"""Rows of first and last unit."""


@dataclass(frozen=True, slots=True)
class Touched:
    """Bytes of the units that an entry has touched after ``iterations``."""

    iterations: int
    lines: int
    pages: int


@dataclass(frozen=True, slots=True)
class LoopCurve:
    """Of the loop with this ``header``, around which others are in the middle of their iterations; after 1, 2, 4, ...
    iterations and at the end; no curve where addresses are too scattered, or bounds depend on too many other counters,
    to go through them all. ``exact``: no condition in it that may leave accesses out."""

    header: int
    depth: int
    curve: tuple[Touched, ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """An access: ``loops`` around it, from outside to inside."""

    pointer: Linear
    size: int
    loops: tuple[LoopNode, ...]
    conditions: bool


class TooManyRuns(Exception):
    """The addresses are too scattered to go through."""


def with_cells(nest: LoopNode, cells: Mapping[int, Sequence[tuple[int, int]]]) -> LoopNode:
    """``nest`` with accesses to fixed addresses, (address, bytes) by the header of the innermost loop around."""
    own = tuple(LoadEvent(0, Linear.of(address), 8 * size, 0) for address, size in cells.get(nest.address, ()))
    return replace(nest, items=(*own, *_items_with_cells(nest.items, cells)))


def from_the_start(nest: LoopNode, over: int, values: Mapping[str, int]) -> LoopNode:
    """``nest``, whose own trips are known, with those ``over`` before it was met, or as it is where the loops in it may
    have been others then. ``values``: of the live-in symbols."""
    counter = nest.counter
    first = rewritten(nest, Substitution({counter: Linear.symbol(counter) - over}))
    assert isinstance(first, LoopNode)
    earlier = {**values, counter: 0}
    for trips in map(_trips, _loops(first.items)):
        if counter in trips.symbols and (not trips.symbols <= earlier.keys() or trips.evaluate(earlier) < 0):
            return nest
    return replace(first, trips=_trips(nest) + over)


def _loops(items: Sequence[Item]) -> Iterator[LoopNode]:
    for item in items:
        if isinstance(item, LoopNode):
            yield item
        if isinstance(item, (LoopNode, Guarded)):
            yield from _loops(item.items)


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
    """Of the instructions whose accesses ``items`` are."""
    return frozenset(a for item in items for a in (
        addresses(item.items) if isinstance(item, (LoopNode, Guarded)) else (item.address,)))


def curves(nest: LoopNode, values: Mapping[str, int], line: int, page: int) -> Iterator[LoopCurve]:
    """Of the loops that run, the outer ones first. ``nest``: its own trips are known, too; ``values``: of the live-in
    symbols."""
    loops: dict[tuple[str, ...], list[_Place]] = {}
    for place in _places((nest,), (), False):
        for depth in range(1, len(place.loops) + 1):
            loops.setdefault(tuple(loop.counter for loop in place.loops[:depth]), []).append(place)
    for counters, places in sorted(loops.items(), key=lambda item: len(item[0])):
        depth = len(counters)
        around = _middle(places[0].loops[:depth - 1], values)
        if around is None:
            continue
        loop = places[0].loops[depth - 1]
        trips = _trips(loop).evaluate(around)
        counts = [1 << n for n in range(max(0, trips).bit_length()) if 1 << n < trips] + [trips]
        try:
            points = tuple(Touched(n, *(unit * _units(places, depth, around, n, unit) for unit in (line, page)))
                           for n in counts if n > 0)
        except TooManyRuns:
            points = ()
        if trips > 0:
            yield LoopCurve(loop.address, depth, points, not any(p.conditions for p in places))


def _places(items: Sequence[Item], loops: tuple[LoopNode, ...], conditions: bool) -> Iterator[_Place]:
    for item in items:
        match item:
            case LoopNode():
                yield from _places(item.items, (*loops, item), conditions)
            case Guarded():
                yield from _places(item.items, loops, True)
            case LoadEvent() | StoreEvent():
                yield _Place(item.pointer, item.width // 8, loops, conditions)


def _trips(loop: LoopNode) -> Linear:
    assert loop.trips is not None  # of a nest that was lifted as a whole
    return loop.trips


def _middle(loops: Sequence[LoopNode], values: Mapping[str, int]) -> dict[str, int] | None:
    """``values`` with one iteration of each of ``loops``; None where one does not run there."""
    found = dict(values)
    for loop in loops:
        trips = _trips(loop).evaluate(found)
        if trips <= 0:
            return None
        found[loop.counter] = trips // 2
    return found


def _units(places: Sequence[_Place], depth: int, around: Mapping[str, int], iterations: int, unit: int) -> int:
    """How many of ``unit`` bytes. ``around``: values of all symbols but the counters from ``depth`` on."""
    runs: dict[tuple[object, ...], Runs] = {}
    for place in places:
        inner = [(loop.counter, _trips(loop)) for loop in place.loops[depth - 1:]]
        inner[0] = inner[0][0], Linear.of(iterations)
        key = place.pointer, place.size, tuple(inner)
        if key not in runs:
            runs[key] = _runs(place.pointer, inner, around, place.size, unit)
    return covered(numpy.concatenate(list(runs.values()))) if runs else 0


def _runs(address: Linear, loops: Sequence[tuple[str, Linear]], values: Mapping[str, int], size: int,
          unit: int) -> Runs:
    found: list[Runs] = []
    total = 0
    for inside, box in _boxes(loops, dict(values)):
        start = address.evaluate(inside | {name: 0 for name, _ in box})
        strides = [(address.evaluate(inside | {other: int(other == name) for other, _ in box}) - start, count)
                   for name, count in box]
        if any(rounded.numerator.symbols & {name for name, _ in box} for rounded in address.quotients):
            raise TooManyRuns
        found.append(box_runs(start, strides, size, unit))
        total += len(found[-1])
        if len(found) > _MOST_BOXES or total > MOST_RUNS:
            raise TooManyRuns
    return numpy.concatenate(found) if found else numpy.zeros((0, 2), numpy.int64)


def _boxes(loops: Sequence[tuple[str, Linear]], values: dict[str, int]
           ) -> Iterator[tuple[dict[str, int], list[tuple[str, int]]]]:
    """Values for the loops that bounds depend on, and the others with how often they run."""
    if not loops:
        yield values, []
        return
    (name, trips), inner = loops[0], loops[1:]
    count = trips.evaluate(values)
    if any(name in bound.symbols for _, bound in inner):
        for value in range(count):
            yield from _boxes(inner, values | {name: value})
    elif count > 0:
        for inside, box in _boxes(inner, values):
            yield inside, [(name, count), *box]


def box_runs(start: int, strides: Sequence[tuple[int, int]], size: int, unit: int) -> Runs:
    """Units that ``size`` bytes touch at ``start`` plus each multiple of each stride, given with its count."""
    length, apart = size, []
    for stride, count in sorted((abs(stride), count) for stride, count in strides if stride and count > 1):
        if stride < length + unit:  # no whole unit lies between one and the next
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
    """Different units in ``runs``."""
    if not len(runs):
        return 0
    ordered = runs[numpy.argsort(runs[:, 0], kind="stable")]
    furthest = numpy.maximum.accumulate(ordered[:, 1])
    before = numpy.concatenate(([ordered[0, 0] - 1], furthest[:-1]))
    return int(numpy.maximum(0, ordered[:, 1] - numpy.maximum(ordered[:, 0] - 1, before)).sum())
