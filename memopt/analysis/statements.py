"""Undo the compiler's register tricks: turn loads, registers and stores into statements on memory cells.

A register that carries a value from iteration to iteration is replaced by the memory cell that holds the same value
(its home): either a cell the loop itself stores it to, or the cell it is stored to after the loop. Each statement
then reads cells and writes one cell, which is what dependence analysis needs to see.

Invariant: ``held`` maps a value to an address whose cell contains exactly that value at this point of the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from memopt.analysis.algebra import LOOP_COUNTER
from memopt.analysis.aliasing import Aliasing
from memopt.analysis.nest import CarriedValue, Item, LoadEvent, LoopNode, StoreEvent
from memopt.analysis.values import Carried, Final, Integer, LiveVector, Loaded, Node, Value
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Apply, Constant, Expression, Read, Scalar, render_operands

_OPERATORS = {"fadd": "add", "fsub": "sub", "fmul": "mul", "fdiv": "div", "fsqrt": "sqrt", "fmin": "min",
              "fmax": "max", "fneg": "neg", "fabs": "abs"}


@dataclass(frozen=True, slots=True)
class CellStatement:
    """``[write] = expression`` over ``reads``; all addresses in bytes, elements of ``width`` bits."""

    write: Linear
    reads: tuple[Linear, ...]
    expression: Expression
    width: int
    address: int

    @property
    def accesses(self) -> tuple[Linear, ...]:
        return (self.write, *self.reads)

    def moved(self, accesses: tuple[Linear, ...]) -> CellStatement:
        return replace(self, write=accesses[0], reads=accesses[1:])

    def __str__(self) -> str:
        names = tuple(f"[{r}]" for r in self.reads)
        return f"[{self.write}]:{self.width} = {render_operands(self.expression, names)}"


@dataclass(frozen=True, slots=True)
class StatementLoop:
    """``items`` in order, for ``counter`` = 0 .. trips - 1."""

    counter: str
    trips: Linear
    items: tuple[StatementItem, ...]

    def __str__(self) -> str:
        lines = [f"for {self.counter} < {self.trips}"]
        for item in self.items:
            lines += ["  " + line for line in str(item).splitlines()]
        return "\n".join(lines)


StatementItem = CellStatement | StatementLoop
Held = dict[Value, Linear]


def recover(node: LoopNode, aliasing: Aliasing, cells: Mapping[str, Linear]) -> StatementLoop:
    """The statements of a lifted nest. ``cells`` gives the address of each live-in memory cell by its symbol.

    Raises Rejected(CARRIED_VALUE) when a register has no home.
    """
    items, _ = _Recovery(aliasing, cells, _stored_values(node)).items((node,), {}, frozenset())
    loop = items[0]
    assert isinstance(loop, StatementLoop)
    return loop


@dataclass(frozen=True, slots=True)
class _Home:
    """Where a carried value lives: ``cell`` at the header of each iteration."""

    carried: CarriedValue
    cell: Linear
    store: bool  # the loop does not store it itself: add a store at the end of the body
    initialise: bool  # nor is the entry value there: add a store before the loop


@dataclass(frozen=True, slots=True)
class _Recovery:
    aliasing: Aliasing
    cells: Mapping[str, Linear]
    needed: frozenset[Value]  # everything a stored value is made of, through registers and loops

    # -- straight-line code and loops ---------------------------------------------------------------------------

    def items(self, items: tuple[Item, ...], held: Held, owned: frozenset[Linear]) -> tuple[list[StatementItem], Held]:
        held = dict(held)
        result: list[StatementItem] = []
        for number, item in enumerate(items):
            match item:
                case LoadEvent(identity, pointer, width, _):
                    held[Loaded(identity, width)] = pointer
                case StoreEvent():
                    for store in _split(item):
                        result += self._store(store, held)
                case LoopNode():
                    before, loop, held = self._loop(item, items[number + 1:], held, owned)
                    result += [*before, loop]
        return result, held

    def _store(self, store: StoreEvent, held: Held) -> list[StatementItem]:
        """One statement, or one for each link of an accumulation chain (an unrolled reduction)."""
        result: list[StatementItem] = []
        link = self._link(store, held)
        if link is not None:
            result += self._store(replace(store, value=link), held)
        elif held.get(store.value) == store.pointer:
            return []  # the cell holds this value already
        reads: list[Linear] = []
        expression = self._build(store.value, store.width, held, reads)
        result.append(CellStatement(store.pointer, tuple(reads), expression, store.width, store.address))
        self._kill(held, store.pointer, store.width)
        held[store.value] = store.pointer
        return result

    def _link(self, store: StoreEvent, held: Held) -> Value | None:
        """The inner step of ``x + (y + cell)`` when cell is the one stored to: it can be a statement of its own."""
        value = store.value
        if not isinstance(value, Node) or value in held or len(value.operands) != 2:
            return None
        for position, inner in enumerate(value.operands):
            other = value.operands[1 - position]
            if (isinstance(inner, Node) and inner.operator == value.operator and inner not in held
                    and self._reaches(inner, store.pointer, held) and not self._reaches(other, store.pointer, held)):
                return inner
        return None

    def _reaches(self, value: Value, cell: Linear, held: Held) -> bool:
        if value in held:
            return held[value] == cell
        return isinstance(value, Node) and any(self._reaches(o, cell, held) for o in value.operands)

    def _loop(self, loop: LoopNode, rest: tuple[Item, ...], held: Held,
              owned: frozenset[Linear]) -> tuple[list[StatementItem], StatementLoop, Held]:
        if loop.trips is None:
            raise Rejected(Reason.TRIP_COUNT, f"the loop at {loop.address:#x}")
        name = loop.counter.removeprefix(LOOP_COUNTER)
        homes = [self._home(loop, c, rest, held, owned) for c in loop.carried
                 if Carried(name, c.location, c.entry.width) in self.needed]
        before: list[StatementItem] = []
        for home in homes:
            if home.initialise:
                before += self._store(StoreEvent(home.cell, home.carried.entry, home.carried.entry.width, 0), held)
        added = tuple(StoreEvent(h.cell, h.carried.following, h.carried.following.width, 0) for h in homes if h.store)
        body = loop.items + added
        inside = dict(held)
        self._kill_all(inside, body)
        inside |= {Carried(name, h.carried.location, h.carried.entry.width): h.cell for h in homes}
        items, end = self.items(body, inside, owned | {h.cell for h in homes if h.store})
        for home in homes:
            following = home.cell.substitute({loop.counter: Linear.symbol(loop.counter) + 1})
            if end.get(home.carried.following) != following:
                raise Rejected(Reason.CARRIED_VALUE, f"{home.carried.location} in the loop at {loop.address:#x}")
        after = dict(held)
        self._kill_all(after, body)
        last = {loop.counter: loop.trips - 1}
        for location, value in loop.finals:
            cell = end.get(value)
            if isinstance(value, Carried) and value.loop == name:  # left at the top: the value at header number trips
                cell = next((h.cell.substitute({loop.counter: Linear.symbol(loop.counter) + 1}) for h in homes
                             if h.carried.location == value.location), None)
            if cell is not None:
                after[Final(name, location, value.width)] = cell.substitute(last)
        return before, StatementLoop(loop.counter, loop.trips, tuple(items)), after

    # -- homes --------------------------------------------------------------------------------------------------

    def _home(self, loop: LoopNode, carried: CarriedValue, rest: tuple[Item, ...], held: Held,
              owned: frozenset[Linear]) -> _Home:
        following = self._flow(loop.items).get(carried.following)
        if following is not None:
            cell = following.substitute({loop.counter: Linear.symbol(loop.counter) - 1})
            if held.get(carried.entry) == cell.substitute({loop.counter: Linear()}):
                return _Home(carried, cell, store=False, initialise=False)
        where = held.get(carried.entry)
        final = Final(loop.counter.removeprefix(LOOP_COUNTER), carried.location, carried.entry.width)
        cell_after = where if where in owned else self._stored_after(final, rest, 0)
        if cell_after is None:
            raise Rejected(Reason.CARRIED_VALUE, f"{carried.location} in the loop at {loop.address:#x}")
        if any(self._touches(i, cell_after, carried.entry.width) for i in loop.items):
            raise Rejected(Reason.CARRIED_VALUE,
                           f"{carried.location} and its cell are both used in the loop at {loop.address:#x}")
        return _Home(carried, cell_after, store=True, initialise=where != cell_after)

    def _stored_after(self, final: Value, rest: tuple[Item, ...], seen: int) -> Linear | None:
        """The cell that ``final`` ends in, through later loops that go on accumulating; nothing in between may
        touch that cell."""
        for number, item in enumerate(rest):
            cell: Linear | None = None
            match item:
                case StoreEvent(pointer, value, _, _) if _contains(value, final):
                    cell = pointer
                case LoopNode():
                    for carried in item.carried:
                        if carried.entry == final:
                            name = item.counter.removeprefix(LOOP_COUNTER)
                            after = Final(name, carried.location, carried.entry.width)
                            cell = self._stored_after(after, rest[number + 1:], seen + 1)
            if cell is not None:
                if any(self._touches(i, cell, final.width) for i in rest[:number]):
                    return None
                return cell
        return None

    def _flow(self, items: tuple[Item, ...]) -> Held:
        """What is held at the end of ``items``, starting from nothing."""
        held: Held = {}
        for item in items:
            match item:
                case LoadEvent(identity, pointer, width, _):
                    held[Loaded(identity, width)] = pointer
                case StoreEvent(pointer, value, width, _):
                    self._kill(held, pointer, width)
                    held[value] = pointer
                case LoopNode():
                    self._kill_all(held, item.items)
                    name, end = item.counter.removeprefix(LOOP_COUNTER), self._flow(item.items)
                    for location, value in item.finals:
                        if value in end and item.trips is not None:
                            cell = end[value].substitute({item.counter: item.trips - 1})
                            held[Final(name, location, value.width)] = cell
        return held

    # -- expressions --------------------------------------------------------------------------------------------

    def _build(self, value: Value, width: int, held: Held, reads: list[Linear]) -> Expression:
        cell = self._cell_of(value, held)
        if cell is not None:
            if cell not in reads:
                reads.append(cell)
            return Read(reads.index(cell))
        match value:
            case Integer(linear, bits) if linear.is_constant:
                return Constant(linear.constant % (1 << bits))
            case LiveVector(location, _) if location.endswith(".0"):
                return Scalar(location.removesuffix(".0"))
            case Node("trunc", (LiveVector(location, _),), _) if location.endswith(".0"):
                return Scalar(location.removesuffix(".0"))
            case Node(operator, operands, bits) if operator in _OPERATORS and bits == width:
                return Apply(_OPERATORS[operator], tuple(self._build(o, width, held, reads) for o in operands))
            case Node(operator, _, _):
                raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"a stored value is made by {operator}")
        raise Rejected(Reason.CARRIED_VALUE, "a stored value is in no memory cell")

    def _cell_of(self, value: Value, held: Held) -> Linear | None:
        if value in held:
            return held[value]
        match value:
            case Node("trunc", (inner,), 32) if inner in held:
                return held[inner]
            case Node("high", (inner,), 32) if inner in held:
                return held[inner] + 4
            case Integer(Linear(((symbol, 1),), 0), _) if symbol in self.cells:
                return self.cells[symbol]
        return None

    # -- aliasing -----------------------------------------------------------------------------------------------

    def _kill(self, held: Held, pointer: Linear, width: int) -> None:
        for value in [v for v, cell in held.items() if self.aliasing.overlap(cell, v.width, pointer, width)]:
            del held[value]

    def _kill_all(self, held: Held, items: tuple[Item, ...]) -> None:
        for item in items:
            match item:
                case StoreEvent(pointer, _, width, _):
                    self._kill(held, pointer, width)
                case LoopNode():
                    self._kill_all(held, item.items)

    def _touches(self, item: Item, cell: Linear, width: int) -> bool:
        match item:
            case LoadEvent(_, pointer, bits, _) | StoreEvent(pointer, _, bits, _):
                return self.aliasing.overlap(cell, width, pointer, bits)
        return any(self._touches(i, cell, width) for i in item.items)


def _split(store: StoreEvent) -> list[StoreEvent]:
    """A store of two packed 32-bit values as two stores."""
    match store.value:
        case Node("concat", (high, low), 64):
            return [StoreEvent(store.pointer, low, 32, store.address),
                    StoreEvent(store.pointer + 4, high, 32, store.address)]
    return [store]


def _contains(value: Value, part: Value) -> bool:
    return value == part or (isinstance(value, Node) and any(_contains(o, part) for o in value.operands))


def _stored_values(node: LoopNode) -> frozenset[Value]:
    loops: dict[str, LoopNode] = {}
    pending: list[Value] = []

    def collect(loop: LoopNode) -> None:
        loops[loop.counter.removeprefix(LOOP_COUNTER)] = loop
        for item in loop.items:
            if isinstance(item, StoreEvent):
                pending.append(item.value)
            elif isinstance(item, LoopNode):
                collect(item)

    collect(node)
    found: set[Value] = set()
    while pending:
        value = pending.pop()
        if value in found:
            continue
        found.add(value)
        match value:
            case Node(_, operands, _):
                pending += operands
            case Carried(loop, location, _) if loop in loops:
                pending += [v for c in loops[loop].carried if c.location == location for v in (c.entry, c.following)]
            case Final(loop, location, _) if loop in loops:
                pending += [v for place, v in loops[loop].finals if place == location]
    return frozenset(found)
