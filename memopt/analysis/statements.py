"""Undo the compiler's register tricks: turn loads, registers and stores into statements on memory cells.

A register that carries a value from iteration to iteration is replaced by the memory cell that holds the same value
(its home): either a cell the loop itself stores it to, or the cell it is stored to after the loop. Each statement
then reads cells and writes one cell, which is what dependence analysis needs to see.

Invariant: ``held`` maps a value to an address whose cell contains exactly that value at this point of the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from memopt.analysis.algebra import LOOP_COUNTER
from memopt.analysis.aliasing import Aliasing
from memopt.analysis.nest import Item, LoadEvent, LoopNode, StoreEvent
from memopt.analysis.values import Carried, Final, Integer, LiveVector, Loaded, Node, Value
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Apply, Constant, ElementType, Expression, Index, Read, Scalar, render_operands

INDEX = "x:"  # prefix of the symbols that stand for CellStatement.indices
_OPERATORS = {"fadd": "add", "fsub": "sub", "fmul": "mul", "fdiv": "div", "fsqrt": "sqrt", "fmin": "min",
              "fmax": "max", "fneg": "neg", "fabs": "abs"}

_FLOATS = {64: ElementType.F64, 32: ElementType.F32}


@dataclass(frozen=True, slots=True)
class CellStatement:
    """``[write] = expression`` over ``reads``, where every one of ``conditions`` is >= 0; addresses in bytes.

    The expression's ``Index`` operands are places in ``indices`` ("x:0", "x:1", ...), so that equal expressions are
    equal objects whatever iteration they stand for: everything that varies is in ``linears``.
    """

    write: Linear
    reads: tuple[Linear, ...]
    expression: Expression
    element: ElementType  # of the written cell
    address: int
    read_elements: tuple[ElementType, ...] = ()  # none: all like the written cell
    indices: tuple[Linear, ...] = ()
    conditions: tuple[Linear, ...] = ()

    @property
    def width(self) -> int:
        """Bits of the written cell."""
        return 8 * self.element.size

    @property
    def accesses(self) -> tuple[Linear, ...]:
        return (self.write, *self.reads)

    @property
    def elements(self) -> tuple[ElementType, ...]:
        """The element type of each access."""
        return (self.element, *(self.read_elements or (self.element,) * len(self.reads)))

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Everything that changes from iteration to iteration."""
        return (*self.accesses, *self.indices, *self.conditions)

    def moved(self, linears: tuple[Linear, ...]) -> CellStatement:
        """The statement with other ``linears``."""
        first, second = 1 + len(self.reads), 1 + len(self.reads) + len(self.indices)
        return replace(self, write=linears[0], reads=linears[1:first], indices=linears[first:second],
                       conditions=linears[second:])

    def __str__(self) -> str:
        names = tuple(f"[{r}]" for r in self.reads)
        values = {f"{INDEX}{n}": i for n, i in enumerate(self.indices)}
        where = "".join(f" if {c} >= 0" for c in self.conditions)
        expression = resolved(self.expression, values)
        return f"[{self.write}]:{self.width} = {render_operands(expression, names)}{where}"


def resolved(expression: Expression, indices: Mapping[str, Linear]) -> Expression:
    """``expression`` with the places of its Index operands filled in."""
    match expression:
        case Index(value, element):
            return Index(value.substitute(indices), element)
        case Apply(_, operands, _):
            return replace(expression, operands=tuple(resolved(o, indices) for o in operands))
    return expression


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


def recover(node: LoopNode, aliasing: Aliasing, cells: Mapping[str, tuple[Linear, int]]) -> StatementLoop:
    """The statements of a lifted nest. ``cells`` gives address and bits of each live-in memory cell by its symbol.

    Raises Rejected(CARRIED_VALUE) when a register has no home.
    """
    node = _Halver(_loops(node)).halved(node)
    recovery = _Recovery(aliasing, cells, _stored_values(node))
    (loop,), _ = recovery.items((node,), {}, frozenset())
    assert isinstance(loop, StatementLoop)
    if not recovery.unchanged <= _accesses(loop):  # nothing else would keep other arrays away from such a cell
        raise Rejected(Reason.OVERLAP, "a value is stored back to the cell it came from")
    return loop


@dataclass(frozen=True, slots=True)
class _Part:
    """A carried value as it is used: ``value`` at the header, the whole of a lane or one 32-bit half of it."""

    location: str
    value: Value
    entry: Value
    following: Value
    finals: tuple[Value, ...]  # what is known to equal ``following`` of the last iteration, after the loop


@dataclass(frozen=True, slots=True)
class _Home:
    """Where a carried value lives: ``cell`` at the header of each iteration."""

    part: _Part
    cell: Linear
    store: bool  # the loop does not store it itself: add a store at the end of the body
    initialise: bool  # nor is the entry value there: add a store before the loop


@dataclass(frozen=True, slots=True)
class _Recovery:
    aliasing: Aliasing
    cells: Mapping[str, tuple[Linear, int]]
    needed: frozenset[Value]  # everything a stored value is made of, through registers and loops
    unchanged: set[tuple[Linear, int]] = field(default_factory=set)  # cells (and bits) stored to without an effect

    # -- straight-line code and loops ---------------------------------------------------------------------------

    def items(self, items: tuple[Item, ...], held: Held, owned: frozenset[Linear]) -> tuple[list[StatementItem], Held]:
        held = dict(held)
        result: list[StatementItem] = []
        for number, item in enumerate(items):
            match item:
                case LoadEvent():
                    _hold(item, held)
                case StoreEvent():
                    result += self._store(item, held)
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
            self.unchanged.add((store.pointer, store.width))
            return []  # the cell holds this value already
        reads: list[Linear] = []
        if store.width not in _FLOATS:
            raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"a store of {store.width} bits at {store.address:#x}")
        expression = self._build(store.value, store.width, held, reads)
        result.append(CellStatement(store.pointer, tuple(reads), expression, _FLOATS[store.width], store.address))
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
        homes = [self._home(loop, p, rest, held, owned) for p in self._parts(loop)]
        before: list[StatementItem] = []
        for home in homes:
            if home.initialise:
                before += self._store(StoreEvent(home.cell, home.part.entry, home.part.entry.width, 0), held)
        for home in homes:  # a store for one may have overwritten another's
            if self._cell_of(home.part.entry, held) != home.cell.substitute({loop.counter: Linear()}):
                raise Rejected(Reason.CARRIED_VALUE, f"{home.part.location} in the loop at {loop.address:#x}")
        added = tuple(StoreEvent(h.cell, h.part.following, h.part.following.width, 0) for h in homes if h.store)
        body = loop.items + added
        inside = dict(held)
        self._kill_all(inside, body)
        inside |= {h.part.value: h.cell for h in homes}
        items, end = self.items(body, inside, owned | {h.cell for h in homes if h.store})
        onwards = {loop.counter: Linear.symbol(loop.counter) + 1}
        for home in homes:
            if self._cell_of(home.part.following, end) != home.cell.substitute(onwards):
                raise Rejected(Reason.CARRIED_VALUE, f"{home.part.location} in the loop at {loop.address:#x}")
        after = dict(held)
        self._kill_all(after, body)
        last = {loop.counter: loop.trips - 1}
        for location, value in loop.finals:
            final = Final(name, location, value.width)
            for part in (_same, low_half, high_half):
                cell = self._cell_of(part(value), end)
                if cell is not None:
                    after[part(final)] = cell.substitute(last)
        return before, StatementLoop(loop.counter, loop.trips, tuple(items)), after

    def _parts(self, loop: LoopNode) -> list[_Part]:
        """The carried values that matter, in the widths they are used in."""
        name = loop.counter.removeprefix(LOOP_COUNTER)
        result = []
        for carried in loop.carried:
            whole = Carried(name, carried.location, carried.entry.width)
            for part in (_same, low_half, high_half):
                if part is not _same and whole.width != 64:
                    continue
                following = part(carried.following)
                if part(whole) in self.needed:
                    finals = tuple(part(Final(name, p, v.width)) for p, v in loop.finals
                                   if v.width == whole.width and part(v) == following)
                    result.append(_Part(carried.location, part(whole), part(carried.entry), following, finals))
        return result

    # -- homes --------------------------------------------------------------------------------------------------

    def _home(self, loop: LoopNode, part: _Part, rest: tuple[Item, ...], held: Held,
              owned: frozenset[Linear]) -> _Home:
        following = self._cell_of(part.following, self._flow(loop.items))
        if following is not None:
            cell = following.substitute({loop.counter: Linear.symbol(loop.counter) - 1})
            if self._cell_of(part.entry, held) == cell.substitute({loop.counter: Linear()}):
                return _Home(part, cell, store=False, initialise=False)
        where = self._cell_of(part.entry, held)
        after = where if where in owned else self._stored_after(part.finals, rest)
        if after is None:
            raise Rejected(Reason.CARRIED_VALUE, f"{part.location} in the loop at {loop.address:#x}")
        if any(self._touches(i, after, part.entry.width) for i in loop.items):
            raise Rejected(Reason.CARRIED_VALUE,
                           f"{part.location} and its cell are both used in the loop at {loop.address:#x}")
        return _Home(part, after, store=True, initialise=where != after)

    def _stored_after(self, finals: tuple[Value, ...], rest: tuple[Item, ...]) -> Linear | None:
        """The cell that one of ``finals`` ends in, through later loops that go on accumulating; nothing in between
        may touch that cell."""
        for number, item in enumerate(rest):
            cell: Linear | None = None
            match item:
                case StoreEvent(pointer, value, _, _) if any(_contains(value, f) for f in finals):
                    cell = pointer
                case LoopNode():
                    for part in self._parts(item):
                        if part.entry in finals:
                            cell = self._stored_after(part.finals, rest[number + 1:])
            if cell is not None:
                between = rest[:number + isinstance(item, LoopNode)]
                return None if any(self._touches(i, cell, finals[0].width) for i in between) else cell
        return None

    def _flow(self, items: tuple[Item, ...]) -> Held:
        """What is held at the end of ``items``, starting from nothing."""
        held: Held = {}
        for item in items:
            match item:
                case LoadEvent():
                    _hold(item, held)
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
                return Constant(linear.constant % (1 << bits), _FLOATS[width])
            case LiveVector(location, 64) if width == 64:
                return _scalar(location, 0, width)
            case Node("trunc" | "high" as name, (LiveVector(location, 64),), 32):
                return _scalar(location, 4 if name == "high" else 0, width)
            case Node(operator, operands, bits) if operator in _OPERATORS and bits == width:
                parts = tuple(self._build(o, width, held, reads) for o in operands)
                return Apply(_OPERATORS[operator], parts, _FLOATS[width])
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
            case Integer(Linear(((symbol, 1),), 0), width) if symbol in self.cells and width <= self.cells[symbol][1]:
                return self.cells[symbol][0]
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


def _hold(load: LoadEvent, held: Held) -> None:
    """The loaded cell, and its halves as cells of their own: a store may overwrite one of them alone."""
    value = Loaded(load.identity, load.width)
    held[value] = load.pointer
    if load.width == 64:
        held[low_half(value)] = load.pointer
        held[high_half(value)] = load.pointer + 4


def _loops(node: LoopNode) -> dict[str, LoopNode]:
    found = {node.counter.removeprefix(LOOP_COUNTER): node}
    for item in node.items:
        if isinstance(item, LoopNode):
            found |= _loops(item)
    return found


@dataclass(frozen=True, slots=True)
class _Halver:
    """Stores of two packed 32-bit values as two stores."""

    loops: dict[str, LoopNode]

    def halved(self, node: LoopNode) -> LoopNode:
        items: list[Item] = []
        for item in node.items:
            if isinstance(item, LoopNode):
                items.append(self.halved(item))
            elif isinstance(item, StoreEvent) and item.width == 64 and self._packed(item.value, frozenset()):
                items.append(StoreEvent(item.pointer, low_half(item.value), 32, item.address))
                items.append(StoreEvent(item.pointer + 4, high_half(item.value), 32, item.address))
            else:
                items.append(item)
        return replace(node, items=tuple(items))

    def _packed(self, value: Value, seen: frozenset[Value]) -> bool:
        if value in seen:
            return False
        seen |= {value}
        match value:
            case Node("concat", _, 64):
                return True
            case Final(loop, location, 64) if loop in self.loops:
                return any(self._packed(v, seen) for place, v in self.loops[loop].finals if place == location)
            case Carried(loop, location, 64) if loop in self.loops:
                return any(self._packed(c.following, seen) for c in self.loops[loop].carried if c.location == location)
        return False


def _scalar(location: str, offset: int, width: int) -> Scalar:
    """The element at byte ``offset`` of a 64-bit lane ("xmm3.1")."""
    register, lane = location.split(".")
    return Scalar(register, _FLOATS[width], 8 * int(lane) + offset)


def _same(value: Value) -> Value:
    return value


def low_half(value: Value) -> Value:
    """The low 32 bits of a 64-bit lane."""
    match value:
        case Node("concat", (_, low), 64):
            return low
        case Node("zext", (inner,), 64) if inner.width == 32:
            return inner
        case Integer(linear, 64):
            return Integer(linear, 32)
    return Node("trunc", (value,), 32)


def high_half(value: Value) -> Value:
    """The high 32 bits of a 64-bit lane."""
    match value:
        case Node("concat", (high, _), 64):
            return high
        case Node("zext", (inner,), 64) if inner.width == 32:
            return Integer(Linear(), 32)
        case Integer(Linear((), number), 64):
            return Integer(Linear.of(number >> 32), 32)
    return Node("high", (value,), 32)


def _accesses(item: StatementItem) -> set[tuple[Linear, int]]:
    if isinstance(item, CellStatement):
        return {(a, item.width) for a in item.accesses}
    return set().union(*map(_accesses, item.items))


def _contains(value: Value, part: Value) -> bool:
    return value == part or (isinstance(value, Node) and any(_contains(o, part) for o in value.operands))


def _stored_values(node: LoopNode) -> frozenset[Value]:
    loops = _loops(node)
    pending = [item.value for loop in loops.values() for item in loop.items if isinstance(item, StoreEvent)]
    found: set[Value] = set()
    while pending:
        value = pending.pop()
        if value in found:
            continue
        found.add(value)
        match value:
            case Node("trunc" | "high" as name, (Carried(loop, location, _),), 32) if loop in loops:
                half = low_half if name == "trunc" else high_half
                parts = [v for c in loops[loop].carried if c.location == location for v in (c.entry, c.following)]
                pending += map(half, parts)
            case Node("trunc" | "high" as name, (Final(loop, location, _),), 32) if loop in loops:
                half = low_half if name == "trunc" else high_half
                pending += [half(v) for place, v in loops[loop].finals if place == location]
            case Node(_, operands, _):
                pending += operands
            case Carried(loop, location, _) if loop in loops:
                pending += [v for c in loops[loop].carried if c.location == location for v in (c.entry, c.following)]
            case Final(loop, location, _) if loop in loops:
                pending += [v for place, v in loops[loop].finals if place == location]
    return frozenset(found)
