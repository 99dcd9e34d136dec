"""Rollback: an undo log takes back all stores of a version in which a square root was invalid.

Example: ``y = x < 0 ? call sqrt(x) : sqrtsd(x)`` leaves the loop for a negative x, to set errno. The version tests
nothing per iteration. MXCSR's invalid flag, which a root of a negative number raises, tells at the end whether an
iteration should have left the loop.

Before the kernel, every written footprint is copied to the undo log, and the invalid flag is cleared. If the flag is
set after the kernel, the copies go back, the version is switched off for good, and the original runs from where the
version was entered. Other invalid operations set the flag too; the version is then given up without need.

In: the region (its footprints, ``Region.rollback``), the address of the undo log in scratch memory. Out: the code
before the kernel, behind it, and of the way back; and guards that the copies have room.

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
    """The size of the undo log: bytes of scratch memory for the copies of all written footprints."""
    return sum(align(room, _ALIGNMENT) for room in region.rollback or ())


def room_guards(region: Region) -> tuple[Relation, ...]:
    """Guards that every written footprint is an interval (low <= high) and fits the room for its copy."""
    return tuple(Relation(bound, False, "there is room to undo the stores of the new code")
                 for low, high, _, room in _spans(region, 0) for bound in (high - low, low - high + room))


def begin(region: Region, layout: FrameLayout, copies: int) -> Code:
    """Code before the kernel: fills the undo log and clears MXCSR's invalid flag.

    Guards have passed and the vector state is saved; rbp is the frame, every other register is free.
    """
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
    """Code behind the kernel: jumps to ``retry`` if the invalid flag is set, else restores the program's own flag."""
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
    """Code at ``retry``: memory, and MXCSR in its slot, as at entry; the version is switched off for good."""
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
    """The slot that keeps the program's MXCSR: the temporary of the guards, which they no longer need."""
    return Mem("rbp", displacement=layout.temporary, size=4)


def _spans(region: Region, copies: int) -> Iterator[tuple[Linear, Linear, int, int]]:
    """(low end, high end, address of the copy, bytes of room there) of each written footprint."""
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
