"""Taking back what a version did, where an iteration should have left the loop because a square root was invalid.

Every written footprint is copied before the kernel starts, with the invalid flag of MXCSR clear. A root of a negative
number raises it, in whichever iteration; then the copies go back, the version is switched off, and the original runs
from where it was entered. (Other invalid operations raise it too: then the version was given up for nothing.)

Sources: Intel SDM volume 1, 11.6.6 (MXCSR flags are sticky), volume 2 (SQRTPD: invalid for negative operands).
"""

from __future__ import annotations

from collections.abc import Iterator

from memopt.ir.linear import Linear
from memopt.ir.region import Region, Relation
from memopt.x86.frame import FrameLayout, align
from memopt.x86.instructions import Bytes, Code, Item, Label, Mem, code, instruction, jump
from passes.version.linear_code import wrapping

RETRY = "retry"
_INVALID = 1  # MXCSR bit
_COPY = Bytes(b"\xf3\xa4")  # rep movsb
_ALIGNMENT = 64


def undo_log_bytes(region: Region) -> int:
    """Scratch for the copies of all written footprints."""
    return sum(align(room, _ALIGNMENT) for room in region.rollback or ())


def room_guards(region: Region) -> tuple[Relation, ...]:
    """Every written footprint is one, and fits its copy."""
    return tuple(Relation(bound, False, "there is room to take the new code's results back")
                 for low, high, _, room in _spans(region, 0) for bound in (high - low, low - high + room))


def begin(region: Region, layout: FrameLayout, copies: int) -> Code:
    """Before the kernel, the guards passed and the vector state saved: rbp is the frame, all else is free."""
    if region.rollback is None:
        return ()
    control, before = _control(layout), _before(layout)
    return code(
        _move(region, layout, copies, back=False),
        instruction("stmxcsr", control),
        instruction("mov", "eax", control),
        instruction("mov", before, "eax"),
        instruction("and", "eax", ~_INVALID),
        instruction("mov", control, "eax"),
        instruction("ldmxcsr", control),
    )


def check(region: Region, layout: FrameLayout) -> Code:
    """Behind the kernel: to ``retry`` when something was invalid, else the program's own flag is put back."""
    if region.rollback is None:
        return ()
    control = _control(layout)
    return code(
        instruction("stmxcsr", control),
        instruction("mov", "eax", control),
        instruction("test", "eax", _INVALID),
        jump(RETRY, "ne"),
        instruction("mov", "ecx", _before(layout)),
        instruction("and", "ecx", _INVALID),
        instruction("or", "eax", "ecx"),
        instruction("mov", control, "eax"),
        instruction("ldmxcsr", control),
    )


def roll_back(region: Region, layout: FrameLayout, copies: int) -> Code:
    """From ``retry``: memory and MXCSR (in its slot) as at entry, the version switched off for good."""
    return code(
        Label(RETRY),
        _move(region, layout, copies, back=True),
        instruction("mov", "eax", _before(layout)),
        instruction("mov", _control(layout), "eax"),
        instruction("mov", Mem("rbp", displacement=layout.limit), 0),
    )


def _control(layout: FrameLayout) -> Mem:
    return Mem("rbp", displacement=layout.mxcsr, size=4)


def _before(layout: FrameLayout) -> Mem:
    """The program's MXCSR; the guards are done with their temporary."""
    return Mem("rbp", displacement=layout.temporary, size=4)


def _spans(region: Region, copies: int) -> Iterator[tuple[Linear, Linear, int, int]]:
    """Low and high end of each written footprint, where its copy lies, and the room there."""
    if region.rollback is None:
        return
    written = [f.interval for f in region.footprints if f.written]
    for interval, room in zip(written, region.rollback, strict=True):
        yield interval.low, interval.high, copies, room
        copies += align(room, _ALIGNMENT)


def _move(region: Region, layout: FrameLayout, copies: int, *, back: bool) -> Iterator[Item]:
    for low, high, copy, _ in _spans(region, copies):
        yield from wrapping(low, layout)
        yield instruction("mov", "rsi", "rax")
        yield from wrapping(high, layout)
        yield instruction("sub", "rax", "rsi")
        yield instruction("mov", "rcx", "rax")
        if back:
            yield instruction("mov", "rdi", "rsi")
        yield instruction("mov", "rsi" if back else "rdi", copy)
        yield _COPY
