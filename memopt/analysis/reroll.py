"""Undo unrolling and vectorisation: lanes, unrolled copies, prologues and epilogues become pieces of one domain.

``for c < t: S(2c), S(2c + 1)`` is ``for c < 2t: S(c)``, and ``for c < t: S(c)`` followed by ``S(t)`` is
``for c < t + 1: S(c)``. Both keep the order of execution, so they need no legality test. Where a loop over several
accumulators is distributed first, they are proved independent. Two statements are the same S when their expressions
are equal and their addresses differ by a constant for each access.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Protocol

from memopt.analysis.aliasing import Aliasing
from memopt.analysis.statements import CellStatement, StatementItem, StatementLoop
from memopt.ir.linear import Linear
from memopt.ir.scop import Apply, Expression, Read


class Unify(Protocol):
    """Is ``distance``, over live-in symbols, always ``expected``? May raise Specialise to make it so."""

    def __call__(self, distance: Linear, expected: int) -> bool: ...


def reroll(loop: StatementLoop, aliasing: Aliasing, unify: Unify) -> StatementLoop:
    """The nest with every unrolled or split inner loop rolled up.

    The outermost loop keeps its iterations: they are what the patch counts. ``aliasing.sample`` has the captured
    value of each live-in symbol: copies often reach the same array through different registers.
    """
    ranges = dict(aliasing.ranges)
    return _Reroller(replace(aliasing, ranges=ranges), unify, ranges).outermost(loop)


@dataclass(frozen=True, slots=True)
class _Reroller:
    aliasing: Aliasing
    unify: Unify
    ranges: dict[str, Linear]  # those of ``aliasing``: rolled and joined loops have more iterations

    def outermost(self, loop: StatementLoop) -> StatementLoop:
        return replace(loop, items=self._inner(loop.items))

    def _inner(self, items: tuple[StatementItem, ...]) -> tuple[StatementItem, ...]:
        return self._join(tuple(self._loop(i) if isinstance(i, StatementLoop) else i for i in items))

    def _loop(self, loop: StatementLoop) -> StatementLoop:
        items = tuple(self._loop(i) if isinstance(i, StatementLoop) else i for i in loop.items)
        rolled = self._unrolled(replace(loop, items=items))
        return rolled if rolled is not None else replace(loop, items=self._join(items))

    def _unrolled(self, loop: StatementLoop) -> StatementLoop | None:
        """m copies of one nest whose accesses advance by equal steps, m of which make the loop's own step."""
        nests = [_Nest.of(i) for i in self._distributed(loop.items)]
        if len(nests) < 2 or None in nests:
            return None
        return self._rolled(loop, [n for n in nests if n is not None])

    def _distributed(self, items: tuple[StatementItem, ...]) -> tuple[StatementItem, ...]:
        """A single inner loop over several independent statements as one loop for each (vectorised accumulators)."""
        if len(items) != 1 or not isinstance(items[0], StatementLoop) or len(items[0].items) < 2:
            return items
        loop = items[0]
        parts = self._distributed(loop.items)
        distributed = tuple(replace(loop, items=(p,)) for p in parts)
        if len(parts) < 2 or not all(self._independent(a, b) for a, b in combinations(map(_Nest.of, distributed), 2)):
            return items
        return distributed

    def _independent(self, first: _Nest | None, second: _Nest | None) -> bool:
        """No iteration of one touches, in any iteration of the other, what the other writes."""
        if first is None or second is None:
            return False
        one, two = first.statement, second.statement
        counters = {c for c, _ in (*first.loops, *second.loops)}
        mine = [(a, 8 * e.size) for a, e in zip(one.accesses, one.elements, strict=True)]
        theirs = [(a, 8 * e.size) for a, e in zip(two.accesses, two.elements, strict=True)]
        pairs = [(mine[0], a) for a in theirs] + [(a, theirs[0]) for a in mine[1:]]
        return not any(self.aliasing.overlap_across(counters, *a, *b) for a, b in pairs)

    def _rolled(self, loop: StatementLoop, nests: list[_Nest]) -> StatementLoop | None:
        count = len(nests)
        first = nests[0].statement
        step = self._captured(nests[1].distance(nests[0]))
        if step is None or tuple(a.coefficient(loop.counter) for a in first.linears) != _times(count, step):
            return None
        if not all(self._lies(n.distance(nests[0]), _times(number, step)) for number, n in enumerate(nests)):
            return None
        accesses = tuple(a.without(loop.counter) + Linear.symbol(loop.counter, s)
                         for a, s in zip(first.linears, step, strict=True))
        nest = replace(nests[0], statement=first.moved(accesses))
        self.ranges[loop.counter] = loop.trips * count - 1
        return StatementLoop(loop.counter, loop.trips * count, (nest.item(),))

    def _join(self, items: tuple[StatementItem, ...]) -> tuple[StatementItem, ...]:
        """Neighbours that continue each other's range as one loop."""
        result: list[StatementItem] = []
        for item in items:
            while result and (joined := self._joined(result[-1], item)) is not None:
                result.pop()
                item = joined
            result.append(item)
        return self._aligned(tuple(result))

    def _joined(self, first: StatementItem, second: StatementItem) -> StatementItem | None:
        one, two = _Nest.of(first), _Nest.of(second)
        if one is None or two is None:
            return None
        pair = _level(one, two)
        return self._appended(*pair) if pair is not None else None

    def _appended(self, one: _Nest, two: _Nest) -> StatementItem | None:
        """``one`` then ``two`` along their outermost loops, when two starts where one ends."""
        (counter, trips), (_, more) = one.loops[0], two.loops[0]
        if not self._continues(one, two):
            return None
        self.ranges[counter] = trips + more - 1
        return replace(one, loops=((counter, trips + more), *one.loops[1:])).item()

    def _continues(self, one: _Nest, two: _Nest) -> bool:
        (counter, trips), (_, more) = one.loops[0], two.loops[0]
        if not trips.is_constant or not more.is_constant:
            return False
        renamed = two.renamed({c: d for (c, _), (d, _) in zip(two.loops, one.loops, strict=True)})
        distance = replace(renamed, loops=renamed.loops[1:]).distance(replace(one, loops=one.loops[1:]))
        strides = tuple(a.coefficient(counter) for a in one.statement.linears)
        return self._lies(distance, _times(trips.constant, strides))

    def _aligned(self, items: tuple[StatementItem, ...]) -> tuple[StatementItem, ...]:
        """Neighbours that would join if it were not for the order of their operands (which decides NaN payloads)
        stay apart, but over the same loops and registers."""
        result = list(items)
        for number in range(len(result) - 1):
            one, two = _Nest.of(result[number]), _Nest.of(result[number + 1])
            if one is None or two is None:
                continue
            order = _commuted(two.statement, one.statement)
            if order is None:
                continue
            pair = _level(one, replace(two, statement=_reordered(two.statement, one.statement, order)))
            if pair is not None and self._continues(*pair):
                first, second = pair
                result[number] = first.item()
                result[number + 1] = replace(second, statement=_restored(second.statement, two.statement, order)).item()
        return tuple(result)

    def _captured(self, distance: tuple[Linear, ...] | None) -> tuple[int, ...] | None:
        if distance is None or any(not d.symbols <= self.aliasing.sample.keys() for d in distance):
            return None
        return tuple(d.evaluate(self.aliasing.sample) for d in distance)

    def _lies(self, distance: tuple[Linear, ...] | None, expected: tuple[int, ...]) -> bool:
        if distance is None or self._captured(distance) != expected:
            return False
        return all(self.unify(d, e) for d, e in zip(distance, expected, strict=True))


def _level(one: _Nest, two: _Nest) -> tuple[_Nest, _Nest] | None:
    """Both with the same number of loops, one of them as a single iteration where it has one less."""
    if len(one.statement.linears) != len(two.statement.linears):
        return None
    if one.depth == two.depth and one.depth > 0:
        return one, two
    if one.depth == two.depth + 1:
        return one, two.wrapped(one)
    if two.depth == one.depth + 1:
        return one.wrapped(two), two
    return None


def _commuted(mine: CellStatement, other: CellStatement) -> tuple[int, ...] | None:
    """For each read of ``other`` the read of ``mine`` in its place, when the expressions are equal but for the order
    of operands of sums and products."""
    found = _match(mine.expression, other.expression, {})
    if found is None or len(found) != len(other.reads) or len(mine.reads) != len(other.reads):
        return None
    return tuple(found[n] for n in range(len(other.reads)))


def _match(mine: Expression, other: Expression, known: dict[int, int]) -> dict[int, int] | None:
    match mine, other:
        case Read(here), Read(there):
            return {**known, there: here} if known.get(there, here) == here else None
        case Apply(name, left, kind), Apply(same, right, like) if (name, kind, len(left)) == (same, like, len(right)):
            orders = (left, left[::-1]) if name in ("add", "mul") else (left,)
            for order in orders:
                found: dict[int, int] | None = known
                for a, b in zip(order, right, strict=True):
                    found = None if found is None else _match(a, b, found)
                if found is not None:
                    return found
            return None
    return known if mine == other else None


def _reordered(mine: CellStatement, other: CellStatement, order: tuple[int, ...]) -> CellStatement:
    """``mine`` with the expression and order of reads of ``other``, for comparing addresses only."""
    return replace(mine, reads=tuple(mine.reads[n] for n in order), read_elements=other.read_elements,
                   expression=other.expression)


def _restored(moved: CellStatement, original: CellStatement, order: tuple[int, ...]) -> CellStatement:
    """The addresses of ``moved`` (see ``_reordered``) with the expression and order of reads of ``original``."""
    reads = list(original.reads)
    for place, number in enumerate(order):
        reads[number] = moved.reads[place]
    return replace(moved, reads=tuple(reads), read_elements=original.read_elements, expression=original.expression)


def _times(factor: int, step: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(factor * s for s in step)


@dataclass(frozen=True, slots=True)
class _Nest:
    """A perfect nest: loops around one statement."""

    loops: tuple[tuple[str, Linear], ...]
    statement: CellStatement

    @staticmethod
    def of(item: StatementItem) -> _Nest | None:
        loops: list[tuple[str, Linear]] = []
        while isinstance(item, StatementLoop):
            if len(item.items) != 1:
                return None
            loops.append((item.counter, item.trips))
            item = item.items[0]
        return _Nest(tuple(loops), item)

    @property
    def depth(self) -> int:
        return len(self.loops)

    def item(self) -> StatementItem:
        item: StatementItem = self.statement
        for counter, trips in reversed(self.loops):
            item = StatementLoop(counter, trips, (item,))
        return item

    def renamed(self, names: dict[str, str]) -> _Nest:
        values = {old: Linear.symbol(new) for old, new in names.items()}
        accesses = tuple(a.substitute(values) for a in self.statement.linears)
        return _Nest(tuple((names[c], t) for c, t in self.loops), self.statement.moved(accesses))

    def wrapped(self, other: _Nest) -> _Nest:
        """One iteration of ``other``'s outermost loop, with its strides; both have equally many accesses."""
        counter = other.loops[0][0]
        inner = {c: d for (c, _), (d, _) in zip(self.loops, other.loops[1:], strict=True)}
        renamed = self.renamed(inner)
        accesses = tuple(a + Linear.symbol(counter, b.coefficient(counter))
                         for a, b in zip(renamed.statement.linears, other.statement.linears, strict=True))
        return _Nest(((counter, Linear.of(1)), *renamed.loops), renamed.statement.moved(accesses))

    def distance(self, first: _Nest) -> tuple[Linear, ...] | None:
        """How far each access of this nest lies from ``first``'s, when all else is equal."""
        mine, other = self.statement, first.statement
        if mine.expression != other.expression or mine.elements != other.elements:
            return None
        if len(mine.linears) != len(other.linears) or len(self.loops) != len(first.loops):
            return None
        here = self.renamed({c: d for (c, _), (d, _) in zip(self.loops, first.loops, strict=True)})
        if here.loops != first.loops:
            return None
        return tuple(a - b for a, b in zip(here.statement.linears, other.linears, strict=True))
