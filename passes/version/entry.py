"""Prologue of a version: take the frame, save the program's registers, check every guard, or leave without a trace.

In: the region, the layout of the frame, the placement. Out: code from the label ``entry``, which the patch jumps to, to
the jump to ``kernel``. When the frame is taken or a guard fails (label ``fail``), it goes to ``displaced``, the moved
header instructions, and so back to the original code.

Why the program cannot tell: on both ways the registers, flags and memory that the program can see are those of the
header. The stack is not touched. Until the guards have passed, only the flags and the registers of guard code
(``passes.version.guards.touched``) change.

``busy`` in the frame is the lock of the frame. It is taken by one atomic instruction, before anything else is written,
so of several threads and signal handlers that arrive, at whichever instruction, one runs the version. The others run
the original code. The atomic instruction needs dead flags or one dead register; a loop without either is refused.

A signal handler may leave a version by longjmp, and then nobody gives the frame back. So the holder's stack pointer is
kept, from just after the lock is taken until just before it is given back. An entry with the same stack pointer proves
that the holder is gone, because two activations that are alive cannot stand at one place of a stack: it takes the frame
over.
"""

from __future__ import annotations

from collections.abc import Iterator

from memopt.ir.code import STATISTICS_ENTRIES, STATISTICS_RUNS, Placement
from memopt.ir.plan import Isa
from memopt.ir.reasons import VerifyError
from memopt.ir.region import Region
from memopt.x86.frame import COMPONENTS, FrameLayout
from memopt.x86.instructions import GENERAL, Bytes, Code, Imm, Item, Label, Mem, code, instruction, jump
from passes.version import file_entry
from passes.version.code_guards import unchanged
from passes.version.guards import FAIL, checks, touched

ENTRY = "entry"
_XSAVE_HEADER = 512  # offset in the XSAVE area; 64 bytes (volume 1, 13.4.2)


def absolute(address: int, size: int = 8) -> Mem:
    """The ``size`` bytes at a fixed address within rel32 reach of the code, as a RIP-relative operand."""
    return Mem("rip", displacement=address, size=size)


def displaced_code(region: Region, moved: bytes) -> Code:
    """The displaced header instructions ``moved`` (relocated already), and the jump back behind the patch."""
    back = region.header + len(region.displaced)
    return (Label("displaced"), Bytes(moved), instruction("jmp", Imm(back)))


def entry_code(region: Region, layout: FrameLayout, placement: Placement, xcr0: int, isa: Isa = Isa.SSE2,
               most: int | None = None, prologue: Code = (), chunk: int | None = None) -> Code:
    """Code from the patch to the kernel, with the way out for a guard that fails.

    ``xcr0``: the machine's XCR0, 0 where XGETBV does not exist. ``most``: the ``most_iterations`` of the ``NestPlan``.
    ``prologue`` runs just before the kernel, when the vector registers still hold their values at entry. ``isa`` and
    ``chunk``: as for ``FileEntry``.
    """
    frame = placement.frame
    inside = file_entry.FileEntry(layout, frame, isa, chunk) if placement.in_file else None
    return code(
        Label(ENTRY),
        () if inside is None else inside.rest(),
        _take(region, layout, frame),
        _save(layout, frame),
        () if inside is None else inside.first(),
        _count(layout, placement, STATISTICS_ENTRIES),
        unchanged(region),
        inside.alone() if inside is not None and region.single_threaded else (),
        instruction("lea", "rbp", absolute(frame)),
        checks(region, layout, most),
        _count(layout, placement, STATISTICS_RUNS),
        () if inside is None else inside.hit(),
        vector_state("save", layout, placement, xcr0),
        prologue,
        jump("kernel"),
        Label(FAIL),
        () if inside is None else inside.missed(),
        leave(layout, frame, touched(region)),
        () if inside is None else inside.aside(),
    )


def _count(layout: FrameLayout, placement: Placement, counter: int) -> Iterator[Item]:
    """Count, unless the version enters itself again: the parts of one run count as one."""
    yield instruction("mov", "eax", 1)
    yield instruction("sub", "rax", absolute(placement.frame + layout.again))
    yield instruction("add", absolute(placement.statistics + counter), "rax")


def leave(layout: FrameLayout, frame: int, registers: tuple[str, ...], to: str = "displaced") -> Iterator[Item]:
    """Restore the flags and ``registers`` (rax last) from the frame, release the frame, jump to the label ``to``."""
    yield instruction("mov", "rax", absolute(frame + layout.flags))
    # al is 1 when OF was set: 1 + 0x7f overflows and sets OF, 0 + 0x7f does not. sahf restores the other five flags.
    yield instruction("add", "al", 0x7f)
    yield instruction("sahf")
    for name in registers:
        yield instruction("mov", name, absolute(frame + layout.register(name)))
    yield instruction("mov", absolute(frame + layout.again), int(to == ENTRY))
    yield instruction("mov", absolute(frame + layout.holder), 0)
    yield instruction("mov", absolute(frame + layout.busy), 0)
    yield jump(to)


def vector_state(direction: str, layout: FrameLayout, placement: Placement, xcr0: int) -> Iterator[Item]:
    """Save or restore (``direction``: "save", "restore") every vector and mask register that XCR0 enables: on this
    machine, or in code for a file on the one it runs on."""
    area = Mem("rbp", displacement=layout.xsave)
    mask: int | Mem = xcr0 & file_entry.VECTOR_STATE
    if placement.in_file:
        mask = Mem("rbp", displacement=layout.symbols[COMPONENTS], size=4)
    if not mask:  # a machine without XSAVE has SSE only
        yield instruction("fxsave64" if direction == "save" else "fxrstor64", area)
        return
    if direction == "save":  # XRSTOR faults on leftovers in the header, and XSAVE writes only part of it
        for offset in range(_XSAVE_HEADER, _XSAVE_HEADER + 64, 8):
            yield instruction("mov", Mem("rbp", displacement=layout.xsave + offset), 0)
    yield instruction("mov", "eax", mask)
    yield instruction("xor", "edx", "edx")
    yield instruction("xsave64" if direction == "save" else "xrstor64", area)


def _take(region: Region, layout: FrameLayout, frame: int) -> Iterator[Item]:
    """Take the lock ``busy``, or go to ``displaced``; then keep rcx and the stack pointer in the frame.

    With dead flags by a locked bit test. Else by ``xchg``, which changes no flag, with a dead register. Of all who
    compete for the lock one gets it, because both are atomic. Raises ``VerifyError`` for a region with neither.
    """
    if region.flags_dead:
        yield Bytes(b"\xf0")  # lock, for the next instruction
        yield instruction("bts", absolute(frame + layout.busy, 4), 0)
        yield jump("entry_own", "ae")
        yield instruction("cmp", absolute(frame + layout.holder), "rsp")
        yield jump("displaced", "ne")
    else:
        free = region.free_register
        if not free:
            raise VerifyError("neither flags nor a register are dead at the header")
        swap = (instruction("xchg", "rcx", free),) if free != "rcx" else ()
        yield instruction("mov", free, 1)
        yield instruction("xchg", absolute(frame + layout.busy), free)
        yield from swap
        yield jump("entry_taken", "rcxz")
        yield from swap
        yield jump("displaced")
        yield Label("entry_taken")
        yield from swap
    yield Label("entry_own")
    yield instruction("mov", absolute(frame + layout.holder), "rsp")
    yield instruction("mov", absolute(frame + layout.register("rcx")), "rcx")


def _save(layout: FrameLayout, frame: int) -> Iterator[Item]:
    for name in GENERAL:
        if name != "rcx":
            yield instruction("mov", absolute(frame + layout.register(name)), name)
    yield instruction("lahf")
    yield instruction("seto", "al")
    yield instruction("mov", absolute(frame + layout.flags), "rax")
