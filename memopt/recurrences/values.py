"""The values of a function in static single assignment form, over registers, lanes and frame slots.

Example: ``h: add rax, 8; cmp rax, rdx; jne h`` has the value ``phi(entry rax, add(phi, 8))`` at h.

In: the flow graph. Out: for each block and location the value that it has there, and the effects: stores, jumps,
calls, returns. A value that several edges bring is a phi; one whose inputs are all the same is that input (Braun et
al., Simple and Efficient Construction of Static Single Assignment Form, 2013). A location that a call may have changed
has no value behind it, which no code reads: such inputs of a phi do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cached_property

from memopt.cfg.dominators import immediate_dominators
from memopt.ir.frozen import dataclass
from memopt.ir.graph import BasicBlock, FlowGraph, Kind
from memopt.ir.operations import Block, Compute, Exit, Get, Jump, Literal, Load, Operand, Put, Store, Temp
from memopt.ir.reasons import Rejected
from memopt.recurrences.callees import ARGUMENTS, RESULTS, Callee
from memopt.recurrences.frame import Place, Slot, Tracking, places_at, slots
from memopt.x86.semantics import lift_block

PHI, ENTRY, LOAD, CALL, UNKNOWN, LITERAL = "phi", "entry", "load", "call", "unknown", "literal"


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A value, or an effect (``store``, ``exit``, ``call``, ...). ``operator``: as in ``memopt.ir.operations``, or one
    of the constants above."""

    operator: str
    block: int
    address: int  # of the instruction; of a phi that of its block
    operands: tuple[Value, ...] = ()
    width: int = 64
    number: int = 0  # of a literal; where an exit leads to if its condition holds
    location: str = ""  # of a phi

    def __str__(self) -> str:
        return f"{self.operator}@{self.address:x}"


def lifted(block: BasicBlock) -> tuple[Block | None, ...]:
    """The operations of a block: as one piece, or else by instruction, with None for those that are not understood."""
    with suppress(Rejected):
        return (lift_block(block.code, block.start),)
    pieces: list[Block | None] = []
    for instruction in block.instructions:
        try:
            pieces.append(lift_block(instruction.bytes, instruction.address))
        except Rejected:
            pieces.append(None)
    return tuple(pieces)


class Values:
    """The values of the function with the flow graph ``graph``.

    ``pieces``: the operations of each block (``lifted``). ``callee``: what is known of the function that the call at
    an address calls. ``shared``: instructions whose frame accesses other functions see.
    """

    def __init__(self, graph: FlowGraph, pieces: Mapping[int, tuple[Block | None, ...]],
                 callee: Callable[[int], Callee], shared: frozenset[int]) -> None:
        self.graph = graph
        self.effects: list[Value] = []
        self.slots: dict[int, set[str]] = {}  # by instruction: the slots that it accesses, as names of locations
        self.loads: dict[int, list[Value]] = {}  # by instruction: its loads from other memory
        self.not_understood: set[int] = set()  # blocks with such instructions
        self._callee, self._pieces = callee, pieces
        self._places = places_at(graph, pieces, lambda call: callee(call).writes)
        self._slots = slots(tuple(self._accesses()), shared)
        self._ends: dict[int, dict[str, Value | None]] = {}
        self._unknown: dict[int, Value] = {}  # by block: what every other location is behind it
        self._phis: dict[tuple[int, str], Value] = {}
        self.inputs: dict[Value, tuple[tuple[int, Value], ...]] = {}  # of a phi: the value by each predecessor
        self._same: dict[Value, Value] = {}
        self._literals: dict[tuple[int, int], Value] = {}
        self._frame: dict[Place, Value] = {}  # addresses in the frame
        self._pending: list[Value] = []
        for start in graph.blocks:
            self._translate(start)
        while self._pending:
            self._fill(self._pending.pop())
        self._merge()

    def find(self, value: Value) -> Value:
        """The value that ``value`` is the same as: a phi with one input is that input."""
        while value in self._same:
            value = self._same[value]
        return value

    def at(self, block: int, location: str) -> Value | None:
        """The value of ``location`` at the start of ``block``; None where no code reads it."""
        found = self._phis.get((block, location))
        return None if found is None else self.find(found)

    def phis_at(self, block: int) -> tuple[Value, ...]:
        """The phis at the start of ``block``."""
        return tuple(phi for (start, _), phi in self._phis.items() if start == block and phi not in self._same)

    def operands(self, value: Value) -> tuple[Value, ...]:
        """The values that ``value`` is made of."""
        if value.operator == PHI:
            return tuple(self.find(one) for _, one in self.inputs[value])
        return tuple(self.find(one) for one in value.operands)

    @cached_property
    def dominators(self) -> dict[int, int]:
        """The immediate dominator of each block."""
        return immediate_dominators(self.graph)

    def tests(self, blocks: Collection[int]) -> list[Value]:
        """The effects that choose among the ways out of ``blocks``."""
        return [e for e in self.effects if e.block in blocks and e.operator in ("exit", "jump")]

    # -- blocks ----------------------------------------------------------------------------------------------------

    def _accesses(self) -> Iterator[tuple[int, Slot]]:
        for start, places in self._places.items():
            tracking = Tracking(places)
            stack = {i.address for i in self.graph.blocks[start].instructions if i.mnemonic in ("push", "pop", "call")}
            for piece in self._pieces[start]:
                for operation, place in tracking.read(piece) if piece is not None else ():
                    if place is not None and isinstance(operation, Load | Store) and operation.address not in stack:
                        yield operation.address, Slot(place, operation.width)

    def _translate(self, start: int) -> None:
        now: dict[str, Value | None] = {}
        tracking = Tracking(self._places.get(start, {}))
        for piece in self._pieces[start]:
            if piece is None:
                self.not_understood.add(start)
                now.clear()
                self._unknown[start] = Value(UNKNOWN, start, start)
            else:
                self._piece(start, piece, tracking, now)
        block = self.graph.blocks[start]
        if block.kind is Kind.CALL:
            self._call(block, now)
        elif block.kind is not Kind.TRAP and (not block.successors or any(
                s not in self.graph.blocks for s in block.successors)):
            outside = RESULTS if block.kind is Kind.RETURN else RESULTS | ARGUMENTS
            self._effect("leave", start, block.instructions[-1].address,
                         *(value for name in sorted(outside) if (value := self._get(start, name, now)) is not None))
        self._ends[start] = now

    def _piece(self, start: int, piece: Block, tracking: Tracking, now: dict[str, Value | None]) -> None:
        temporaries: dict[int, Value] = {}

        def of(operand: Operand) -> Value:
            if isinstance(operand, Temp):
                return temporaries[operand.index]
            return self._literal(operand)

        for operation, place in tracking.read(piece):
            slot = None if place is None or not isinstance(operation, Load | Store) else Slot(place, operation.width)
            name = str(slot) if slot in self._slots else None
            if name is not None:
                self.slots.setdefault(operation.address, set()).add(name)
            match operation:
                case Get(result=result, location=location):
                    temporaries[result] = self._got(start, location, now)
                case Load(address=address, result=result, pointer=pointer, width=width):
                    if name is not None:
                        temporaries[result] = self._got(start, name, now)
                    else:
                        temporaries[result] = Value(LOAD, start, address, (of(pointer),), width)
                        self.loads.setdefault(address, []).append(temporaries[result])
                case Store(address=address, pointer=pointer, value=value):
                    if name is not None:
                        now[name] = of(value)
                    else:
                        self._effect("store", start, address, of(pointer), of(value))
                case Put(location=location, value=value):
                    now[location] = of(value)
                case Compute(address=address, result=result, operator=operator, operands=operands, width=width):
                    temporaries[result] = Value(operator, start, address, tuple(map(of, operands)), width)
                case Exit(address=address, condition=condition, target=target):
                    self.effects.append(Value("exit", start, address, (of(condition),), number=target))
                case Jump(address=address, target=target) if isinstance(target, Temp):
                    self._effect("jump", start, address, of(target))
                case _:
                    pass

    def _call(self, block: BasicBlock, now: dict[str, Value | None]) -> None:
        call = block.instructions[-1].address
        callee = self._callee(call)
        arguments = tuple(value for name in sorted(callee.reads)
                          if (value := self._get(block.start, name, now)) is not None)
        self._effect(CALL, block.start, call, *arguments)
        pointer = self._got(block.start, "rsp", now)
        for name in callee.writes:
            now[name] = Value(CALL, block.start, call, arguments) if name in RESULTS else None
        now["rsp"] = Value("add", block.start, call, (pointer, self._literal(Literal(8, 64))))

    def _effect(self, operator: str, block: int, address: int, *operands: Value) -> None:
        self.effects.append(Value(operator, block, address, operands))

    def _literal(self, operand: Literal) -> Value:
        key = operand.value, operand.width
        if key not in self._literals:
            self._literals[key] = Value(LITERAL, -1, 0, (), operand.width, operand.value)
        return self._literals[key]

    # -- locations -------------------------------------------------------------------------------------------------

    def _get(self, block: int, location: str, now: Mapping[str, Value | None]) -> Value | None:
        """The value of ``location`` now, in the middle of ``block``; None if no code may read it."""
        if location in now:
            return now[location]
        place = self._places.get(block, {}).get(location)
        if block in self._unknown or place is None:
            return self._unknown.get(block) or self._phi(block, location)
        return self._frame.setdefault(place, Value(ENTRY, -1, place[0], number=place[1]))

    def _got(self, block: int, location: str, now: Mapping[str, Value | None]) -> Value:
        return self._get(block, location, now) or Value(UNKNOWN, block, block)

    def _phi(self, block: int, location: str) -> Value:
        key = block, location
        if key not in self._phis:
            self._phis[key] = Value(PHI, block, block, location=location)
            self._pending.append(self._phis[key])
        return self._phis[key]

    def _fill(self, phi: Value) -> None:
        inputs: list[tuple[int, Value]] = []
        if phi.block == self.graph.entry:
            inputs.append((-1, Value(ENTRY, -1, 0, location=phi.location)))
        for source in self.graph.predecessors[phi.block]:
            value = self._get(source, phi.location, self._ends[source])
            if value is not None:
                inputs.append((source, value))
        self.inputs[phi] = tuple(inputs)

    def _merge(self) -> None:
        """Finds the phis that are the same as their only input."""
        users: dict[Value, list[Value]] = {}
        for phi, inputs in self.inputs.items():
            for _, value in inputs:
                users.setdefault(value, []).append(phi)
        pending = list(self.inputs)
        while pending:
            phi = pending.pop()
            if phi in self._same:
                continue
            others = {self.find(value) for _, value in self.inputs[phi]} - {phi}
            if len(others) == 1:
                (same,) = others
                self._same[phi] = same
                pending += users.get(phi, ())
                users.setdefault(same, []).extend(users.get(phi, ()))
