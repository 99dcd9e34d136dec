"""Frame slots: places of a function's stack frame that its code accesses at fixed offsets, as ``[rsp + 0x18]``.

Example: after ``push rbp; sub rsp, 32`` the operand ``[rsp + 8]`` is the slot 32 bytes below the stack pointer at entry
and has 8 bytes. A spilled counter lives in such a slot.

In: the operations of each block. Out: the stack offsets of registers at the start of each block, and the slots. Where
two paths give a register different offsets, it has none. A slot that overlaps another one is none, nor is one that
``push`` and ``pop`` access: arguments are passed that way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from memopt.ir.frozen import dataclass
from memopt.ir.graph import FlowGraph, Kind
from memopt.ir.operations import Block, Compute, Get, Literal, Load, Operand, Operation, Put, Store, Temp

Place = tuple[int, int]  # what the offset counts from, and the offset in bytes
Places = Mapping[str, Place]  # by register
ENTRY = 0  # the stack pointer at entry; else the address of the instruction that aligns the stack pointer


@dataclass(frozen=True, slots=True)
class Slot:
    """A frame slot of ``width`` bits."""

    place: Place
    width: int

    def __str__(self) -> str:
        return f"frame {self.place[0]:x} {self.place[1]:+d}:{self.width}"


class Tracking:
    """Follows the stack offsets of registers through the operations of a block. ``places`` changes as they are read."""

    def __init__(self, places: Places) -> None:
        self.places = dict(places)
        self._temporaries: dict[int, Place] = {}

    def read(self, block: Block) -> Iterator[tuple[Operation, Place | None]]:
        """The operations of ``block``; loads and stores with the place of their pointer, None where it has none."""
        self._temporaries = {}
        for operation in block.operations:
            match operation:
                case Get(result=result, location=location) if location in self.places:
                    self._temporaries[result] = self.places[location]
                case Put(location=location, value=value):
                    self.places.pop(location, None)
                    place = self._place(value)
                    if place is not None:
                        self.places[location] = place
                case Compute(result=result):
                    place = self._moved(operation)
                    if place is not None:
                        self._temporaries[result] = place
                case _:
                    pass
            yield operation, self._place(operation.pointer) if isinstance(operation, Load | Store) else None

    def _place(self, operand: Operand) -> Place | None:
        return self._temporaries.get(operand.index) if isinstance(operand, Temp) else None

    def _moved(self, operation: Compute) -> Place | None:
        """The place that an addition to a place, or an alignment of it, leads to."""
        if operation.width != 64 or len(operation.operands) != 2:
            return None
        place, other = self._place(operation.operands[0]), operation.operands[1]
        if place is None or not isinstance(other, Literal):
            return None
        amount = other.value - (1 << 64) if other.value >> 63 else other.value
        if operation.operator in ("add", "sub"):
            return place[0], place[1] + (amount if operation.operator == "add" else -amount)
        return (operation.address, 0) if operation.operator == "and" and amount < 0 else None


def places_at(graph: FlowGraph, pieces: Mapping[int, Sequence[Block | None]],
              changed_by: Callable[[int], frozenset[str]]) -> dict[int, Places]:
    """The stack offsets of registers at the start of each block. ``changed_by``: the registers that the call at an
    address changes."""
    found: dict[int, Places] = {graph.entry: {"rsp": (ENTRY, 0)}}
    pending = [graph.entry]
    while pending:
        start = pending.pop()
        tracking = Tracking(found[start])
        for piece in pieces[start]:
            for _ in tracking.read(piece) if piece is not None else ():
                pass
        after = returned(tracking.places, graph, start, changed_by)
        for successor in graph.successors(start):
            old = found.get(successor)
            new = after if old is None else {name: place for name, place in old.items() if after.get(name) == place}
            if new != old:
                found[successor] = new
                pending.append(successor)
    return found


def returned(places: Places, graph: FlowGraph, start: int, changed_by: Callable[[int], frozenset[str]]) -> Places:
    """``places`` behind the block at ``start``: a call changes registers, and pops its return address."""
    block = graph.blocks[start]
    if block.kind is not Kind.CALL:
        return places
    changed = changed_by(block.instructions[-1].address)
    return {name: (place[0], place[1] + 8 * (name == "rsp")) for name, place in places.items() if name not in changed}


def slots(accesses: Sequence[tuple[int, Slot]], others: frozenset[int]) -> frozenset[Slot]:
    """The slots among ``accesses`` (address of the instruction, what would be the slot). ``others``: addresses of
    instructions whose accesses must be no slots."""
    wanted = {slot for _, slot in accesses}
    refused = {slot for address, slot in accesses if address in others}
    ordered = sorted(wanted, key=lambda slot: slot.place)
    for number, slot in enumerate(ordered):
        base, first = slot.place
        for other in ordered[number + 1:]:
            if other.place[0] != base or other.place[1] >= first + slot.width // 8:
                break
            refused |= {slot, other}
    return frozenset(wanted - refused)
