"""The kernel of a version: code that runs the iterations 0 <= outer < H of a nest as its plan says.

In: a region for each part of the plan, the addresses of the frame and of the scratch memory. Out: ``KernelCode``. The
parts of a distributed nest (loop fission) run one after the other. A part is a contraction
(``passes.contraction_code.contraction_kernel``) or a loop plan (``passes.loop_code.nest_code``).

Convention at entry: rbp holds the address of the frame; symbols, R and H lie in the frame; live-in vector registers
still hold their values.
"""

from __future__ import annotations

from memopt.ir.code import Placement
from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.plan import NestPlan, Part, Plan
from memopt.ir.region import Region
from memopt.x86.frame import FRAME, FrameLayout
from memopt.x86.instructions import Code, Mem
from passes.contraction_code.contraction_kernel import ContractionKernel, scratch_bytes
from passes.contraction_schedule.contraction import contraction
from passes.loop_code.nest_code import NestCode, private_bytes
from passes.vector.emitter import Emitter


@dataclass(frozen=True, slots=True)
class KernelCode:
    """The code of a kernel: ``items`` start with ``Label("kernel")`` and end with ``jmp kernel_done``.

    rbp holds the address of the frame throughout. rsp and the memory below it are not touched, except by calls of
    functions; every other register is clobbered. Symbols, R and H are read from their slots and not written, except the
    symbols of ``Region.register_carried``. The kernel owns ``local_bytes`` bytes from ``FrameLayout.locals`` on and
    ``scratch_needed`` bytes at ``Placement.scratch`` (64-byte aligned). It does not change MXCSR's modes.
    """

    items: Code
    local_bytes: int
    scratch_needed: int


def kernel(region: Region, plan: Plan, layout: FrameLayout, placement: Placement) -> KernelCode:
    """Code for the one statement of a contraction plan.

    Raises Rejected where the statement is no contraction, ``VerifyError`` where the plan contradicts the region or its
    tile does not fit the register file.
    """
    return nest_kernel((region,), NestPlan((plan,)), layout, placement)


def nest_kernel(regions: tuple[Region, ...], plan: NestPlan, layout: FrameLayout, placement: Placement) -> KernelCode:
    """Code for the parts of a distributed nest, one after the other; raises as ``kernel``."""
    emitter = Emitter(layout.locals, near=placement.in_file)
    emitter.place("kernel")
    parts = [_part(r, p, layout, placement, emitter) for r, p in zip(regions, plan.parts, strict=True)]
    for part in parts:  # all prepare before the first runs, while live-in vector registers still hold their values
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
    return NestCode(region, part, symbols, emitter, scratch_home(placement), frame_home(placement))


def frame_home(placement: Placement) -> Linear:
    """The address of the frame: a number, or a symbol in code for a file."""
    return Linear.symbol(FRAME) if placement.in_file else Linear.of(placement.frame)


def scratch_home(placement: Placement) -> Linear:
    """The address of the scratch memory, as ``frame_home``."""
    return frame_home(placement) + (placement.scratch - placement.frame)


def nest_scratch_bytes(regions: tuple[Region, ...], plan: NestPlan) -> int:
    """The ``scratch_needed`` of ``nest_kernel``: the maximum over the parts, which reuse the same bytes."""
    return max(scratch_bytes(r, p) if isinstance(p, Plan) else private_bytes(r.scop, p)
               for r, p in zip(regions, plan.parts, strict=True))
