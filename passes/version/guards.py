"""Guards as machine code: they check at every entry that the version serves these values, trip counts and arrays.

Example: a nest specialised for a row length of 2048, with two arrays, checks ``n == 2048``, R >= 2, and that
[A, A + 8*R*2048) and [B, B + 8*R*2048) do not overlap.

In: a region, the layout of the frame. Out: code that stores the live-ins, R and H to their slots, and jumps to ``fail``
(``passes.version.entry``) where a guard does not hold. It changes the registers that ``touched`` names, the frame and
the flags only.

It reads memory only where that cannot fault, whatever the program has unmapped or protected since it was captured:

- the stack, at rsp and in the red zone below it, which belongs to the program while it is in the nest;
- a cell that the original itself certainly reads in this entry, as the guards that come before say (``LiveIn.after``);
- words of row tables and elements that the nest reads for certain, each of them (``passes.version.cell_checks``);
- a cell in the same page as one of these (``MemoryBacked.near``). A page is mapped as a whole, and has one protection
  for all its bytes; even protection keys are a page's. So a load from it faults nowhere or everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memopt.ir.linear import Linear
from memopt.ir.reasons import VerifyError
from memopt.ir.region import (
    PROGRAM_COUNTER,
    Cell,
    Disjoint,
    Guard,
    Lane,
    LiveIn,
    MemoryBacked,
    Progression,
    Region,
    Register,
    Relation,
    Trips,
    symbols_of_guard,
)
from memopt.ir.scop import INFINITY, LIMIT, TRIPS, has_extremes
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import GENERAL, Item, Mem, dword, instruction, jump
from passes.version.cell_checks import check_numbers, check_tables
from passes.version.linear_code import checked, is_imm32

FAIL = "fail"
_TOUCHED = ("rcx", "rdx", "rbp", "rax")  # clobbered by guard code; restored in this order, rax last: it holds the flags
ALL = (*(name for name in GENERAL if name not in ("rax", "rsp")), "rax")
_MASKED = 0x1f80  # MXCSR: all six floating-point exceptions masked
_DENORMALS_ARE_ZEROS = 1 << 6
_SMALLEST_PAGE = 4096  # bytes; all bytes of a page are mapped, or none


def checks(region: Region, layout: FrameLayout, most: int | None) -> Iterator[Item]:
    """Code that loads the live-ins, computes R and H, and checks all guards and the modes of MXCSR.

    ``most``: the ``most_iterations`` of the ``NestPlan``. A cell behind a pointer is read only after every guard that
    does not need its value has passed: some of these guards make sure that the program reads the cell too.
    """
    behind = _behind(region)
    behind[TRIPS] = max((behind[s] for s in region.trips.numerator.symbols), default=0)
    for level in sorted({0, *behind.values()}):
        for live_in in region.live_ins:
            if behind[live_in.symbol] == level:
                yield from _load_live_in(live_in, region.header, layout)
        if behind[TRIPS] == level:
            yield from _trips(region.trips, region.original_iterations, layout, most)
        for guard in region.guards:
            late = max((behind.get(s, 0) for s in symbols_of_guard(guard)), default=0)
            if late == level and not isinstance(guard, Progression):
                yield from _guard(guard, layout)
    yield from check_tables(region, layout, FAIL).code
    for backed in region.memory_backed:
        yield from _memory_backed(backed, layout)
    for nan_free in region.nan_free:
        if isinstance(nan_free.where, Lane):
            yield from _nan_free_lane(nan_free.where, nan_free.size, layout)
    yield from check_numbers(region, layout, FAIL).code
    yield from _check_modes(region, layout)


def touched(region: Region) -> tuple[str, ...]:
    """The registers that guard code clobbers, in the order in which they are restored."""
    scans = any(isinstance(g, Progression) for g in region.guards) or any(isinstance(n.where, str)
                                                                         for n in region.nan_free)
    return ALL if scans else _TOUCHED


def _behind(region: Region) -> dict[str, int]:
    """The level of each live-in: how many rounds of loads and guards come before its own load.

    Registers and cells on the stack have level 0. Every other cell has a level of its own: after its pointer, after the
    symbols whose guards must hold first (``LiveIn.after``), and after the cells before it in ``Region.live_ins``, which
    the original reads earlier. So all guards on these are checked before, such as that a branch is taken behind which
    the cell is read.
    """
    pending = {x.symbol: x for x in region.live_ins}
    found: dict[str, int] = {}
    last = 0
    while pending:
        ready = next((x for x in pending.values() if not _before(x, region.trips) & pending.keys()), None)
        if ready is None:
            raise VerifyError(f"live-ins wait for each other: {', '.join(pending)}")
        last += _is_elsewhere(ready)
        found[ready.symbol] = last if _is_elsewhere(ready) else 0
        del pending[ready.symbol]
    return found


def _is_elsewhere(live_in: LiveIn) -> bool:
    """Whether the value is in memory that may not be mapped: not in a register, and not on the stack."""
    return isinstance(live_in.location, Cell) and live_in.location.base != "rsp"


def _before(live_in: LiveIn, trips: Trips) -> frozenset[str]:
    """The symbols that must be loaded, and their guards checked, before ``live_in`` is read."""
    if not isinstance(live_in.location, Cell) or live_in.location.base == "rsp":
        return frozenset()
    known = {live_in.location.base, *live_in.after} - {""}
    return frozenset(known - {TRIPS} | (trips.numerator.symbols if TRIPS in known else set()))


def _header_register(name: str, layout: FrameLayout, scratch: str) -> tuple[str, list[Item]]:
    """A register with the value of ``name`` at the header: itself, or ``scratch`` with the code that loads it."""
    if name not in _TOUCHED:
        return name, []
    return scratch, [instruction("mov", scratch, Mem("rbp", displacement=layout.register(name)))]


def _cell_operand(cell: Cell, layout: FrameLayout, scratch: str) -> tuple[Mem, list[Item]]:
    """The cell as a memory operand, and the code that prepares its base in ``scratch``; it changes the flags.

    Precondition: since the header only the registers of guard code have changed, and rbp holds the frame.
    """
    if cell.base == "":
        return Mem(scratch, size=cell.width), [instruction("mov", scratch, cell.displacement)]
    base, items = _cell_base(cell.base, layout, scratch)
    if is_imm32(cell.displacement):
        return Mem(base, displacement=cell.displacement, size=cell.width), items
    items = [instruction("mov", scratch, cell.displacement)]
    held = layout.register(cell.base) if cell.base in GENERAL else layout.symbols[cell.base]
    items.append(instruction("add", scratch, Mem("rbp", displacement=held)))
    return Mem(scratch, size=cell.width), items


def _cell_base(base: str, layout: FrameLayout, scratch: str) -> tuple[str, list[Item]]:
    if base in GENERAL:
        return _header_register(base, layout, scratch)
    return scratch, [instruction("mov", scratch, Mem("rbp", displacement=layout.symbols[base]))]


def _load_live_in(live_in: LiveIn, header: int, layout: FrameLayout) -> list[Item]:
    """Load a live-in from its location and store it to its slot, extended to 64 bits."""
    slot = Mem("rbp", displacement=layout.symbols[live_in.symbol])
    items: list[Item] = []
    location = live_in.location
    if location == PROGRAM_COUNTER:
        return [instruction("lea", "rax", Mem("rip", displacement=header)), instruction("mov", slot, "rax")]
    if isinstance(location, Register):
        source = Mem("rbp", displacement=layout.register(location.name), size=live_in.width)
    elif location.width < live_in.width:
        raise VerifyError(f"{live_in} reads past its cell")
    elif isinstance(location, Lane):
        source, items = _lane_operand(location, layout)
        source = replace(source, size=live_in.width)
    else:
        source, items = _cell_operand(location, layout, "rcx")
        source = Mem(source.base, displacement=source.displacement, size=live_in.width)
    if live_in.width == 8:
        load = instruction("mov", "rax", source)
    elif live_in.width == 4:
        load = instruction("movsxd", "rax", source) if live_in.signed else instruction("mov", "eax", source)
    elif live_in.width in (1, 2) and live_in.signed:
        load = instruction("movsx", "rax", source)
    else:
        raise VerifyError(f"there is no load for the width and sign of {live_in}")
    return [*items, load, instruction("mov", slot, "rax")]


def _lane_operand(lane: Lane, layout: FrameLayout) -> tuple[Mem, list[Item]]:
    """The lane as a memory operand in the XSAVE area, and the code that stores its register there.

    The area is free: the vector state is saved to it only after all guards have passed.
    """
    whole = Mem("rbp", displacement=layout.xsave, size=16 if lane.offset + lane.width <= 16 else 32)
    number = lane.register.removeprefix("xmm")
    return Mem("rbp", displacement=layout.xsave + lane.offset, size=lane.width), [
        instruction("movups", whole, f"xmm{number}") if whole.size == 16 else
        instruction("vmovups", whole, f"ymm{number}")]


def _trips(trips: Trips, left: int, layout: FrameLayout, most: int | None) -> Iterator[Item]:
    """R by exact division, R > ``left``, and H = min(R - left, limit, most, chunk) >= 1, both stored to their slots.

    ``limit`` and ``chunk`` are read only once, because memopt may change them at any time. What H would be without
    ``chunk`` is stored, too.
    """
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
    yield instruction("mov", "rcx", Mem("rbp", displacement=layout.limit))
    yield instruction("cmp", "rax", "rcx")
    yield instruction("cmovg", "rax", "rcx")
    if most is not None:
        yield instruction("mov", "rcx", most)
        yield instruction("cmp", "rax", "rcx")
        yield instruction("cmovg", "rax", "rcx")
    yield instruction("mov", Mem("rbp", displacement=layout.cap), "rax")
    yield instruction("mov", "rcx", Mem("rbp", displacement=layout.chunk))
    yield instruction("cmp", "rax", "rcx")
    yield instruction("cmovg", "rax", "rcx")
    yield instruction("cmp", "rax", 1)
    yield jump(FAIL, "l")
    yield instruction("mov", Mem("rbp", displacement=layout.symbols[LIMIT]), "rax")


def _divide(divisor: int) -> Iterator[Item]:
    """rax /= ``divisor`` > 0; jumps to ``fail`` if there is a remainder."""
    if divisor == 1:
        return
    if divisor <= 0 or divisor >= 1 << 63:  # of 64-bit numbers only 0 is divisible by it, and R = 0 is too few
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
            # All four ends are computed even where the first comparison decides: intervals of numbers are intervals of
            # addresses only if each end fits in 64 bits.
            overlaps = Mem("rbp", displacement=layout.temporary, size=1)
            yield from _compare(second.high, first.low, layout)
            yield instruction("setg", overlaps)
            yield from _compare(first.high, second.low, layout)
            yield instruction("setg", "al")
            yield instruction("test", overlaps, "al")
            yield jump(FAIL, "ne")


def _memory_backed(backed: MemoryBacked, layout: FrameLayout) -> Iterator[Item]:
    """Jump to ``fail`` unless the location and its cell hold the same value.

    Runs after the other guards, which make sure that the cell, or ``near`` in the same page, may be read.
    """
    start = {LIMIT: Linear()}
    yield from checked(backed.cell.substitute(start), layout, FAIL)
    yield instruction("mov", "rdx", "rax")
    if backed.near is not None:
        yield from checked(backed.near.substitute(start), layout, FAIL)
        for last in dict.fromkeys((0, backed.width - 1)):
            yield instruction("lea", "rcx", Mem("rdx", displacement=last))
            yield instruction("xor", "rcx", "rax")
            yield instruction("and", "rcx", -_SMALLEST_PAGE)
            yield jump(FAIL, "ne")
    if isinstance(backed.location, Register):
        held = Mem("rbp", displacement=layout.register(backed.location.name), size=backed.width)
    else:
        held, items = _lane_operand(backed.location, layout)
        yield from items
    value = part_of_register("rax", backed.width)
    yield instruction("mov", value, Mem("rdx", size=backed.width))
    yield instruction("cmp", value, held)
    yield jump(FAIL, "ne")


def _nan_free_lane(lane: Lane, size: int, layout: FrameLayout) -> Iterator[Item]:
    """Jump to ``fail`` if the lane holds a NaN: shifted left by one, which drops the sign, it is above infinity."""
    value, limit = part_of_register("rax", size), part_of_register("rcx", size)
    there, items = _lane_operand(lane, layout)
    yield from items
    yield instruction("mov", limit, INFINITY[size] << 1)
    yield instruction("mov", value, there)
    yield instruction("add", value, value)
    yield instruction("cmp", value, limit)
    yield jump(FAIL, "a")


def part_of_register(name: str, width: int) -> str:
    """The name of the low ``width`` bytes of a 64-bit register."""
    if width not in (4, 8):
        raise VerifyError(f"{width} bytes of a register")
    return name if width == 8 else dword(name)


def _compare(left: Linear, right: Linear, layout: FrameLayout) -> Iterator[Item]:
    """Set the flags by comparing ``left`` with ``right``; an overflow of either jumps to ``fail``."""
    yield from checked(left, layout, FAIL)
    yield instruction("mov", "rdx", "rax")
    yield from checked(right, layout, FAIL)
    yield instruction("cmp", "rdx", "rax")


def _check_modes(region: Region, layout: FrameLayout) -> Iterator[Item]:
    """Jump to ``fail`` unless all floating-point exceptions are masked, and denormals are kept where it matters.

    With denormals-are-zeros, MINPD and MAXPD return zero for a denormal operand, while the original, which only chooses
    between two numbers, keeps it (Intel SDM 1, 10.2.3.4). So that mode is refused where a minimum or maximum is taken.
    """
    extremes = any(has_extremes(s.expression) for s in region.scop.statements)
    control = Mem("rbp", displacement=layout.mxcsr, size=4)
    yield instruction("stmxcsr", control)
    yield instruction("mov", "eax", control)
    yield instruction("and", "eax", _MASKED | (_DENORMALS_ARE_ZEROS if extremes else 0))
    yield instruction("cmp", "eax", _MASKED)
    yield jump(FAIL, "ne")
