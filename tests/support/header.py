"""A loop header in the test process that can be entered with any registers, and everything seen afterwards.

The "program" is hand-made: it loads all registers from memory, runs into the header, and stores all of them behind
the displaced instructions. Those count in r15 how often they ran.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from memopt.ir.code import CompiledRegion, Placement
from memopt.ir.linear import Linear
from memopt.ir.plan import Isa, NestPlan, Plan, RegisterTile
from memopt.ir.region import Guard, LiveIn, Region, Rejoin, Trips
from memopt.ir.scop import Scop
from memopt.x86.assembler import Assembled, assemble
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import GENERAL, Bytes, Code, Instruction, Item, Label, Mem, code, instruction, jump
from passes.version.generate import generate
from passes.version.kernel import KernelCode

FLAGS = 0x8d5  # OF SF ZF AF PF CF
LIMIT = 2**63 - 1
MXCSR = 0x1f80
WORD = (1 << 64) - 1
FREE = "r13"  # dead at the header: an entry may change it
VALUES = tuple(name for name in GENERAL if name not in ("rsp", "r15", FREE))  # a test may choose these

_DISPLACED = bytes.fromhex("4d8d7f01 0f1f00")  # lea r15, [r15 + 1]; nop
_LIBC = ctypes.CDLL(None, use_errno=True)
_PAGE = mmap.PAGESIZE
_CODE_PAGES, _DATA_PAGES = 16, 16
(_IN, _OUT, _BEFORE, _AFTER, _VECTORS, _STACK, _FRAME, _STATISTICS, _MARKS) = (
    (_CODE_PAGES + n) * _PAGE for n in (0, 1, 2, 4, 6, 8, 9, 12, 13))
_ARENA = (_CODE_PAGES + 14) * _PAGE
_FLAGS_SLOT, _MXCSR_SLOT, _STACK_SLOT = 128, 136, 144
_RED_ZONE = bytes(range(128))


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that the program can see behind the header. ``runs`` counts passes through the fake kernel, ``trips`` and
    ``limit`` are the R and H it saw."""

    registers: Mapping[str, int]
    flags: int
    mxcsr: int
    vectors_kept: bool
    red_zone_kept: bool
    displaced_runs: int
    runs: int
    trips: int
    limit: int
    statistics: tuple[int, ...]


@dataclass
class Header:
    """``arena`` is a page for cells of the test's own; ``limit``, ``busy``, ``chunk`` and ``holder`` are written to the
    frame at ``run``. ``in_file``: the code is for a file; the frame starts as zeros, and ``run`` leaves it alone."""

    xcr0: int = -1
    limit: int = LIMIT
    busy: int = 0
    chunk: int = LIMIT
    holder: int = 0
    plan: NestPlan | None = None
    in_file: bool = False
    _memory: mmap.mmap = field(default_factory=lambda: mmap.mmap(
        -1, (_CODE_PAGES + _DATA_PAGES) * _PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def __post_init__(self) -> None:
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.machine_xcr0, self.xsave_bytes = self._machine_state()
        if self.xcr0 < 0:
            self.xcr0 = self.machine_xcr0
        self.arena = self.base + _ARENA
        self.placement = Placement(self.base + 4 * _PAGE, 8 * _PAGE, self.base + _FRAME, 3 * _PAGE,
                                   self.base + _STATISTICS, self.base + _ARENA, _PAGE, in_file=self.in_file)
        program = assemble(self._program(), self.base)
        self._write(0, program.code)
        self.address = program.labels["header"]
        self._entry = ctypes.CFUNCTYPE(None)(program.labels["enter"])

    def region(self, live_ins: tuple[LiveIn, ...], trips: Trips, guards: tuple[Guard, ...] = (),
               rejoin: tuple[Rejoin, ...] = ()) -> Region:
        return Region(self.address, _DISPLACED, live_ins, trips, guards, rejoin, (), Scop((), ()),
                      free_register=FREE)

    def compile(self, region: Region, kernel: Callable[[FrameLayout], KernelCode] | None = None) -> CompiledRegion:
        return generate(region, self.plan or PLAN, kernel or self.kernel, self.placement, lambda _: _DISPLACED,
                        self.xcr0, self.xsave_bytes)

    def install(self, region: Region) -> CompiledRegion:
        """Compile with the fake kernel, write, and patch the header."""
        compiled = self.compile(region)
        self._protect(writable=True)
        self._write(4 * _PAGE, compiled.code)
        relative = compiled.entry - (self.address + 5)
        self._write(self.address - self.base, b"\xe9" + struct.pack("<i", relative))
        self._protect(writable=False)
        return compiled

    def run(self, registers: Mapping[str, int], flags: int = 0, mxcsr: int = MXCSR) -> Outcome:
        """Enter the header with these registers (others get a pattern of their own)."""
        values = {name: 0x1111_2222_3333_0000 + number for number, name in enumerate(GENERAL)}
        values.update({name: value & WORD for name, value in registers.items()}, r15=0)
        self._write(_IN, struct.pack("<16Q", *values.values()))
        self._write(_IN + _FLAGS_SLOT, struct.pack("<QI", 0x202 | flags, mxcsr))
        self._write(_VECTORS, _pattern(0, 32 * 64))
        self._write(_STACK + _PAGE // 2 - 128, _RED_ZONE)
        self._write(_MARKS, bytes(64))
        self._write(_STATISTICS, bytes(32))
        words = struct.pack("<QqqQQQ", self.busy, self.limit, self.chunk, self.holder, 0, 0)
        if not self.in_file:
            self._write(_FRAME, words.ljust(3 * _PAGE, b"\xa5"))
        self._entry()
        return self._outcome()

    def frame_busy(self) -> int:
        return self._words(_FRAME, 1)[0]

    def write_arena(self, offset: int, data: bytes) -> None:
        self._write(_ARENA + offset, data)

    def read_arena(self, offset: int, size: int) -> bytes:
        return self._memory[_ARENA + offset:_ARENA + offset + size]

    @property
    def stack(self) -> int:
        """rsp at the header."""
        return self.base + _STACK + _PAGE // 2

    def write_stack(self, offset: int, data: bytes) -> None:
        self._write(_STACK + _PAGE // 2 + offset, data)

    def kernel(self, layout: FrameLayout) -> KernelCode:
        """Notes R and H, raises the inexact flag, and destroys every register it may."""
        marks = self.base + _MARKS
        one, three = (struct.unpack("<Q", struct.pack("<d", x))[0] for x in (1.0, 3.0))
        return KernelCode(code(
            Label("kernel"),
            instruction("inc", _at(marks)),
            instruction("mov", "rax", Mem("rbp", displacement=layout.symbols["R"])),
            instruction("mov", _at(marks + 8), "rax"),
            instruction("mov", "rax", Mem("rbp", displacement=layout.symbols["H"])),
            instruction("mov", _at(marks + 16), "rax"),
            instruction("mov", "rax", one),
            instruction("movq", "xmm0", "rax"),
            instruction("mov", "rax", three),
            instruction("movq", "xmm1", "rax"),
            instruction("divsd", "xmm0", "xmm1"),
            self._destroy_vectors(),
            (instruction("mov", name, 0x5555_5555_5555_5555) for name in GENERAL if name != "rsp"),
            instruction("add", "rax", "rax"),
            jump("kernel_done"),
        ), 100, 0)

    def _destroy_vectors(self) -> Iterator[Instruction]:
        for number in range(32 if self.xcr0 & 0xe0 == 0xe0 else 16):
            if self.xcr0 & 0xe0 == 0xe0:
                yield instruction("vpxorq", f"zmm{number}", f"zmm{number}", f"zmm{number}")
            elif self.xcr0 & 4:
                yield instruction("vxorps", f"ymm{number}", f"ymm{number}", f"ymm{number}")
            else:
                yield instruction("xorps", f"xmm{number}", f"xmm{number}")
        if self.xcr0 & 0xe0 == 0xe0:
            for number in range(1, 8):
                yield instruction("kxnorw", f"k{number}", f"k{number}", f"k{number}")

    def _program(self) -> Code:
        base = self.base
        inside = [name for name in GENERAL if name != "rsp"]
        saved = ("rbx", "rbp", "r12", "r13", "r14", "r15")
        mask = self.machine_xcr0 & 0xe6
        wide = mask & 4
        return code(
            Label("enter"),
            (instruction("push", name) for name in saved),
            self._load_vectors(mask),
            instruction("ldmxcsr", _at(base + _IN + _MXCSR_SLOT, 4)),
            _xsave(base + _BEFORE, mask),
            instruction("push", _at(base + _IN + _FLAGS_SLOT)),
            instruction("popfq"),
            instruction("mov", _at(base + _IN + _STACK_SLOT), "rsp"),
            instruction("mov", "rsp", self.stack),
            (instruction("mov", name, _at(base + _IN + 8 * GENERAL.index(name))) for name in inside),
            Label("header"),
            Bytes(_DISPLACED),
            (instruction("mov", _at(base + _OUT + 8 * number), name) for number, name in enumerate(GENERAL)),
            instruction("mov", "rsp", _at(base + _IN + _STACK_SLOT)),
            instruction("pushfq"),
            instruction("pop", _at(base + _OUT + _FLAGS_SLOT)),
            _xsave(base + _AFTER, mask),
            instruction("mov", _at(base + _IN + _MXCSR_SLOT, 4), MXCSR),
            instruction("ldmxcsr", _at(base + _IN + _MXCSR_SLOT, 4)),
            (instruction("vzeroupper"),) if wide else (),
            (instruction("pop", name) for name in reversed(saved)),
            instruction("ret"),
        )

    def _load_vectors(self, mask: int) -> Iterator[Item]:
        for number in range(32 if mask & 0xe0 == 0xe0 else 16):
            place = self.base + _VECTORS + 64 * number
            if mask & 0xe0 == 0xe0:
                yield instruction("vmovups", f"zmm{number}", _at(place, 64))
            elif mask & 4:
                yield instruction("vmovups", f"ymm{number}", _at(place, 32))
            else:
                yield instruction("movups", f"xmm{number}", _at(place, 16))
        if mask & 0xe0 == 0xe0:
            for number in range(1, 8):
                yield instruction("mov", "eax", 0x1234 * number)
                yield instruction("kmovw", f"k{number}", "eax")

    def _machine_state(self) -> tuple[int, int]:
        """XCR0 and the size of the XSAVE area for it."""
        read = assemble(code(
            Label("xcr0"), instruction("xor", "ecx", "ecx"), instruction("xgetbv"), instruction("shl", "rdx", 32),
            instruction("or", "rax", "rdx"), instruction("ret"),
            Label("size"), instruction("push", "rbx"), instruction("mov", "eax", 0xd), instruction("xor", "ecx", "ecx"),
            instruction("cpuid"), instruction("mov", "eax", "ebx"), instruction("pop", "rbx"), instruction("ret"),
        ), self.base)
        self._write(0, read.code)
        self._protect(writable=False)
        found = self._call(read, "xcr0"), self._call(read, "size")
        self._protect(writable=True)
        return found

    def _call(self, assembled: Assembled, label: str) -> int:
        return int(ctypes.CFUNCTYPE(ctypes.c_uint64)(assembled.labels[label])())

    def _outcome(self) -> Outcome:
        registers = dict(zip(GENERAL, self._words(_OUT, 16), strict=True))
        before, after = (self._memory[at:at + 2 * _PAGE] for at in (_BEFORE, _AFTER))
        # Everything but MXCSR and its mask; XSTATE_BV and all vector and mask registers among it.
        same = before[:24] == after[:24] and before[32:] == after[32:]
        mxcsr = struct.unpack_from("<I", after, 24)[0]
        count, trips, limit = self._words(_MARKS, 3)
        return Outcome(
            {**registers, "r15": 0}, self._words(_OUT + _FLAGS_SLOT, 1)[0] & FLAGS, mxcsr, same,
            self._memory[_STACK + _PAGE // 2 - 128:_STACK + _PAGE // 2] == _RED_ZONE, registers["r15"], count, trips,
            limit, self._words(_STATISTICS, 3))

    def _words(self, at: int, count: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{count}Q", self._memory, at)

    def _write(self, at: int, data: bytes) -> None:
        self._memory[at:at + len(data)] = data

    def _protect(self, *, writable: bool) -> None:
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else mmap.PROT_EXEC)
        size = ctypes.c_size_t(_CODE_PAGES * _PAGE)
        if _LIBC.mprotect(ctypes.c_void_p(self.base), size, protection):
            raise OSError(ctypes.get_errno(), "mprotect")


_PART = Plan(Isa.SSE2, "S0", (), (), RegisterTile("i", 1, "j", 1, 2, "k"))
PLAN = NestPlan((_PART,))


def linear(constant: int = 0, **terms: int) -> Linear:
    return Linear.build(terms, constant)


def held_by_lane(register: int, offset: int, width: int) -> bytes:
    """What a part of a vector register holds at the header."""
    return _pattern(64 * register + offset, 64 * register + offset + width)


def _pattern(start: int, end: int) -> bytes:
    return bytes((7 * n + n // 251) & 255 for n in range(start, end))


def _at(address: int, size: int = 8) -> Mem:
    return Mem("rip", displacement=address, size=size)


def _xsave(address: int, mask: int) -> tuple[Item, ...]:
    return (instruction("mov", "eax", mask), instruction("xor", "edx", "edx"), instruction("xsave64", _at(address)))
