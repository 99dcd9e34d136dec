"""The way into a version: take the frame, save the program's registers, check every guard, or leave no trace.

Invariant: whichever way it goes, registers, flags and memory that the program can see are those of the header when
the displaced instructions run; the stack is not touched, and until the guards have passed only rax, rcx, rdx, rbp
and the flags are changed. ``frame.busy`` is taken before anything is written that an interrupted version may own:
a signal handler that re-enters the nest, at whatever instruction, goes straight to the original code.

Labels: ``entry`` (the patch jumps here), ``fail`` (a guard failed), ``kernel`` and ``kernel_done``, and ``displaced``
(the moved header instructions).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memopt.ir.code import STATISTICS_ENTRIES, STATISTICS_RUNS, Placement
from memopt.ir.linear import Linear
from memopt.ir.reasons import VerifyError
from memopt.ir.region import Cell, Disjoint, Guard, Lane, LiveIn, Mirror, Region, Register, Relation, Trips
from memopt.ir.scop import LIMIT, TRIPS
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import GENERAL, Bytes, Code, Imm, Item, Label, Mem, dword, instruction, jump
from passes.linear_code import checked, is_imm32

FAIL = "fail"
VECTOR_STATE = 0xe6  # XCR0: SSE, AVX, opmask, ZMM_Hi256, Hi16_ZMM (Intel SDM volume 1, 13.1)
_XSAVE_HEADER = 512  # offset in the XSAVE area; 64 bytes (volume 1, 13.4.2)
_MASKED = 0x1f80  # MXCSR: all six floating-point exceptions masked
_SMALLEST_PAGE = 4096  # either all of its bytes are mapped or none
_TOUCHED = ("rcx", "rdx", "rbp", "rax")  # by guard code; rax last: it carries the flags before


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
        *_checks(region, layout, most),
        *_check_exceptions_masked(layout),
        instruction("inc", absolute(placement.statistics + STATISTICS_RUNS)),
        *time_stamp(),
        instruction("mov", Mem("rbp", displacement=layout.cycles), "rax"),
        *vector_state("save", layout, xcr0),
        *prologue,
        jump("kernel"),
        Label(FAIL),
        *leave(layout, frame, _TOUCHED),
    )


def _checks(region: Region, layout: FrameLayout, most: int | None) -> Iterator[Item]:
    """Live-ins, R and guards. Cells behind a pointer are read only when every guard that does not need them holds:
    that the program reads them too on its way through the nest is one of the things those guards make sure of."""
    behind = {x.symbol for x in region.live_ins
              if isinstance(x.location, Cell) and x.location.base not in ("", "rsp")}
    late = behind | ({TRIPS} if behind & region.trips.numerator.symbols else set())
    for after in (False, True):
        for live_in in region.live_ins:
            if (live_in.symbol in behind) == after:
                yield from load_live_in(live_in, layout)
        if (TRIPS in late) == after:
            yield from _trips(region.trips, region.left, layout, most)
        for guard in region.guards:
            if bool(late & _symbols(guard)) == after:
                yield from _guard(guard, layout)
    for mirror in region.mirrors:
        yield from _mirrored(mirror, layout)


def _symbols(guard: Guard) -> frozenset[str]:
    if isinstance(guard, Relation):
        return guard.expression.symbols
    ends = (guard.first.low, guard.first.high, guard.second.low, guard.second.high)
    return frozenset().union(*(end.symbols for end in ends))


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
    mask = xcr0 & VECTOR_STATE
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


def header_register(name: str, layout: FrameLayout, scratch: str) -> tuple[str, list[Item]]:
    """A register that holds the header value of ``name``, and the code that makes it so (in ``scratch``)."""
    if name not in _TOUCHED:
        return name, []
    return scratch, [instruction("mov", scratch, Mem("rbp", displacement=layout.register(name)))]


def cell_operand(cell: Cell, layout: FrameLayout, scratch: str) -> tuple[Mem, list[Item]]:
    """The cell as a memory operand, and the code that prepares its base (in ``scratch``, flags changed).

    Only while no register but the guard's own has changed since the header, rbp holding the frame.
    """
    if cell.base == "":
        return Mem(scratch, size=cell.width), [instruction("mov", scratch, cell.displacement)]
    base, items = header_register(cell.base, layout, scratch)
    if is_imm32(cell.displacement):
        return Mem(base, displacement=cell.displacement, size=cell.width), items
    items = [instruction("mov", scratch, cell.displacement)]
    items.append(instruction("add", scratch, Mem("rbp", displacement=layout.register(cell.base))))
    return Mem(scratch, size=cell.width), items


def load_live_in(live_in: LiveIn, layout: FrameLayout) -> list[Item]:
    """The symbol's slot filled from its location."""
    slot = Mem("rbp", displacement=layout.symbols[live_in.symbol])
    items: list[Item] = []
    location = live_in.location
    if isinstance(location, Register):
        source = Mem("rbp", displacement=layout.register(location.name), size=live_in.width)
    elif location.width < live_in.width:
        raise VerifyError(f"{live_in} reads past its cell")
    elif isinstance(location, Lane):
        source, items = _lane_operand(location, layout)
        source = replace(source, size=live_in.width)
    else:
        source, items = cell_operand(location, layout, "rcx")
        source = Mem(source.base, displacement=source.displacement, size=live_in.width)
    if live_in.width == 8:
        load = instruction("mov", "rax", source)
    elif live_in.width == 4:
        load = instruction("movsxd", "rax", source) if live_in.signed else instruction("mov", "eax", source)
    elif live_in.width in (1, 2) and live_in.signed:
        load = instruction("movsx", "rax", source)
    else:
        raise VerifyError(f"{live_in} has no load of its width")
    return [*items, load, instruction("mov", slot, "rax")]


def _lane_operand(lane: Lane, layout: FrameLayout) -> tuple[Mem, list[Item]]:
    """The lane in memory, and the code that puts it there: the vector state is saved over it only when every guard
    holds."""
    whole = Mem("rbp", displacement=layout.xsave, size=16 if lane.offset + lane.width <= 16 else 32)
    number = lane.register.removeprefix("xmm")
    return Mem("rbp", displacement=layout.xsave + lane.offset, size=lane.width), [
        instruction("movups", whole, f"xmm{number}") if whole.size == 16 else
        instruction("vmovups", whole, f"ymm{number}")]


def _trips(trips: Trips, left: int, layout: FrameLayout, most: int | None) -> Iterator[Item]:
    """R by exact division, R > ``left``; H = min(R - left, limit, most) >= 1."""
    numerator, divisor = trips.numerator, trips.divisor
    yield from checked(numerator, layout, FAIL)
    if divisor < 0:
        yield instruction("neg", "rax")
        yield jump(FAIL, "o")
    yield from _divide(abs(divisor))
    yield instruction("cmp", "rax", left)
    yield jump(FAIL, "le")
    yield instruction("mov", Mem("rbp", displacement=layout.symbols[TRIPS]), "rax")
    yield instruction("sub", "rax", left)
    yield instruction("cmp", "rax", Mem("rbp", displacement=layout.limit))
    yield instruction("cmovg", "rax", Mem("rbp", displacement=layout.limit))
    if most is not None:
        yield instruction("mov", "rcx", most)
        yield instruction("cmp", "rax", "rcx")
        yield instruction("cmovg", "rax", "rcx")
    yield instruction("cmp", "rax", 1)
    yield jump(FAIL, "l")
    yield instruction("mov", Mem("rbp", displacement=layout.symbols[LIMIT]), "rax")


def _divide(divisor: int) -> Iterator[Item]:
    """rax /= ``divisor`` > 0; to ``fail`` when there is a remainder."""
    if divisor == 1:
        return
    if divisor <= 0 or divisor >= 1 << 63:  # only 0 would be divisible, and 0 iterations are too few
        yield jump(FAIL)
    elif divisor & (divisor - 1) == 0 and divisor <= 1 << 31:
        yield instruction("test", "eax", divisor - 1)
        yield jump(FAIL, "ne")
        yield instruction("sar", "rax", divisor.bit_length() - 1)
    else:
        yield instruction("mov", "rcx", divisor)
        yield instruction("cqo")
        yield instruction("idiv", "rcx")
        yield instruction("test", "rdx", "rdx")
        yield jump(FAIL, "ne")


def _guard(guard: Guard, layout: FrameLayout) -> Iterator[Item]:
    match guard:
        case Relation(expression, equal, _):
            yield from checked(expression, layout, FAIL)
            yield instruction("test", "rax", "rax")
            yield jump(FAIL, "ne" if equal else "s")
        case Disjoint(first, second, _):
            # All four ends are computed, whichever decides: that each fits in 64 bits is part of what makes disjoint
            # numbers disjoint addresses.
            overlaps = Mem("rbp", displacement=layout.temporary, size=1)
            yield from _compare(second.high, first.low, layout)
            yield instruction("setg", overlaps)
            yield from _compare(first.high, second.low, layout)
            yield instruction("setg", "al")
            yield instruction("test", overlaps, "al")
            yield jump(FAIL, "ne")


def _mirrored(mirror: Mirror, layout: FrameLayout) -> Iterator[Item]:
    """To ``fail`` unless the location holds what its cell holds; last of all, so that the cell can be read."""
    start = {LIMIT: Linear()}
    yield from checked(mirror.cell.substitute(start), layout, FAIL)
    yield instruction("mov", "rdx", "rax")
    if mirror.near is not None:
        yield from checked(mirror.near.substitute(start), layout, FAIL)
        for last in dict.fromkeys((0, mirror.width - 1)):
            yield instruction("lea", "rcx", Mem("rdx", displacement=last))
            yield instruction("xor", "rcx", "rax")
            yield instruction("and", "rcx", -_SMALLEST_PAGE)
            yield jump(FAIL, "ne")
    if isinstance(mirror.location, Register):
        held = Mem("rbp", displacement=layout.register(mirror.location.name), size=mirror.width)
    else:
        held, items = _lane_operand(mirror.location, layout)
        yield from items
    value = part_of_register("rax", mirror.width)
    yield instruction("mov", value, Mem("rdx", size=mirror.width))
    yield instruction("cmp", value, held)
    yield jump(FAIL, "ne")


def part_of_register(name: str, width: int) -> str:
    """The name of the low ``width`` bytes of a 64-bit register."""
    if width not in (4, 8):
        raise VerifyError(f"{width} bytes of a register")
    return name if width == 8 else dword(name)


def _compare(left: Linear, right: Linear, layout: FrameLayout) -> Iterator[Item]:
    """Flags of ``left`` against ``right``."""
    yield from checked(left, layout, FAIL)
    yield instruction("mov", "rdx", "rax")
    yield from checked(right, layout, FAIL)
    yield instruction("cmp", "rdx", "rax")


def _check_exceptions_masked(layout: FrameLayout) -> Iterator[Item]:
    control = Mem("rbp", displacement=layout.mxcsr, size=4)
    yield instruction("stmxcsr", control)
    yield instruction("mov", "eax", control)
    yield instruction("not", "eax")
    yield instruction("test", "eax", _MASKED)
    yield jump(FAIL, "ne")
