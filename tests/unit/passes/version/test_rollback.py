"""A version that meets an invalid square root leaves no trace, and never runs again; emulated, SSE state only."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from unicorn import UC_ARCH_X86, UC_MODE_64, Uc
from unicorn import x86_const as x86

from memopt.ir.region import Footprint, Interval, LiveIn, Register, Rejoin, Trips, confined
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import Label, Mem, code, instruction, jump
from passes.version.generate import undo_log_offset
from passes.version.kernel import KernelCode
from passes.version.rollback import undo_log_bytes
from tests.support.header import LIMIT, MXCSR, Header, linear

DATA, BYTES = 0x9000_0000, 48
INVALID = 1


def kernel(layout: FrameLayout) -> KernelCode:
    """Overwrites the footprint, with the root of what it held first. The emulator keeps no flags of floating-point
    operations: the invalid one is raised by hand."""
    def at(offset: int) -> Mem:
        return Mem("rdi", displacement=offset)

    control = Mem("rbp", displacement=layout.locals, size=4)

    return KernelCode(code(
        Label("kernel"), instruction("mov", "rdi", Mem("rbp", displacement=layout.symbols["p"])),
        instruction("mov", "rax", at(0)), instruction("shr", "rax", 63), instruction("stmxcsr", control),
        instruction("or", control, "eax"), instruction("ldmxcsr", control),
        instruction("sqrtsd", "xmm0", at(0)), instruction("movsd", at(0), "xmm0"),
        *(instruction("mov", at(offset), "rcx") for offset in range(8, BYTES, 8)),
        jump("kernel_done")), 8, 64)


class Machine:
    def __init__(self, room: int = BYTES, size: int = BYTES, place: tuple[int, int] | None = None) -> None:
        header = Header(xcr0=0)
        live_ins = (LiveIn("n", Register("rsi")), LiveIn("p", Register("rdi")))
        region = header.region(live_ins, Trips(linear(n=1), 1), (), (Rejoin(Register("rsi"), linear(0, n=1, H=-1)),))
        footprint = Footprint("A", Interval(linear(0, p=1), linear(size, p=1)), True)
        region = replace(region, footprints=(footprint,), rollback=(room,))
        if place is not None:
            region = confined(region, {footprint: place})
        needed = undo_log_offset(64) + undo_log_bytes(region)
        header.placement = replace(header.placement, scratch=DATA + 0x1000, scratch_size=needed)
        self.compiled = header.compile(region, kernel)
        self.placement = self.compiled.placement
        self.emulator = Uc(UC_ARCH_X86, UC_MODE_64)
        for address, size in ((self.placement.code, self.placement.code_size),
                              (self.placement.frame, self.placement.frame_size),
                              (self.placement.statistics, 4096), (DATA, 0x2000)):
            self.emulator.mem_map(address, size)
        self.emulator.mem_write(self.placement.code, self.compiled.code)
        self.emulator.mem_write(self.placement.frame, struct.pack("<QqqQ", 0, LIMIT, LIMIT, 0))

    def enter(self, number: float, mxcsr: int = MXCSR) -> tuple[bytes, int, int, int]:
        """The data, rsi, MXCSR and the version's limit after one entry with ten iterations left."""
        self.data = struct.pack("<d", number) + bytes(range(BYTES - 8))
        self.emulator.mem_write(DATA, self.data)
        for register, value in ((x86.UC_X86_REG_RSI, 10), (x86.UC_X86_REG_RDI, DATA), (x86.UC_X86_REG_RCX, 7),
                                (x86.UC_X86_REG_MXCSR, mxcsr)):
            self.emulator.reg_write(register, value)
        self.emulator.emu_start(self.compiled.entry, self.placement.code)
        limit, = struct.unpack("<q", self.emulator.mem_read(self.placement.frame + 8, 8))
        return (bytes(self.emulator.mem_read(DATA, BYTES)), self.emulator.reg_read(x86.UC_X86_REG_RSI),
                self.emulator.reg_read(x86.UC_X86_REG_MXCSR), limit)


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
    assert (data, rsi, mxcsr, limit) == (machine.data, 10, MXCSR, 0)
    assert machine.enter(2.0)[:2] == (machine.data, 10)


@pytest.mark.parametrize(("room", "size"), [(BYTES - 1, BYTES), (BYTES, -8)])
def test_what_does_not_fit_its_copy_is_not_run(room: int, size: int) -> None:
    machine = Machine(room, size)
    assert machine.enter(2.0)[:2] == (machine.data, 10)


def test_only_memory_that_was_looked_at_is_copied() -> None:
    inside, outside = (DATA - 64, DATA + BYTES), (DATA + 8, DATA + 0x1000)
    assert Machine(place=inside).enter(2.0)[1] == 1
    assert Machine(place=outside).enter(2.0)[1] == 10
