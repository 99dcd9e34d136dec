"""The kernel of a version: machine code that runs the iterations 0 <= outer < H of a nest as its plan says.

In: a region for each part of the plan, where the frame and the scratch memory lie. Out: ``KernelCode``. The parts run
one after the other; a part is a contraction (``passes.contraction_code.contraction_kernel``) or a loop plan
(``passes.loop_code.nest_code``). Convention at
entry: ``rbp`` holds the frame address, symbol values and H lie in the frame, live-in vector registers still hold their
values.
"""

from __future__ import annotations

from dataclasses import dataclass

from memopt.ir.code import Placement
from memopt.ir.plan import NestPlan, Part, Plan
from memopt.ir.region import Region
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import Code, Mem
from passes.contraction_code.contraction_kernel import ContractionKernel, scratch_bytes
from passes.contraction_schedule.contraction import contraction
from passes.loop_code.nest_code import NestCode, private_bytes
from passes.vector.emitter import Emitter


@dataclass(frozen=True, slots=True)
class KernelCode:
    """``items`` start with ``Label("kernel")`` and end by ``jmp kernel_done``.

    rbp is the frame's address at the start and stays; rsp and the memory below it are not touched, every other
    register is clobbered. Symbols, R and H are read from their slots and not written, but for those of
    ``Region.passed``; ``local_bytes`` from
    ``FrameLayout.locals`` on and ``scratch_needed`` bytes at ``Placement.scratch`` (64-byte aligned) are the
    kernel's own. MXCSR's modes stay as they are.
    """

    items: Code
    local_bytes: int
    scratch_needed: int


def kernel(region: Region, plan: Plan, layout: FrameLayout, placement: Placement) -> KernelCode:
    """Code for the plan's statement. Rejected when the statement has not the shape of a contraction, VerifyError when
    the plan contradicts the region or its tile does not fit the register file."""
    return nest_kernel((region,), NestPlan((plan,)), layout, placement)


def nest_kernel(regions: tuple[Region, ...], plan: NestPlan, layout: FrameLayout, placement: Placement) -> KernelCode:
    """Code for the statements of a distributed nest, one after the other; errors as ``kernel``."""
    emitter = Emitter(layout.locals)
    emitter.place("kernel")
    parts = [_part(r, p, layout, placement, emitter) for r, p in zip(regions, plan.parts, strict=True)]
    for part in parts:  # all of them while live-in vector registers still hold their values
        part.prepare()
    for part in parts:
        part.run()
    emitter.jump("kernel_done")
    return KernelCode(emitter.code, emitter.local_bytes, nest_scratch_bytes(regions, plan))


def _part(region: Region, part: Part, layout: FrameLayout, placement: Placement,
          emitter: Emitter) -> ContractionKernel | NestCode:
    if isinstance(part, Plan):
        return ContractionKernel(contraction(region, part), layout, placement, emitter)
    symbols = {name: Mem("rbp", displacement=offset, size=8) for name, offset in layout.symbols.items()}
    return NestCode(region, part, symbols, placement.scratch, emitter, placement.frame)


def nest_scratch_bytes(regions: tuple[Region, ...], plan: NestPlan) -> int:
    """``scratch_needed`` of ``nest_kernel``: the parts use the same bytes in turn."""
    return max(scratch_bytes(r, p) if isinstance(p, Plan) else private_bytes(r.scop, p)
               for r, p in zip(regions, plan.parts, strict=True))
