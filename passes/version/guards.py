"""What is checked at every entry before a version runs: that it was made for these values, trips and memory.

Invariant: memory is read only where the original reads it too, or where a guard before has made sure that it may be;
only ``TOUCHED``, the frame and the flags are changed. Any failure goes to the label ``fail`` (passes.version.entry).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memopt.ir.linear import Linear
from memopt.ir.reasons import VerifyError
from memopt.ir.region import (
    Cell,
    Disjoint,
    Guard,
    Lane,
    LiveIn,
    MemoryBacked,
    NanFree,
    Progression,
    Region,
    Register,
    Relation,
    Trips,
)
from memopt.ir.scop import INFINITY, LIMIT, TRIPS, has_extremes
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import GENERAL, Item, Label, Mem, dword, instruction, jump
from passes.version.linear_code import checked, is_imm32

FAIL = "fail"
TOUCHED = ("rcx", "rdx", "rbp", "rax")  # by guard code; rax last: it carries the flags before
_MASKED = 0x1f80  # MXCSR: all six floating-point exceptions masked
_DENORMALS_ARE_ZEROS = 1 << 6
_SMALLEST_PAGE = 4096  # either all of its bytes are mapped or none


def checks(region: Region, layout: FrameLayout, most: int | None) -> Iterator[Item]:
    """Live-ins, R, guards and the modes of MXCSR; ``most``: see ``NestPlan.most_iterations``.

    Cells behind a pointer are read only when every guard that does not need them holds: that the program reads them too
    on its way through the nest is one of the things those guards make sure of."""
    behind = _behind(region)
    behind[TRIPS] = max((behind[s] for s in region.trips.numerator.symbols), default=0)
    for level in sorted({0, *behind.values()}):
        for live_in in region.live_ins:
            if behind[live_in.symbol] == level:
                yield from _load_live_in(live_in, layout)
        if behind[TRIPS] == level:
            yield from _trips(region.trips, region.original_iterations, layout, most)
        for guard in region.guards:
            late = max((behind.get(s, 0) for s in _symbols(guard)), default=0)
            if late == level and not isinstance(guard, Progression):
                yield from _guard(guard, layout)
    for number, guard in enumerate(g for g in region.guards if isinstance(g, Progression)):
        yield from _progression(guard, f"progression_{number}", layout)
    for mirror in region.memory_backed:
        yield from _mirrored(mirror, layout)
    for number, numeric in enumerate(region.nan_free):
        yield from _numeric(numeric, f"numeric{number}", layout)
    yield from _check_modes(region, layout)


def _behind(region: Region) -> dict[str, int]:
    """How many steps lead to each live-in, pointers and what is looked at before; the stack and fixed addresses are
    there in any case."""
    found: dict[str, int] = {}
    pending = {x.symbol: _before(x, region.trips) for x in region.live_ins}
    while pending:
        known = {s: before for s, before in pending.items() if not before & pending.keys()}
        if not known:
            raise VerifyError(f"cells behind one another: {', '.join(pending)}")
        for symbol, before in known.items():
            found[symbol] = max((1 + found.get(s, 0) for s in before), default=0)
            del pending[symbol]
    return found


def _before(live_in: LiveIn, trips: Trips) -> frozenset[str]:
    """The symbols that have to be known, and what is guarded of them to hold, before ``live_in`` is read."""
    if not isinstance(live_in.location, Cell) or live_in.location.base in ("", "rsp"):
        return frozenset()
    known = {live_in.location.base, *live_in.after}
    return frozenset(known - {TRIPS} | (trips.numerator.symbols if TRIPS in known else set()))


def _symbols(guard: Guard) -> frozenset[str]:
    if isinstance(guard, Relation):
        return guard.expression.symbols
    if isinstance(guard, Progression):
        return frozenset().union(*(p.symbols for p in guard.pointers))
    ends = (guard.first.low, guard.first.high, guard.second.low, guard.second.high)
    return frozenset().union(*(end.symbols for end in ends))


def _header_register(name: str, layout: FrameLayout, scratch: str) -> tuple[str, list[Item]]:
    """A register that holds the header value of ``name``, and the code that makes it so (in ``scratch``)."""
    if name not in TOUCHED:
        return name, []
    return scratch, [instruction("mov", scratch, Mem("rbp", displacement=layout.register(name)))]


def _cell_operand(cell: Cell, layout: FrameLayout, scratch: str) -> tuple[Mem, list[Item]]:
    """The cell as a memory operand, and the code that prepares its base (in ``scratch``, flags changed).

    Only while no register but the guard's own has changed since the header, rbp holding the frame.
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


def _load_live_in(live_in: LiveIn, layout: FrameLayout) -> list[Item]:
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
        source, items = _cell_operand(location, layout, "rcx")
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
    """R by exact division, R > ``left``; H = min(R - left, limit, most) >= 1. The limit is read once: memopt may be
    changing it."""
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


def _progression(words: Progression, label: str, layout: FrameLayout) -> Iterator[Item]:
    """To ``fail`` unless the words are what they should be, and every pointer points to one."""
    for pointer in words.pointers:
        yield from checked(pointer - words.low, layout, FAIL)
        yield instruction("test", "al", 7)
        yield jump(FAIL, "ne")
    yield instruction("mov", "rcx", words.low)
    yield instruction("mov", "rax", words.first)
    yield instruction("mov", "rdx", words.high)
    yield Label(label)
    yield instruction("cmp", "rax", Mem("rcx"))
    yield jump(FAIL, "ne")
    yield instruction("add", "rax", words.step)
    yield instruction("add", "rcx", 8)
    yield instruction("cmp", "rcx", "rdx")
    yield jump(label, "ne")


def _mirrored(mirror: MemoryBacked, layout: FrameLayout) -> Iterator[Item]:
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


def _numeric(numeric: NanFree, label: str, layout: FrameLayout) -> Iterator[Item]:
    """To ``fail`` where there is a NaN: shifted left by one, so without its sign, it is beyond the infinities."""
    size = numeric.size
    value, limit = part_of_register("rax", size), part_of_register("rcx", size)
    if isinstance(numeric.where, Lane):
        there, items = _lane_operand(numeric.where, layout)
        yield from items
    else:
        end, there = Mem("rbp", displacement=layout.temporary), Mem("rdx", size=size)
        yield from checked(numeric.where.high - size, layout, FAIL)
        yield instruction("mov", end, "rax")
        yield from checked(numeric.where.low, layout, FAIL)
        yield instruction("cmp", "rax", end)
        yield jump(FAIL, "g")
        yield instruction("mov", "rdx", "rax")
    yield instruction("mov", limit, INFINITY[size] << 1)
    yield Label(label)
    yield instruction("mov", value, there)
    yield instruction("add", value, value)
    yield instruction("cmp", value, limit)
    yield jump(FAIL, "a")
    if not isinstance(numeric.where, Lane):
        yield instruction("add", "rdx", size)
        yield instruction("cmp", "rdx", end)
        yield jump(label, "le")


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


def _check_modes(region: Region, layout: FrameLayout) -> Iterator[Item]:
    """All exceptions are masked, and where a minimum or maximum is taken denormals are no zeros: what chooses between
    two numbers keeps them, MINPD and MAXPD would make them zeros (Intel SDM 1, 10.2.3.4)."""
    extremes = any(has_extremes(s.expression) for s in region.scop.statements)
    control = Mem("rbp", displacement=layout.mxcsr, size=4)
    yield instruction("stmxcsr", control)
    yield instruction("mov", "eax", control)
    yield instruction("and", "eax", _MASKED | (_DENORMALS_ARE_ZEROS if extremes else 0))
    yield instruction("cmp", "eax", _MASKED)
    yield jump(FAIL, "ne")
