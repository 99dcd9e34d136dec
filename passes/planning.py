"""Driver of the schedulers: asks the one for contractions first, then the one for all other loops.

Example: ``for i, j { C[i][j] = 0; for k C[i][j] += A[i][k] * B[k][j] }`` becomes a loop plan for the first statement
and a contraction for the second, which run one after the other.

In: a ``Region``. Out: candidates, best first, each a ``NestPlan`` with a region for each of its parts; or ``Rejected``.

Sound because ``passes.legality.contractions`` or ``passes.legality.loops`` proves every plan that leaves this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

from memopt.ir.plan import Isa, LoopPlan, NestPlan, Part, Plan
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region
from memopt.ir.scop import Scop, Statement
from memopt.machine.description import Machine
from memopt.polyhedral.dependence_pieces import dependence_pieces
from memopt.polyhedral.isl import budget
from passes.context import UNKNOWN_TRIPS, Context
from passes.contraction_schedule.base import plan_of, trip_counts
from passes.contraction_schedule.distribution import distribute
from passes.contraction_schedule.pipeline import PIPELINE, Observer, plan_nest, schedule
from passes.legality.contractions import check
from passes.legality.loops import check_loops, check_sequence
from passes.loop_schedule.candidates import loop_plans
from passes.loop_schedule.components import components

Candidate = tuple[tuple[Region, ...], NestPlan]
"""A plan, and a region for each of its parts. The region of a loop plan has the plan's statements (after splitting)."""


def plan_candidates(
    region: Region,
    machine: Machine,
    isa: Isa,
    fp: str = "exact",
    *,
    trips: int | None = None,
    packed: int = 0,
    entry: Mapping[str, int] | None = None,
    observer: Observer | None = None,
    most: int = 2,
) -> tuple[Candidate, ...]:
    """Up to ``most`` proved plans for ``region``, the one expected to be best first.

    ``fp``: "exact" or "fast". ``trips``: the observed trip count of the patched loop, for the cost models alone;
    without it the loop is assumed to be long. ``packed``: bytes of the vectors that the original computes with.
    ``entry``: values of live-in symbols at the captured entry, for the cost models alone.
    ``observer`` is called after each pass of a contraction.

    A nest of contractions gets the plan of the contraction scheduler, whose code is better where it pays. Any other
    nest gets loop plans, around contractions where it contains some. If rows have a length that differs between
    entries, there are plans for contractions only. Raises ``Rejected`` with the reason why there is no plan.
    """
    if region.scop.strided and (region.rollback is not None or any(isinstance(n.where, str) for n in region.nan_free)):
        raise Rejected(Reason.NO_PLAN, "cells are looked at one by one, in rows whose length differs between entries")
    context = Context(machine, isa, fp, UNKNOWN_TRIPS if trips is None else max(trips, 1), packed,
                      entry or {})
    try:
        parts = distribute(region)
        return ((parts, plan_nest(parts, context, observer)),)
    except Rejected as refusal:
        if refusal.reason is Reason.TOO_SHORT or region.scop.strided:
            raise
    found = list(_with_products(region, context, observer))
    refusals: list[Rejected] = []
    if len(found) < most:
        found += islice(_in_loops(region, context, refusals), most - len(found))
    if not found:
        raise refusals[0] if refusals else Rejected(Reason.NO_PLAN)
    return tuple(found)


def candidate_of(region: Region, plan: NestPlan) -> Candidate:
    """``plan``, which a user gives, as a candidate for ``region``. Raises ``Rejected`` where it is for another nest, or
    not legal."""
    if len(plan.parts) == 1 and isinstance(loops := plan.parts[0], LoopPlan):
        check_loops(region.scop, loops, facts=region.nonnegative)
        return (_part(region, loops.statements),), plan
    parts = distribute(region)
    if len(parts) != len(plan.parts):
        raise Rejected(Reason.NO_PLAN, f"the plan has {len(plan.parts)} parts, the nest {len(parts)}")
    for part, each in zip(parts, plan.parts, strict=True):
        if not isinstance(each, Plan):
            raise Rejected(Reason.NO_PLAN, "the plan mixes contractions with other loops")
        check(part.scop, each)
    return parts, plan


def _in_loops(region: Region, context: Context, refusals: list[Rejected]) -> Iterator[Candidate]:
    """The loop plans for all statements that are proved legal. The reasons against the others are added to
    ``refusals``.
    """
    try:
        for loops in loop_plans(region.scop, context, region.nonnegative):
            try:
                check_loops(region.scop, loops, facts=region.nonnegative)
            except Rejected as refusal:
                refusals.append(refusal)
            else:
                yield (_part(region, loops.statements),), NestPlan((loops,))
    except Rejected as refusal:
        refusals.append(refusal)


def _part(region: Region, statements: tuple[Statement, ...]) -> Region:
    """The region with other statements: one part of the nest."""
    return replace(region, scop=replace(region.scop, statements=statements))


def _with_products(region: Region, context: Context, observer: Observer | None) -> Iterator[Candidate]:
    """At most one candidate: contractions in plans of their own, the statements before, between and after them in loop
    plans.

    None where there is no contraction, a part has no plan, or the sequence of parts breaks a dependence. A private
    array lives inside one part.
    """
    if not any(_accumulates(region.scop, s) for s in region.scop.statements):
        return
    try:
        with budget():
            groups = components(region.scop.statements, dependence_pieces(region.scop, region.nonnegative))
        products = tuple(_product(region, g, context, observer) if len(g) == 1 else None for g in groups)
        if not any(products):
            return
        parts = tuple(_parts(region, groups, products, context))
        plans = tuple(made for _, made in parts)
        check_sequence(region.scop, tuple(p.scop.statements for p, _ in parts), facts=region.nonnegative)
    except Rejected:
        return
    yield tuple(_part(p, made.statements) if isinstance(made, LoopPlan) else p for p, made in parts), NestPlan(plans)


def _parts(
    region: Region, groups: tuple[tuple[Statement, ...], ...], products: tuple[Plan | None, ...], context: Context
) -> Iterator[tuple[Region, Part]]:
    """The parts in their order: regions of the lifted statements, with their plans. ``products``: for each group its
    contraction plan, or None for a group that goes into a loop plan. Raises ``Rejected`` where a part has no plan."""
    others: list[Statement] = []
    for group, product in zip((*groups, ()), (*products, None), strict=True):
        if product is None and group:
            others += group
            continue
        if others:
            rest = _part(region, tuple(sorted(others, key=lambda s: s.position)))
            made = next(loop_plans(rest.scop, context, region.nonnegative, least_gain=0.0))
            check_loops(rest.scop, made, facts=region.nonnegative)
            yield rest, made
            others = []
        if product is not None:
            yield _part(region, group), product


def _product(
    region: Region, group: tuple[Statement, ...], context: Context, observer: Observer | None
) -> Plan | None:
    """The contraction plan of a group of one statement; None where it has none."""
    if not _accumulates(region.scop, group[0]):
        return None
    try:
        return plan_of(schedule(_part(region, group), context, PIPELINE, observer), context)
    except Rejected:
        return None


def _accumulates(scop: Scop, statement: Statement) -> bool:
    """Whether the statement updates the cell that it writes (``+=`` or the like) and accesses no private array."""
    private = {a.name for a in scop.arrays if a.private}
    return statement.write in statement.reads and not private & {a.array for a in statement.reads}


def proved_again(region: Region, plan: NestPlan, isa: Isa, fp: str) -> Candidate:
    """``plan``, which was made for an equal region in an earlier run, as a candidate for ``region``.

    It is not trusted: every part is proved for ``region`` as a new one is, and ``isa`` and ``fp`` are those of now.
    Only whether it pays is not asked again. Raises ``Rejected(NO_SCHEDULE)`` with the first violation.
    """
    if plan.isa is not isa or any(p.isa is not isa for p in plan.parts) or plan.most_iterations is not None:
        raise Rejected(Reason.NO_SCHEDULE, "the plan is for another instruction set, or a part of one")
    if fp != "fast" and any(p.fuse_multiply_add for p in plan.parts):
        raise Rejected(Reason.NO_SCHEDULE, "the plan fuses multiplications and additions")
    products = tuple(p for p in plan.parts if isinstance(p, Plan))
    if len(products) == len(plan.parts):
        return _products_again(region, products), plan
    parts = tuple(_part_again(region, p) for p in plan.parts)
    check_sequence(region.scop, tuple(p.scop.statements for p in parts), facts=region.nonnegative)  # none is left out
    for part, made in zip(parts, plan.parts, strict=True):
        if isinstance(made, LoopPlan):
            check_loops(part.scop, made, facts=region.nonnegative)
        else:
            check(part.scop, made)
    return tuple(_part(p, made.statements) if isinstance(made, LoopPlan) else p
                 for p, made in zip(parts, plan.parts, strict=True)), plan


def _products_again(region: Region, plans: tuple[Plan, ...]) -> tuple[Region, ...]:
    parts = distribute(region)
    if len(parts) != len(plans):
        raise Rejected(Reason.NO_SCHEDULE, "the plan is not for all statements")
    for part, made in zip(parts, plans, strict=True):
        trip_counts(part.scop.statements[0], UNKNOWN_TRIPS, {})  # the check is for boxes
        check(part.scop, made)
    return parts


def _part_again(region: Region, made: Part) -> Region:
    """The region with the lifted statements that a part of a plan is for."""
    if isinstance(made, Plan):
        return _part(region, tuple(s for s in region.scop.statements if s.name == made.statement))
    positions = [s.position for s in made.statements]
    return _part(region, tuple(s for s in region.scop.statements
                               if any(p[:len(s.position)] == s.position for p in positions)))
