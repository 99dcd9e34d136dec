"""Guard, kernel and exit glued together and assembled for their place: a region and a plan become machine code.

Layout of the blob at ``Placement.code``: the displaced header instructions first (so that their address is known
before anything is assembled), then the entry, the kernel, the exit.
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
from memopt.x86.frame import XSAVE_BYTES, FrameLayout, align
from memopt.x86.instructions import Instruction, Item, Label, Mem, code
from passes.vector.calls import is_of_call
from passes.version import rollback
from passes.version.entry import displaced_code, entry_code
from passes.version.kernel import KernelCode
from passes.version.overflow_guards import magnitude_guards
from passes.version.rejoin import exit_code

_STATE_NEEDED = {Isa.SSE2: 0, Isa.AVX2: 0x6, Isa.AVX512: 0xe6}  # XCR0 bits


def generate(region: Region, plan: NestPlan, kernel: Callable[[FrameLayout], KernelCode], placement: Placement,
             displaced: Callable[[int], bytes], xcr0: int, xsave_bytes: int = XSAVE_BYTES) -> CompiledRegion:
    """Machine code for ``region``.

    ``kernel`` makes the loops for a frame layout; ``displaced`` gives the header's instructions relocated to an
    address; ``xcr0`` is the machine's XCR0 and ``xsave_bytes`` the size of its XSAVE area (CPUID leaf 0xd).
    ``VerifyError`` when anything does not fit its place or the kernel does not keep its contract; ``Rejected`` where
    code would become too large, or values are nested too deeply.
    """
    state = _STATE_NEEDED[plan.isa]
    if xcr0 & state != state:
        raise VerifyError(f"{plan.isa.value} code for a machine with XCR0 {xcr0:#x}")
    layout = FrameLayout.build(tuple(live_in.symbol for live_in in region.live_ins), 0, xsave_bytes)
    try:
        made = kernel(layout)
    except RecursionError:
        raise Rejected(Reason.NO_PLAN, "a stored value is made by operations nested too deeply") from None
    layout = FrameLayout.build(tuple(layout.symbols), made.local_bytes, xsave_bytes)
    _check_kernel(made, any(has_calls(s.expression) for s in region.scop.statements))
    guarded = replace(region, guards=(*region.guards, *magnitude_guards(plan), *_room_guards(plan),
                                      *rollback.room_guards(region)))
    scratch = undo_log_offset(made.scratch_needed) + rollback.undo_log_bytes(region)
    copies = placement.scratch + undo_log_offset(made.scratch_needed)
    assembled = assemble(code(
        displaced_code(region, displaced(placement.code)),
        entry_code(guarded, layout, placement, xcr0, plan.most_iterations, rollback.begin(region, layout, copies)),
        made.items,
        exit_code(region, layout, placement, xcr0, copies),
    ), placement.code)
    _check_fit(assembled, layout, scratch, placement)
    return CompiledRegion(region, plan, placement, assembled.code, assembled.labels["entry"], scratch,
                          assembled.listing)


def undo_log_offset(kernel_scratch: int) -> int:
    """Where in the scratch memory the copies start that ``passes.version.rollback`` makes, behind the kernel's own."""
    return align(kernel_scratch, 64)


def _room_guards(plan: NestPlan) -> tuple[Relation, ...]:
    """For private arrays whose size follows from R."""
    if plan.most_trips is None:
        return ()
    return (Relation(Linear.symbol(TRIPS, -1, plan.most_trips), False, "values kept in registers have that much room"),)


def _check_fit(assembled: Assembled, layout: FrameLayout, scratch: int, placement: Placement) -> None:
    if len(assembled.code) > placement.code_size:
        raise Rejected(Reason.NO_PLAN, f"{len(assembled.code)} bytes of code do not fit in {placement.code_size}")
    for what, needed, there in (("frame", layout.size, placement.frame_size),
                                ("scratch", scratch, placement.scratch_size)):
        if needed > there:
            raise VerifyError(f"{needed} bytes of {what} do not fit in {there}")
    if placement.frame % 64:
        raise VerifyError(f"the frame at {placement.frame:#x} is not 64-byte aligned")


def _check_kernel(made: KernelCode, calls: bool) -> None:
    """The kernel starts at its label and does not name the stack pointer, but where it calls functions."""
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
