"""Partial steps: the steps of a register tile that only some of its rows or lanes have.

Example: ``for (j < n) for (k <= j) s[j] += a[k][j]`` with lanes j = 0 .. 7. All lanes have step k = 0, only lane 7 has
step k = 7. The common steps run as a whole tile (``leaf_code``), the steps before and after them run here.

Where the rows differ, they run one by one. Where the lanes differ, AVX-512 runs each step under a mask computed from
the bounds, and other instruction sets run lane by lane. Each lane runs exactly its own steps, ascending. One subroutine
for each number of rows serves all tiles of a leaf.
"""

from __future__ import annotations

from collections.abc import Callable

from memopt.ir.linear import Linear
from memopt.x86.instructions import Imm, Mem
from passes.loop_code.ast_code import linear
from passes.loop_code.leaf_shape import ROW, SEQUENTIAL, VECTOR, Along, LeafShape
from passes.loop_code.ranges import Names, axis_range, evaluate, limit
from passes.loop_code.subroutine import Subroutine
from passes.loop_code.tile_body import MASK, TileKind
from passes.loop_code.tile_run import TileRunner, copy, difference
from passes.loop_code.value_numbering import Tile
from passes.vector.emitter import Emitter, Value

_ARGUMENTS = ("row", "row end", "lane", "lane end", "step", "step end")
_ALL = 31  # more lanes than a vector has, and the largest shift count of 32-bit operands


class PartialSteps:
    """The partial steps of one leaf: ``call`` for each tile that has some, then ``emit`` once, behind all calls."""

    def __init__(self, emitter: Emitter, shape: LeafShape, tiles: TileRunner) -> None:
        self._emitter = emitter
        self._shape = shape
        self._tiles = tiles
        bounds = [b for b in shape.bounds if b.sequential]
        self._by_row = any(b.row for b in bounds)
        self._by_lane = tuple(b for b in bounds if b.vector)
        self._routines: dict[int, Subroutine] = {}

    def call(self, kind: TileKind, end: Value, steps: tuple[Value, Value], names: Names) -> None:
        """Code that runs the points of one tile in the range ``steps``; masked lanes stop before ``end``."""
        emitter, tile = self._emitter, kind.tile
        after = emitter.fresh("uneven_done")
        difference(emitter, "rax", steps[1], steps[0])
        emitter.op("cmp", "rax", 0)
        emitter.jump(after, "le")
        rows = 1 if self._by_row else tile.row_count
        routine = self._routines.setdefault(rows, Subroutine(emitter, "uneven"))
        arguments = routine.arguments(_ARGUMENTS)
        for number, axis, count in ((0, ROW, tile.row_count), (2, VECTOR, tile.width)):
            emitter.load("rbx", names[axis])
            emitter.op("mov", arguments[number], "rbx")
            emitter.add("rbx", count, "rcx")
            if axis == VECTOR and kind.masked:
                limit(emitter, "rbx", end, low=False)
            emitter.op("mov", arguments[number + 1], "rbx")
        for place, value in zip(arguments[4:], steps, strict=True):
            copy(emitter, place, value)
        routine.call()
        emitter.place(after)

    def emit(self, names: Names) -> None:
        """The bodies of the subroutines that were called."""
        for rows, routine in self._routines.items():
            with routine.body():
                self._rows(rows, routine.arguments(_ARGUMENTS), names)

    def _rows(self, rows: int, arguments: tuple[Mem, ...], names: Names) -> None:
        emitter = self._emitter
        row, row_end = arguments[:2]
        again = emitter.fresh("uneven_row")
        emitter.place(again)
        self._lanes(rows, arguments[2:], {**names, ROW: row})
        if self._by_row:
            emitter.op("add", row, Imm(1))
            emitter.op("mov", "rax", row)
            emitter.op("cmp", "rax", row_end)
            emitter.jump(again, "l")

    def _lanes(self, rows: int, arguments: tuple[Mem, ...], names: dict[str, Value]) -> None:
        lane, end = arguments[:2]
        names[VECTOR] = position = self._emitter.slot()
        copy(self._emitter, position, lane)
        steps = arguments[2:]
        if not self._by_lane:
            own = self._own_steps(1, steps, names)
            for kind in self._tiles.kinds(rows, 1):
                self._while_lanes(kind, position, end, lambda kind: self._tiles.run(kind, end, names, own))
            return
        stepping = self._stepping(rows)
        if stepping is not None:
            self._while_lanes(stepping, position, end, lambda kind: self._masked_steps(kind, end, steps, names))
            return
        single = self._tiles.kind(Tile(rows, 1, 1, self._tiles.inner), self._tiles.units.scalar)
        self._while_lanes(single, position, end, lambda kind: self._tiles.run(
            kind, end, names, self._own_steps(1, steps, names)))

    def _while_lanes(self, kind: TileKind, position: Mem, end: Mem, action: Callable[[TileKind], None]) -> None:
        """Run ``action`` at each whole vector from ``position`` up to ``end``, and, masked, at a shorter last one."""
        emitter = self._emitter
        again, done = map(emitter.fresh, ("uneven_lanes", "uneven_lanes_done"))
        emitter.place(again)
        emitter.op("mov", "rax", position)
        emitter.op("add", "rax", 1 if kind.masked else kind.tile.width)
        emitter.op("cmp", "rax", end)
        emitter.jump(done, "g")
        action(kind)
        emitter.op("add", position, Imm(kind.tile.width))
        emitter.jump(again)
        emitter.place(done)

    def _own_steps(self, lanes: int, steps: tuple[Mem, ...], names: Names) -> tuple[Mem, Mem]:
        """The part of the range ``steps`` that at least one of ``lanes`` lanes may have."""
        emitter = self._emitter
        own = axis_range(SEQUENTIAL, self._shape.bounds, {VECTOR: lanes}, common=False)
        low, high = emitter.slot(), emitter.slot()
        for place, extent, other in ((low, own.low, steps[0]), (high, own.high, steps[1])):
            evaluate(emitter, extent, "rbx", names)
            limit(emitter, "rbx", other, low=extent.low)
            emitter.op("mov", place, "rbx")
        return low, high

    # a mask for each step

    def _stepping(self, rows: int) -> TileKind | None:
        tiles = self._tiles
        if not tiles.units.masks or any(abs(b.vector) != 1 for b in self._by_lane):
            return None
        unit = tiles.units.vector
        kind = TileKind(Tile(rows, 1, unit.lanes, tiles.inner), unit, True, 1, changing=True)
        return kind if self._shape.write.element.size >= 4 and tiles.possible(kind) else None

    def _masked_steps(self, kind: TileKind, end: Mem, steps: tuple[Mem, ...], names: dict[str, Value]) -> None:
        emitter = self._emitter
        again, nobody, done = map(emitter.fresh, ("masked_step", "no_lane", "masked_steps_done"))
        low, high = self._own_steps(kind.tile.lanes, steps, names)
        difference(emitter, "rcx", high, low)
        emitter.op("cmp", "rcx", 0)
        emitter.jump(done, "le")
        names = {**names, SEQUENTIAL: low}
        ends: list[tuple[Along | None, Mem]] = [(b, self._lane_end(b, names)) for b in self._by_lane]
        ends.append((None, self._lanes_left(end, names)))
        least, most = emitter.slot(), emitter.slot()
        for place, number in ((least, 0), (most, _ALL)):
            emitter.op("mov", place, Imm(number))
        body = self._tiles.body(kind)
        self._tiles.load_pointers(body, names)
        difference(emitter, "rcx", high, low)
        body.begin()
        emitter.place(again)
        self._mask(kind.tile.lanes, ends, least, most)
        # Where no lane has the step, the operand that all lanes share may lie in memory that must not be read.
        emitter.jump(nobody, "e")
        body.emit(1)
        emitter.place(nobody)
        body.advance(1)
        for bound, place in ends:
            if bound is not None:  # an end that depends on the step moves by a constant from step to step
                emitter.op("add", place, Imm(-bound.sequential * bound.vector))
        emitter.op("sub", "rcx", 1)
        emitter.jump(again, "ne")
        body.end()
        emitter.place(done)

    def _lane_end(self, bound: Along, names: Names) -> Mem:
        """The end of the lanes by ``bound``, in a slot, counted from the vector's lane 0.

        For a lower bound the first lane it allows, for an upper bound the first lane it forbids.
        """
        value = bound.rest + Linear.symbol(ROW, bound.row) + Linear.symbol(SEQUENTIAL, bound.sequential)
        lanes = -value if bound.vector > 0 else value + 1
        place = self._emitter.slot()
        linear(self._emitter, "rax", lanes - Linear.symbol(VECTOR), names, "rcx")
        self._emitter.op("mov", place, "rax")
        return place

    def _lanes_left(self, end: Mem, names: Names) -> Mem:
        place = self._emitter.slot()
        difference(self._emitter, "rax", end, names[VECTOR])
        self._emitter.op("mov", place, "rax")
        return place

    def _mask(self, lanes: int, ends: list[tuple[Along | None, Mem]], least: Mem, most: Mem) -> None:
        """``MASK`` = the lanes of a vector that are within all ``ends``; ZF if there are none; clobbers rax and rdx."""
        emitter = self._emitter
        emitter.op("mov", "eax", (1 << lanes) - 1)
        for bound, place in sorted(ends, key=lambda e: e[0] is not None and e[0].vector > 0):
            emitter.op("mov", "rdx", place)
            emitter.op("cmp", "rdx", least)
            emitter.op("cmovl", "rdx", least)
            emitter.op("cmp", "rdx", most)
            emitter.op("cmovg", "rdx", most)
            if bound is None or bound.vector < 0:
                emitter.op("bzhi", "eax", "eax", "edx")
            else:
                emitter.op("shrx", "eax", "eax", "edx")
                emitter.op("shlx", "eax", "eax", "edx")
        emitter.op("kmovw", MASK, "eax")
        emitter.op("test", "eax", "eax")
