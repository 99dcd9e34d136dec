"""Rollback: an undo log takes back all stores of a version in which a square root was invalid.

Example: ``y = x < 0 ? call sqrt(x) : sqrtsd(x)`` leaves the loop for a negative x, to set errno. The version tests
nothing per iteration. MXCSR's invalid flag, which a root of a negative number raises, tells at the end whether an
iteration should have left the loop.

Before the kernel, every cell that iterations 0 .. H-1 write is copied to the undo log, and the invalid flag is cleared.
If the flag is set after the kernel, the copies go back, the version is switched off for good, and the original runs
from where the version was entered. Other invalid operations set the flag too; the version is then given up in vain.

The cells are the exact ones (``passes.version.cell_scan``). A padding column, or rows between the written ones, may
belong to a signal handler or to another thread: they are neither read nor written back. The original writes every cell
of the log itself, whether a root is invalid or not, since the call for a negative number returns into the loop
(memopt.lifting.execution.sqrt_exits). So no copy faults.

In: the region (its written arrays, ``Region.rollback``), the address of the undo log in scratch memory. Out: the code
before the kernel, behind it, and of the way back; and guards that the copies have room.

Sources: Intel SDM volume 1, 11.6.6 (MXCSR flags are sticky), volume 2 (SQRTPD: invalid for negative operands).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Footprint, Interval, Region, Relation
from memopt.x86.frame import FrameLayout, align
from memopt.x86.instructions import Bytes, Code, Label, Mem, code, instruction, jump
from passes.vector.emitter import Emitter
from passes.version.cell_scan import ADDRESS, COUNT, Cells, cells_of, covers, scan, symbol_guards

RETRY = "retry"
_INVALID = 1  # MXCSR bit
_COPY = Bytes(b"\xf3\xa4")  # rep movsb
_ALIGNMENT = 64


def undo_log_bytes(region: Region) -> int:
    """The size of the undo log: bytes of scratch memory for the copies of all written footprints."""
    return sum(align(room, _ALIGNMENT) for room in region.rollback or ())


def guards_of_log(region: Region) -> tuple[Relation, ...]:
    """Guards that the copies have room (they have if the footprint around the written cells is no larger) and that the
    loops which copy are right. Raises Rejected: NO_SCHEDULE where no guard makes them right; DATA_DEPENDENT_BRANCH
    where a condition on data decides whether a cell is written, so that nobody knows beforehand."""
    if region.rollback is None:
        return ()
    if not all(covers(_certain(region, f), _cells(region, f), region.guards) for f in _written(region)):
        raise Rejected(Reason.DATA_DEPENDENT_BRANCH, "it decides about stores that may have to be taken back")
    room = tuple(Relation(bound, False, "there is room to undo the stores of the new code")
                 for at, room in _footprints(region) for bound in (at.high - at.low, at.low - at.high + room))
    return (*room, *symbol_guards(_cells(region, f) for f in _written(region)))


def bytes_of_log_code(region: Region, layout: FrameLayout) -> int:
    """The bytes of the frame that the code of the copies needs from ``FrameLayout.locals`` on."""
    return _move(region, layout, 0, back=False).local_bytes if region.rollback is not None else 0


def begin(region: Region, layout: FrameLayout, copies: int, *, near: bool = False) -> Code:
    """Code before the kernel: fills the undo log and clears MXCSR's invalid flag. ``near``: as for ``Emitter``.

    Guards have passed and the vector state is saved; rbp is the frame, every other register is free.
    """
    if region.rollback is None:
        return ()
    control, before = _control(layout), _before(layout)
    return code(
        _move(region, layout, copies, back=False, near=near).code,
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


def roll_back(region: Region, layout: FrameLayout, copies: int, *, near: bool = False) -> Code:
    """Code at ``retry``: memory, and MXCSR in its slot, as at entry; the version is switched off for good."""
    return code(
        Label(RETRY),
        _move(region, layout, copies, back=True, near=near).code,
        instruction("mov", "eax", _before(layout)),
        instruction("mov", _control(layout), "eax"),
        instruction("mov", Mem("rbp", displacement=layout.limit), 0),
    )


def _control(layout: FrameLayout) -> Mem:
    return Mem("rbp", displacement=layout.mxcsr, size=4)


def _before(layout: FrameLayout) -> Mem:
    """The slot that keeps the program's MXCSR: the temporary of the guards, which they no longer need."""
    return Mem("rbp", displacement=layout.temporary, size=4)


def _footprints(region: Region) -> Iterator[tuple[Interval, int]]:
    """Each written footprint, and the bytes of room for copies of its cells."""
    yield from zip((f.interval for f in _written(region)), region.rollback or (), strict=True)


def _written(region: Region) -> list[Footprint]:
    return [f for f in region.footprints if f.written]


def _cells(region: Region, footprint: Footprint) -> Cells:
    return cells_of(region, region.scop.array(footprint.array), written=True)


def _certain(region: Region, footprint: Footprint) -> Cells:
    """The cells that the nest writes whatever the data is."""
    certain = tuple(s for s in region.scop.statements if s.condition is None)
    return _cells(replace(region, scop=replace(region.scop, statements=certain)), footprint)


def _move(region: Region, layout: FrameLayout, copies: int, *, back: bool, near: bool = False) -> Emitter:
    """Code that copies the written cells to the log, or back: in the same order, one behind the other."""
    emitter = Emitter(layout.locals, "undo" if back else "save", near=near)
    log = emitter.slot()
    emitter.load_address("rax", copies)
    emitter.op("mov", log, "rax")
    for cells in (_cells(region, f) for f in _written(region)):
        def run(inside: Emitter, size: int = cells.size) -> None:
            inside.scale(COUNT, size, "rdx")
            inside.load("rsi", log)
            if not back:
                inside.op("xchg", ADDRESS, "rsi")
            inside.append((_COPY,))
            inside.op("mov", log, "rsi" if back else ADDRESS)

        scan(cells, run, region, layout, emitter)
    return emitter
