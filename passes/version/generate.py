"""Code generation for a version: entry, kernel and exit are put together and assembled for their place.

In: a region, a plan, a function that makes the kernel, a placement. Out: a ``CompiledRegion``. The code at
``Placement.code`` starts with the displaced header instructions, so that their address is known before anything is
assembled. The entry, the kernel and the exit follow.

The kernel is checked against its contract: it starts at its label and does not use the stack. The assembler decodes
every instruction again (``memopt.x86.verify``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from memopt.ir.code import CompiledRegion, Placement
from memopt.ir.linear import Linear
from memopt.ir.plan import Isa, NestPlan
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.ir.region import Region, Relation
from memopt.ir.scop import TRIPS, has_calls
from memopt.x86.assembler import Assembled, assemble
from memopt.x86.frame import IN_FILE, XSAVE_BYTES, FrameLayout, align
from memopt.x86.instructions import Instruction, Item, Label, Mem, code
from passes.vector.calls import is_of_call
from passes.version import rollback
from passes.version.cell_checks import bytes_of_scans, guards_of_scans
from passes.version.code_guards import copies as code_copies
from passes.version.entry import displaced_code, entry_code
from passes.version.file_entry import STATE_NEEDED, least_work
from passes.version.kernel import KernelCode
from passes.version.overflow_guards import extent_guards, magnitude_guards
from passes.version.rejoin import exit_code


def generate(region: Region, plan: NestPlan, kernel: Callable[[FrameLayout], KernelCode], placement: Placement,
             displaced: Callable[[int], bytes], xcr0: int, xsave_bytes: int = XSAVE_BYTES, *,
             parts: tuple[Region, ...] = (), chunk: int | None = None) -> CompiledRegion:
    """Machine code of a version of ``region``.

    ``kernel`` makes the loops for a frame layout. ``displaced`` gives the header's instructions relocated to an
    address. ``xcr0`` is the machine's XCR0 and ``xsave_bytes`` the size of its XSAVE area (CPUID leaf 0xd). ``parts``:
    the region of each part of the plan. ``chunk``: for a file, see ``FileEntry``. Raises
    ``VerifyError`` where anything does not fit its place or the kernel breaks its contract; Rejected(NO_PLAN) where the
    code becomes too large or an expression is nested too deeply; Rejected(NO_SCHEDULE) where loop bounds have too
    large coefficients.
    """
    state = STATE_NEEDED[plan.isa]
    if xcr0 & state != state:
        raise VerifyError(f"{plan.isa.value} code for a machine with XCR0 {xcr0:#x}")
    own = IN_FILE if placement.in_file else ()
    layout = FrameLayout.build((*(live_in.symbol for live_in in region.live_ins), *own), 0, xsave_bytes)
    try:
        made = kernel(layout)
    except RecursionError:
        raise Rejected(Reason.NO_PLAN, "the expression of a stored value is nested too deeply") from None
    _check_kernel(made, any(has_calls(s.expression) for s in region.scop.statements))
    guarded = replace(region, guards=(*region.guards, *magnitude_guards(plan), *extent_guards(region, plan),
                                      *(least_work(region) if placement.in_file else ()),
                                      *_room_guards(plan),
                                      *guards_of_scans(region), *rollback.guards_of_log(region)))
    locals_needed = max(made.local_bytes, bytes_of_scans(guarded, layout), rollback.bytes_of_log_code(guarded, layout))
    layout = FrameLayout.build(tuple(layout.symbols), locals_needed, xsave_bytes)
    scratch = undo_log_offset(made.scratch_needed) + rollback.undo_log_bytes(region)
    copies = placement.scratch + undo_log_offset(made.scratch_needed)
    assembled = assemble(code(
        displaced_code(region, displaced(placement.code)),
        entry_code(guarded, layout, placement, xcr0, plan.isa, plan.most_iterations,
                   rollback.begin(guarded, layout, copies, near=placement.in_file), chunk),
        made.items,
        exit_code(guarded, layout, placement, xcr0, copies),
        code_copies(region),
    ), placement.code)
    if assembled.evex and plan.isa is not Isa.AVX512:
        raise VerifyError(f"{plan.isa.value} code has instructions of AVX-512")
    _check_fit(assembled, layout, scratch, placement)
    return CompiledRegion(region, plan, placement, assembled.code, assembled.labels["entry"], scratch,
                          assembled.listing, parts, assembled.labels["kernel"])


def undo_log_offset(kernel_scratch: int) -> int:
    """The offset of the undo log (``passes.version.rollback``) in scratch memory: behind the kernel's own bytes."""
    return align(kernel_scratch, 64)


def _room_guards(plan: NestPlan) -> tuple[Relation, ...]:
    """R <= ``most_trips``: the private arrays of the plan have room for that many iterations."""
    if plan.most_trips is None:
        return ()
    why = "the arrays for values kept in registers are large enough"
    return (Relation(Linear.symbol(TRIPS, -1, plan.most_trips), False, why),)


def _check_fit(assembled: Assembled, layout: FrameLayout, scratch: int, placement: Placement) -> None:
    if len(assembled.code) > placement.code_size:
        raise Rejected(Reason.NO_PLAN, f"the new code has {len(assembled.code)} bytes, more than {placement.code_size}")
    for what, needed, there in (("frame", layout.size, placement.frame_size),
                                ("scratch", scratch, placement.scratch_size)):
        if needed > there:
            raise VerifyError(f"{needed} bytes of {what} do not fit in {there}")
    if placement.frame % 64:
        raise VerifyError(f"the frame at {placement.frame:#x} is not 64-byte aligned")


def _check_kernel(made: KernelCode, calls: bool) -> None:
    """Raise ``VerifyError`` unless the kernel starts at its label and uses the stack pointer only to call functions."""
    if made.items[:1] != (Label("kernel"),):
        raise VerifyError("the kernel does not start at its label")
    if any(_uses_stack(item) and not (calls and is_of_call(item)) for item in made.items):
        raise VerifyError("the kernel uses the stack pointer")


def _uses_stack(item: Item) -> bool:
    if not isinstance(item, Instruction):
        return False
    if item.mnemonic.startswith(("push", "pop", "call", "ret", "enter", "leave")):
        return True
    names = {str(o) for o in item.operands if not isinstance(o, Mem)}
    if item.memory is not None:
        names |= {item.memory.base or "", item.memory.index or ""}
    return bool(names & {"rsp", "esp", "sp", "spl"})
