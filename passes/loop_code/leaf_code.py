"""Code for one macro instance: register tiles over rows and vectors, the sequential dimension innermost.

Example: ``C[i][j] += A[i][k] * B[k][j]`` with rows i, vector j, sequential k. The rows run in blocks of ``row_count``.
The lanes j that every row of a block has run as tiles: several vectors wide, then one vector, then the remainder as a
masked vector or as single lanes. The lanes that only some rows of the block have (``j <= i``) run row by row. Inside a
tile the steps k that all its lanes have run together; the steps before and after, which only some lanes have, are
partial steps (``partial_tiles``).

In: the shape of a leaf, the symbols and dates. Out: instructions in the emitter. Each lane computes exactly its points
of the iteration domain, steps ascending, by whichever of these loops.
"""

from __future__ import annotations

from collections.abc import Callable

from memopt.ir.plan import Isa
from memopt.ir.scop import Expression
from memopt.x86.instructions import Imm, Mem
from passes.loop_code.ast_code import linear
from passes.loop_code.leaf_shape import ROW, SEQUENTIAL, VECTOR, LeafShape
from passes.loop_code.partial_tiles import PartialSteps
from passes.loop_code.ranges import Names, Range, axis_range, limit, stored
from passes.loop_code.tile_body import MASK, TileKind
from passes.loop_code.tile_run import TileRunner, copy, difference
from passes.vector import masks
from passes.vector.emitter import Emitter, Value

_NOWHERE = -(1 << 62)  # both ends of an empty range of lanes: below every lane


class LeafCode:
    """The code generator of one leaf; ``constants`` says where in memory the value of a constant operand lies."""

    def __init__(self, emitter: Emitter, isa: Isa, shape: LeafShape, constants: Callable[[Expression], Mem]) -> None:
        self._emitter = emitter
        self._shape, self._definitions = shape.with_definitions()
        self._tiles = TileRunner(emitter, isa, self._shape, constants)
        self._uneven = PartialSteps(emitter, self._shape, self._tiles)

    def emit(self, names: Names) -> None:
        """Code for one macro instance; ``names`` says where symbols and dates are.

        The code clobbers every register but rbp and rsp. Raises Rejected(NO_PLAN) where an address is out of reach.
        """
        emitter, shape = self._emitter, self._shape
        names = dict(names)
        for symbol, definition in self._definitions:
            names[symbol] = emitter.slot()
            linear(emitter, "rax", definition, names, "rcx")
            emitter.op("mov", names[symbol], "rax")
        names[ROW], names[VECTOR], names[SEQUENTIAL] = 0, 0, self._tiles.first_turn
        if shape.leaf.rows is None:
            self._single_row(names, None)
        else:
            self._row_blocks(names)
        self._uneven.emit(names)

    # rows

    def _row_blocks(self, names: dict[str, Value]) -> None:
        emitter = self._emitter
        rows = axis_range(ROW, self._shape.row_bounds, {}, common=False)
        first, end = stored(emitter, rows.low, names), stored(emitter, rows.high, names)
        names[ROW] = row = emitter.slot()
        copy(emitter, row, first)
        again, single, done = map(emitter.fresh, ("rows", "row", "rows_done"))
        emitter.place(again)
        coupled = any(b.row and b.vector for b in self._shape.row_vector_bounds)
        block_end: Value = emitter.slot() if coupled else end
        common: tuple[Value, Value] | None = None
        if self._tiles.rows > 1:
            partial = emitter.fresh("rows_left")
            emitter.op("mov", "rax", row)
            emitter.add("rax", self._tiles.rows, "rcx")
            emitter.op("cmp", "rax", end)
            emitter.jump(partial, "g")
            common = self._vector_range({ROW: self._tiles.rows}, names, common=True)
            if coupled:
                copy(emitter, block_end, row)
                emitter.op("add", block_end, Imm(self._tiles.rows))
                common = self._not_crossed(common)
            self._vector_part(self._tiles.rows, common, names)
            if coupled:
                emitter.jump(single)
                emitter.place(partial)
                for place, value in ((block_end, end), *((c, _NOWHERE) for c in common)):
                    copy(emitter, place, value)
            else:
                emitter.op("add", row, Imm(self._tiles.rows))
                emitter.jump(again)
                emitter.place(partial)
        elif coupled:
            copy(emitter, block_end, end)
        emitter.place(single)
        emitter.op("mov", "rax", row)
        emitter.op("cmp", "rax", block_end)
        emitter.jump(done, "ge")
        self._single_row(names, common if coupled else None)
        emitter.op("add", row, Imm(1))
        emitter.jump(single)
        emitter.place(done)
        if self._tiles.rows > 1 and coupled:
            emitter.op("mov", "rax", row)
            emitter.op("cmp", "rax", end)
            emitter.jump(again, "l")

    def _not_crossed(self, lanes: tuple[Value, Value]) -> tuple[Mem, Mem]:
        """The range ``lanes`` in slots, with both ends ``_NOWHERE`` if it is empty.

        An empty range with low > high would otherwise make the two sides of ``_single_row`` overlap.
        """
        emitter, fine = self._emitter, self._emitter.fresh("some")
        low, high = emitter.slot(), emitter.slot()
        copy(emitter, low, lanes[0])
        copy(emitter, high, lanes[1])
        emitter.op("cmp", "rax", low)
        emitter.jump(fine, "g")
        copy(emitter, low, _NOWHERE)
        copy(emitter, high, _NOWHERE)
        emitter.place(fine)
        return low, high

    def _single_row(self, names: dict[str, Value], common: tuple[Value, Value] | None) -> None:
        """The lanes of one row, without those in ``common``, which its block has run already.

        The code runs twice: for the lanes before ``common`` (phase 0) and for the lanes behind it (phase 1).
        """
        emitter = self._emitter
        whole = self._vector_range({}, names, common=False)
        if common is None:
            self._vector_part(1, whole, names)
            return
        phase, low, high = emitter.slot(), emitter.slot(), emitter.slot()
        again, behind, run = map(emitter.fresh, ("side", "behind", "side_run"))
        copy(emitter, phase, 0)
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
        """Tiles of ``rows`` rows over the range ``lanes``, which all of these rows have."""
        kinds = self._tiles.kinds(rows)
        if self._tiles.inner == VECTOR:
            self._stream(kinds, lanes, names)
            return
        if self._shape.leaf.vector is None:
            self._tile(kinds[0], 1, names)
            return
        emitter = self._emitter
        position, names = emitter.slot(), dict(names)
        names[VECTOR] = position
        copy(emitter, position, lanes[0])
        for kind in kinds:
            again, following = map(emitter.fresh, ("vectors", "vectors_done"))
            emitter.place(again)
            emitter.op("mov", "rax", position)
            emitter.add("rax", 1 if kind.masked else kind.tile.width, "rcx")
            emitter.op("cmp", "rax", lanes[1])
            emitter.jump(following, "g")
            self._tile(kind, lanes[1], names)
            if not kind.masked:
                emitter.op("add", position, Imm(kind.tile.width))
                emitter.jump(again)
            emitter.place(following)

    def _stream(self, kinds: list[TileKind], lanes: tuple[Value, Value], names: dict[str, Value]) -> None:
        """The tiles of a leaf without a sequential dimension: vectors are the innermost loop, rcx counts lanes left."""
        emitter = self._emitter
        done = emitter.fresh("stream_done")
        names = {**names, VECTOR: lanes[0]}
        bodies = [self._tiles.body(k) for k in kinds]
        self._tiles.load_pointers(bodies[0], names)
        difference(emitter, "rcx", lanes[1], lanes[0])
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
                self._tiles.repeat(body)
            body.end()
            emitter.place(following)
        emitter.place(done)

    # steps

    def _tile(self, kind: TileKind, end: Value, names: dict[str, Value]) -> None:
        """One tile with all its steps: partial steps, common steps, partial steps; masked lanes stop before ``end``."""
        emitter, tile = self._emitter, kind.tile
        if self._tiles.inner is None:
            self._tiles.run(kind, end, names, None)
            return
        block = {ROW: tile.row_count, VECTOR: tile.width}
        common = axis_range(SEQUENTIAL, self._shape.bounds, block, common=True)
        some = axis_range(SEQUENTIAL, self._shape.bounds, block, common=False)
        if common == some:
            self._tiles.run(kind, end, names, self._steps(common, names))
            return
        common_steps, some_steps = self._steps(common, names), self._steps(some, names)
        apart, done = map(emitter.fresh, ("apart", "tile_done"))
        difference(emitter, "rax", common_steps[1], common_steps[0])
        emitter.op("cmp", "rax", 0)
        emitter.jump(apart, "le")
        self._uneven.call(kind, end, (some_steps[0], common_steps[0]), names)
        self._tiles.run(kind, end, names, common_steps)
        self._uneven.call(kind, end, (common_steps[1], some_steps[1]), names)
        emitter.jump(done)
        emitter.place(apart)
        self._uneven.call(kind, end, some_steps, names)
        emitter.place(done)

    def _steps(self, steps: Range, names: Names) -> tuple[Value, Value]:
        return stored(self._emitter, steps.low, names), stored(self._emitter, steps.high, names)
