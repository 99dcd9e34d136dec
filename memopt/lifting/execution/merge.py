"""State merging: the paths of an affine branch meet, and their items and states become those of one path.

Example: compilers turn ``while (k < n) ...`` into ``if (n > 0) do ... while (k < n)``. Where the branch is exactly the
question whether the loop runs, the merged path is the loop alone, with a trip count of n that may be zero. Any other
items go under the conditions of their path (``Guarded``). A location that differs between the paths becomes a
``select`` by these conditions, or one affine number that is right on both paths, where there is one.

In: one ``Path`` (conditions, items, state) for each way of the branch; their conditions exclude each other. Out: the
items and the state at the join.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Compound, Linear, Quotient
from memopt.ir.reasons import Reason, Rejected
from memopt.lifting.execution.assumptions import SLOT, Assumptions, State
from memopt.lifting.execution.memory import MemoryModel
from memopt.lifting.values.algebra import LOOP_COUNTER, TRIAL, Algebra, fixable
from memopt.lifting.values.bounds import is_bit
from memopt.lifting.values.loop_tree import Guarded, Item, LoadEvent, LoopNode, RowLoad, StoreEvent
from memopt.lifting.values.requests import AssumeEqual
from memopt.lifting.values.values import Atom, Final, Formula, Integer, Loaded, Node, Truth, Value, both


@dataclass(frozen=True, slots=True)
class Path:
    """One path of a branch, taken where ``conditions`` are all >= 0: its items, and the state at its end."""

    conditions: tuple[Linear, ...]
    items: Sequence[Item]
    state: State

    @property
    def acts(self) -> bool:
        """Whether the path does more than load."""
        return any(isinstance(i, StoreEvent | LoopNode | Guarded) for i in self.items)


def merge_paths(ways: list[Path], algebra: Algebra, memory: MemoryModel, general: bool) -> tuple[list[Item], State]:
    """The items of all ``ways``, whose conditions exclude each other, and the state at their join.

    Unless ``general``, a path that does nothing but run a loop becomes that loop without a guard. Where it does not
    run, its trip count is then required to be zero, not less, if a location behind the loop depends on it.
    Raises Rejected(CARRIED_VALUE) if one path knows a stack slot only as a part of a wider one.
    """
    slots = {p for way in ways for p in way.state if p.startswith(SLOT)}
    for way in ways:
        for location in sorted(slots - way.state.keys()):
            memory.load_slot(way.state, location)
            if location not in way.state:  # it is a part of a wider slot of this path
                raise Rejected(Reason.CARRIED_VALUE,
                               f"paths that meet at {algebra.address:#x} use a stack slot in different widths")
    entered = None if general else _entered_loop(ways, algebra)
    if entered is not None:
        runs, idle, loop = entered
        known = {p: _after_loop(p, runs, idle, loop, algebra, memory.assumptions) for p in runs.state}
        return [*rows_of(ways), *_loads_where(idle, runs), *_loads_where(runs, idle)], {
            p: _merged_value((runs, idle), p, algebra) if v is None else v for p, v in known.items()}
    guarded = [Guarded(w.conditions, tuple(rest)) for w in ways if (rest := _but_rows(w))]
    return ([*rows_of(ways), *guarded],
            {p: _merged_value(ways, p, algebra) for p in ways[0].state})


def rows_of(ways: Sequence[Path]) -> Iterator[RowLoad]:
    """The loads of row pointers on each path, under its conditions. They depend on nothing that the paths do."""
    return (replace(i, conditions=(*w.conditions, *i.conditions)) for w in ways for i in w.items
            if isinstance(i, RowLoad))


def _but_rows(way: Path) -> list[Item]:
    return [i for i in way.items if not isinstance(i, RowLoad)]


def _loads_where(way: Path, other: Path) -> Iterator[Item]:
    """The items of ``way`` but row loads; each load of a cell that ``other`` does not load is under the conditions of
    ``way``."""
    cells = {(i.pointer, i.width) for i in other.items if isinstance(i, LoadEvent) and i.condition is None}
    truth: Formula = True
    for condition in way.conditions:
        truth = both(truth, Atom(condition, False))
    for item in _but_rows(way):
        if isinstance(item, LoadEvent) and (item.pointer, item.width) not in cells:
            here = Truth(truth)
            item = replace(item, condition=here if item.condition is None else Node("and", (here, item.condition), 1))
        yield item


def _merged_value(ways: Sequence[Path], location: str, algebra: Algebra) -> Value:
    """The value of ``location`` at the join: the common value, one affine number for all paths, or a select."""
    value = ways[-1].state[location]
    if all(way.state[location] == value for way in ways):
        return value
    found = _split_by_parity(ways)
    number = found and _value_by_parity(found, location)
    if number is not None:
        return number
    for number in (_value_of_other_path(ways, location), _value_of_other_path(ways[::-1], location)):
        if number is not None:
            return number
    for way in reversed(ways[:-1]):
        if way.state[location] != value:
            truth: Formula = True
            for condition in way.conditions:
                truth = both(truth, Atom(condition, False))
            value = Node("select", (Truth(truth), way.state[location], value), value.width)
            algebra.joined[value] = algebra.address
    return value


def _value_of_other_path(ways: Sequence[Path], location: str) -> Integer | None:
    """The number on the second of two paths, if it is also right wherever the first is taken; else None.

    Example: ``if (i == 0) x = a; else x = a + 8*i;`` leaves ``a + 8*i`` on both, since i is zero on the first.
    """
    if len(ways) != 2:
        return None
    mine, other = (way.state[location] for way in ways)
    if isinstance(mine, Integer) and isinstance(other, Integer):
        difference = other.linear - mine.linear
        for zero in _zeros(ways[0].conditions):
            (symbol, factor), *_ = zero.terms
            if difference == zero * (difference.factor(symbol) // factor):
                return other
    return None


def _zeros(conditions: tuple[Linear, ...]) -> Iterator[Linear]:
    """Expressions that are zero where ``conditions`` are all >= 0.

    These are e with both e >= 0 and -e >= 0, and multiples ``-n * counter`` >= 0, since counters are never negative.
    """
    for condition in conditions:
        counter = condition.constant == 0 and [s.startswith((LOOP_COUNTER, TRIAL)) and not isinstance(s, Compound)
                                               and c < 0 for s, c in condition.terms] == [True]
        if condition.terms and (counter or -condition in conditions):
            yield condition


def _split_by_parity(ways: Sequence[Path]) -> tuple[Path, Path, Linear] | None:
    """For a branch on ``n % 2``: the path for 1, the path for 0, and ``n % 2``; None for any other branch.

    Compilers branch like this to do an odd iteration in front of a loop that is unrolled twice.
    """
    for odd, even in (ways, ways[::-1]) if len(ways) == 2 else ():
        if len(odd.conditions) == len(even.conditions) == 1 and is_bit(bit := -even.conditions[0]) and (
                odd.conditions[0] == bit - 1):
            return odd, even, bit
    return None


def _value_by_parity(found: tuple[Path, Path, Linear], location: str) -> Integer | None:
    """The number ``zero + (n % 2) * advance``, if the odd path advances the location by a constant; else None."""
    odd, even, bit = found
    one, zero = odd.state[location], even.state[location]
    if isinstance(one, Integer) and isinstance(zero, Integer):
        advance = one.linear - zero.linear
        if advance.is_constant:
            return Integer(zero.linear + bit * advance.constant, zero.width)
    return None


def _entered_loop(ways: list[Path], algebra: Algebra) -> tuple[Path, Path, LoopNode] | None:
    """The path that does nothing but run a loop, the path that does nothing, and the loop; None for other branches.

    The first path must be taken exactly where the loop's trip count is positive. In a trial, where registers are
    unrelated symbols, it is enough that the captured values agree with that.
    """
    if len(ways) != 2 or sum(w.acts for w in ways) != 1:
        return None
    runs, idle = ways if ways[0].acts else ways[::-1]
    acting = [i for i in runs.items if not isinstance(i, LoadEvent | RowLoad)]
    if len(acting) != 1 or not isinstance(acting[0], LoopNode) or len(runs.conditions) != 1:
        return None
    loop = acting[0]
    if loop.trips is None:
        return None
    enters = runs.conditions[0]
    unknown = any(s.startswith(TRIAL) for s in enters.symbols | loop.trips.symbols)
    guessed = unknown and (algebra.at_sample(enters) >= 0) == (algebra.at_sample(loop.trips) > 0)
    return (runs, idle, loop) if guessed or implied(enters, loop.trips - 1, exactly=True) else None


def implied(condition: Linear, known: Linear, exactly: bool = False) -> bool:
    """Whether ``known >= 0`` implies ``condition >= 0`` over the integers; ``exactly``: whether they are equivalent."""
    match known.terms:
        case ((Quotient() as rounded, 1),):  # n / d >= -c is n + c * d >= 0
            return implied(condition, rounded.numerator + known.constant * rounded.divisor, exactly)
    symbol = next((s for s, _ in known.terms), None)
    if symbol is None:
        return condition.is_constant and condition.constant >= 0
    factor, rest = divmod(condition.factor(symbol), known.factor(symbol))
    rest_of = condition - known * factor
    if rest or factor <= 0 or not rest_of.is_constant or rest_of.constant < 0:
        return False
    return rest_of.constant < factor or not exactly


def _after_loop(location: str, runs: Path, idle: Path, loop: LoopNode, algebra: Algebra,
                assumptions: Assumptions) -> Value | None:
    """The value of ``location`` behind a loop that may run zero times, if one expression is right in both cases."""
    ran, not_ran = runs.state[location], idle.state[location]
    if ran == not_ran:
        return ran
    match ran:
        case Final(name, carried, _) if name == loop.counter.removeprefix(LOOP_COUNTER):
            entry = next((c.entry for c in loop.carried if c.location == carried), None)
            if entry is not None and _same_load(entry, not_ran, (*runs.items, *idle.items)):
                return ran
        case Integer(linear, width) if isinstance(not_ran, Integer) and not_ran.width == width:
            assert loop.trips is not None
            difference = linear - not_ran.linear
            rests = [difference - loop.trips * n for n in _ratios(difference, loop.trips)]
            if any(_is_zero(rest, algebra, assumptions) for rest in rests):
                algebra.require(loop.trips, "a loop that does not run ends where it begins", branch=algebra.address)
                return ran
    return None


def _is_zero(rest: Linear, algebra: Algebra, assumptions: Assumptions) -> bool:
    """Whether ``rest`` is zero. An eager attempt raises AssumeEqual if it is zero at the captured values only."""
    if rest.is_constant or not assumptions.eagerly(algebra.address) or algebra.at_sample(rest):
        return rest == Linear()
    if fixable(rest) and not algebra.exploring:
        raise AssumeEqual(rest)
    return algebra.trial > 0


def _ratios(difference: Linear, trips: Linear) -> set[int]:
    """Candidates for n in ``difference == n * trips``."""
    return {difference.factor(s) // c for s, c in trips.terms}


def _same_load(one: Value, two: Value, items: Sequence[Item]) -> bool:
    """Whether two values are equal. Loads of the same cell are, since neither path stores before the loop."""
    if isinstance(one, Loaded) and isinstance(two, Loaded):
        cells = {i.identity: (i.pointer, i.width) for i in items if isinstance(i, LoadEvent)}
        return one == two or (one.event in cells and cells[one.event] == cells.get(two.event))
    return one == two
