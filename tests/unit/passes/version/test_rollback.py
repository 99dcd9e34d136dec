"""A version that meets an invalid square root leaves no trace, and never runs again; emulated, SSE state only."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from unicorn import UC_ARCH_X86, UC_HOOK_MEM_READ, UC_HOOK_MEM_WRITE, UC_MODE_64, Uc
from unicorn import x86_const as x86

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Footprint, Interval, LiveIn, Register, Rejoin, Trips
from memopt.ir.scop import Access, Apply, Array, Constant, Dimension, ElementType, Expression, Read, Scop, Statement
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import Label, Mem, code, instruction, jump
from passes.version.generate import undo_log_offset
from passes.version.kernel import KernelCode
from passes.version.rollback import undo_log_bytes
from tests.support.header import LIMIT, MXCSR, Header, linear

DATA, ROW, ROWS = 0x9000_0000, 24, 3
BYTES = ROW * ROWS
# The nest is for (i = 0; i < H; i++) for (j = 0; j < 2; j++) a[i][j] = ...; a[i][2] is padding.
WRITTEN = [ROW * row + 8 * column for row in range(ROWS) for column in range(2)]
TRIANGLE = [ROW * row + 8 * column for row in range(ROWS) for column in range(min(row, 2))]
TOUCHED = {False: WRITTEN, True: TRIANGLE}
INVALID = 1


def kernel(layout: FrameLayout, cells: list[int]) -> KernelCode:
    """Overwrites the ``cells``, the first one with the root of what it held. The emulator keeps no flags of
    floating-point operations: the invalid one is raised by hand."""
    def at(offset: int) -> Mem:
        return Mem("rdi", displacement=offset)

    control = Mem("rbp", displacement=layout.locals, size=4)
    first, *others = cells
    return KernelCode(code(
        Label("kernel"), instruction("mov", "rdi", Mem("rbp", displacement=layout.symbols["p"])),
        instruction("mov", "rax", at(first)), instruction("shr", "rax", 63), instruction("stmxcsr", control),
        instruction("or", control, "eax"), instruction("ldmxcsr", control),
        instruction("sqrtsd", "xmm0", at(first)), instruction("movsd", at(first), "xmm0"),
        *(instruction("mov", at(offset), "rcx") for offset in others),
        jump("kernel_done")), 8, 64)


class Machine:
    """``triangle``: row i has min(i, 2) numbers. ``room`` for the copies, and ``size`` of the footprint, in bytes."""

    def __init__(self, room: int = BYTES, size: int = BYTES, *, triangle: bool = False) -> None:
        header = Header(xcr0=0)
        self.cells = TOUCHED[triangle]
        live_ins = (LiveIn("n", Register("rsi")), LiveIn("p", Register("rdi")))
        region = header.region(live_ins, Trips(linear(n=1), 1), (), (Rejoin(Register("rsi"), linear(0, n=1, H=-1)),))
        footprint = Footprint("A", Interval(linear(0, p=1), linear(size, p=1)), True)
        array = Array("A", ElementType.F64, linear(p=1), (ROW, 8))
        dimensions = (Dimension("i", linear(R=1)), Dimension("j", linear(2)))
        statement = Statement("S0", dimensions, Access("A", (linear(i=1), linear(j=1))), (), Constant(0), (0, 0, 0),
                              (linear(-1, i=1, j=-1),) if triangle else ())
        region = replace(region, footprints=(footprint,), rollback=(room,), scop=Scop((array,), (statement,)))
        needed = undo_log_offset(64) + undo_log_bytes(region)
        header.placement = replace(header.placement, scratch=DATA + 0x1000, scratch_size=needed)
        self.compiled = header.compile(region, lambda layout: kernel(layout, self.cells))
        self.placement = self.compiled.placement
        self.emulator = Uc(UC_ARCH_X86, UC_MODE_64)
        for address, size in ((self.placement.code, self.placement.code_size),
                              (self.placement.frame, self.placement.frame_size),
                              (self.placement.statistics, 4096), (DATA, 0x2000)):
            self.emulator.mem_map(address, size)
        self.emulator.mem_write(self.placement.code, self.compiled.code)
        self.emulator.mem_write(self.placement.frame, struct.pack("<QqqQ", 0, LIMIT, LIMIT, 0))
        self.touched: set[int] = set()
        self.emulator.hook_add(UC_HOOK_MEM_READ | UC_HOOK_MEM_WRITE, self._note, begin=DATA, end=DATA + 0xfff)

    def _note(self, _emulator: Uc, _kind: int, address: int, size: int, *_: object) -> None:
        self.touched |= set(range(address - DATA, address - DATA + size))

    def enter(self, number: float, mxcsr: int = MXCSR) -> tuple[bytes, int, int, int]:
        """The data, rsi, MXCSR and the version's limit after one entry in which the version may run ``ROWS``
        iterations."""
        data = bytearray(range(BYTES))
        data[self.cells[0]:self.cells[0] + 8] = struct.pack("<d", number)
        self.data = bytes(data)
        self.emulator.mem_write(DATA, self.data)
        for register, value in ((x86.UC_X86_REG_RSI, ROWS + 1), (x86.UC_X86_REG_RDI, DATA), (x86.UC_X86_REG_RCX, 7),
                                (x86.UC_X86_REG_MXCSR, mxcsr)):
            self.emulator.reg_write(register, value)
        self.touched.clear()
        self.emulator.emu_start(self.compiled.entry, self.placement.code)
        limit, = struct.unpack("<q", self.emulator.mem_read(self.placement.frame + 8, 8))
        return (bytes(self.emulator.mem_read(DATA, BYTES)), self.emulator.reg_read(x86.UC_X86_REG_RSI),
                self.emulator.reg_read(x86.UC_X86_REG_MXCSR), limit)

    def own(self) -> set[int]:
        """The bytes of the cells that the nest writes."""
        return {cell + n for cell in self.cells for n in range(8)}


@pytest.mark.parametrize("raised", [0, INVALID])
def test_valid_roots_stay(raised: int) -> None:
    """An invalid flag that the program had raised itself is neither taken for one nor lost."""
    machine = Machine()
    data, rsi, mxcsr, limit = machine.enter(2.0, MXCSR | raised)
    assert data != machine.data
    assert struct.unpack_from("<d", data)[0] == pytest.approx(2 ** 0.5)
    assert (rsi, limit) == (1, LIMIT)
    assert mxcsr & INVALID == raised


def test_an_invalid_root_is_taken_back_for_good() -> None:
    machine = Machine()
    data, rsi, mxcsr, limit = machine.enter(-2.0)
    assert (data, rsi, mxcsr, limit) == (machine.data, ROWS + 1, MXCSR, 0)
    assert machine.enter(2.0)[:2] == (machine.data, ROWS + 1)


@pytest.mark.parametrize("triangle", [False, True])
@pytest.mark.parametrize("number", [2.0, -2.0])
def test_only_what_is_written_is_saved_and_put_back(number: float, triangle: bool) -> None:
    """A padding column, a first row without numbers: others may count in there."""
    machine = Machine(triangle=triangle)
    data, rsi, _, _ = machine.enter(number)
    assert rsi == (ROWS + 1 if number < 0 else 1)
    assert machine.touched == machine.own()
    same = {n for n in range(BYTES) if data[n] == machine.data[n]}
    assert same == set(range(BYTES)) if number < 0 else not same & set(machine.cells[1:])


@pytest.mark.parametrize(("room", "size"), [(BYTES - 1, BYTES), (BYTES, -8)])
def test_what_does_not_fit_its_copy_is_not_run(room: int, size: int) -> None:
    machine = Machine(room, size)
    assert machine.enter(2.0)[:2] == (machine.data, ROWS + 1)


@pytest.mark.parametrize(("other", "taken"), [
    (Constant(0), True), (Read(0), False),
    (Apply("when", (Apply("feq", (Constant(1), Constant(1))), Constant(0))), False)])
def test_a_store_on_data_is_taken_back_only_where_the_cell_is_written_anyway(other: Expression, taken: bool) -> None:
    """It is not known before the run whether it hits. The second statement writes all cells if ``taken``."""
    machine = Machine()
    region = machine.compiled.region
    statement, = region.scop.statements
    maybe = Apply("when", (Apply("feq", (Constant(1), Constant(1))), Constant(0)))
    first = replace(statement, expression=maybe, reads=(statement.write,))
    second = replace(statement, name="S1", expression=other, reads=(statement.write,))
    if other == Read(0):  # it writes less
        second = replace(second, conditions=(linear(-1, j=1),))
    header = Header(xcr0=0)
    header.placement = replace(header.placement, scratch=DATA, scratch_size=0x1000)
    for statements in ((first, second), (second, first)):
        changed = replace(region, scop=replace(region.scop, statements=statements))
        if taken:
            assert header.compile(changed, lambda layout: kernel(layout, machine.cells)).code
        else:
            with pytest.raises(Rejected) as refused:
                header.compile(changed, lambda layout: kernel(layout, machine.cells))
            assert refused.value.reason is Reason.DATA_DEPENDENT_BRANCH
