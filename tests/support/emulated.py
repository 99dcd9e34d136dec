"""A compiled region in an emulator, which can be interrupted between any two instructions. With the SSE state only."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace

from unicorn import UC_ARCH_X86, UC_HOOK_CODE, UC_MODE_64, Uc
from unicorn import x86_const as x86

from memopt.ir.code import FRAME_LIMIT, STATISTICS_RUNS
from memopt.ir.region import LiveIn, Register, Rejoin, Trips
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import GENERAL, Label, code, instruction, jump
from passes.version.kernel import KernelCode
from tests.support.header import FLAGS, LIMIT, MXCSR, VALUES, WORD, Header, linear

NUMBERS = {name: getattr(x86, f"UC_X86_REG_{name.upper()}") for name in (*GENERAL, "rip", "eflags")}
ITERATIONS = 10
_FIRST_OF_KERNEL = bytes.fromhex("48c7c0ffffffff")  # mov rax, -1


def tiny_kernel(_: FrameLayout) -> KernelCode:
    """Destroys every register it may."""
    destroy = (instruction("mov", name, -1) for name in GENERAL if name != "rsp")
    return KernelCode(code(Label("kernel"), destroy, instruction("sub", "rax", "rcx"), jump("kernel_done")), 0, 0)


class Machine:
    """The compiled region in an emulator; ``start`` sets registers, ``go`` runs until the displaced instructions."""

    def __init__(self, flags_dead: bool) -> None:
        header = Header(xcr0=0)
        live_ins = (LiveIn("n", Register("rsi")), LiveIn("c", Register("rcx")))
        rejoin = (Rejoin(Register("rcx"), linear(0, c=1, H=1)), Rejoin(Register("rsi"), linear(0, n=1, H=-1)))
        region = header.region(live_ins, Trips(linear(n=1), 1), (), rejoin)
        self.compiled = header.compile(replace(region, flags_dead=flags_dead), tiny_kernel)
        self.placement = header.placement
        self.emulator = Uc(UC_ARCH_X86, UC_MODE_64)
        for address, size in ((self.placement.code, self.placement.code_size),
                              (self.placement.frame, self.placement.frame_size), (self.placement.statistics, 4096)):
            self.emulator.mem_map(address, size)
        self.emulator.mem_write(self.placement.code, self.compiled.code)
        self.end = self.placement.code  # the displaced instructions

    def reset(self, limit: int = LIMIT, chunk: int = LIMIT) -> None:
        self.emulator.mem_write(self.placement.frame, struct.pack("<QqqQ", 0, limit, chunk, 0) + bytes(4000))
        self.emulator.mem_write(self.placement.statistics, bytes(32))

    def limit(self, iterations: int) -> None:
        self.emulator.mem_write(self.placement.frame + FRAME_LIMIT, iterations.to_bytes(8, "little"))

    def start(self, values: Mapping[str, int]) -> None:
        for name, value in values.items():
            self.emulator.reg_write(NUMBERS[name], value)
        self.emulator.reg_write(NUMBERS["rip"], self.compiled.entry)
        self.emulator.reg_write(x86.UC_X86_REG_MXCSR, MXCSR)

    def go(self, count: int = -1) -> None:
        """Run ``count`` instructions, or to the end. (Unicorn's own count does not stop everywhere.)"""
        begin = self.emulator.reg_read(NUMBERS["rip"])
        if begin == self.end or count == 0:
            return
        seen: list[int] = []

        def stop(emulator: Uc, address: int, _size: int, _data: object) -> None:
            if len(seen) == count:
                emulator.emu_stop()
            seen.append(address)

        hook = self.emulator.hook_add(UC_HOOK_CODE, stop)
        self.emulator.emu_start(begin, self.end)
        self.emulator.hook_del(hook)
        if count > 0:
            assert self.emulator.reg_read(NUMBERS["rip"]) == seen[count]

    def kernels(self, then: Callable[[], None] = lambda: None) -> int:
        """Run to the end, and count the arrivals at the kernel. ``then`` is called at each."""
        count = 0

        def look(emulator: Uc, address: int, size: int, _data: object) -> None:
            nonlocal count
            if bytes(emulator.mem_read(address, size)) == _FIRST_OF_KERNEL:
                count += 1
                then()

        hook = self.emulator.hook_add(UC_HOOK_CODE, look)
        self.go()
        self.emulator.hook_del(hook)
        return count

    def registers(self) -> dict[str, int]:
        values = {name: self.emulator.reg_read(number) for name, number in NUMBERS.items()}
        return values | {"eflags": values["eflags"] & FLAGS}

    def runs(self) -> int:
        data = self.emulator.mem_read(self.placement.statistics + STATISTICS_RUNS, 8)
        return int(struct.unpack("<Q", data)[0])

    def instructions(self, values: Mapping[str, int], limit: int = LIMIT) -> int:
        """Length of an undisturbed entry."""
        counted: list[int] = []
        hook = self.emulator.hook_add(UC_HOOK_CODE, lambda _uc, address, _size, _data: counted.append(address))
        self.reset(limit)
        self.start(values)
        self.go()
        self.emulator.hook_del(hook)
        return len(counted)


def values(pattern: int, rcx: int, trips: int) -> dict[str, int]:
    """Registers at the header of a loop with this trip count, each another number."""
    chosen = {name: pattern * 0x1_0001_0001 + number for number, name in enumerate(VALUES)}
    return chosen | {"rcx": rcx, "rsi": trips, "rsp": 0x7000, "eflags": FLAGS if pattern & 1 else 0}


def expected(entered: Mapping[str, int], ran: bool) -> dict[str, int]:
    """Registers at the displaced instructions; ``ran``: whether the version has run."""
    done = ITERATIONS - 1 if ran else 0
    return {**entered, "rcx": (entered["rcx"] + done) & WORD, "rsi": entered["rsi"] - done}
