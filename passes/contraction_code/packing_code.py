"""Packing code: machine code that copies a block of an operand into contiguous panels.

Example: a panel of width 24 of ``B[k][j]`` holds ``B[0][j..j+23]``, ``B[1][j..j+23]``, ...: for each k in ascending
order, ``width`` elements along the operand's tile dimension. The micro-kernel then reads memory strictly forward,
whatever the strides of the array are. A panel may hold ``alpha * B[k][j]`` instead (``Operand.computed``): that is
computed in place, once the panel is full.

Sound: only elements that the original reads are read. A ragged last panel repeats its last valid element, so a lane
that the original never computes repeats the operations of a lane that it does compute, and raises no exception flag of
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.plan import Isa
from memopt.ir.scop import Expression, Read
from memopt.x86.instructions import Mem
from passes.contraction_schedule.contraction import Operand
from passes.vector.emitter import Emitter, Value, displaced, register_of
from passes.vector.lowering import Lowering
from passes.vector.registers import Registers, VectorUnit

SOURCE = "rsi"  # address of the block's first element; clobbered
PANEL = "rdi"  # address of the first panel; clobbered
COUNT = "rdx"  # elements along the tile dimension, at least 1; clobbered
DEPTH = "rbx"  # elements along the reduction, at least 1; kept
_GROUP = 8  # elements copied side by side: no more streams than L1 has ways
_ODD_MULTIPLES = {1: "r12", 3: "r13", 5: "r14", 7: "r15"}  # of a distance that is known at entry only


@dataclass(frozen=True, slots=True)
class PanelPacking:
    """Generates the copy of one operand's block."""

    operand: Operand
    element: int  # bytes of an element
    along: Linear  # bytes in the source from one element of a panel's row to the next
    down: Linear  # bytes in the source from one k to the next
    isa: Isa
    value: Callable[[Linear], Value]  # a number, or the frame slot that holds it
    unit: VectorUnit
    invariants: Mapping[Expression, Mem]  # what ``Operand.computed`` reads besides the element, in every lane

    @property
    def width(self) -> int:
        """Elements in one row of a panel."""
        return self.operand.pack.width

    @property
    def step(self) -> int:
        """Bytes from one k to the next inside a panel."""
        return self.operand.step(self.element)

    def emit(self, emitter: Emitter) -> None:
        """Packs the whole block, panel by panel. Clobbers rax, rcx and r8 - r15 besides the registers named above."""
        panel, ragged, done = map(emitter.fresh, ("panel", "ragged", "packed"))
        emitter.place(panel)
        emitter.op("cmp", COUNT, self.width)
        emitter.jump(ragged, "l")
        self._full_panel(emitter)
        self._compute(emitter)
        emitter.add(SOURCE, self.value(self.along * self.width), "rax")
        emitter.add(PANEL, self.operand.panel_bytes(self.element), "rax")
        emitter.op("sub", COUNT, self.width)
        emitter.jump(panel, "g")
        emitter.jump(done)
        emitter.place(ragged)
        self._ragged_panel(emitter)
        self._compute(emitter)
        emitter.place(done)

    def _full_panel(self, emitter: Emitter) -> None:
        if self.along == Linear.of(self.element) and self.operand.copies == 1:
            self._contiguous_rows(emitter)
        else:
            self._strided_elements(emitter)

    def _contiguous_rows(self, emitter: Emitter) -> None:
        """For each k the elements are contiguous: they are copied in the widest moves that fill a row exactly."""
        chunk = next(c for c in (self.isa.vector_bytes, 32, 16, 8, 4)
                     if c <= self.isa.vector_bytes and self.step % c == 0)

        def copy() -> None:
            for offset in range(0, self.step, chunk):
                self._copy_chunk(emitter, chunk, offset)

        self._down_the_reduction(emitter, SOURCE, PANEL, copy)

    def _down_the_reduction(self, emitter: Emitter, source: str, panel: str, copy: Callable[[], None]) -> None:
        """Runs ``copy`` for each of DEPTH steps, with r8 and r9 advancing from ``source`` and ``panel``; clobbers
        rcx."""
        loop = emitter.fresh("row")
        emitter.op("mov", "r8", source)
        emitter.op("mov", "r9", panel)
        emitter.op("mov", "rcx", DEPTH)
        emitter.align(32)
        emitter.place(loop)
        copy()
        emitter.add("r8", self.value(self.down), "rax")
        emitter.op("add", "r9", self.step)
        emitter.op("sub", "rcx", 1)
        emitter.jump(loop, "ne")

    def _copy_chunk(self, emitter: Emitter, chunk: int, offset: int) -> None:
        source, target = Mem("r8", displacement=offset, size=chunk), Mem("r9", displacement=offset, size=chunk)
        if chunk <= 8:
            register = register_of(chunk, "rax").name
            emitter.op("mov", register, source)
            emitter.op("mov", target, register)
            return
        register = {16: "xmm", 32: "ymm", 64: "zmm"}[chunk] + str(offset // chunk % 8)
        move = "movups" if self.isa is Isa.SSE2 else "vmovups"
        emitter.op(move, register, source)
        emitter.op(move, target, register)

    def _strided_elements(self, emitter: Emitter) -> None:
        """Element by element: groups of a few elements along the panel, each group down the whole reduction."""
        group = max(g for g in range(1, _GROUP + 1) if self.width % g == 0)
        across = emitter.fresh("group")
        emitter.op("mov", "r10", SOURCE)
        emitter.op("mov", "r11", PANEL)
        sources = tuple(self._sources(emitter, group))
        emitter.place(across)

        def copy() -> None:
            for member, source in enumerate(sources):
                self._copy_element(emitter, source, member)

        self._down_the_reduction(emitter, "r10", "r11", copy)
        if group < self.width:
            emitter.add("r10", self.value(self.along * group), "rax")
            emitter.op("add", "r11", group * self.element * self.operand.copies)
            emitter.op("lea", "rax", Mem(PANEL, displacement=self.step))
            emitter.op("cmp", "r11", "rax")
            emitter.jump(across, "b")

    def _sources(self, emitter: Emitter, group: int) -> Iterator[Mem]:
        """The elements of a group, ``along`` bytes apart from r8 on. Where that is known at entry only, odd multiples
        of it are loaded to registers, and scaled."""
        if self.along.is_constant:
            yield from (displaced("r8", member * self.along.constant, self.element) for member in range(group))
            return
        for odd, register in _ODD_MULTIPLES.items():
            if odd < group:
                emitter.load(register, self.value(self.along * odd))
        yield Mem("r8", size=self.element)
        for member in range(1, group):
            scale = member & -member
            yield Mem("r8", index=_ODD_MULTIPLES[member // scale], scale=scale, size=self.element)

    def _copy_element(self, emitter: Emitter, source: Mem, member: int) -> None:
        """Copies through a general-purpose register: no conversion, no exception flag."""
        register = register_of(self.element, "rax").name
        emitter.op("mov", register, source)
        for copy in range(self.operand.copies):
            position = (member * self.operand.copies + copy) * self.element
            emitter.op("mov", Mem("r9", displacement=position, size=self.element), register)

    def _ragged_panel(self, emitter: Emitter) -> None:
        """Element ``x`` of the panel comes from element ``min(x, count - 1)`` of the source."""
        across, last = map(emitter.fresh, ("across", "last"))
        emitter.op("mov", "r10", SOURCE)
        emitter.op("mov", "r11", PANEL)
        emitter.place(across)
        self._down_the_reduction(emitter, "r10", "r11", lambda: self._copy_element(
            emitter, Mem("r8", size=self.element), 0))
        emitter.op("sub", COUNT, 1)
        emitter.jump(last, "le")
        emitter.add("r10", self.value(self.along), "rax")
        emitter.place(last)
        emitter.op("add", "r11", self.element * self.operand.copies)
        emitter.op("lea", "rax", Mem(PANEL, displacement=self.step))
        emitter.op("cmp", "r11", "rax")
        emitter.jump(across, "b")

    def _compute(self, emitter: Emitter) -> None:
        """Puts ``Operand.computed`` in the place of each element of the panel at PANEL, vector by vector, and the last
        few one by one: behind the panel lies anything. Clobbers rax, rcx and r8."""
        if self.operand.computed is None:
            return
        loop, tail, done = map(emitter.fresh, ("compute", "compute_tail", "computed"))
        emitter.op("mov", "rcx", DEPTH)
        emitter.scale("rcx", self.step, "rax")
        emitter.op("add", "rcx", PANEL)
        emitter.op("mov", "r8", PANEL)
        emitter.place(loop)
        emitter.op("mov", "rax", "rcx")
        emitter.op("sub", "rax", "r8")
        emitter.op("cmp", "rax", self.unit.bytes)
        emitter.jump(tail, "l")
        vector = self.unit.at("r8", 0)
        emitter.op(self.unit.mnemonic("movu"), vector, self._computed(emitter, vector))
        emitter.op("add", "r8", self.unit.bytes)
        emitter.jump(loop)
        emitter.place(tail)
        if self.step % self.unit.bytes:
            emitter.op("cmp", "r8", "rcx")
            emitter.jump(done, "ae")
            element = Mem("r8", size=self.element, broadcast=self.unit.bytes // self.element)
            register = self._computed(emitter, element)
            emitter.op("vmovsd" if self.element == 8 else "vmovss", Mem("r8", size=self.element), "xmm" + register[3:])
            emitter.op("add", "r8", self.element)
            emitter.jump(tail)
        emitter.place(done)

    def _computed(self, emitter: Emitter, element: Mem) -> str:
        """The register that gets ``Operand.computed`` of what is at ``element``."""
        assert self.operand.computed is not None
        registers = Registers(self.unit)
        target = registers.take()

        def place(node: Expression) -> Mem | None:
            return element if isinstance(node, Read) else self.invariants.get(node)

        Lowering(self.unit, emitter, registers, aligned=True).into(target, self.operand.computed, place)
        return target
