"""The micro-kernel: machine code for one register tile of a contraction, reduction innermost and ascending.

``row_count`` x ``vector_count`` accumulators stay in vector registers for the whole block of the reduction (k). An
iteration reads packed panels and the frame, nothing else. Results are loaded once before the loop and stored once after
it; of a statement like ``if (x < c[i][j]) c[i][j] = x`` those are stored that have changed. Invariant: each accumulator
gets exactly the statement's operations, in the statement's operand order, with k ascending.
"""

from __future__ import annotations

from memopt.ir.frozen import dataclass
from memopt.ir.plan import Isa
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Apply, ElementType, Expression, Read, largest
from memopt.x86.instructions import Mem
from passes.contraction_schedule.contraction import Contraction, Role
from passes.vector import conditional
from passes.vector.emitter import Emitter, Value
from passes.vector.instructions import VectorCode, VectorValue
from passes.vector.lowering import Lowering
from passes.vector.registers import Leaf, OutOfRegisters, Registers, VectorUnit

RESULT = "rdi"  # address of the tile's first result; clobbered
ROW_STRIDE = "rsi"  # bytes between rows of results
DEPTH = "rcx"  # iterations of the reduction, at least 1; clobbered
PANELS = ("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")  # panel of each operand, in order; clobbered
_UNROLL = 4
_CACHE_LINE = 64

Invariants = dict[Expression, Mem]
"""Frame slots with the value of each maximal subtree that reads no memory, repeated in every lane."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The statement's expression with its maximal subtrees by what they vary along: the row, the lane, or neither."""

    expression: Expression
    row_trees: tuple[Expression, ...]
    vector_trees: tuple[Expression, ...]
    invariant_trees: tuple[Expression, ...]


def shape(contraction: Contraction) -> Shape:
    """Splits the statement's expression into subtrees that are computed once for a row, a vector or the whole
    kernel."""
    expression = contraction.statement.expression
    operands = dict(contraction.operands)

    def varies(node: Expression) -> frozenset[str]:
        if isinstance(node, Read):
            if node.index in contraction.accumulators:
                return frozenset(("row", "vector"))
            return frozenset(("row",) if operands[node.index].role is Role.BROADCAST else ("vector",))
        if isinstance(node, Apply):
            return frozenset().union(*map(varies, node.operands))
        return frozenset()

    def trees(*kind: str) -> tuple[Expression, ...]:
        return tuple(dict.fromkeys(largest(expression, lambda node: varies(node) == frozenset(kind))))

    return Shape(expression, trees("row"), trees("vector"), trees())


@dataclass(frozen=True, slots=True)
class RegisterMap:
    """The register allocation of the tile. ``keep_vectors``: vector operands are loaded once for all rows."""

    accumulators: tuple[tuple[str, ...], ...]
    keep_vectors: bool


class MicroKernel:
    """Generates code for one full register tile. The module's constants name the registers that it expects. ``before``:
    where the results are kept as they were, row after row, if only changed ones are stored (``Contraction.changed``).

    Raises ``Rejected(NO_SCHEDULE)`` for more operands than there are panel pointers, ``OutOfRegisters`` for a tile that
    does not fit the register file.
    """

    def __init__(self, contraction: Contraction, invariants: Invariants, before: Mem | None = None) -> None:
        if len(contraction.operands) > len(PANELS):
            raise Rejected(Reason.NO_SCHEDULE, f"the statement has {len(contraction.operands)} operands")
        self._contraction = contraction
        self._unit = VectorUnit(contraction.isa, contraction.element)
        self._shape = shape(contraction)
        self._invariants = invariants
        self._before = before
        self._operands = dict(contraction.operands)
        self._pointers = {index: PANELS[n] for n, (index, _) in enumerate(contraction.operands)}

    def emit(self, emitter: Emitter, next_tile: Value) -> None:
        """Emits the tile. ``next_tile``: bytes from this tile's results to those of the next one, which are
        prefetched."""
        registers = self._register_map()
        self._results(emitter, registers, store=False)
        self._prefetch(emitter, next_tile)
        remainder, loop, last, done = map(emitter.fresh, ("remainder", "depth", "single", "depth_done"))
        emitter.op("mov", "rdx", DEPTH)
        emitter.op("shr", "rdx", _UNROLL.bit_length() - 1)
        emitter.jump(remainder, "e")
        emitter.align(64)
        emitter.place(loop)
        for step in range(_UNROLL):
            self._step(emitter, registers, step)
        self._advance(emitter, _UNROLL)
        emitter.op("sub", "rdx", 1)
        emitter.jump(loop, "ne")
        emitter.place(remainder)
        emitter.op("and", DEPTH, _UNROLL - 1)
        emitter.jump(done, "e")
        emitter.place(last)
        self._step(emitter, registers, 0)
        self._advance(emitter, 1)
        emitter.op("sub", DEPTH, 1)
        emitter.jump(last, "ne")
        emitter.place(done)
        self._results(emitter, registers, store=True)

    def _register_map(self) -> RegisterMap:
        """Accumulators first. Vector operands stay in registers when that leaves enough for the rest."""
        tile = self._contraction.plan.tile
        names = iter(range(tile.row_count * tile.vector_count))
        if tile.row_count * tile.vector_count >= self._unit.isa.registers:
            raise OutOfRegisters("the accumulators alone do not fit the register file")
        accumulators = tuple(tuple(self._unit.register(next(names)) for _ in range(tile.vector_count))
                             for _ in range(tile.row_count))
        kept = RegisterMap(accumulators, keep_vectors=True)
        try:
            self._step(Emitter(0), kept, 0)
        except OutOfRegisters:
            reloaded = RegisterMap(accumulators, keep_vectors=False)
            self._step(Emitter(0), reloaded, 0)
            return reloaded
        return kept

    def _results(self, emitter: Emitter, registers: RegisterMap, *, store: bool) -> None:
        """Loads or stores all accumulators, row by row."""
        if store and self._before is not None:
            self._changed_results(emitter, registers)
            return
        move = self._unit.mnemonic("movu")
        emitter.op("mov", "rax", RESULT)
        for number, row in enumerate(registers.accumulators):
            if number:
                emitter.op("add", "rax", ROW_STRIDE)
            for position, register in enumerate(row):
                memory = self._unit.at("rax", position * self._unit.bytes)
                emitter.op(move, *((memory, register) if store else (register, memory)))
                if self._before is not None:
                    emitter.op(move, self._kept(number, position), register)

    def _changed_results(self, emitter: Emitter, registers: RegisterMap) -> None:
        """Stores each accumulator that is not what memory holds: the others have not been stored to by the original."""
        tile, element = self._contraction.plan.tile, self._contraction.element
        pool = Registers(self._unit, tile.row_count * tile.vector_count)
        code = VectorCode(self._unit, emitter, pool, spare="rdx")

        def constant(bits: int, kind: ElementType) -> VectorValue:
            register = pool.take()
            code.constant(register, bits, kind)
            return VectorValue(register, ours=True)

        emitter.op("mov", "rax", RESULT)
        for number, row in enumerate(registers.accumulators):
            if number:
                emitter.op("add", "rax", ROW_STRIDE)
            for position, register in enumerate(row):
                memory = self._unit.at("rax", position * self._unit.bytes)
                conditional.store_changed(code, memory, register, self._kept(number, position), element.size, element,
                                          constant)

    def _kept(self, row: int, position: int) -> Mem:
        """Where a vector of results is kept as it was before the loop."""
        assert self._before is not None
        assert self._before.base is not None
        number = row * self._contraction.plan.tile.vector_count + position
        return self._unit.at(self._before.base, self._before.displacement + number * self._unit.bytes)

    def _prefetch(self, emitter: Emitter, next_tile: Value) -> None:
        """A tile starts by loading its results. Prefetch those of the next tile a whole block of the reduction
        ahead."""
        tile = self._contraction.plan.tile
        row_bytes = tile.vector_count * self._unit.bytes
        emitter.op("mov", "rax", RESULT)
        emitter.add("rax", next_tile, "rdx")
        for number in range(tile.row_count):
            if number:
                emitter.op("add", "rax", ROW_STRIDE)
            for offset in (*range(0, row_bytes, _CACHE_LINE), row_bytes - 1):
                emitter.op("prefetcht0", Mem("rax", displacement=offset))

    def _step(self, emitter: Emitter, registers: RegisterMap, step: int) -> None:
        """One iteration of the reduction for the whole tile, at panel position ``step``."""
        tile = self._contraction.plan.tile
        pool = Registers(self._unit, tile.row_count * tile.vector_count)
        lowering = Lowering(self._unit, emitter, pool, aligned=True)
        kept: dict[tuple[Expression, int], str] = {}
        if registers.keep_vectors:
            for tree in self._shape.vector_trees:
                for position in range(tile.vector_count):
                    register = pool.take()
                    lowering.into(register, tree, self._leaf(step, 0, position, {}, None))
                    kept[tree, position] = register
        for row in range(tile.row_count):
            row_kept: dict[tuple[Expression, int], str] = {}
            for tree in self._shape.row_trees:
                # On SSE2 a read stays a memory operand: its panel holds a whole vector of copies.
                if not (self._unit.isa is Isa.SSE2 and isinstance(tree, Read)):
                    register = pool.take()
                    lowering.into(register, tree, self._leaf(step, row, 0, {}, None))
                    row_kept[tree, -1] = register
            for position in range(tile.vector_count):
                accumulator = registers.accumulators[row][position]
                leaf = self._leaf(step, row, position, kept | row_kept, accumulator)
                if not self._fused(lowering, accumulator, leaf):
                    lowering.into(accumulator, self._shape.expression, leaf)
            for register in row_kept.values():
                pool.give(register)

    def _leaf(self, step: int, row: int, position: int, kept: dict[tuple[Expression, int], str],
              accumulator: str | None) -> Leaf:
        """Where the values of subtrees are during one iteration, for one row and one vector of the tile."""
        element = self._contraction.element.size

        def place(node: Expression) -> str | Mem | None:
            if (register := kept.get((node, position)) or kept.get((node, -1))) is not None:
                return register
            if node in self._invariants:
                return self._invariants[node]
            if not isinstance(node, Read):
                return None
            if node.index in self._contraction.accumulators:
                return accumulator
            operand, base = self._operands[node.index], self._pointers[node.index]
            start = step * operand.step(element)
            if operand.role is Role.VECTOR:
                return self._unit.at(base, start + position * self._unit.bytes)
            start += row * element * operand.copies
            if operand.copies > 1:
                return self._unit.at(base, start)
            return Mem(base, displacement=start, size=element, broadcast=self._unit.bytes // element)

        return place

    def _fused(self, lowering: Lowering, accumulator: str, leaf: Leaf) -> bool:
        """Contracts ``W + x * y`` or ``W - x * y`` into a fused multiply-add where the plan permits it. Returns whether
        it did."""
        root = self._shape.expression
        if not (self._contraction.plan.fuse_multiply_add and isinstance(root, Apply)
                and root.operator in ("add", "sub") and self._unit.three_operands):
            return False
        operands = root.operands[::-1] if root.operator == "add" and not self._is_result(root.operands[0]) \
            else root.operands
        product = operands[1]
        if not (self._is_result(operands[0]) and isinstance(product, Apply) and product.operator == "mul"):
            return False
        name = "fmadd231" if root.operator == "add" else "fnmadd231"
        lowering.fused(name, accumulator, product.operands, leaf)
        return True

    def _is_result(self, node: Expression) -> bool:
        return isinstance(node, Read) and node.index in self._contraction.accumulators

    def _advance(self, emitter: Emitter, steps: int) -> None:
        for index, operand in self._contraction.operands:
            emitter.add(self._pointers[index], steps * operand.step(self._contraction.element.size), "rax")
