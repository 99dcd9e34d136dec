"""The register tiles of one leaf: the largest that fit the register file, and the loop of steps around one.

In: the shape of a leaf, the instruction set. Out: the kinds of tiles to use, from wide to narrow, and for each tile the
code that sets its pointers and repeats its steps, unrolled and then one by one.

``names`` says where the value of each symbol, date, definition and axis is: a number, or a frame slot. A tile starts at
the row, vector and step number that the names of the axes (``ROW``, ``VECTOR``, ``SEQUENTIAL``) hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.plan import Isa
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Expression, has_calls
from memopt.x86.instructions import Mem
from passes.loop_code.leaf_shape import ROW, SEQUENTIAL, VECTOR, LeafShape
from passes.loop_code.pointers import group, spilled
from passes.loop_code.ranges import Names, axis_range
from passes.loop_code.tile_body import MASK, Allocation, TileBody, TileContext, TileKind, allocate
from passes.loop_code.value_numbering import Tile
from passes.vector import masks
from passes.vector.emitter import Emitter, Value
from passes.vector.lowering import unit_for
from passes.vector.registers import OutOfRegisters, VectorUnit

_ALONE = 6  # most vectors of a single row in one tile
_MOST_TURNS, _LONGEST_TURNS = 64, 8  # unrolled numbers of a short sequential axis: of a whole tile, of one vector
_MOST_OPERATIONS = 24  # in one unrolled loop body: points of the tile times steps


@dataclass(frozen=True, slots=True)
class Units:
    """The instructions for whole vectors and for single lanes. Without a vector dimension both are for single lanes."""

    vector: VectorUnit
    scalar: VectorUnit

    @property
    def masks(self) -> bool:
        """Whether a vector can be computed under a mask register (AVX-512)."""
        return self.vector.evex and not self.vector.scalar


def units(isa: Isa, shape: LeafShape) -> Units:
    """The units for ``shape``: a vector has as many lanes as it holds elements of the widest type that occurs."""
    expression = shape.statement.expression
    vector = unit_for(isa, expression, [r.element for r in shape.reads], shape.write.element)
    scalar = replace(vector, lanes=1)
    return Units(vector if shape.leaf.vector is not None else scalar, scalar)


class TileRunner:
    """The register tiles of one leaf.

    ``rows``, ``vectors``: the largest tile that fits the register file, at most as large as the plan says. ``inner``:
    the axis of the innermost loop. ``turns``: the trip count of a sequential axis that is so short that it is fully
    unrolled into every step of a tile, its numbers starting at ``first_turn``; else 0. Raises Rejected(NO_PLAN) where
    not even a tile of one row and one vector fits.
    """

    def __init__(self, emitter: Emitter, isa: Isa, shape: LeafShape, constants: Callable[[Expression], Mem]) -> None:
        self._emitter = emitter
        self.units = units(isa, shape)
        self._shape = shape
        addresses = [s.address for s in (shape.write, *shape.reads)]
        self._groups = group((*addresses, *shape.indices.values()))
        self._context = TileContext(shape, self._groups, spilled(emitter, self._groups), constants)
        self.first_turn, self.turns = _turns(shape)
        self.inner = SEQUENTIAL if shape.leaf.sequential and not self.turns else VECTOR if shape.leaf.vector else None
        self._allocations: dict[TileKind, Allocation] = {}
        self.rows = self.vectors = 1
        self.rows, self.vectors = self._fitting()

    def kinds(self, rows: int, vectors: int | None = None) -> list[TileKind]:
        """The tiles of ``rows`` rows, from the widest, of ``vectors`` vectors, to a masked vector or a single lane."""
        vector, scalar, inner, turns = self.units.vector, self.units.scalar, self.inner, self.turns or 1
        if vector.scalar:
            return [self.kind(Tile(rows, 1, 1, inner, turns), vector)]
        kinds = [self.kind(Tile(rows, count, vector.lanes, inner, turns), vector)
                 for count in sorted({vectors or self._vectors(rows), 1}, reverse=True)]
        masked = TileKind(Tile(rows, 1, vector.lanes, inner, turns), vector, True, 1)
        if self.units.masks and self.possible(masked):
            return [*kinds, masked]
        return [*kinds, self.kind(Tile(rows, 1, 1, inner, turns), scalar)]

    def _vectors(self, rows: int) -> int:
        """The number of vectors in a tile of ``rows`` rows.

        A remainder row runs more vectors at once than a full tile: each of its steps waits for the one before, and the
        full tile's rows are not there to hide that latency.
        """
        unit, wish = self.units.vector, self.vectors
        if rows < self.rows and self.inner == SEQUENTIAL:
            wish = max(wish, min(self.rows * self.vectors, _ALONE))
        while wish > self.vectors and not self.possible(self.kind(Tile(rows, wish, unit.lanes, self.inner), unit)):
            wish -= 1
        return wish

    def kind(self, tile: Tile, unit: VectorUnit) -> TileKind:
        """``tile``, unmasked, with its unroll factor: at most 4, and 1 where functions are called."""
        steps = 4
        while steps > 1 and steps * tile.row_count * tile.vector_count * tile.turns > _MOST_OPERATIONS:
            steps //= 2
        if (self.inner is None or (self.inner == VECTOR and tile.row_count * tile.vector_count > 1)
                or has_calls(self._shape.statement.expression)):
            steps = 1
        return TileKind(tile, unit, False, steps)

    def possible(self, kind: TileKind) -> bool:
        """Whether registers and instructions suffice for ``kind`` (there is no gather of bytes and words)."""
        try:
            self._allocated(kind)
        except (OutOfRegisters, Rejected):
            return False
        return True

    def _allocated(self, kind: TileKind) -> Allocation:
        if kind not in self._allocations:
            self._allocations[kind] = allocate(self._context, kind)
        return self._allocations[kind]

    def _fitting(self) -> tuple[int, int]:
        """The largest (rows, vectors), within the plan's row and vector counts, that fits the register file."""
        leaf = self._shape.leaf
        rows = leaf.row_count if leaf.rows else 1
        vectors = leaf.vector_count if leaf.vector else 1
        while True:
            self.rows, self.vectors = rows, vectors
            try:
                for count in sorted({rows, 1}):
                    for kind in self.kinds(count):
                        self._allocated(kind)
                return rows, vectors
            except (OutOfRegisters, Rejected) as error:
                if vectors == 1 and rows == 1:
                    raise Rejected(Reason.NO_PLAN, f"{self._shape.statement.name}: {error}") from error
            rows, vectors = (rows, vectors - 1) if vectors > 1 else (rows // 2, vectors)

    def body(self, kind: TileKind) -> TileBody:
        """The code generator of one tile of this kind."""
        return TileBody(self._context, kind, self._allocated(kind), self._emitter)

    def run(self, kind: TileKind, end: Value, names: dict[str, Value], steps: tuple[Value, Value] | None) -> None:
        """Code that runs one tile over the range ``steps`` (None: it has one step); nothing where that is empty.

        The lanes of a masked tile stop before ``end``.
        """
        emitter = self._emitter
        done = emitter.fresh("run_done")
        if steps is not None:
            difference(emitter, "rcx", steps[1], steps[0])
            emitter.op("cmp", "rcx", 0)
            emitter.jump(done, "le")
            names = {**names, SEQUENTIAL: steps[0]}
        if kind.masked:
            difference(emitter, "rdx", end, names[VECTOR])
            masks.first_lanes(emitter, MASK, "rdx")
        body = self.body(kind)
        self.load_pointers(body, names)
        body.begin()
        if steps is None:
            body.emit(1)
        else:
            self.repeat(body)
        body.end()
        emitter.place(done)

    def repeat(self, body: TileBody) -> None:
        """Code that repeats steps, unrolled and then one by one, while rcx, the count left, allows another."""
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

    def load_pointers(self, body: TileBody, names: Names) -> None:
        """Set the pointers of ``body`` to the tile that starts at the row, vector and step of ``names``."""
        starts = {}
        for member in self._groups.groups:
            base = member.base
            starts[member] = (base.rest + Linear.symbol(ROW, base.row) + Linear.symbol(VECTOR, base.vector)
                              + Linear.symbol(SEQUENTIAL, base.sequential))
        body.pointers.load(starts, names)


def _turns(shape: LeafShape) -> tuple[int, int]:
    """First number and length of a sequential axis that is to be fully unrolled, else (0, 0).

    It must be short, have the same constant bounds at every point, and promote results that are always stored.
    """
    leaf = shape.leaf
    bounds = [b for b in shape.bounds if b.sequential]
    always = shape.statement.condition is None and not shape.changed
    if not (leaf.promote and always and bounds) or any(b.row or b.vector for b in bounds):
        return 0, 0
    steps = axis_range(SEQUENTIAL, shape.bounds, {}, common=True)
    first, end = steps.low.constant, steps.high.constant
    most = _MOST_TURNS // ((leaf.row_count if leaf.rows else 1) * (leaf.vector_count if leaf.vector else 1))
    if first is None or end is None or not 0 < end - first <= min(most, _LONGEST_TURNS):
        return 0, 0
    return first, end - first


def copy(emitter: Emitter, place: Value, value: Value) -> None:
    """``place = value``; clobbers rax."""
    assert isinstance(place, Mem)
    emitter.load("rax", value)
    emitter.op("mov", place, "rax")


def difference(emitter: Emitter, register: str, high: Value, low: Value) -> None:
    """``register = high - low``."""
    emitter.load(register, high)
    if low != 0:
        emitter.op("sub", register, low)
