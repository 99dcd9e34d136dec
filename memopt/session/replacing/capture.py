"""The stages capture and lift: a shadow (a forked copy) runs to the loop's header, where the loop is lifted.

Example: ``for (i = 0; i < n; i++) ...`` is captured with rdi = 0x7f..10 and n = 512 in rsi. The region holds for every
entry that its guards admit. If that iteration takes a path of its own (compilers peel the first one), the shadow runs
on to the next arrival at the header. The process itself is stopped for the fork only.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from memopt.ir.reasons import Reason, Rejected
from memopt.session.replacing.history import History
from memopt.session.replacing.process import Process
from memopt.session.replacing.stage_times import processor_limit
from memopt.session.replacing.versions import line

if TYPE_CHECKING:
    from memopt.ir.region import Footprint, Region
    from memopt.lifting.lift import Lifted
    from memopt.session.replacing.site import LoopCode
    from runtime.trial.shadow import Shadow

LIFT_SECONDS = 5.0  # of processor time, to lift one loop
FEW_TRIPS = 1 << 16  # if at most so many iterations are left, the trip count of the next entry is looked at, too
NEAR_SECONDS = 0.02  # within which the next entry has to come
ONCE_SECONDS = 0.5  # a loop that took more processor time to lift is not lifted again at once
NEXT_SECONDS = 2.0  # from one iteration of a loop to the next, where it is looked at twice
OF_THE_ENTRY = frozenset({Reason.TRIP_COUNT, Reason.DATA_DEPENDENT_BRANCH, Reason.DATA_DEPENDENT_ADDRESS,
                          Reason.CARRIED_VALUE, Reason.NON_AFFINE, Reason.UNPROVED, Reason.OVERLAP, Reason.TOO_SHORT,
                          Reason.PROTECTED_MAPPING})  # refusals that may not occur at another entry

_Lifted = tuple["Lifted", "dict[Footprint, tuple[int, int]]"]  # with the mappings that the footprints lie in
_T = TypeVar("_T")


def capture(process: Process, code: LoopCode, history: History, *, to_the_end: bool = False) -> tuple[Lifted, int]:
    """The region, without the displaced bytes, and the trip count to plan for. ``to_the_end``: last iterations are
    lifted too (memopt.lifting.lift.Code). Raises Rejected where the loop is not reached or not understood."""
    from memopt.ir.region import confined, with_room
    from memopt.session.replacing.one_thread_guards import one_thread
    from runtime.target.memory import mappings

    timer, header = process.timer, code.loop.header
    with timer.stage("capture"):
        with ExitStack() as stack:
            with timer.stage("reach"):
                fork = functools.partial(process.shadows, 1, history.given_up)
                shadow = stack.enter_context(history.copies.at(header, fork))
            began = time.thread_time()
            lift = functools.partial(lift_here, process, code, history, shadow, to_the_end)
            try:
                lifted, places = lift()
            except Rejected as first:
                if time.thread_time() - began > ONCE_SECONDS:
                    raise
                lifted, places = lift_at_next_arrival(process, header, shadow, first, lift)
            trips, maps = trip_count(lifted.region, code.exits, shadow), mappings(shadow.pid)
        if lifted.region.confined:
            lifted = replace(lifted, region=one_thread(confined(lifted.region, places), process.pid, maps))
        entries = (lifted.entry, *history.entries(header))
        lifted = replace(lifted, region=with_room(lifted.region, lifted.entry, trips))
        return lifted, max(trips, *map(lifted.trips, entries))


def lift_here(process: Process, code: LoopCode, history: History, shadow: Shadow, to_the_end: bool) -> _Lifted:
    """The region as ``shadow`` stands at the header. Raises Rejected: the loop is not understood, its memory is shared
    or not the process's, or the entry is one that an earlier version takes (NOT_REACHED)."""
    from memopt.cfg.dead_registers import flags_dead
    from memopt.ir.region import Progression
    from memopt.lifting.lift import Code, lift_region
    from runtime.target.eligibility import other_threads
    from runtime.target.memory import check_private, mappings
    from runtime.trial.trial import admitted, general_registers, live_values, peek, vector_registers

    site, loop = code.site, code.loop
    for other in line(history.aside):
        if not other.moved and other.address == loop.header and admitted(other.compiled.region, shadow) is not None:
            raise Rejected(Reason.NOT_REACHED, "with other values than before")
    with process.timer.stage("lift"):
        lifted = lift_region(Code(site.graph, site.forest, code.operations, bool(site.links.calls), to_the_end), loop,
                             general_registers(shadow.registers()), functools.partial(peek, shadow), b"",
                             vector_registers(shadow), processor_limit(LIFT_SECONDS), history.entries(loop.header),
                             process.print_after)
        dead = flags_dead(site.graph, code.operations, loop.header)
        lifted = replace(lifted, region=replace(lifted.region, flags_dead=dead))
    if (not dead or lifted.region.confined) and other_threads(process.pid):
        raise Rejected(Reason.THREADS, "they cannot be kept apart in this loop")
    process.print_after("lift", lifted.region)
    values = live_values(lifted.region, shadow)
    maps = mappings(shadow.pid)
    places = {f: check_private(maps, f.interval.low.evaluate(values), f.interval.high.evaluate(values),
                               written=f.written) for f in lifted.region.footprints}
    for words in (g for g in lifted.region.guards if isinstance(g, Progression)):
        check_private(maps, words.low, words.high, written=False)
    return lifted, places


def lift_at_next_arrival(process: Process, header: int, shadow: Shadow, first: Rejected, lift: Callable[[], _T]) -> _T:
    """``lift`` once more, where the shadow comes to the header next.

    Compilers may peel the first iteration up to the middle of the second. Raises ``first``,
    the refusal at the first arrival, where that is no better."""
    from runtime.trial.shadow import ShadowStopped

    if first.reason not in OF_THE_ENTRY:
        raise first
    try:
        with process.timer.stage("reach"):
            shadow.run_to(header, NEXT_SECONDS)
        return lift()
    except (Rejected, ShadowStopped):
        raise first from None


def trip_count(region: Region, exits: frozenset[int], shadow: Shadow) -> int:
    """Iterations of a typical entry: those of the captured one, or of the next one if few are left in the captured one.

    A fork of ``shadow`` stops once where the loop ends (``exits``) and once at the header: on a busy machine a stop at
    every iteration takes seconds."""
    from memopt.ir.scop import TRIPS
    from runtime.trial.shadow import ShadowStopped, copies_of
    from runtime.trial.trial import live_values

    trips = live_values(region, shadow)[TRIPS]
    if 0 < trips <= FEW_TRIPS:
        with suppress(Rejected, ShadowStopped), copies_of(shadow, 1) as (ahead,):
            ahead.run_out(exits, NEAR_SECONDS)
            ahead.run_to(region.header, NEAR_SECONDS)
            trips = max(trips, live_values(region, ahead)[TRIPS])
    return trips
