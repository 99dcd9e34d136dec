"""The stages capture and lift: a shadow (a forked copy) runs to the loop's header, where the loop is lifted.

Example: ``for (i = 0; i < n; i++) ...`` is captured with rdi = 0x7f..10 and n = 512 in rsi. The region holds for every
entry that its guards admit. If that iteration takes a path of its own (compilers peel the first one), the shadow runs
on to the next arrival at the header. The process itself is stopped for the fork only.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from memopt.ir.reasons import Reason, Rejected
from memopt.session.replacing.compilation import schedule
from memopt.session.replacing.history import History
from memopt.session.replacing.process import Process
from memopt.session.replacing.recurrence import entries_ahead, recurring, sizes
from memopt.session.replacing.stage_times import processor_limit
from memopt.session.replacing.versions import line

if TYPE_CHECKING:
    from memopt.ir.graph import Loop
    from memopt.ir.region import Region
    from memopt.lifting.lift import Lifted
    from memopt.session.replacing.site import LoopCode, Site
    from runtime.trial.shadow import Shadow

LIFT_SECONDS = 5.0  # of processor time, to lift one loop
FEW_TRIPS = 1 << 16  # if at most so many iterations are left, the trip count of the next entry is looked at, too
NEAR_SECONDS = 0.02  # within which the next entry has to come
ONCE_SECONDS = 0.5  # a loop that took more processor time to lift is not lifted again at once
KNOWN_AHEAD = 4  # entries that follow, with which a loop is lifted whose sizes do not seem to come again
NEXT_SECONDS = 2.0  # from one iteration of a loop to the next, where it is looked at twice
OF_THE_ENTRY = frozenset({Reason.TRIP_COUNT, Reason.DATA_DEPENDENT_BRANCH, Reason.DATA_DEPENDENT_ADDRESS,
                          Reason.CARRIED_VALUE, Reason.NON_AFFINE, Reason.UNPROVED, Reason.OVERLAP, Reason.TOO_SHORT,
                          Reason.PROTECTED_MAPPING})  # refusals that may not occur at another entry

_T = TypeVar("_T")


def capture(process: Process, code: LoopCode, history: History, *, to_the_end: bool = False) -> tuple[Lifted, int]:
    """The region, without the displaced bytes, and the trip count to plan for. ``to_the_end``: last iterations are
    lifted too (memopt.lifting.lift.Code). Raises Rejected where the loop is not reached or not understood."""
    from memopt.ir.region import with_room
    from memopt.ir.scop import TRIPS
    from memopt.session.replacing.one_thread_guards import one_thread
    from memopt.session.replacing.others import returning
    from runtime.trial.trial import live_values

    timer, header = process.timer, code.loop.header
    with timer.stage("capture"):
        with ExitStack() as stack:
            with timer.stage("reach"):
                fork = functools.partial(process.shadows, 1, history.given_up, code.ranges)
                shadow = stack.enter_context(history.copies.at(header, fork))
            began = time.thread_time()
            lift = functools.partial(lift_here, process, code, history, shadow, to_the_end)
            try:
                lifted = lift()
            except Rejected as first:
                if time.thread_time() - began > ONCE_SECONDS:
                    raise
                lifted = lift_at_next_arrival(process, code, shadow, first, lift)
            if history.entries(header):
                lifted = for_recurring_sizes(lifted, lift, code, history, shadow)
            values, maps = live_values(lifted.region, shadow), shadow.maps()
            planned = history.known.has_plan(code.site, header) and lifted.region.rollback is None
            trips = values[TRIPS] if planned else trip_count(lifted.region, code.exits, shadow)
            region = returning(lifted.region, code.site, values, maps)
        if region.single_threaded and not process.movable:  # code in a file looks itself
            region = one_thread(region, process.pid, maps)
        lifted = replace(lifted, region=region)
        entries = (lifted.entry, *history.entries(header))
        lifted = replace(lifted, region=with_room(lifted.region, lifted.entry, trips))
        return lifted, max(trips, *map(lifted.trips, entries))


def for_recurring_sizes(lifted: Lifted, lift: Callable[[], Lifted], code: LoopCode, history: History,
                        shadow: Shadow) -> Lifted:
    """``lifted``, if it is for all entries that follow (memopt.session.replacing.recurrence); else what is lifted with
    some of these entries known, since sizes of two entries may seem to depend on any register. Raises
    Rejected(NEW_SIZES), and notes it, where its sizes do not come again."""
    from memopt.lifting.execution.parameters import live_in

    region, header = lifted.region, code.loop.header
    ahead = entries_ahead(region, code.exits, shadow)
    if len(set(sizes(region, ahead))) <= 1:
        return lifted
    history.ahead[header] = [{live_in(s): v for s, v in entry.items()} for entry in ahead[1:1 + KNOWN_AHEAD]]
    lifted = lift()
    ahead = entries_ahead(lifted.region, code.exits, shadow)
    if recurring(lifted.region, ahead):
        return lifted
    history.new_sizes.add(header)
    different = len(set(sizes(lifted.region, ahead)))
    raise Rejected(Reason.NEW_SIZES, f"{different} different ones in {len(ahead)} entries")


def lift_here(process: Process, code: LoopCode, history: History, shadow: Shadow, to_the_end: bool) -> Lifted:
    """The region as ``shadow`` stands at the header. Raises Rejected: the loop is not understood, its memory is shared
    or not the process's, or the entry is one that an earlier version takes (NOT_REACHED)."""
    from memopt.cfg.dead_registers import dead_registers, flags_dead
    from memopt.ir.region import Progression
    from memopt.lifting.lift import Code, lift_region
    from memopt.x86.instructions import GENERAL
    from runtime.target.eligibility import other_threads
    from runtime.target.memory import check_private
    from runtime.trial.agreement import general_registers
    from runtime.trial.trial import admitted, live_values, peek, vector_registers

    site, loop = code.site, code.loop
    for other in line(history.aside):
        if not other.moved and other.address == loop.header and admitted(other.compiled.region, shadow) is not None:
            raise Rejected(Reason.NOT_REACHED, "with other values than before")
    with process.timer.stage("lift"):
        lifted = lift_region(Code(site.graph, site.forest, code.operations, bool(site.links.calls), to_the_end,
                                  code.roots), loop,
                             general_registers(shadow.registers()), functools.partial(peek, shadow), b"",
                             vector_registers(shadow), processor_limit(LIFT_SECONDS), history.entries(loop.header),
                             process.print_after, functools.partial(plannable, process, code))
        dead = flags_dead(site.graph, loop.header)
        spare = "" if dead else free_register(lifted.region, dead_registers(
            site.graph, code.operations, loop.header, GENERAL))
        lifted = replace(lifted, region=replace(lifted.region, flags_dead=dead, free_register=spare,
                                                code=lifted_code(site, loop, lifted.region)))
    if not dead and not spare:
        raise Rejected(Reason.THREADS, "neither flags nor a register are free at the header, to keep entries apart")
    if lifted.region.single_threaded and other_threads(process.pid):
        raise Rejected(Reason.THREADS, "they could see the order of this loop's stores")
    process.print_after("lift", lifted.region)
    values = live_values(lifted.region, shadow)
    maps = shadow.maps()
    for footprint in lifted.region.footprints:
        check_private(maps, footprint.interval.low.evaluate(values), footprint.interval.high.evaluate(values),
                      written=footprint.written)
    for words in (g for g in lifted.region.guards if isinstance(g, Progression)):
        check_private(maps, words.within.low.evaluate(values), words.within.high.evaluate(values), written=False)
    return lifted


def plannable(process: Process, code: LoopCode, lifted: Lifted) -> bool:
    """Whether there is a plan for a region with rows of a length that differs between entries: for contractions."""
    from memopt.ir.scop import TRIPS

    region, known = lifted.region, {**lifted.entry, TRIPS: 0}
    trips = region.trips.numerator.evaluate(known) // region.trips.divisor
    try:
        return bool(schedule(process, region, trips, code.vector_bytes, lifted.entry))
    except Rejected:
        return False


def free_register(region: Region, dead: frozenset[str]) -> str:
    """One of the ``dead`` registers that nothing of ``region`` needs at entry; "" if there is none."""
    from memopt.ir.region import Cell, Register

    used = {"rsp"}
    for location in (*(x.location for x in region.live_ins), *(r.location for r in region.rejoin),
                     *(m.location for m in region.memory_backed), *(c.location for c in region.register_carried)):
        match location:
            case Register(name) | Cell(base=name):
                used.add(name)
    return min(dead - used, default="")


def lifted_code(site: Site, loop: Loop, region: Region) -> tuple[tuple[int, bytes], ...]:
    """The code that ``region`` stands for, as intervals (address, bytes): all blocks of the loop and of the functions
    that it calls. Where the region relies on dead registers or stack cells, the code behind the loop as well, because
    it shows that they are dead; but not the first bytes of these blocks, where a patch of memopt's for another loop may
    come."""
    from memopt.cfg.inlining import COPY
    from memopt.x86.relocate import JUMP_SIZE

    reached = set(loop.blocks)
    if region.dead_registers or region.dead_stack_cells:
        pending = list(reached)
        while pending:
            for start in site.graph.successors(pending.pop()):
                if start not in reached:
                    reached.add(start)
                    pending.append(start)
    known: dict[int, int] = {}
    for start in reached:
        block, skipped = site.graph.blocks[start], 0 if start in loop.blocks else JUMP_SIZE
        known.update(zip(range(start % COPY + skipped, block.end % COPY), block.code[skipped:], strict=False))
    return intervals(known)


def intervals(known: Mapping[int, int]) -> tuple[tuple[int, bytes], ...]:
    """The bytes ``known``, by address, as intervals of adjacent bytes.

    >>> intervals({4: 1, 5: 2, 8: 3})
    ((4, b'\\x01\\x02'), (8, b'\\x03'))
    """
    found: list[tuple[int, bytearray]] = []
    for address in sorted(known):
        if not found or found[-1][0] + len(found[-1][1]) != address:
            found.append((address, bytearray()))
        found[-1][1].append(known[address])
    return tuple((start, bytes(data)) for start, data in found)


def lift_at_next_arrival(process: Process, code: LoopCode, shadow: Shadow, first: Rejected, lift: Callable[[], _T]
                         ) -> _T:
    """``lift`` once more, where the shadow comes to the header next, or with the next entry if this one is too short.

    Compilers may peel the first iteration up to the middle of the second. The shadow may stand at one of the last
    iterations. Raises ``first``, the refusal at the first arrival, where that is no better."""
    from runtime.trial.shadow import ShadowStopped

    if first.reason not in OF_THE_ENTRY:
        raise first
    try:
        with process.timer.stage("reach"):
            if first.reason is Reason.TOO_SHORT:
                shadow.run_out(code.exits, NEXT_SECONDS)
            shadow.run_to(code.loop.header, NEXT_SECONDS)
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
