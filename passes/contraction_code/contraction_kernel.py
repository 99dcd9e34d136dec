"""The kernel of a contraction: machine code that runs iterations 0 <= outer < H as its plan says.

In: a ``Contraction``, the frame layout, the placement of scratch memory, an ``Emitter``. Out: code in the emitter.
Convention at entry: ``rbp`` holds the frame address, symbol values and H lie in the frame, live-in vector registers
still hold their values.

Sound for ragged register tiles: they run the same micro-kernel on a copy of the results whose missing rows and lanes
repeat valid ones, so that no lane computes anything that the original does not compute.
"""

from __future__ import annotations

from collections.abc import Iterator

from memopt.ir.code import Placement
from memopt.ir.linear import Compound, Linear, Product
from memopt.ir.plan import Isa, Plan
from memopt.ir.region import Region
from memopt.ir.scop import Apply, Constant, Expression, Scalar, largest, reads_of
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import Mem
from passes.contraction_code import micro_kernel, packing_code, ragged
from passes.contraction_code.tile_loops import TileLoops, difference
from passes.contraction_schedule.contraction import AffineAccess, Contraction, Operand, contraction
from passes.vector.emitter import Emitter, Value, register_of
from passes.vector.lowering import Lowering
from passes.vector.registers import Registers, VectorUnit

_ALIGNMENT = 64


def scratch_bytes(region: Region, plan: Plan) -> int:
    """Bytes of scratch memory that the kernel needs, without generating it. Raises what ``contraction`` raises."""
    return _scratch(contraction(region, plan))[1]


def _scratch(facts: Contraction) -> tuple[dict[int, int], int]:
    """The offset of each operand's panels in scratch memory, behind the ragged tile, and the bytes of all."""
    size = facts.row_count * facts.column_count * facts.element.size
    offset, panels = -(-size // _ALIGNMENT) * _ALIGNMENT, {}
    for index, operand in facts.operands:
        panels[index] = offset
        offset += operand.size(facts.element.size)
    return panels, offset


class ContractionKernel:
    """The kernel of one contraction. ``prepare`` comes first, then ``run``; both write to ``emitter``."""

    def __init__(self, facts: Contraction, layout: FrameLayout, placement: Placement, emitter: Emitter) -> None:
        self._contraction = facts
        self._layout = layout
        self._scratch = placement.scratch
        self._panels, _ = _scratch(facts)
        self._emitter = emitter
        self._unit = VectorUnit(facts.isa, facts.element)
        # Extents and strides that are known at entry only are computed here, before the loops that use them.
        self._early = emitter.section()
        self._values: dict[Linear, Mem] = {}
        extents = {d: self._value(e) for d, e in facts.extents}
        self._empty = any(e == 0 for e in extents.values())
        self._loops = TileLoops(self._emitter, facts.plan.loops, extents)
        self._innermost = len(facts.plan.loops) - 1

    def prepare(self) -> None:
        """Saves loop invariants that lie in live-in registers, and addresses, to the frame.

        All parts of a nest do this before any part computes, because computing clobbers the registers.
        """
        if not self._empty:
            self._invariants: micro_kernel.Invariants = {}
            packed = (o.computed for _, o in self._contraction.operands if o.computed is not None)
            trees = (*micro_kernel.shape(self._contraction).invariant_trees,
                     *(t for node in packed for t in largest(node, lambda n: not [*reads_of(n)])))
            for node in dict.fromkeys(n for tree in trees for n in _leaves(tree)):
                self._invariants[node] = self._emitter.slot(self._unit.bytes)
                self._fill(self._invariants[node], node)
            self._computed = [tree for tree in dict.fromkeys(trees) if tree not in self._invariants]
            for tree in self._computed:
                self._invariants[tree] = self._emitter.slot(self._unit.bytes)
            facts = self._contraction
            size = facts.row_count * facts.column_count * facts.element.size
            self._before = self._emitter.slot(size) if facts.changed else None
            self._micro_kernel = micro_kernel.MicroKernel(facts, self._invariants, self._before)
            self._rows, self._columns, self._result = (self._emitter.slot() for _ in range(3))

    def run(self) -> None:
        """Emits the loops. Nothing where a loop has no iterations."""
        if not self._empty:
            self._compute_invariants()
            self._loops.emit(self._inside)

    def _symbol(self, name: str) -> Mem:
        return Mem("rbp", displacement=self._layout.symbols[name], size=8)

    # before the loops

    def _compute_invariants(self) -> None:
        """Computes loop-invariant subtrees once. At least one iteration runs, so the original computes them too."""
        known: micro_kernel.Invariants = {n: p for n, p in self._invariants.items() if n not in self._computed}
        for tree in self._computed:
            registers = Registers(self._unit)
            target = registers.take()
            Lowering(self._unit, self._emitter, registers, aligned=True).into(target, tree, known.get)
            known[tree] = self._invariants[tree]
            self._emitter.op(self._unit.mnemonic("mova"), known[tree], target)

    def _fill(self, place: Mem, node: Expression) -> None:
        """Repeats a scalar in every lane of a frame slot, through a general-purpose register: live-in vectors stay
        unchanged."""
        size = self._contraction.element.size
        register = register_of(size, "rax").name
        if isinstance(node, Constant):
            self._emitter.op("movabs" if size == 8 else "mov", register, node.bits)
        elif isinstance(node, Scalar) and node.offset:
            saved = Mem("rbp", displacement=self._layout.lane(node.register, node.offset), size=size)
            self._emitter.op("mov", register, saved)
        elif isinstance(node, Scalar):
            move = ("" if self._contraction.isa is Isa.SSE2 else "v") + ("movq" if size == 8 else "movd")
            self._emitter.op(move, register, "xmm" + node.register[3:])
        for offset in range(0, place.size, size):
            self._emitter.op("mov", Mem("rbp", displacement=place.displacement + offset, size=size), register)

    def _value(self, expression: Linear) -> Value:
        """``expression``, over symbols in the frame, modulo 2**64: a number, or the slot that holds it in the loops."""
        if expression.is_constant:
            return expression.constant
        if expression not in self._values:
            ((symbol, coefficient), *more), constant = expression.terms, expression.constant
            alone = not (more or constant or coefficient != 1 or isinstance(symbol, Compound))
            self._values[expression] = self._symbol(symbol) if alone else self._computed_early(expression)
        return self._values[expression]

    def _computed_early(self, expression: Linear) -> Mem:
        emitter, place = self._early, self._early.slot()
        emitter.load("rax", expression.constant)
        for symbol, coefficient in expression.terms:
            first, *others = symbol.factors if isinstance(symbol, Product) else (symbol,)
            emitter.load("rcx", self._symbol(first))
            for other in others:
                emitter.op("imul", "rcx", self._symbol(other))
            emitter.scale("rcx", coefficient, "rdx")
            emitter.op("add", "rax", "rcx")
        emitter.op("mov", place, "rax")
        return place

    # inside the loops

    def _inside(self, level: int) -> None:
        for index, operand in self._contraction.operands:
            if operand.pack.level == level:
                self._pack(index, operand)
        if level == self._innermost:
            self._tile()

    def _address(self, register: str, stream: AffineAccess, level: int) -> None:
        """``register`` = address of the first element of the current block; clobbers rax and rcx."""
        self._emitter.load(register, self._value(stream.base))
        for dimension, stride in stream.strides:
            position = self._loops.position(dimension, level)
            if isinstance(position, Mem):
                self._emitter.load("rax", position)
                distance = self._value(stride)
                if isinstance(distance, Mem):
                    self._emitter.op("imul", "rax", distance)
                else:
                    self._emitter.scale("rax", distance, "rcx")
                self._emitter.op("add", register, "rax")

    def _count(self, register: str, dimension: str, level: int) -> None:
        """``register`` = iterations of ``dimension`` in the current block, at least 1."""
        limit, position = self._loops.limit(dimension, level), self._loops.position(dimension, level)
        difference(self._emitter, register, limit, position)

    def _pack(self, index: int, operand: Operand) -> None:
        level, tile = operand.pack.level, self._contraction.plan.tile
        self._address(packing_code.SOURCE, operand.stream, level)
        self._emitter.load_address(packing_code.PANEL, self._scratch + self._panels[index])
        self._count(packing_code.COUNT, operand.pack.dimension, level)
        self._count(packing_code.DEPTH, tile.reduction, level)
        along, down = operand.stream.stride(operand.pack.dimension), operand.stream.stride(tile.reduction)
        packing_code.PanelPacking(operand, self._contraction.element.size, along, down,
                                  self._contraction.isa, self._value, self._unit, self._invariants).emit(self._emitter)

    def _panel(self, register: str, index: int, operand: Operand) -> None:
        """``register`` = address where the current tile's panel starts; clobbers rax and rcx."""
        element, tile = self._contraction.element.size, self._contraction.plan.tile
        self._emitter.load_address(register, self._scratch + self._panels[index])
        for dimension, factor in ((operand.pack.dimension, operand.panel_bytes(element) // operand.pack.width),
                                  (tile.reduction, operand.step(element))):
            here = self._loops.position(dimension, self._innermost)
            packed = self._loops.position(dimension, operand.pack.level)
            if here != packed:
                difference(self._emitter, "rax", here, packed)
                self._emitter.scale("rax", factor, "rcx")
                self._emitter.op("add", register, "rax")

    def _tile(self) -> None:
        """One register tile, on the results themselves or, where it is ragged or its lanes are no neighbours, on a copy
        of them."""
        emitter, facts, tile = self._emitter, self._contraction, self._contraction.plan.tile
        direct = facts.result.stride(tile.vector) == Linear.of(facts.element.size)
        row_stride, column_stride = (self._value(facts.result.stride(d)) for d in (tile.rows, tile.vector))
        self._address(micro_kernel.RESULT, facts.result, self._innermost)
        if direct and self._loops.always_full(tile.rows, facts.row_count) and self._loops.always_full(
                tile.vector, facts.column_count):
            emitter.load(micro_kernel.ROW_STRIDE, row_stride)
            self._compute()
            return
        compute, finished = map(emitter.fresh, ("tile", "tile_done"))
        self._count(ragged.ROWS, tile.rows, self._innermost)
        self._count(ragged.COLUMNS, tile.vector, self._innermost)
        kept = ((self._result, micro_kernel.RESULT), (self._rows, ragged.ROWS), (self._columns, ragged.COLUMNS))
        for place, register in kept:
            emitter.op("mov", place, register)
        copy = ragged.RaggedTile(self._scratch, facts.row_count, facts.column_count, facts.element.size,
                                 row_stride, column_stride, self._before)
        if direct:
            emitter.load(micro_kernel.ROW_STRIDE, copy.row_stride)
            self._unless_ragged(compute)
        copy.copy_in(emitter)
        emitter.load(micro_kernel.ROW_STRIDE, copy.row_bytes)
        emitter.place(compute)
        self._compute()
        for place, register in kept:
            emitter.op("mov", register, place)
        if direct:
            self._unless_ragged(finished)
        copy.copy_out(emitter)
        emitter.place(finished)

    def _unless_ragged(self, target: str) -> None:
        """Jumps to ``target`` when the counted rows and columns make a full tile."""
        partial = self._emitter.fresh("partial")
        self._emitter.op("cmp", ragged.ROWS, self._contraction.row_count)
        self._emitter.jump(partial, "l")
        self._emitter.op("cmp", ragged.COLUMNS, self._contraction.column_count)
        self._emitter.jump(target, "ge")
        self._emitter.place(partial)

    def _compute(self) -> None:
        """The micro-kernel on the results at rdi, rows rsi bytes apart."""
        for (index, operand), register in zip(self._contraction.operands, micro_kernel.PANELS, strict=False):
            self._panel(register, index, operand)
        self._count(micro_kernel.DEPTH, self._contraction.plan.tile.reduction, self._innermost)
        self._micro_kernel.emit(self._emitter, self._next_tile())

    def _next_tile(self) -> Value:
        """Bytes from the results of this register tile to those of the next."""
        loop = self._contraction.plan.loops[self._innermost]
        return self._value(self._contraction.result.stride(loop.dimension) * loop.size)


def _leaves(tree: Expression) -> Iterator[Expression]:
    if isinstance(tree, Apply):
        for operand in tree.operands:
            yield from _leaves(operand)
    else:
        yield tree
