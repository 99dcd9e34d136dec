"""Loop tree: a lifted nest of loops, branches, loads and stores with affine addresses, as machine code performs them.

Example: ``for (i) if (i < n) a[i] = b[i];`` is a ``LoopNode`` with a ``Guarded`` item that holds a ``LoadEvent`` and a
``StoreEvent``.

This is the form between symbolic execution (memopt.lifting.execution.executor) and the statements of a SCoP
(memopt.lifting.demotion.statements). Addresses are ``Linear`` over live-in symbols and loop counters, in bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field, replace

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.lifting.values.numbers import LOOP_COUNTER
from memopt.lifting.values.values import Node, Substitution, Value


@dataclass(frozen=True, slots=True)
class LoadEvent:
    """A load; ``Loaded(identity)`` is its value."""

    identity: int
    pointer: Linear
    width: int  # bits
    address: int  # of the instruction
    condition: Value | None = None  # one bit: it is performed only where this holds; None: always

    def __str__(self) -> str:
        where = "" if self.condition is None else f" when {show(self.condition)}"
        return f"v{self.identity} = load [{self.pointer}]:{self.width}{where}"


@dataclass(frozen=True, slots=True)
class RowLoad:
    """A load of a row pointer from a table in which the word at ``place`` is ``first``, the next one ``first + step``,
    and so on (memopt.lifting.execution.row_tables). Its value is an affine number. What is left of it is the demand
    that a guard looks at the word."""

    pointer: Linear
    place: int
    first: int
    step: int  # bytes
    address: int  # of the instruction
    conditions: tuple[Linear, ...] = ()  # it is done where all are >= 0
    certain: bool = True  # not on a condition on data

    def __str__(self) -> str:
        return f"row load [{self.pointer}]"


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """A store of ``value``. A store that is performed only where ``condition`` (one bit) holds has the value
    ``Node("when", (condition, value))``."""

    pointer: Linear
    value: Value
    width: int  # bits
    address: int  # of the instruction
    # operations that are performed with the store only for the floating-point flags they raise
    # (memopt.lifting.demotion.dead_fp); their operands are parts of ``value``
    beside: tuple[Value, ...] = ()

    @property
    def conditional(self) -> bool:
        """Whether the store is performed in some iterations only."""
        return isinstance(self.value, Node) and self.value.operator == "when"

    def __str__(self) -> str:
        beside = "".join(f", beside {show(v)}" for v in self.beside)
        return f"store [{self.pointer}]:{self.width} = {show(self.value)}{beside}"


@dataclass(frozen=True, slots=True)
class Read:
    """A read by the original that is certain to happen in the first iteration of the loops around it."""

    pointer: Linear  # over live-in symbols alone
    width: int  # bits
    conditions: tuple[Linear, ...] = ()  # it happens where all are >= 0
    late: bool = False  # it stands behind an exit: it happens only if the first iteration does not leave there

    def within(self, loop: str, turns: Linear | None) -> Read | None:
        """The read as seen from outside the loop with the counter ``loop``; None if it is not certain there.

        ``turns``: how often the loop's back edges are taken; None: not known.
        """
        if self.late and turns is None:
            return None
        goes_on = (turns - 1,) if self.late and turns is not None else ()
        conditions = (*goes_on, *(c.substitute({loop: Linear()}) for c in self.conditions))
        return Read(self.pointer, self.width, conditions)


@dataclass(frozen=True, slots=True)
class CarriedValue:
    """A loop-carried value: ``location`` holds ``entry`` at loop entry, ``following`` at the end of each iteration."""

    location: str
    entry: Value
    following: Value


Raising = tuple[Value, tuple[Linear, ...]]
"""The result of an operation that may raise floating-point flags, and conditions: it is done where all are >= 0."""


@dataclass(frozen=True, slots=True)
class LoopNode:
    """A loop: ``items`` run ``trips`` times with ``counter`` = 0, 1, ...

    Where ``trips`` is zero or negative the loop does not run, and a carried location keeps its entry value (with which
    ``finals`` must agree).
    """

    counter: str
    trips: Linear | None  # over live-in symbols and outer counters; None during a trial: not known yet
    items: tuple[Item, ...]
    carried: tuple[CarriedValue, ...] = ()
    # (location, its value in the last iteration) for each location that is used after the loop
    finals: tuple[tuple[str, Value], ...] = field(default=())
    address: int = 0  # of the header
    # operands of square roots: none may be negative in any iteration (memopt.lifting.execution.sqrt_exits)
    roots: tuple[Value, ...] = ()
    # results of the floating-point operations, used or not (memopt.lifting.demotion.dead_fp)
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
    """A branch: ``items`` run where every one of ``conditions``, Linear over live-in symbols and counters, is >= 0.

    A register that the items change is unknown afterwards, unless both paths leave the same value in it.
    """

    conditions: tuple[Linear, ...]
    items: tuple[Item, ...]

    def __str__(self) -> str:
        lines = [f"if {' and '.join(f'{c} >= 0' for c in self.conditions)}"]
        for item in self.items:
            lines += ["  " + line for line in str(item).splitlines()]
        return "\n".join(lines)


Item = LoadEvent | RowLoad | StoreEvent | LoopNode | Guarded


def rewritten(item: Item, new: Substitution) -> Item:
    """``item`` with the substitution ``new`` applied to all its expressions and values."""
    match item:
        case LoadEvent(pointer=pointer, condition=condition):
            return replace(item, pointer=new.linear(pointer),
                           condition=None if condition is None else new.value(condition))
        case RowLoad():
            return replace(item, pointer=new.linear(item.pointer), conditions=tuple(map(new.linear, item.conditions)))
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
    """The trip counts and conditions inside ``item``, its own included."""
    match item:
        case LoopNode(trips=trips, items=items):
            return frozenset({trips} if trips is not None else ()).union(*map(bounds, items))
        case Guarded(conditions, items):
            return frozenset(conditions).union(*map(bounds, items))
    return frozenset()


def show(value: Value) -> str:
    """The short text form of a value, for dumps and golden files."""
    from memopt.lifting.values.values import Carried, Final, Integer, LiveVector, Loaded

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
    """The name by which ``Carried`` and ``Final`` refer to the loop."""
    return node.counter.removeprefix(LOOP_COUNTER)


def loops_of(items: Iterable[Item]) -> Iterator[LoopNode]:
    """Every loop in ``items``, outer loops first."""
    for item in items:
        match item:
            case LoopNode():
                yield item
                yield from loops_of(item.items)
            case Guarded():
                yield from loops_of(item.items)


def stores_of(items: Iterable[Item]) -> Iterator[StoreEvent]:
    """Every store in ``items``, in textual order."""
    for item in items:
        match item:
            case StoreEvent():
                yield item
            case LoopNode() | Guarded():
                yield from stores_of(item.items)


def loads_of(items: Iterable[Item]) -> Iterator[LoadEvent]:
    """Every load in ``items``, in textual order."""
    for item in items:
        match item:
            case LoadEvent():
                yield item
            case LoopNode() | Guarded():
                yield from loads_of(item.items)
