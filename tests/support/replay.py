"""A region against the real process: run its SCoP on a copy of memory, and watch what the original does meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

from capstone import CS_AC_READ, CS_AC_WRITE, CsInsn
from capstone.x86 import X86_OP_MEM, X86_REG_INVALID, X86_REG_RIP

from memopt.ir.graph import Loop
from memopt.ir.region import Cell, Disjoint, Guard, Lane, LiveIn, Location, Region
from memopt.ir.scop import TRIPS, Access, Array, ElementType, Scalar, Statement, bytes_of
from memopt.lifting.lift import Code
from memopt.x86.decoder import capstone_detail
from tests.support.enumeration import Point, date, points
from tests.support.expressions import Evaluator
from tests.support.traced import Traced


@dataclass
class Iteration:
    """One trip around the outer loop: ``registers`` and ``memory`` of the header's live state, then its accesses."""

    values: dict[str, int]
    read: set[int] = field(default_factory=set)  # every byte, the stack left out
    written: set[int] = field(default_factory=set)


@dataclass
class Watch:
    """Single-steps the process through the loop at whose header it stands."""

    process: Traced
    code: Code
    loop: Loop
    region: Region

    def __post_init__(self) -> None:
        self.decoded: dict[int, CsInsn] = {}
        self.stack = next(m for m in self.process.maps() if m.path == "[stack]")
        self.inside = {i.address for b in self.loop.blocks for i in self.code.graph.blocks[b].instructions}

    def run(self) -> list[Iteration]:
        """Every iteration up to the loop's end; the last one may be a visit to the header only."""
        seen: list[Iteration] = []
        registers = self.process.registers()
        while registers["rip"] in self.inside:
            if registers["rip"] == self.loop.header:
                seen.append(Iteration(live_values(self.region, self.process)))
            self._note(registers, seen[-1])
            self.process.step()
            registers = self.process.registers()
        return seen

    def _note(self, registers: dict[str, int], iteration: Iteration) -> None:
        address = registers["rip"]
        if address not in self.decoded:
            self.decoded[address] = capstone_detail(self.process.read(address, 16), address)[0]
        instruction = self.decoded[address]
        if instruction.mnemonic.startswith(("lea", "nop", "prefetch")):
            return
        for position, operand in enumerate(instruction.operands):
            if operand.type == X86_OP_MEM:
                low = self._effective(instruction, operand.mem, registers)
                if not self.stack.start <= low < self.stack.end:
                    touched = range(low, low + operand.size)
                    access = operand.access
                    if instruction.mnemonic.lstrip("v").startswith("mov"):  # Capstone calls a movups store a read
                        access = CS_AC_READ if position else CS_AC_WRITE
                    if access & CS_AC_READ:
                        iteration.read.update(touched)
                    if access & CS_AC_WRITE:
                        iteration.written.update(touched)

    @staticmethod
    def _effective(instruction: CsInsn, memory: object, registers: dict[str, int]) -> int:
        address: int = memory.disp  # type: ignore[attr-defined]
        for register, scale in ((memory.base, 1), (memory.index, memory.scale)):  # type: ignore[attr-defined]
            if register == X86_REG_RIP:
                address += instruction.address + instruction.size
            elif register != X86_REG_INVALID:
                address += registers[instruction.reg_name(register)] * scale
        return address % (1 << 64)


def live_values(region: Region, process: Traced) -> dict[str, int]:
    """Live-in symbols, R, and each rejoined location (by its text), as they are at the header now."""
    registers = process.registers()
    values = {x.symbol: _symbol(x, registers, process) for x in region.live_ins}
    trips, rest = divmod(region.trips.numerator.evaluate(values), region.trips.divisor)
    assert not rest
    values[TRIPS] = trips
    for rejoin in region.rejoin:
        values[f"at {rejoin.location}"] = _contents(rejoin.location, rejoin.width, registers, process)
    return values


def _symbol(live: LiveIn, registers: dict[str, int], process: Traced) -> int:
    raw = _contents(live.location, live.width, registers, process).to_bytes(8, "little")[:live.width]
    return int.from_bytes(raw, "little", signed=live.signed)


def _contents(location: Location, width: int, registers: dict[str, int], process: Traced) -> int:
    if isinstance(location, Cell):
        base = registers[location.base] if location.base else 0
        return int.from_bytes(process.read(base + location.displacement, width), "little")
    if isinstance(location, Lane):
        return int.from_bytes(process.vectors()[location.register][location.offset:][:width], "little")
    return registers[location.name]


def holds(guard: Guard, values: dict[str, int]) -> bool:
    if isinstance(guard, Disjoint):
        one, two = guard.first, guard.second
        return one.high.evaluate(values) <= two.low.evaluate(values) or (
            two.high.evaluate(values) <= one.low.evaluate(values))
    number = guard.expression.evaluate(values)
    return number == 0 if guard.equal else number >= 0


@dataclass
class Replay:
    """The SCoP run by its text: statements in order, on the memory the process had at the header.

    Cells of private arrays are kept by their subscripts; reading one that was not written is an error.
    """

    region: Region
    values: dict[str, int]
    process: Traced

    def __post_init__(self) -> None:
        self.memory: dict[int, int] = {}  # what was stored, byte by byte
        self.private: dict[tuple[str, tuple[int, ...]], int] = {
            (p.array, ()): self.values[p.symbol] % (1 << 8 * p.width) for p in self.region.register_carried}
        self.read: dict[int, set[int]] = {}  # by outer iteration
        self.written: dict[int, set[int]] = {}
        self.vectors = self.process.vectors()

    def run(self) -> None:
        statements = self.region.scop.statements
        instances = [(date(s, p), s, p) for s in statements for p in points(s, self.values)]
        for _, statement, point in sorted(instances, key=lambda x: x[0]):
            self._instance(statement, point)

    def _instance(self, statement: Statement, point: Point) -> None:
        outer = point[statement.dimensions[0].name]
        read, written = self.read.setdefault(outer, set()), self.written.setdefault(outer, set())
        values = self.values | point
        operands = tuple(_Operand(self, a, values, read) for a in statement.reads)
        evaluator = Evaluator(operands, values, self._scalar)
        element = self.region.scop.array(statement.write.array).element
        assert evaluator.element(statement.expression) is element, str(statement)
        result = evaluator.bits(statement.value)
        if statement.condition is None or evaluator.bits(statement.condition):
            self._store(statement.write, values, result, written)

    def load(self, access: Access, values: dict[str, int], read: set[int]) -> int:
        array = self.region.scop.array(access.array)
        if array.private:
            return self.private[access.array, _subscripts(access, values)]
        address, size = self._address(array, access, values), array.element.size
        read.update(range(address, address + size))
        raw = self.process.read(address, size)
        stored = bytes(self.memory.get(address + n, raw[n]) for n in range(size))
        return int.from_bytes(stored, "little")

    def _store(self, access: Access, values: dict[str, int], result: int, written: set[int]) -> None:
        array = self.region.scop.array(access.array)
        if array.private:
            self.private[access.array, _subscripts(access, values)] = result
            return
        address, size = self._address(array, access, values), array.element.size
        written.update(range(address, address + size))
        self.memory |= dict(zip(range(address, address + size), result.to_bytes(size, "little"), strict=True))

    def _address(self, array: Array, access: Access, values: dict[str, int]) -> int:
        strides = zip(_subscripts(access, values), map(bytes_of, array.strides), strict=True)
        return array.base.evaluate(values) + sum(s * stride.evaluate(values) for s, stride in strides)

    def _scalar(self, operand: Scalar) -> int:
        return int.from_bytes(self.vectors[operand.register][operand.offset:][:operand.element.size], "little")


@dataclass(frozen=True)
class _Operand:
    """Bits and type of a read: the cell is read when the bits are asked for."""

    replay: Replay
    access: Access
    values: dict[str, int]
    read: set[int]

    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: int) -> int | ElementType:
        if number == 0:
            return self.replay.load(self.access, self.values, self.read)
        return self.replay.region.scop.array(self.access.array).element


def _subscripts(access: Access, values: dict[str, int]) -> tuple[int, ...]:
    return tuple(s.evaluate(values) for s in access.subscripts)
