"""A lifted loop nest: loops, loads and stores with affine addresses, as machine code performs them.

This is the form between symbolic execution (memopt.lifting.execution.executor) and the statements of a SCoP
(memopt.lifting.demotion.statements). Addresses are Linear over live-in symbols and loop counters, in bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from memopt.ir.linear import Linear
from memopt.lifting.values.numbers import LOOP_COUNTER
from memopt.lifting.values.values import Substitution, Value


@dataclass(frozen=True, slots=True)
class LoadEvent:
    identity: int
    pointer: Linear
    width: int  # bits
    address: int  # of the instruction

    def __str__(self) -> str:
        return f"v{self.identity} = load [{self.pointer}]:{self.width}"


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """``beside``: operations that are done with it for the flags they raise; their operands are parts of ``value``."""

    pointer: Linear
    value: Value
    width: int
    address: int
    beside: tuple[Value, ...] = ()

    def __str__(self) -> str:
        beside = "".join(f", beside {show(v)}" for v in self.beside)
        return f"store [{self.pointer}]:{self.width} = {show(self.value)}{beside}"


@dataclass(frozen=True, slots=True)
class Read:
    """``width`` bits at ``pointer``, over live-in symbols alone, are read in the first iteration of the loops around it
    where all ``conditions`` are >= 0; if ``late``, only where that iteration gets past an exit."""

    pointer: Linear
    width: int
    conditions: tuple[Linear, ...] = ()
    late: bool = False

    def within(self, loop: str, turns: Linear | None) -> Read | None:
        """Seen from outside of the loop with the counter ``loop``, which goes round ``turns`` times."""
        if self.late and turns is None:
            return None
        goes_on = (turns - 1,) if self.late and turns is not None else ()
        conditions = (*goes_on, *(c.substitute({loop: Linear()}) for c in self.conditions))
        return Read(self.pointer, self.width, conditions)


@dataclass(frozen=True, slots=True)
class CarriedValue:
    """``location`` enters ``loop`` with ``entry`` and each iteration ends with ``following``."""

    location: str
    entry: Value
    following: Value


Raising = tuple[Value, tuple[Linear, ...]]
"""The result of an operation that may raise floating-point flags, where all conditions are >= 0."""


@dataclass(frozen=True, slots=True)
class LoopNode:
    """``items`` run ``trips`` times with ``counter`` = 0, 1, ...; ``finals`` gives what a location that is used
    after the loop holds in its last iteration (``None`` trips: not known yet, during a trial).

    ``trips`` is Linear over live-in symbols and the counters of the loops around it. Where it is zero or negative the
    loop does not run, and a carried location keeps its entry value (which ``finals`` must agree with). ``roots``: what
    must have a square root in every iteration (memopt.lifting.execution.sqrt_exits). ``raising``: the results of its
    floating-point operations, used or not (memopt.lifting.demotion.dead_fp)."""

    counter: str
    trips: Linear | None
    items: tuple[Item, ...]
    carried: tuple[CarriedValue, ...] = ()
    finals: tuple[tuple[str, Value], ...] = field(default=())
    address: int = 0
    roots: tuple[Value, ...] = ()
    raising: tuple[Raising, ...] = ()

    def __str__(self) -> str:
        lines = [f"loop {self.counter} < {self.trips}"]
        for carried in self.carried:
            lines.append(f"  carry {carried.location}: {show(carried.entry)} -> {show(carried.following)}")
        for item in self.items:
            lines += ["  " + line for line in str(item).splitlines()]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Guarded:
    """``items`` run where every one of ``conditions``, Linear over live-in symbols and counters, is >= 0.

    Registers that the items change are not known afterwards, unless both ways leave the same in them.
    """

    conditions: tuple[Linear, ...]
    items: tuple[Item, ...]

    def __str__(self) -> str:
        lines = [f"if {' and '.join(f'{c} >= 0' for c in self.conditions)}"]
        for item in self.items:
            lines += ["  " + line for line in str(item).splitlines()]
        return "\n".join(lines)


Item = LoadEvent | StoreEvent | LoopNode | Guarded


def rewritten(item: Item, new: Substitution) -> Item:
    """``item`` with symbols replaced by expressions."""
    match item:
        case LoadEvent(pointer=pointer):
            return replace(item, pointer=new.linear(pointer))
        case StoreEvent(pointer=pointer, value=value):
            return replace(item, pointer=new.linear(pointer), value=new.value(value),
                           beside=tuple(map(new.value, item.beside)))
        case Guarded(conditions, items):
            return Guarded(tuple(map(new.linear, conditions)), tuple(rewritten(i, new) for i in items))
        case LoopNode():
            carried = tuple(CarriedValue(c.location, new.value(c.entry), new.value(c.following)) for c in item.carried)
            return replace(item, trips=None if item.trips is None else new.linear(item.trips),
                           items=tuple(rewritten(i, new) for i in item.items), carried=carried,
                           finals=tuple((p, new.value(v)) for p, v in item.finals),
                           roots=tuple(map(new.value, item.roots)),
                           raising=tuple((new.value(r), tuple(map(new.linear, under))) for r, under in item.raising))


def bounds(item: Item) -> frozenset[Linear]:
    """The trip counts and conditions inside ``item``."""
    match item:
        case LoopNode(trips=trips, items=items):
            return frozenset({trips} if trips is not None else ()).union(*map(bounds, items))
        case Guarded(conditions, items):
            return frozenset(conditions).union(*map(bounds, items))
    return frozenset()


def show(value: Value) -> str:
    """Short text of a value, for dumps and golden files."""
    from memopt.lifting.values.values import Carried, Final, Integer, LiveVector, Loaded, Node

    match value:
        case Integer(linear, _):
            return str(linear)
        case Loaded(event, _):
            return f"v{event}"
        case Carried(_, location, _):
            return f"carried({location})"
        case Final(loop, location, _):
            return f"final({loop}, {location})"
        case LiveVector(location, _):
            return location
        case Node(operator, operands, width):
            return f"{operator}{width}({', '.join(map(show, operands))})"
    return str(value)


def loop_name(node: LoopNode) -> str:
    """What Carried and Final call the loop."""
    return node.counter.removeprefix(LOOP_COUNTER)


def loops_of(items: Iterable[Item]) -> Iterator[LoopNode]:
    """Every loop, outer ones first."""
    for item in items:
        match item:
            case LoopNode():
                yield item
                yield from loops_of(item.items)
            case Guarded():
                yield from loops_of(item.items)


def stores_of(items: Iterable[Item]) -> Iterator[StoreEvent]:
    for item in items:
        match item:
            case StoreEvent():
                yield item
            case LoopNode() | Guarded():
                yield from stores_of(item.items)
