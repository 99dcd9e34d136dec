"""Where the ways of a branch come together again: what was done, and what is known of each location.

A loop that is entered only when it runs at all (compilers turn ``while`` into ``if`` and ``do while``) is that loop
with a trip count that may be zero. Everything else is done under the conditions of its way; a location that differs
between ways holds one value or the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memopt.ir.linear import Linear, Quotient
from memopt.ir.reasons import Reason, Rejected
from memopt.lifting.execution.assumptions import SLOT, Assumptions, State
from memopt.lifting.execution.memory import MemoryModel
from memopt.lifting.values.algebra import LOOP_COUNTER, TRIAL, Algebra, fixable
from memopt.lifting.values.bounds import is_bit
from memopt.lifting.values.loop_tree import Guarded, Item, LoadEvent, LoopNode, StoreEvent
from memopt.lifting.values.requests import AssumeEqual
from memopt.lifting.values.values import Atom, Final, Formula, Integer, Loaded, Node, Truth, Value, both


@dataclass(frozen=True, slots=True)
class Path:
    """What is done where ``conditions`` are all >= 0, and the state afterwards."""

    conditions: tuple[Linear, ...]
    items: Sequence[Item]
    state: State

    @property
    def acts(self) -> bool:
        return any(isinstance(i, StoreEvent | LoopNode | Guarded) for i in self.items)


def merge_paths(ways: list[Path], algebra: Algebra, places: MemoryModel, general: bool) -> tuple[list[Item], State]:
    """The items of all ``ways``, which exclude each other, and the state where they meet.

    Unless ``general``, a loop's trip count may be taken to be zero, not less, where it does not run.
    """
    slots = {p for way in ways for p in way.state if p.startswith(SLOT)}
    for way in ways:
        for location in sorted(slots - way.state.keys()):
            places.load_slot(way.state, location)
            if location not in way.state:  # only as a part of what the way holds as a whole
                raise Rejected(Reason.CARRIED_VALUE, f"mixed widths on the stack at {algebra.address:#x}")
    entered = None if general else _entered_loop(ways, algebra)
    if entered is not None:
        runs, idle, loop = entered
        known = {p: _after_loop(p, runs, idle, loop, algebra, places.facts) for p in runs.state}
        return [*idle.items, *runs.items], {
            p: _either((runs, idle), p, algebra) if v is None else v for p, v in known.items()}
    return ([Guarded(w.conditions, tuple(w.items)) for w in ways if w.items],
            {p: _either(ways, p, algebra) for p in ways[0].state})


def _either(ways: Sequence[Path], location: str, algebra: Algebra) -> Value:
    value = ways[-1].state[location]
    if all(way.state[location] == value for way in ways):
        return value
    found = _bit(ways)
    number = found and _by_bit(found, location)
    if number is not None:
        return number
    for number in (_where_zero(ways, location), _where_zero(ways[::-1], location)):
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


def _where_zero(ways: Sequence[Path], location: str) -> Integer | None:
    """The number of the second of two ways that is that of the first as well, where that is gone: one is a multiple of
    a counter, the other what it is where the counter is zero."""
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
    """What is zero where ``conditions`` are all >= 0; counters are never negative."""
    for condition in conditions:
        counter = condition.constant == 0 and [s.startswith((LOOP_COUNTER, TRIAL)) and not isinstance(s, Quotient)
                                               and c < 0 for s, c in condition.terms] == [True]
        if condition.terms and (counter or -condition in conditions):
            yield condition


def _bit(ways: Sequence[Path]) -> tuple[Path, Path, Linear] | None:
    """Of two ways the one where a remainder of two is one, that where it is zero, and the remainder: so is told
    whether a loop that is unrolled twice starts after an odd iteration."""
    for odd, even in (ways, ways[::-1]) if len(ways) == 2 else ():
        if len(odd.conditions) == len(even.conditions) == 1 and is_bit(bit := -even.conditions[0]) and (
                odd.conditions[0] == bit - 1):
            return odd, even, bit
    return None


def _by_bit(found: tuple[Path, Path, Linear], location: str) -> Integer | None:
    """The number that one way advances by a constant."""
    odd, even, bit = found
    one, zero = odd.state[location], even.state[location]
    if isinstance(one, Integer) and isinstance(zero, Integer):
        advance = one.linear - zero.linear
        if advance.is_constant:
            return Integer(zero.linear + bit * advance.constant, zero.width)
    return None


def _entered_loop(ways: list[Path], algebra: Algebra) -> tuple[Path, Path, LoopNode] | None:
    """The way that runs a loop, and nothing else, exactly when its trip count is positive, and the idle way. In a
    trial, where registers do not know of each other, the captured values must agree with that."""
    if len(ways) != 2 or sum(w.acts for w in ways) != 1:
        return None
    runs, idle = ways if ways[0].acts else ways[::-1]
    acting = [i for i in runs.items if not isinstance(i, LoadEvent)]
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
    """Whether ``known >= 0`` makes ``condition >= 0``; ``exactly``: and the other way round, over integers."""
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
                facts: Assumptions) -> Value | None:
    """What ``location`` holds after a loop that may run zero times; None when that depends on whether it runs."""
    ran, not_ran = runs.state[location], idle.state[location]
    if ran == not_ran:
        return ran
    match ran:
        case Final(name, carried, _) if name == loop.counter.removeprefix(LOOP_COUNTER):
            entry = next((c.entry for c in loop.carried if c.location == carried), None)
            if entry is not None and _equal(entry, not_ran, (*runs.items, *idle.items)):
                return ran
        case Integer(linear, width) if isinstance(not_ran, Integer) and not_ran.width == width:
            assert loop.trips is not None
            difference = linear - not_ran.linear
            rests = [difference - loop.trips * n for n in _ratios(difference, loop.trips)]
            if any(_vanishes(rest, algebra, facts) for rest in rests):
                algebra.require(loop.trips, "a loop that does not run ends where it begins", branch=algebra.address)
                return ran
    return None


def _vanishes(rest: Linear, algebra: Algebra, facts: Assumptions) -> bool:
    """Whether ``rest`` is zero; an ``eager`` attempt asks for what makes it so at the captured values."""
    if rest.is_constant or not facts.eagerly(algebra.address) or algebra.at_sample(rest):
        return rest == Linear()
    if fixable(rest) and not algebra.exploring:
        raise AssumeEqual(rest)
    return algebra.trial > 0


def _ratios(difference: Linear, trips: Linear) -> set[int]:
    return {difference.factor(s) // c for s, c in trips.terms}


def _equal(one: Value, two: Value, items: Sequence[Item]) -> bool:
    """Loads of one cell give one value: nothing is stored before the loop."""
    if isinstance(one, Loaded) and isinstance(two, Loaded):
        cells = {i.identity: (i.pointer, i.width) for i in items if isinstance(i, LoadEvent)}
        return one == two or (one.event in cells and cells[one.event] == cells.get(two.event))
    return one == two
