"""Code of a register tile: loads, the statement's operations and stores, for some rows, vectors and steps.

Example: ``C[i][j] += A[i][k] * B[k][j]`` with 2 rows and 3 vectors keeps 6 accumulators in registers. Each step k loads
3 vectors of B, broadcasts 2 elements of A, and does 6 multiplications and 6 additions.

In: the shape of a leaf, the size of the tile, an ``Allocation`` of the register file. Out: instructions in the emitter.
Every point performs exactly the statement's operations on its own operands. A value that several points share is
computed once, which changes neither bits nor exception flags (``value_numbering``). A promoted result (scalar
replacement) stays in its register from ``begin`` to ``end``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Apply, ElementType, Expression, Index, Read, Statement, evaluated, plain_reads
from memopt.x86.instructions import Mem
from passes.loop_code.leaf_shape import VECTOR, AccessAlong, LeafShape
from passes.loop_code.pointers import Group, Groups, Pointers
from passes.loop_code.value_numbering import Point, Tile, Uses, ValueNumbering, is_truth, uses
from passes.vector import conditional, masks, strided
from passes.vector.emitter import Emitter, displaced
from passes.vector.lowering import SHIFTS, Lowering
from passes.vector.registers import Leaf, MaskRegisters, OutOfRegisters, Registers, VectorUnit, view

MASK = "k1"
"""The mask register that holds the valid lanes of a masked tile."""
_SEEN, _NEW = "k2", "k3"
"""With a mask per step: the lanes that have had a step already, and the lanes that have their first step now."""


@dataclass(frozen=True, slots=True)
class TileContext:
    """The context that all tiles of a leaf share."""

    shape: LeafShape
    groups: Groups
    spilled: Mapping[Group, Mem]
    constants: Callable[[Expression], Mem]  # where the value of a constant operand lies: one element in memory


@dataclass(frozen=True, slots=True)
class TileKind:
    """The size of a register tile and how its lanes are computed."""

    tile: Tile
    unit: VectorUnit  # whole vectors, or single lanes
    masked: bool  # only the lanes in ``MASK`` are valid
    steps: int  # unroll factor: steps emitted together
    changing: bool = False  # the mask differs from step to step, and steps are emitted one by one


@dataclass(frozen=True, slots=True)
class Allocation:
    """How a tile uses the register file: more sharing of values takes more registers."""

    rows_outside: bool  # the points run row by row, else vector by vector
    loads: bool  # a value that several points load is loaded once
    operations: bool = True  # a value that several points compute is computed once
    kept: tuple[tuple[Expression, Point], ...] = ()  # loop-invariant values that stay in registers


_ALLOCATIONS = (Allocation(True, True), Allocation(False, True), Allocation(True, False),
                Allocation(True, False, False))


def allocate(context: TileContext, kind: TileKind) -> Allocation:
    """The first allocation of ``_ALLOCATIONS`` that fits the register file, with as many invariant values as fit too.

    Each is tried by emitting the tile into an emitter that is thrown away. Raises ``OutOfRegisters`` where none fits,
    Rejected where the tile cannot be coded.
    """
    failure: Exception = OutOfRegisters("no allocation")
    for allocation in _ALLOCATIONS:
        try:
            left = _registers_left(context, kind, allocation)
        except (OutOfRegisters, Rejected) as error:
            failure = error
            continue
        candidates = () if kind.changing else _invariants(context, kind)
        for count in range(min(left, len(candidates)), 0, -1):
            keeping = replace(allocation, kept=candidates[:count])
            try:
                _registers_left(context, kind, keeping)
            except OutOfRegisters:
                continue
            return keeping
        return allocation
    raise failure


def _registers_left(context: TileContext, kind: TileKind, allocation: Allocation) -> int:
    """The number of registers that the whole tile never uses; raises ``OutOfRegisters`` when there are too few."""
    attempt = TileBody(context, kind, allocation, Emitter(0))
    attempt.begin()
    attempt.emit(kind.steps)
    attempt.end()
    return attempt.registers_left


def _invariants(context: TileContext, kind: TileKind) -> tuple[tuple[Expression, Point], ...]:
    """The loop-invariant values, each the largest such subexpression, those used most first."""
    values = ValueNumbering(context.shape, context.groups, kind.tile)
    found: dict[int, tuple[int, Expression, Point]] = {}

    def visit(node: Expression, point: Point) -> None:
        if values.is_invariant(node) and not is_truth(node):
            number = values.number(node, point)
            found[number] = found.get(number, (0,))[0] + 1, node, point
        elif isinstance(node, Apply):
            for operand in node.operands[:1] if node.operator in SHIFTS else evaluated(node):
                visit(operand, point)

    for point in kind.tile.points(0, rows_outside=True):
        for part in _parts(context.shape.statement):
            visit(part, point)
    return tuple((node, point) for _, node, point in sorted(found.values(), key=lambda f: -f[0]))


def _parts(statement: Statement) -> tuple[Expression, ...]:
    """What a point computes: the value to store, and the condition of the store, if it has one."""
    return (statement.value,) if statement.condition is None else (statement.condition, statement.value)


class TileBody:
    """Emits one tile: ``begin``, then ``emit`` and ``advance`` as often as wanted, then ``end``.

    The caller loads ``pointers`` before ``begin``. The code does not touch rcx, which may count steps.
    """

    def __init__(self, context: TileContext, kind: TileKind, allocation: Allocation, emitter: Emitter) -> None:
        self.kind = kind
        self._context = context
        self._shape = context.shape
        self._allocation = allocation
        self._values = ValueNumbering(context.shape, context.groups, kind.tile, carry=not kind.changing)
        self._pool = _CountedRegisters(kind.unit)
        self._lowering = Lowering(kind.unit, emitter, self._pool, reads=tuple(s.element for s in context.shape.reads),
                                  mask=MASK if kind.masked else None, masks=MaskRegisters(MASK, _SEEN, _NEW))
        self._emitter = emitter
        self.pointers = Pointers(emitter, context.groups, context.spilled)
        self._places: dict[int, str] = {}
        self._kept: frozenset[int] = frozenset()
        self._busy: set[int] = set()
        self._ramps: dict[tuple[int, ElementType], str] = {}
        self._offsets: dict[tuple[int, ElementType], str] = {}
        self._accumulators: dict[tuple[int, int], str] = {}
        self._carried: dict[tuple[int, int], str] = {}
        self._before: dict[tuple[int, int], Mem] = {}  # promoted results as they were before the first step

    @property
    def registers_left(self) -> int:
        """The number of registers that the code emitted so far has never used."""
        return self._pool.least

    def begin(self) -> None:
        """Code before the first step: loads the values that stay in registers (invariants, promoted results)."""
        for index, along in self._shape.indices.items():
            if along.vector and not self.kind.unit.scalar:
                self._ramps[along.vector, index.element] = ramp = self._pool.take()
                masks.ramp(self._lowering.code, ramp, along.vector, index.element)
        for stream in (self._shape.write, *self._shape.reads):
            stride = self._stride(stream)
            where = self._is_conditional(stream)
            if stride and strided.needs_offsets(self._lowering.code, stride, stream.element, where):
                self._make_offsets(stream)
        nothing = Uses.none()
        for node, point in self._allocation.kept:
            self._materialised(node, point, nothing)
        self._kept = frozenset(self._places)
        if self._values.promoted:
            for point in self._points(0, 1):
                register = self._pool.take()
                self._accumulators[point.row, point.vector] = register
                if not self.kind.changing:
                    self._load(register, self._shape.write, point)
                if self._shape.changed:
                    self._before[point.row, point.vector] = self._kept_in_frame(register)
        if self.kind.changing:
            if self._shape.changed:
                raise Rejected(Reason.NO_PLAN, "a result that is stored conditionally has the same steps in all lanes")
            self._emitter.op("kxorw", _SEEN, _SEEN, _SEEN)
        if self._values.carries:
            self._load_carried()

    def _load_carried(self) -> None:
        """Load the results of the step before the first one; the first step reads them in any case."""
        node = next(n for n in self._shape.nodes if isinstance(n, Read) and self._values.is_carried(n, Point(0, 0, 0)))
        for point in self._points(0, 1):
            self._carried[point.row, point.vector] = register = self._pool.take()
            self._load(register, self._values.stream(node), point)

    def emit(self, steps: int) -> None:
        """Code for ``steps`` steps, the first of them where the pointers are."""
        if self.kind.changing:
            self._load_new_lanes()
        points = self._points(0, steps)
        used = uses(self._values, _parts(self._shape.statement), points)
        results = {point: self._values.number(self._shape.statement.expression, point)
                   for point in self._points(steps - 1, 1)}
        if self._carried:
            used.last.update(dict.fromkeys(results.values(), len(points)))
            used.count.update(results.values())
        for position, point in enumerate(points):
            self._compute(point, used)
            for number in [n for n in self._places if n not in self._kept and used.last.get(n, -1) <= position]:
                self._pool.give(self._places.pop(number))
        if self._carried:
            self._carry(results)

    def _carry(self, results: Mapping[Point, int]) -> None:
        for point, number in results.items():
            carried = self._carried[point.row, point.vector]
            if number in self._places:
                self._lowering.code.move(carried, self._places[number], self._shape.write.element)
        for number in set(results.values()) & set(self._places) - self._kept:
            self._pool.give(self._places.pop(number))

    def advance(self, steps: int) -> None:
        """Move the pointers on by ``steps`` steps."""
        self.pointers.advance(self.kind.tile.inner, steps * self.kind.tile.advance)

    def end(self) -> None:
        """Code after the last step: stores promoted results where the pointers are.

        Steps do not move the pointer of a promoted result, so it still points to the tile's first row.
        """
        if self.kind.changing:
            self._emitter.op("kmovw", MASK, _SEEN)
        for (row, vector), register in self._accumulators.items():
            self._store(register, Point(row, vector, 0))

    def _points(self, first: int, count: int) -> list[Point]:
        return [p for step in range(first, first + count)
                for p in self.kind.tile.points(step, rows_outside=self._allocation.rows_outside)]

    def _compute(self, point: Point, used: Uses) -> None:
        if self._shape.statement.condition is not None:
            self._compute_where(self._shape.statement.condition, point, used)
            return
        expression, leaf = self._shape.statement.expression, self._leaf(point, used)
        accumulator = self._accumulators.get((point.row, point.vector))
        if accumulator is not None and self.kind.changing:
            result = self._pool.take()
            self._lowering.into(result, expression, leaf)
            self._blend(accumulator, result, MASK)
            self._pool.give(result)
            return
        if accumulator is not None:
            self._lowering.into(accumulator, expression, leaf)
            return
        place = leaf(expression)
        if self._carried and not isinstance(place, str):
            place = self._materialised(expression, point, used)
        if point.turn < self.kind.tile.turns - 1:
            if not isinstance(place, str):
                self._materialised(expression, point, used)
            return
        register = place if isinstance(place, str) else self._pool.take()
        if register != place:
            self._lowering.into(register, expression, leaf)
        self._store(register, point)
        if register != place:
            self._pool.give(register)

    def _compute_where(self, condition: Expression, point: Point, used: Uses) -> None:
        """A statement that stores where ``condition`` holds."""
        value, leaf = self._shape.statement.value, self._leaf(point, used)
        place = leaf(value)
        register = place if isinstance(place, str) else self._pool.take()
        if register != place:
            self._lowering.into(register, value, leaf)
        stream = self._shape.write
        stride = self._stride(stream)
        truth = self._lowering.truth(condition, leaf)
        conditional.store(
            self._lowering.code, truth, self._memory(stream, point, stream.element.size), register, stride,
            stream.element, self._lowering.constants(leaf), self._offsets.get((stride, stream.element)))
        if register != place:
            self._pool.give(register)

    def _load_new_lanes(self) -> None:
        """Load the results so far of the lanes whose first step this is; the cell of a lane without steps is not read.
        """
        self._emitter.op("kandnw", _NEW, _SEEN, MASK)
        self._emitter.op("korw", _SEEN, _SEEN, MASK)
        for (row, vector), accumulator in self._accumulators.items():
            result = self._pool.take()
            self._load(result, self._shape.write, Point(row, vector, 0))
            self._blend(accumulator, result, _NEW)
            self._pool.give(result)

    def _blend(self, target: str, source: str, mask: str) -> None:
        move = "vmovapd" if self._shape.write.element.size == 8 else "vmovaps"
        self._emitter.op(move, view(target, 64), view(source, 64), mask=mask)

    # values

    def _leaf(self, point: Point, used: Uses) -> Leaf:
        def place(node: Expression) -> str | Mem | None:
            if self._values.is_accumulator(node):
                return self._accumulators[point.row, point.vector]
            if self._values.is_carried(node, point):
                return self._carried[point.row, point.vector]
            number = self._values.number(node, point)
            if number in self._places:
                return self._places[number]
            if self._shape.is_constant(node):
                return replace(self._context.constants(node), broadcast=self.kind.unit.lanes)
            if number in self._busy:
                return None
            if self._in_place(node, number, used):
                return self._operand(self._values.stream(node), point) if isinstance(node, Read) else None
            return self._materialised(node, point, used)

        return place

    def _in_place(self, node: Expression, number: int, used: Uses) -> bool:
        """Whether the value needs no register: a memory operand, or code at its only use."""
        match node:
            case Read():
                stream = self._values.stream(node)
                plain = self._stride(stream) in (0, stream.element.size) and self.pointers.at_hand(stream.address)
                return plain and not (self._allocation.loads and used.count[number] > 1)
            case Index() | Apply("when"):
                return False
        return is_truth(node) or not self._allocation.operations or used.count[number] <= 1

    def _materialised(self, node: Expression, point: Point, used: Uses) -> str:
        """Compute the value of ``node`` into a register, which keeps it for its further uses."""
        number = self._values.number(node, point)
        register = self._pool.take()
        self._busy.add(number)
        match node:
            case Read():
                self._load(register, self._values.stream(node), point)
            case Index() if not self._shape.is_constant(node):
                self._count(register, node, point)
            case Apply("when", (condition, Read() as read)):
                self._load_where(register, condition, self._values.stream(read), point, self._leaf(point, used))
            case _:
                self._lowering.into(register, node, self._leaf(point, used))
        self._busy.discard(number)
        self._places[number] = register
        return register

    def _count(self, register: str, node: Index, point: Point) -> None:
        """``register`` = a loop counter used as data. Its group's pointer holds the counter of lane 0."""
        along = self._shape.indices[node]
        member, _ = self._context.groups.members[along]
        here = self.pointers.operand(along, self._values.displacement(member, point), 8)
        self._emitter.op("lea", "rdx", here)
        ramp = None if self.kind.unit.scalar else self._ramps.get((along.vector, node.element))
        if ramp is None:
            self._lowering.code.broadcast(register, "rdx", node.element)
        else:
            masks.counter(self._lowering.code, register, "rdx", ramp, node.element)

    # memory

    def _stride(self, stream: AccessAlong) -> int:
        """Bytes from lane to lane; with a single lane the element size, as for neighbours."""
        return stream.element.size if self.kind.unit.scalar else stream.address.factor(VECTOR)

    def _memory(self, stream: AccessAlong, point: Point, size: int) -> Mem:
        member, _ = self._context.groups.members[stream.address]
        place = self.pointers.operand(stream.address, self._values.displacement(member, point), size)
        assert place.base is not None
        return displaced(place.base, place.displacement, size)

    def _operand(self, stream: AccessAlong, point: Point) -> Mem:
        if self._stride(stream) == 0:
            return replace(self._memory(stream, point, stream.element.size), broadcast=self.kind.unit.lanes)
        return self._memory(stream, point, self.kind.unit.width(stream.element))

    def _load(self, register: str, stream: AccessAlong, point: Point) -> None:
        stride = self._stride(stream)
        strided.load(self._lowering.code, register, self._memory(stream, point, stream.element.size), stride,
                     stream.element, self._offsets.get((stride, stream.element)))

    def _load_where(self, register: str, condition: Expression, stream: AccessAlong, point: Point, leaf: Leaf) -> None:
        stride = self._stride(stream)
        truth = self._lowering.truth(condition, leaf)
        conditional.load(self._lowering.code, truth, register, self._memory(stream, point, stream.element.size), stride,
                         stream.element, self._lowering.constants(leaf), self._offsets.get((stride, stream.element)))

    def _is_conditional(self, stream: AccessAlong) -> bool:
        """Whether some access of ``stream`` is performed under a condition."""
        statement = self._shape.statement
        plain = plain_reads(statement.expression)
        stored = statement.condition is not None or self._shape.changed
        return (stream is self._shape.write and stored) or any(
            s == stream and n not in plain for n, s in enumerate(self._shape.reads))

    def _store(self, register: str, point: Point) -> None:
        stream = self._shape.write
        stride = self._stride(stream)
        if self._shape.changed:
            conditional.store_changed(
                self._lowering.code, self._memory(stream, point, stream.element.size), register,
                self._before[point.row, point.vector], stride, stream.element, self._lowering.constants(self._constant),
                self._offsets.get((stride, stream.element)))
            return
        strided.store(self._lowering.code, self._memory(stream, point, stream.element.size), register, stride,
                      stream.element, self._offsets.get((stride, stream.element)))

    def _kept_in_frame(self, register: str) -> Mem:
        """A frame slot with the vector in ``register``."""
        element = self._shape.write.element
        slot = self._emitter.slot(64 if self.kind.masked else self.kind.unit.register_bytes(element))
        self._lowering.code.spill(replace(slot, size=self.kind.unit.register_bytes(element)), register, element)
        return replace(slot, size=self.kind.unit.width(element))

    def _constant(self, node: Expression) -> Mem:
        """Where a constant lies that a comparison needs."""
        return replace(self._context.constants(node), broadcast=self.kind.unit.lanes)

    def _make_offsets(self, stream: AccessAlong) -> None:
        key = self._stride(stream), stream.element
        if key not in self._offsets:
            self._offsets[key] = self._pool.take()
            strided.offsets(self._lowering.code, self._offsets[key], *key)


class _CountedRegisters(Registers):
    """A register pool that remembers in ``least`` how few registers were ever left."""

    def __init__(self, unit: VectorUnit) -> None:
        super().__init__(unit)
        self.least = self.left

    def take(self) -> str:
        register = super().take()
        self.least = min(self.least, self.left)
        return register
