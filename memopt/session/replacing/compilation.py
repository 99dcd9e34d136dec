"""The stages schedule and generate: a ``Region`` becomes machine code for a place in the process.

In: the lifted region, the trip count to plan for, the machine. Out: plans (``Candidate``), then a ``CompiledRegion``
for each. Several candidates are made for one place, because the trial races them; the process is not touched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from memopt.ir.reasons import Reason, Rejected
from memopt.session.replacing.process import Process
from memopt.session.replacing.stage_times import processor_limit

if TYPE_CHECKING:
    from memopt.ir.code import CompiledRegion, Placement
    from memopt.ir.region import Region, Sample
    from passes.planning import Candidate

CANDIDATES = 2  # plans that are raced; each costs a tenth of a second
PLAN_SECONDS = 5.0  # of processor time, to plan one loop


def schedule(process: Process, region: Region, trips: int, packed: int, entry: Sample) -> tuple[Candidate, ...]:
    """Plans for ``region``, the most promising one first.

    ``trips``: iterations to plan for; ``packed``: bytes of the widest vectors that the original computes with;
    ``entry``: live-in values at the captured entry. Raises Rejected(NO_PLAN) and what the passes raise."""
    from memopt.machine.description import usable_isas
    from memopt.polyhedral.isl import patience
    from passes.planning import plan_candidates

    options, machine = process.options, process.machine()
    with process.timer.stage("schedule"), patience(processor_limit(PLAN_SECONDS)):
        isa = options.isa or usable_isas(machine)[0]
        if isa not in usable_isas(machine):
            raise Rejected(Reason.NO_PLAN, f"this machine has no {isa.value}")
        made = plan_candidates(region, machine, isa, options.fp, trips=trips, packed=packed, entry=entry,
                               observer=process.print_after, most=CANDIDATES if options.shadow else 1)
        for _, plan in made:
            process.print_after("plan", plan)
        return made


def generate_versions(process: Process, region: Region, candidates: tuple[Candidate, ...], placement: Placement,
                      displaced: Callable[[int], bytes]) -> tuple[CompiledRegion, ...]:
    """Code for each candidate that can be generated, all for the same ``placement``; at least one.

    ``displaced``: the moved original instructions, for an address. Raises the first Rejected where none can be."""
    from passes.version.generate import generate
    from passes.version.kernel import nest_kernel

    versions: list[CompiledRegion] = []
    refusal: Rejected | None = None
    xcr0 = process.machine().xcr0
    with process.timer.stage("generate"):
        for parts, plan in candidates:
            kernel = functools.partial(nest_kernel, parts, plan, placement=placement)
            try:
                versions.append(generate(region, plan, kernel, placement, displaced, xcr0, parts=parts))
            except Rejected as rejected:
                refusal = refusal or rejected
                continue
            process.print_after("generate", versions[-1].listing)
    if not versions:
        raise refusal or Rejected(Reason.NO_PLAN)
    return tuple(versions)
