"""Memory model of symbolic execution: a stack slot is a location like a register, any other access is an event.

Example: ``mov [rsp + 8], rcx`` writes the location ``slot:8:64`` of the state, as if it were a register.
``mov rax, [rdi + 8*rcx]`` appends a LoadEvent with the address ``rdi + 8*rcx``, and rax is ``Loaded``.

Loads with a known result make no event. A cell at a fixed address that an earlier attempt made a live-in symbol
(``Assumptions.cells``) is read as that symbol. A slot that is read before it is written becomes such a cell. A row
pointer that is loaded from a table in arithmetic progression is an affine number (``row_tables``).

Two slots may overlap if one is half of the other; a store then changes both. memopt.lifting.scop.region_builder makes
sure that no array overlaps a slot or a live-in cell.
"""

from __future__ import annotations

from itertools import count

from memopt.ir.identity import by_identity
from memopt.ir.linear import Linear
from memopt.ir.operations import CLOBBERED, Block, Compute, Get, Literal, Put, Store, Temp
from memopt.ir.reasons import Reason, Rejected
from memopt.lifting.execution.assumptions import SLOT, TO_THE_END, Assumptions, State, bits_of, slot_name, slot_range
from memopt.lifting.execution.row_tables import WORD, words
from memopt.lifting.values.algebra import Algebra, PromoteCell, fixable
from memopt.lifting.values.loop_tree import Item, LoadEvent, RowLoad, StoreEvent
from memopt.lifting.values.numbers import LOOP_COUNTER, uneven_part
from memopt.lifting.values.requests import AssumeRowTable, SplitPaths
from memopt.lifting.values.values import Carried, Integer, Loaded, Node, Truth, Value, centred, data, within


class MemoryModel:
    """Reads and writes of locations and memory in one attempt, under ``assumptions``.

    ``loads``: all load events so far, by identity. ``slots``: stack slots written so far.
    """

    def __init__(self, assumptions: Assumptions, algebra: Algebra, loads: list[LoadEvent]) -> None:
        self.assumptions, self.algebra, self.loads = assumptions, algebra, loads
        widest = sorted(assumptions.cells.items(), key=lambda c: c[1][1])
        self.cells = {address: symbol for symbol, (address, _) in widest}
        self.slots: set[str] = set()
        self.forgotten = count()
        # Pointers to rows that are the same throughout. (A guard may not read through them before it has looked at the
        # table.)
        self.rows: set[Linear] = set()

    def get(self, state: State, location: str) -> Value:
        """The value of a register. Raises Rejected(UNSUPPORTED_INSTRUCTION) for one that is not modelled."""
        if location not in state:
            raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"{location} is read at {self.algebra.address:#x}")
        return state[location]

    def pointer(self, value: Value) -> Linear:
        """``value`` as an affine address.

        Otherwise raises AssumeRowTable if it is loaded from memory, SplitPaths if it is a select by counters, else
        Rejected(DATA_DEPENDENT_ADDRESS).
        """
        linear = self.algebra.linear(value)
        if linear is None:
            for word in words(value):
                event = self.loads[word.event]
                raise AssumeRowTable(event.address, self.algebra.at_sample(event.pointer))
            self._split(value)
            raise Rejected(Reason.DATA_DEPENDENT_ADDRESS, f"at {self.algebra.address:#x}")
        return self.algebra.settled(linear)

    def _split(self, value: Value) -> None:
        """Request separate paths for a select in ``value`` whose condition depends on counters alone.

        Raises SplitPaths for the conditional move, or for the branch that merged two values: its paths are then kept
        separate up to the end of the iteration, and ``value`` is affine on each.
        """
        for part in within(value):
            fork, move = self.algebra.joined.get(part), self.algebra.selections.get(part)
            if fork is not None and self.assumptions.split.get(fork, 0) < TO_THE_END:
                raise SplitPaths(fork, TO_THE_END)
            if move is not None and move not in self.assumptions.split and isinstance(part, Node) and (
                    isinstance(part.operands[0], Truth) and not list(data(part.operands[0].formula))):
                raise SplitPaths(move)

    def _slot(self, pointer: Linear, width: int) -> str | None:
        """The stack slot at ``pointer``; None if that is not rsp plus a constant."""
        top = self.assumptions.symbol("rsp")
        return slot_name(pointer.constant - top.constant, width) if pointer.terms == top.terms else None

    def load(self, state: State, items: list[Item], pointer: Linear, width: int) -> Value:
        """Load ``width`` bits: a slot, a live-in cell or a word of a row table, else an event that ``items`` gets."""
        slot = self._slot(pointer, width)
        if slot is not None:
            return self.load_slot(state, slot)
        symbol = self.cells.get(pointer)
        if symbol is not None and self.assumptions.cells[symbol][1] >= width:
            return self._cell(symbol, width)
        row = self._row(items, pointer, width)
        if row is not None:
            return Integer(row, width)
        event = LoadEvent(len(self.loads), pointer, width, self.algebra.address)
        self.loads.append(event)
        items.append(event)
        return Loaded(event.identity, width)

    def _row(self, items: list[Item], pointer: Linear, width: int) -> Linear | None:
        """The row pointer at ``pointer`` as an affine number, if this instruction loads from a row table; else None."""
        tables = self.assumptions.tables.get(self.algebra.address, ()) if width == 8 * WORD else ()
        here = self.algebra.at_sample(pointer)
        table = next((t for t in tables if here in t), tables[0] if tables and not self.algebra.reached else None)
        uneven = uneven_part(pointer, WORD)
        if table is None or any(s.startswith(LOOP_COUNTER) for s in uneven.symbols):
            return None
        for distance in (pointer - table.low, -pointer + (table.high - WORD)):
            self.algebra.require(distance, "a row pointer is loaded from inside its table",
                                 reason=Reason.DATA_DEPENDENT_ADDRESS)
        row = table.row(pointer)
        items.append(RowLoad(pointer, table.low, table.first, table.step, self.algebra.address))
        if fixable(row):
            self.rows.add(row)
        return row

    def load_slot(self, state: State, slot: str) -> Value:
        """The value of a stack slot; a slot that is not in ``state`` yet becomes a live-in value and is added to it."""
        value = state.get(slot)
        if value is not None:
            return value
        low, size = slot_range(slot)
        for other in _overlapping(state, low, size):
            part = self._part(state[other], slot_range(other), low, size)
            if part is not None:
                return part
            if other in self.slots:
                raise Rejected(Reason.CARRIED_VALUE,
                               f"a stack slot is read at {self.algebra.address:#x} in another width than written")
        known = self.cells.get(self.assumptions.symbol("rsp") + low)
        if known is not None and self.assumptions.cells[known][1] > size * 8:
            whole = slot_name(low, self.assumptions.cells[known][1])
            return self.algebra.compute("trunc", (self.load_slot(state, whole),), size * 8)
        state[slot] = self.live_slot(slot)
        return state[slot]

    def _part(self, whole: Value, extent: tuple[int, int], low: int, size: int) -> Value | None:
        """``size`` bytes at ``low`` of a slot with the ``extent`` (start, bytes) that holds ``whole``.

        None unless they are its low end or its upper half.
        """
        start, length = extent
        if start == low and length > size:
            return self.algebra.compute("trunc", (whole,), size * 8)
        if start + size == low and length == 2 * size:
            return self.algebra.compute("high", (whole,), size * 8)
        return None

    def _overlaid(self, whole: Value, extent: tuple[int, int], value: Value, low: int, size: int) -> Value | None:
        """The value of a slot after ``value`` is stored to ``size`` bytes at ``low``; None unless that is half of it.
        """
        start, length = extent
        if length != 2 * size or low not in (start, start + size):
            return None
        other = self.algebra.compute("trunc" if low > start else "high", (whole,), size * 8)
        return self.algebra.compute("concat", (value, other) if low > start else (other, value), length * 8)

    def forget(self, state: State, in_rax: bool) -> None:
        """Forget what a call clobbers: caller-saved registers, dead stack slots, and rax unless the result is in it.

        Each gets a new name, because two unknown values are not known to be equal.
        """
        number = next(self.forgotten)
        below = self.pointer(state["rsp"]) - self.assumptions.symbol("rsp")
        if not below.is_constant:
            raise Rejected(Reason.CALL, f"the stack pointer is not known at {self.algebra.address:#x}")
        dead = [p for p in state if p.startswith(SLOT) and slot_range(p)[0] < below.constant]
        for location in (*CLOBBERED, *dead, *(() if in_rax else ("rax",))):
            state[location] = Carried("entry", f"{location}#{number}", bits_of(location))

    def live_slot(self, slot: str) -> Value:
        """The value of a slot at entry to the region: a live-in symbol. Raises PromoteCell if a wider one is needed.

        Below rsp, that is an unknown value if the loop makes calls, which overwrite it.
        """
        low, size = slot_range(slot)
        if low < 0 and self.assumptions.calls:
            return Carried("entry", slot, size * 8)
        address = self.assumptions.symbol("rsp") + low
        symbol = self.cells.get(address) or self._promoted(address, size * 8)
        if self.assumptions.cells[symbol][1] < size * 8:
            raise PromoteCell(address, size * 8)
        return self._cell(symbol, size * 8)

    def _promoted(self, address: Linear, width: int) -> str:
        """Adds a live-in cell for a slot that this attempt has not met yet: its symbol."""
        symbol = self.assumptions.add_cell(address, width)
        self.cells[address] = symbol
        self.algebra.sample[symbol] = self.assumptions.peek(self.algebra.at_sample(address), width)
        return symbol

    def _cell(self, symbol: str, width: int) -> Value:
        whole = Integer(self.assumptions.symbol(symbol), self.assumptions.cells[symbol][1])
        return whole if whole.width == width else self.algebra.compute("trunc", (whole,), width)

    def store(self, state: State, items: list[Item], pointer: Linear, value: Value, width: int) -> None:
        """Store ``width`` bits: to a slot, with every slot that overlaps it, or as an event in ``items``."""
        slot = self._slot(pointer, width)
        if slot is None:
            if isinstance(value, Integer):
                value = Integer(self.algebra.settled(value.linear), width)
            items.append(StoreEvent(pointer, value, width, self.algebra.address))
            return
        low, size = slot_range(slot)
        for other in _overlapping(state, low, size):
            if other != slot:
                start, length = slot_range(other)
                changed = (self._part(value, (low, size), start, length) if length < size else
                           self._overlaid(state[other], (start, length), value, low, size))
                state[other] = changed or Node("overlaid", (state[other], value), length * 8)  # unknown bits
        self.slots.add(slot)
        state[slot] = value


def _overlapping(state: State, low: int, size: int) -> list[str]:
    """The slots in ``state`` that overlap ``size`` bytes at ``low``, the widest first."""
    found = []
    for place in state:
        if place.startswith(SLOT):
            start, length = slot_range(place)
            if start < low + size and low < start + length:
                found.append((-length, place))
    return [place for _, place in sorted(found)]


@by_identity
def stack_stores(block: Block, frame: str = "rsp") -> frozenset[str]:
    """The stack slots that ``block`` writes at a constant distance from rsp.

    Empty if the block changes rsp; if it ends with a call, the slot of the return address alone. ``frame``: another
    register to take in place of rsp, with slots named as if it were rsp.
    """
    offsets: dict[int, int] = {}
    found: set[str] = set()
    called = False
    for operation in block.operations:
        match operation:
            case Get(_, result, location, _) if location == frame:
                offsets[result] = 0
            case Compute(_, result, "add", (Temp(index), Literal(value, 64)), 64) if index in offsets:
                offsets[result] = offsets[index] + centred(value, 64)
            case Store(_, Temp(index), _, width) if index in offsets:
                found.add(slot_name(offsets[index], width))
            case Put(_, "rsp", Temp(index)) if offsets.get(index) == -8:
                called = True
            case Put(_, location, _) if location == frame:
                return frozenset()
    return frozenset({slot_name(-8, 64)} & found if called else found)
