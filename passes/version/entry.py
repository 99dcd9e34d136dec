"""The way into a version: take the frame, save the program's registers, check every guard, or leave no trace.

Invariant: whichever way it goes, registers, flags and memory that the program can see are those of the header when
the displaced instructions run; the stack is not touched, and until the guards have passed only the registers that
guard code touches (passes.version.guards) and the flags are changed. ``frame.busy`` is taken before anything is written
that
an interrupted version may own: a signal handler that re-enters the nest, at whatever instruction, goes straight to the
original code.

Labels: ``entry`` (the patch jumps here), ``fail`` (a guard failed), ``kernel`` and ``kernel_done``, and ``displaced``
(the moved header instructions).
"""

from __future__ import annotations

from collections.abc import Iterator

from memopt.ir.code import STATISTICS_ENTRIES, STATISTICS_RUNS, Placement
from memopt.ir.region import Region
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import GENERAL, Bytes, Code, Imm, Item, Label, Mem, instruction, jump
from passes.version.guards import FAIL, TOUCHED, checks

_VECTOR_STATE = 0xe6  # XCR0: SSE, AVX, opmask, ZMM_Hi256, Hi16_ZMM (Intel SDM volume 1, 13.1)
_XSAVE_HEADER = 512  # offset in the XSAVE area; 64 bytes (volume 1, 13.4.2)


def absolute(address: int, size: int = 8) -> Mem:
    """Memory at a fixed address within rel32 reach of the code."""
    return Mem("rip", displacement=address, size=size)


def displaced_code(region: Region, moved: bytes) -> Code:
    """The displaced header instructions, relocated to where this code will lie, and the way back."""
    back = region.header + len(region.displaced)
    return (Label("displaced"), Bytes(moved), instruction("jmp", Imm(back)))


def entry_code(region: Region, layout: FrameLayout, placement: Placement, xcr0: int, most: int | None = None,
               prologue: Code = ()) -> Code:
    """From the patch to the kernel. ``xcr0``: the machine's XCR0 (0 when XGETBV is not there); ``most``: see
    ``NestPlan.most_iterations``; ``prologue`` runs just before the kernel, vector registers as at entry."""
    frame = placement.frame
    return (
        *(_take_locked if region.flags_dead else _take)(layout, frame),
        *_save(layout, frame),
        instruction("inc", absolute(placement.statistics + STATISTICS_ENTRIES)),
        instruction("lea", "rbp", absolute(frame)),
        *checks(region, layout, most),
        instruction("inc", absolute(placement.statistics + STATISTICS_RUNS)),
        *time_stamp(),
        instruction("mov", Mem("rbp", displacement=layout.cycles), "rax"),
        *vector_state("save", layout, xcr0),
        *prologue,
        jump("kernel"),
        Label(FAIL),
        *leave(layout, frame, TOUCHED),
    )


def leave(layout: FrameLayout, frame: int, registers: tuple[str, ...]) -> Iterator[Item]:
    """Flags and ``registers`` (rax the last) back from the frame, the frame given up, on to ``displaced``."""
    yield instruction("mov", "rax", absolute(frame + layout.flags))
    # al is 1 when OF was set: 1 + 0x7f overflows, 0 + 0x7f does not. sahf restores the other five.
    yield instruction("add", "al", 0x7f)
    yield instruction("sahf")
    for name in registers:
        yield instruction("mov", name, absolute(frame + layout.register(name)))
    yield instruction("mov", absolute(frame + layout.busy), 0)
    yield jump("displaced")


def vector_state(direction: str, layout: FrameLayout, xcr0: int) -> Iterator[Item]:
    """``direction`` "save" or "restore" for every vector and mask register the system lets a program use."""
    area = Mem("rbp", displacement=layout.xsave)
    mask = xcr0 & _VECTOR_STATE
    if not mask:  # a machine without XSAVE has SSE only
        yield instruction("fxsave64" if direction == "save" else "fxrstor64", area)
        return
    if direction == "save":  # XRSTOR faults on leftovers in the header, and XSAVE writes only part of it
        for offset in range(_XSAVE_HEADER, _XSAVE_HEADER + 64, 8):
            yield instruction("mov", Mem("rbp", displacement=layout.xsave + offset), 0)
    yield instruction("mov", "eax", mask)
    yield instruction("xor", "edx", "edx")
    yield instruction("xsave64" if direction == "save" else "xrstor64", area)


def time_stamp() -> tuple[Item, ...]:
    """rax = time-stamp counter; changes rdx and the flags."""
    return (instruction("rdtsc"), instruction("shl", "rdx", 32), instruction("or", "rax", "rdx"))


def _take(layout: FrameLayout, frame: int) -> Iterator[Item]:
    """Take ``busy`` without a flag, a stack slot or a register to spare; if it is taken, leave at once.

    ``busy`` is swapped with rcx: zero came out: it was free, and what went in, not zero, both marks it taken and
    keeps rcx. Else swap back. An rcx of zero cannot mark anything, but then rcx is known and free to use. A signal
    between any two of these instructions finds busy either still free, and leaves it so, or taken.
    """
    busy, saved = absolute(frame + layout.busy), absolute(frame + layout.register("rcx"))
    yield Label("entry")
    yield jump("entry_rcx_zero", "rcxz")
    yield instruction("xchg", busy, "rcx")
    yield jump("entry_taken", "rcxz")
    yield instruction("xchg", busy, "rcx")
    yield jump("displaced")
    yield Label("entry_rcx_zero")
    yield instruction("mov", "rcx", busy)
    yield jump("entry_free", "rcxz")
    yield instruction("mov", "ecx", 0)
    yield jump("displaced")
    yield Label("entry_free")
    yield instruction("mov", busy, 1)
    yield instruction("mov", saved, "rcx")
    yield jump("entry_save")
    yield Label("entry_taken")
    yield instruction("mov", "rcx", busy)
    yield instruction("mov", saved, "rcx")
    yield instruction("mov", busy, 1)
    yield Label("entry_save")


def _take_locked(layout: FrameLayout, frame: int) -> Iterator[Item]:
    """Take ``busy``, free to change the flags: of several threads, and signal handlers, one gets it."""
    yield Label("entry")
    yield Bytes(b"\xf0")  # lock, for the next instruction
    yield instruction("bts", absolute(frame + layout.busy, 4), 0)
    yield jump("displaced", "b")
    yield instruction("mov", absolute(frame + layout.register("rcx")), "rcx")


def _save(layout: FrameLayout, frame: int) -> Iterator[Item]:
    for name in GENERAL:
        if name != "rcx":
            yield instruction("mov", absolute(frame + layout.register(name)), name)
    yield instruction("lahf")
    yield instruction("seto", "al")
    yield instruction("mov", absolute(frame + layout.flags), "rax")
