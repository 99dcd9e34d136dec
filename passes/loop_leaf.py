"""A macro instance as machine code: register tiles over rows and vectors, the sequential dimension innermost.

Rows go in blocks of ``row_count``. What all rows of a block have in common along the vector dimension runs as tiles,
several vectors wide, then one, then a masked vector or single lanes; what only some rows have runs row by row. Inside
a tile the steps that all its lanes have run together, those before and after, which only some have, one lane at a time.

Invariant: a lane computes exactly the points of the domain, its steps ascending, whatever mixture of these runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from memopt.ir.linear import Linear
from memopt.ir.plan import Isa
from memopt.ir.reasons import Rejected
from memopt.ir.scop import Expression
from memopt.x86.instructions import Imm, Mem
from passes import masks
from passes.addresses import group, spilled
from passes.emitter import Emitter, Value
from passes.leaf_shape import ROW, SEQUENTIAL, VECTOR, LeafShape
from passes.ranges import Names, Range, axis_range, evaluate, limit, stored
from passes.routine import Routine
from passes.scan_code import linear
from passes.tile_body import MASK, Allocation, TileBody, TileContext, TileKind, allocate
from passes.tile_values import Tile
from passes.vector_needs import unit_for
from passes.vectors import OutOfRegisters, VectorUnit

_MOST_OPERATIONS = 24  # of one unrolled loop body: points of the tile times steps
_NOWHERE = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Units:
    """The instruction set for whole vectors and for one lane. Without a vector dimension both are the latter."""

    vector: VectorUnit
    scalar: VectorUnit

    @property
    def masks(self) -> bool:
        return self.vector.evex and not self.vector.scalar


def units(isa: Isa, shape: LeafShape) -> Units:
    """As many lanes as a vector holds of the widest type that occurs."""
    expression = shape.statement.expression
    vector = unit_for(isa, expression, [r.element for r in shape.reads], shape.write.element)
    scalar = replace(vector, lanes=1)
    return Units(vector if shape.leaf.vector is not None else scalar, scalar)


class LeafCode:
    """``names``: symbols and dates. ``emit`` leaves the code for one macro instance; it clobbers every register but
    rbp and rsp."""

    def __init__(self, emitter: Emitter, isa: Isa, shape: LeafShape, constants: Callable[[Expression], Mem]) -> None:
        self._emitter = emitter
        self._units = units(isa, shape)
        self._shape, self._definitions = shape.with_definitions()
        addresses = [s.address for s in (self._shape.write, *self._shape.reads)]
        self._groups = group((*addresses, *self._shape.indices.values()))
        self._context = TileContext(self._shape, self._groups, spilled(emitter, self._groups), constants)
        self._inner = SEQUENTIAL if shape.leaf.sequential else VECTOR if shape.leaf.vector else None
        self._allocations: dict[TileKind, Allocation] = {}
        self._rows, self._vectors = self._fitting()

    def emit(self, names: Names) -> None:
        emitter, shape = self._emitter, self._shape
        names = dict(names)
        for symbol, definition in self._definitions:
            names[symbol] = emitter.slot()
            linear(emitter, "rax", definition, names, "rcx")
            emitter.op("mov", names[symbol], "rax")
        names[ROW], names[VECTOR], names[SEQUENTIAL] = 0, 0, 0
        self._ragged = Routine(emitter, "ragged")
        if shape.leaf.rows is None:
            self._single_row(names, None)
        else:
            self._row_blocks(names)
        self._ragged_code(names)

    # rows

    def _row_blocks(self, names: dict[str, Value]) -> None:
        emitter = self._emitter
        rows = axis_range(ROW, self._shape.row_bounds, {}, common=False)
        first, end = stored(emitter, rows.low, names), stored(emitter, rows.high, names)
        names[ROW] = row = emitter.slot()
        _copy(emitter, row, first)
        again, single, done = map(emitter.fresh, ("rows", "row", "rows_done"))
        emitter.place(again)
        coupled = any(b.row and b.vector for b in self._shape.row_vector_bounds)
        block_end: Value = emitter.slot() if coupled else end
        common: tuple[Value, Value] | None = None
        if self._rows > 1:
            partial = emitter.fresh("rows_left")
            emitter.op("mov", "rax", row)
            emitter.add("rax", self._rows, "rcx")
            _compare(emitter, "rax", end)
            emitter.jump(partial, "g")
            common = self._vector_range({ROW: self._rows}, names, common=True)
            if coupled:
                _copy(emitter, block_end, row)
                emitter.op("add", block_end, Imm(self._rows))
                common = self._not_crossed(common)
            self._vector_part(self._rows, common, names)
            if coupled:
                emitter.jump(single)
                emitter.place(partial)
                for place, value in ((block_end, end), *((c, _NOWHERE) for c in common)):
                    _copy(emitter, place, value)
            else:
                emitter.op("add", row, Imm(self._rows))
                emitter.jump(again)
                emitter.place(partial)
        elif coupled:
            _copy(emitter, block_end, end)
        emitter.place(single)
        emitter.op("mov", "rax", row)
        _compare(emitter, "rax", block_end)
        emitter.jump(done, "ge")
        self._single_row(names, common if coupled else None)
        emitter.op("add", row, Imm(1))
        emitter.jump(single)
        emitter.place(done)
        if self._rows > 1 and coupled:
            emitter.op("mov", "rax", row)
            _compare(emitter, "rax", end)
            emitter.jump(again, "l")

    def _not_crossed(self, lanes: tuple[Value, Value]) -> tuple[Mem, Mem]:
        """The range in slots, and ``_NOWHERE`` at both ends when it is empty, so that nothing lies in it twice."""
        emitter, fine = self._emitter, self._emitter.fresh("some")
        low, high = emitter.slot(), emitter.slot()
        _copy(emitter, low, lanes[0])
        _copy(emitter, high, lanes[1])
        emitter.op("cmp", "rax", low)
        emitter.jump(fine, "g")
        _copy(emitter, low, _NOWHERE)
        _copy(emitter, high, _NOWHERE)
        emitter.place(fine)
        return low, high

    def _single_row(self, names: dict[str, Value], common: tuple[Value, Value] | None) -> None:
        """The lanes of one row, but for those that its block has run in ``common``."""
        emitter = self._emitter
        whole = self._vector_range({}, names, common=False)
        if common is None:
            self._vector_part(1, whole, names)
            return
        phase, low, high = emitter.slot(), emitter.slot(), emitter.slot()
        again, behind, run = map(emitter.fresh, ("side", "behind", "side_run"))
        _copy(emitter, phase, 0)
        emitter.place(again)
        emitter.op("cmp", phase, 0)
        emitter.jump(behind, "ne")
        for place, value, other, is_low in ((low, whole[0], None, True), (high, whole[1], common[0], False)):
            self._bounded(place, value, other, low=is_low)
        emitter.jump(run)
        emitter.place(behind)
        for place, value, other, is_low in ((low, whole[0], common[1], True), (high, whole[1], None, False)):
            self._bounded(place, value, other, low=is_low)
        emitter.place(run)
        self._vector_part(1, (low, high), names)
        emitter.op("add", phase, 1)
        emitter.op("cmp", phase, 2)
        emitter.jump(again, "l")

    def _bounded(self, place: Mem, value: Value, other: Value | None, *, low: bool) -> None:
        self._emitter.load("rbx", value)
        if other is not None:
            limit(self._emitter, "rbx", other, low=low)
        self._emitter.op("mov", place, "rbx")

    # vectors

    def _vector_range(self, block: dict[str, int], names: Names, *, common: bool) -> tuple[Value, Value]:
        if self._shape.leaf.vector is None:
            return 0, 1
        found = axis_range(VECTOR, self._shape.row_vector_bounds, block, common=common)
        return stored(self._emitter, found.low, names), stored(self._emitter, found.high, names)

    def _vector_part(self, rows: int, lanes: tuple[Value, Value], names: dict[str, Value]) -> None:
        """``rows`` rows of the lanes in a range that all of them have."""
        kinds = self._kinds(rows)
        if self._inner == VECTOR:
            self._stream(kinds, lanes, names)
            return
        if self._shape.leaf.vector is None:
            self._tile(kinds[0], 1, names)
            return
        emitter = self._emitter
        position, names = emitter.slot(), dict(names)
        names[VECTOR] = position
        _copy(emitter, position, lanes[0])
        for kind in kinds:
            again, following = map(emitter.fresh, ("vectors", "vectors_done"))
            emitter.place(again)
            emitter.op("mov", "rax", position)
            emitter.add("rax", 1 if kind.masked else kind.tile.width, "rcx")
            _compare(emitter, "rax", lanes[1])
            emitter.jump(following, "g")
            self._tile(kind, lanes[1], names)
            if not kind.masked:
                emitter.op("add", position, Imm(kind.tile.width))
                emitter.jump(again)
            emitter.place(following)

    def _kinds(self, rows: int) -> list[TileKind]:
        """Tiles of ``rows`` rows from the widest to the narrowest."""
        vector, scalar, inner = self._units.vector, self._units.scalar, self._inner
        if vector.scalar:
            return [self._kind(Tile(rows, 1, 1, inner), vector)]
        kinds = [self._kind(Tile(rows, count, vector.lanes, inner), vector)
                 for count in sorted({self._vectors, 1}, reverse=True)]
        masked = TileKind(Tile(rows, 1, vector.lanes, inner), vector, True, 1)
        if self._units.masks and self._possible(masked):
            return [*kinds, masked]
        return [*kinds, self._kind(Tile(rows, 1, 1, inner), scalar)]

    def _kind(self, tile: Tile, unit: VectorUnit) -> TileKind:
        steps = 4
        while steps > 1 and steps * tile.row_count * tile.vector_count > _MOST_OPERATIONS:
            steps //= 2
        if self._inner is None or (self._inner == VECTOR and tile.row_count * tile.vector_count > 1):
            steps = 1
        return TileKind(tile, unit, False, steps)

    def _possible(self, kind: TileKind) -> bool:
        """Whether there are instructions for it: bytes and words have no gathers."""
        try:
            self._allocated(kind)
        except Rejected:
            return False
        return True

    def _allocated(self, kind: TileKind) -> Allocation:
        if kind not in self._allocations:
            self._allocations[kind] = allocate(self._context, kind)
        return self._allocations[kind]

    def _fitting(self) -> tuple[int, int]:
        """The largest tile within the plan's wishes that fits the register file."""
        leaf = self._shape.leaf
        rows = leaf.row_count if leaf.rows else 1
        vectors = leaf.vector_count if leaf.vector else 1
        while True:
            self._vectors = vectors
            try:
                for count in sorted({rows, 1}):
                    for kind in self._kinds(count):
                        self._allocated(kind)
                return rows, vectors
            except (OutOfRegisters, Rejected):
                if vectors == 1 and rows == 1:
                    raise
            rows, vectors = (rows, vectors - 1) if vectors > 1 else (rows // 2, vectors)

    def _stream(self, kinds: list[TileKind], lanes: tuple[Value, Value], names: dict[str, Value]) -> None:
        """No sequential dimension: the vectors of a row are the innermost loop, rcx counts the lanes left."""
        emitter = self._emitter
        done = emitter.fresh("stream_done")
        names = {**names, VECTOR: lanes[0]}
        bodies = [TileBody(self._context, k, self._allocated(k), emitter) for k in kinds]
        self._load_pointers(bodies[0], names)
        _difference(emitter, "rcx", lanes[1], lanes[0])
        for body in bodies:
            emitter.op("cmp", "rcx", 1 if body.kind.masked else body.kind.tile.width)
            following = emitter.fresh("stream")
            emitter.jump(following, "l")
            if body.kind.masked:
                masks.first_lanes(emitter, MASK, "rcx")
            body.begin()
            if body.kind.masked:
                body.emit(1)
            else:
                self._repeat(body)
            body.end()
            emitter.place(following)
        emitter.place(done)

    # steps

    def _tile(self, kind: TileKind, end: Value, names: dict[str, Value]) -> None:
        """One tile, all its steps; the lanes of a masked one stop before ``end``."""
        emitter, tile = self._emitter, kind.tile
        if self._inner is None:
            self._run(kind, end, names, None)
            return
        block = {ROW: tile.row_count, VECTOR: tile.width}
        common = axis_range(SEQUENTIAL, self._shape.bounds, block, common=True)
        some = axis_range(SEQUENTIAL, self._shape.bounds, block, common=False)
        if common == some:
            self._run(kind, end, names, self._steps(common, names))
            return
        common_steps, some_steps = self._steps(common, names), self._steps(some, names)
        apart, done = map(emitter.fresh, ("apart", "tile_done"))
        _difference(emitter, "rax", common_steps[1], common_steps[0])
        emitter.op("cmp", "rax", 0)
        emitter.jump(apart, "le")
        self._call_ragged(kind, end, (some_steps[0], common_steps[0]), names)
        self._run(kind, end, names, common_steps)
        self._call_ragged(kind, end, (common_steps[1], some_steps[1]), names)
        emitter.jump(done)
        emitter.place(apart)
        self._call_ragged(kind, end, some_steps, names)
        emitter.place(done)

    def _steps(self, steps: Range, names: Names) -> tuple[Value, Value]:
        return stored(self._emitter, steps.low, names), stored(self._emitter, steps.high, names)

    def _run(self, kind: TileKind, end: Value, names: dict[str, Value], steps: tuple[Value, Value] | None) -> None:
        """The whole tile in ``steps``, if there are any."""
        emitter = self._emitter
        done = emitter.fresh("run_done")
        if steps is not None:
            _difference(emitter, "rcx", steps[1], steps[0])
            emitter.op("cmp", "rcx", 0)
            emitter.jump(done, "le")
            names = {**names, SEQUENTIAL: steps[0]}
        if kind.masked:
            _difference(emitter, "rdx", end, names[VECTOR])
            masks.first_lanes(emitter, MASK, "rdx")
        body = TileBody(self._context, kind, self._allocated(kind), emitter)
        self._load_pointers(body, names)
        body.begin()
        if steps is None:
            body.emit(1)
        else:
            self._repeat(body)
        body.end()
        emitter.place(done)

    def _repeat(self, body: TileBody) -> None:
        """Steps while rcx, what is left of them, is enough for another; unrolled, then one by one."""
        emitter, one = self._emitter, body.kind.tile.advance
        for steps in sorted({body.kind.steps, 1}, reverse=True):
            again, following = map(emitter.fresh, ("steps", "steps_done"))
            emitter.op("sub", "rcx", steps * one)
            emitter.jump(following, "l")
            emitter.align(32)
            emitter.place(again)
            body.emit(steps)
            body.advance(steps)
            emitter.op("sub", "rcx", steps * one)
            emitter.jump(again, "ge")
            emitter.place(following)
            emitter.op("add", "rcx", steps * one)

    def _load_pointers(self, body: TileBody, names: Names) -> None:
        starts = {}
        for member in self._groups.groups:
            base = member.base
            starts[member] = (base.rest + Linear.symbol(ROW, base.row) + Linear.symbol(VECTOR, base.vector)
                              + Linear.symbol(SEQUENTIAL, base.sequential))
        body.pointers.load(starts, names)

    # steps that only some lanes of a tile have

    def _call_ragged(self, kind: TileKind, end: Value, steps: tuple[Value, Value], names: Names) -> None:
        emitter, tile = self._emitter, kind.tile
        after = emitter.fresh("ragged_done")
        _difference(emitter, "rax", steps[1], steps[0])
        emitter.op("cmp", "rax", 0)
        emitter.jump(after, "le")
        arguments = self._ragged.arguments(("row", "row end", "lane", "lane end", "step", "step end"))
        for number, axis, count in ((0, ROW, tile.row_count), (2, VECTOR, tile.width)):
            emitter.load("rbx", names[axis])
            emitter.op("mov", arguments[number], "rbx")
            emitter.add("rbx", count, "rcx")
            if axis == VECTOR and kind.masked:
                limit(emitter, "rbx", end, low=False)
            emitter.op("mov", arguments[number + 1], "rbx")
        for place, value in zip(arguments[4:], steps, strict=True):
            _copy(emitter, place, value)
        self._ragged.call()
        emitter.place(after)

    def _ragged_code(self, names: dict[str, Value]) -> None:
        """Lane by lane, each with its own steps."""
        if not self._ragged.called:
            return
        emitter = self._emitter
        row, row_end, lane, lane_end, step, step_end = self._ragged.arguments(())
        kind = self._kind(Tile(1, 1, 1, self._inner), self._units.scalar)
        position = emitter.slot()
        names = {**names, ROW: row, VECTOR: position}
        with self._ragged.body():
            rows, lanes = map(emitter.fresh, ("ragged_row", "ragged_lane"))
            emitter.place(rows)
            _copy(emitter, position, lane)
            emitter.place(lanes)
            own = axis_range(SEQUENTIAL, self._shape.bounds, {}, common=True)
            low, high = emitter.slot(), emitter.slot()
            for slot, extent, other in ((low, own.low, step), (high, own.high, step_end)):
                evaluate(emitter, extent, "rbx", names)
                limit(emitter, "rbx", other, low=extent.low)
                emitter.op("mov", slot, "rbx")
            self._run(kind, 0, names, (low, high))
            for place, end, again in ((position, lane_end, lanes), (row, row_end, rows)):
                emitter.op("add", place, Imm(1))
                emitter.op("mov", "rax", place)
                emitter.op("cmp", "rax", end)
                emitter.jump(again, "l")


def _copy(emitter: Emitter, place: Value, value: Value) -> None:
    assert isinstance(place, Mem)
    emitter.load("rax", value)
    emitter.op("mov", place, "rax")


def _compare(emitter: Emitter, register: str, value: Value) -> None:
    emitter.op("cmp", register, value)


def _difference(emitter: Emitter, register: str, high: Value, low: Value) -> None:
    emitter.load(register, high)
    if low != 0:
        emitter.op("sub", register, low)
