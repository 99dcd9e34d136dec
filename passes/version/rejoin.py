"""Epilogue of a version: the program's state as it is at the header in iteration H, then back to the original code.

Example: the loop ``for (...; p += 64)`` keeps p in rdi. The version has run iterations 0 .. H-1, so rejoin stores
rdi = p + 64*H.

In: the region, the layout of the frame, the placement. Out: code from ``kernel_done`` to ``displaced``. Each location
of ``Region.rejoin`` gets its value for iteration H, computed from the live-ins at entry. Each location of
``Region.memory_backed`` and ``Region.register_carried`` gets what its cell or slot holds by then. Every other register,
the vector state and MXCSR's modes are those of the entry. MXCSR's sticky exception flags are the union of the entry's
and the version's, as if the original iterations had run.
"""

from __future__ import annotations

from collections.abc import Iterator

from memopt.ir.code import STATISTICS_ITERATIONS, Placement
from memopt.ir.reasons import VerifyError
from memopt.ir.region import Cell, Lane, MemoryBacked, Region, Register, RegisterCarried, Rejoin
from memopt.ir.scop import LIMIT
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import GENERAL, Code, Item, Label, Mem, instruction, jump, sub_register
from passes.version import rollback
from passes.version.entry import ENTRY, absolute, leave, vector_state
from passes.version.guards import ALL, part_of_register
from passes.version.linear_code import is_imm32, wrapping


def exit_code(region: Region, layout: FrameLayout, placement: Placement, xcr0: int, copies: int = 0) -> Code:
    """Code from ``kernel_done`` to the displaced instructions; the kernel has not changed the slots of symbols.

    ``copies``: the address of the undo log (``passes.version.rollback``). Raises ``VerifyError`` where the rejoin
    changes the stack pointer or the base register of a cell.
    """
    places = (*(r.location for r in region.rejoin), *(m.location for m in region.memory_backed),
              *(p.location for p in region.register_carried))
    moved = {place.name for place in places if isinstance(place, Register)}
    cells = [r for r in region.rejoin if isinstance(r.location, Cell)]
    if "rsp" in moved or any(isinstance(r.location, Cell) and r.location.base in moved for r in cells):
        raise VerifyError("the rejoin moves the stack pointer or the base of a cell")
    return (
        Label("kernel_done"),
        instruction("lea", "rbp", absolute(placement.frame)),
        *rollback.check(region, layout),
        *_restore_vectors(layout, placement, xcr0),
        *_count(layout, placement.statistics),
        *(item for r in cells for item in _store(r, layout)),
        *(item for r in region.rejoin if isinstance(r.location, Register) for item in _store(r, layout)),
        *(item for m in region.memory_backed for item in _load(m, layout)),
        *(item for p in region.register_carried for item in _take_over(p, layout)),
        *_again(layout, placement.frame),
        *leave(layout, placement.frame, ALL),
        *_taken_back(region, layout, placement, xcr0, copies),
    )


def _taken_back(region: Region, layout: FrameLayout, placement: Placement, xcr0: int, copies: int) -> Code:
    """The way out after a rollback: every register as at entry."""
    if region.rollback is None:
        return ()
    return (
        *rollback.roll_back(region, layout, copies, near=placement.in_file),
        *vector_state("restore", layout, placement, xcr0),
        instruction("ldmxcsr", Mem("rbp", displacement=layout.mxcsr, size=4)),
        *leave(layout, placement.frame, ALL),
    )


def _restore_vectors(layout: FrameLayout, placement: Placement, xcr0: int) -> Iterator[Item]:
    # The kernel started with the program's MXCSR and kept its modes, so MXCSR now is the program's plus the version's
    # exception flags. It is loaded after the restore, so the MXCSR in the XSAVE area does not matter.
    control = Mem("rbp", displacement=layout.mxcsr, size=4)
    yield instruction("stmxcsr", control)
    yield from vector_state("restore", layout, placement, xcr0)
    yield instruction("ldmxcsr", control)


def _again(layout: FrameLayout, frame: int) -> Iterator[Item]:
    """If only ``chunk`` has ended the run: leave to the entry, so that all guards are checked anew, in the state of the
    header in iteration H. A cell that the loop reads in each iteration is compared again; one that a handler or a
    thread has changed ends the version that way."""
    yield instruction("mov", "rax", Mem("rbp", displacement=layout.symbols[LIMIT]))
    yield instruction("cmp", "rax", Mem("rbp", displacement=layout.cap))
    yield jump("exit_last_chunk", "ge")
    yield from leave(layout, frame, ALL, ENTRY)
    yield Label("exit_last_chunk")


def _count(layout: FrameLayout, statistics: int) -> Iterator[Item]:
    yield instruction("mov", "rax", Mem("rbp", displacement=layout.symbols[LIMIT]))
    yield instruction("add", absolute(statistics + STATISTICS_ITERATIONS), "rax")


def _store(rejoin: Rejoin, layout: FrameLayout) -> Iterator[Item]:
    """Store the value to its cell, or to the slot from which its register is restored."""
    yield from wrapping(rejoin.value, layout)
    if isinstance(rejoin.location, Register):
        if rejoin.added:
            raise VerifyError(f"{rejoin} adds to a register")
        if rejoin.width not in (4, 8):
            raise VerifyError(f"{rejoin} has {rejoin.width} bytes, not 4 or 8")
        if rejoin.width == 4:
            yield instruction("mov", "eax", "eax")  # a 32-bit result clears the upper half
        yield instruction("mov", Mem("rbp", displacement=layout.register(rejoin.location.name)), "rax")
        return
    yield from _address(rejoin.location, layout)
    yield instruction("add" if rejoin.added else "mov", Mem("rcx", size=rejoin.width),
                      sub_register("rax", rejoin.width))


def _load(backed: MemoryBacked, layout: FrameLayout) -> Iterator[Item]:
    """Load the location of a memory-backed value from its cell in iteration H."""
    yield from wrapping(backed.cell, layout)
    yield instruction("mov", part_of_register("rax", backed.width), Mem("rax", size=backed.width))
    yield from _restore_part(backed.location, backed.width, layout)


def _take_over(carried: RegisterCarried, layout: FrameLayout) -> Iterator[Item]:
    """Load the location of a register-carried value from the slot of its symbol, which the kernel has updated."""
    slot = Mem("rbp", displacement=layout.symbols[carried.symbol], size=carried.width)
    yield instruction("mov", part_of_register("rax", carried.width), slot)
    yield from _restore_part(carried.location, carried.width, layout)


def _restore_part(location: Register | Lane, width: int, layout: FrameLayout) -> Iterator[Item]:
    """Put rax, zero-extended, into the slot from which a register is restored, or into a lane of a vector register."""
    value = part_of_register("rax", width)
    if isinstance(location, Register):
        yield instruction("mov", Mem("rbp", displacement=layout.register(location.name)), "rax")
        return
    if location.offset + location.width > 16:
        raise VerifyError(f"a load of {location} would change other lanes")
    whole, number = Mem("rbp", displacement=layout.xsave, size=16), location.register.removeprefix("xmm")
    yield instruction("movups", whole, f"xmm{number}")  # the legacy SSE form keeps bits 128 and above
    yield instruction("mov", Mem("rbp", displacement=layout.xsave + location.offset, size=width), value)
    yield instruction("movups", f"xmm{number}", whole)


def _address(cell: Cell, layout: FrameLayout) -> Iterator[Item]:
    """rcx = the address of the cell, by the value of its base at the header, which is in a slot."""
    if cell.base == "":
        yield instruction("mov", "rcx", cell.displacement)
        return
    base = Mem("rbp", displacement=layout.register(cell.base) if cell.base in GENERAL else layout.symbols[cell.base])
    if is_imm32(cell.displacement):
        yield instruction("mov", "rcx", base)
        yield instruction("add", "rcx", cell.displacement)
    else:
        yield instruction("mov", "rcx", cell.displacement)
        yield instruction("add", "rcx", base)
