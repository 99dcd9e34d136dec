"""Trial runs in shadows: reads the live-in values at a loop header, validates versions, and measures them.

In: a ``Shadow``, versions (``CompiledRegion``) and the addresses of their pages in it. Out: values of live-ins and of
the trip count R; for each version a ``Measurement``, or ``Rejected``: SHADOW_MISMATCH, NOT_FASTER, GUARD_FAILED,
SHADOW_INCONCLUSIVE.

Validation: one shadow is brought to a suitable entry of the loop, and all others are copies of it. One of these runs a
slice of the iterations by the original code, each of the others runs the same slice by one version. Then all run as
many iterations of the original as a version must leave to it. After that every register, the vector state and every
byte of memory must agree. The iterations of the original also overwrite what a version may leave in registers. Dead
registers (``Region.dead_registers``) and stack cells that nobody reads again (``Region.dead_stack_cells``) are not
compared.

Timing: each shadow then runs on by itself until its time is significant (runtime/trial/timing.py).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from contextlib import suppress

from memopt.ir.code import CompiledRegion, Placement
from memopt.ir.frozen import dataclass
from memopt.ir.plan import NestPlan, Plan
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import PROGRAM_COUNTER, Cell, Lane, LiveIn, Region, Register, admits
from memopt.ir.scop import TRIPS
from memopt.models.work import Work
from memopt.x86.frame import XMM_OFFSET, YMM_OFFSET
from runtime.target.memory import check_private
from runtime.trial.agreement import check_agreement, general_registers, own_memory
from runtime.trial.shadow import Shadow, ShadowStopped
from runtime.trial.timing import (
    COUNTED_SECONDS,
    ENTRY_SECONDS,
    FIRST_ITERATIONS,
    REACH_SECONDS,
    SHORTEST,
    STEADY_SECONDS,
    TELLING_SECONDS,
    WARM_SECONDS,
    Run,
    Times,
    further,
    own_pages,
    ownable,
    pass_header,
    results,
    run_original,
    run_version,
    settle_pages,
    uncounted,
    write_code,
)

AFFORDABLE_SECONDS = 0.06  # for iterations of the original in one trial, and again for timing a version
TIMED_ITERATIONS = 256  # of a version, without the slice: fewer would mostly time the packing of operands
MOST_BY_HAND = 2048  # iterations of the original: more would tell nothing new about short ones
SOON_SECONDS = 0.03  # the next entry of a loop is waited for if it comes within this time
MOST_PASSED = 4  # entries that are passed over because the version is not for their values
MOST_ITERATIONS = 1 << 24  # of one of these entries
PASSING_SECONDS = 0.5  # for one of these entries
LEAST_TIMED = 64  # with so many iterations the measured time decides, whatever a version does at its start
GAIN = 1.03  # a version must be faster by this factor
HOPELESS = 0.7  # or by this one, if it ran too few iterations to execute all of its code


@dataclass(frozen=True, slots=True)
class Measurement:
    """Processor seconds per outer iteration of average length (memopt.models.work), of the original and of the version.

    ``iterations``: how many the version ran. ``even``: all iterations are about equally long, so that the times of
    other runs can be compared with these.
    """

    original: float
    version: float
    iterations: int
    even: bool = True

    @property
    def speedup(self) -> float:
        """How many times as fast as the original the version is."""
        return self.original / max(self.version, 1e-12)


def reach(shadow: Shadow, header: int, timeout_s: float = REACH_SECONDS) -> float:
    """Run to ``header``; processor seconds.

    Raises ``Rejected``: NOT_REACHED if a system call or a signal comes first. If the signal is a fault because the loop
    accesses memory that a copy may not change, the reason is that of runtime.target.memory.check_private.
    """
    try:
        return shadow.run_to(header, timeout_s)
    except ShadowStopped as stopped:
        if stopped.fault is not None:
            check_private(shadow.maps(), stopped.fault, stopped.fault + 1, written=False)
        raise Rejected(Reason.NOT_REACHED, str(stopped)) from stopped


def vector_registers(shadow: Shadow) -> dict[str, bytes]:
    """The 32 bytes of each of the first sixteen vector registers, by the name of its lower half ("xmm3")."""
    state = shadow.vector_state()
    return {f"xmm{n}": state[at:at + 16] + state[up:up + 16].ljust(16, b"\0")
            for n in range(16) for at, up in [(XMM_OFFSET + 16 * n, YMM_OFFSET + 16 * n)]}


def peek(shadow: Shadow, address: int, bits: int) -> int:
    """The signed number of ``bits`` bits at ``address``."""
    return int.from_bytes(shadow.read(address, bits // 8), "little", signed=True)


def live_values(region: Region, shadow: Shadow) -> dict[str, int]:
    """The values of the live-in symbols of ``region``, and of its trip count R, in a shadow that stands at its header.

    Raises ``Rejected(PROTECTED_MAPPING)`` if a live-in cell cannot be read.
    """
    registers = general_registers(shadow.registers()) | {PROGRAM_COUNTER.name: region.header}
    vectors = vector_registers(shadow)
    values: dict[str, int] = {}
    pending = list(region.live_ins)
    while pending:  # a cell whose address is the value of another cell comes after that one
        waiting = {live.symbol for live in pending}
        for live in pending:
            if not isinstance(live.location, Cell) or live.location.base not in waiting:
                values[live.symbol] = _live_value(live, registers | values, vectors, shadow)
        pending = [live for live in pending if live.symbol not in values]
    values[TRIPS] = region.trips.numerator.evaluate(values) // region.trips.divisor
    return values


def admitted(region: Region, shadow: Shadow) -> dict[str, int] | None:
    """``live_values``, None if a guard would fail for them."""
    try:
        values = live_values(region, shadow)
        return values if admits(region, values, functools.partial(peek, shadow)) else None
    except Rejected as rejected:
        if rejected.reason is not Reason.PROTECTED_MAPPING:
            raise
        return None  # the value used as a pointer is none at this entry


def _live_value(live: LiveIn, registers: dict[str, int], vectors: dict[str, bytes], shadow: Shadow) -> int:
    match live.location:
        case Cell(base, displacement, _):
            raw = shadow.read((registers[base] if base else 0) + displacement, live.width)
        case Lane(register, offset, _):
            raw = vectors[register][offset:offset + live.width]
        case Register(name):
            raw = registers[name].to_bytes(8, "little")[:live.width]
    return int.from_bytes(raw, "little", signed=live.signed)


def race(original: Shadow, versions: Sequence[tuple[Shadow, CompiledRegion]], values: dict[str, int],
         slice_iterations: int, exits: Collection[int], exact: bool = True,
         others: Sequence[Placement] = ()) -> list[Measurement | Rejected]:
    """Run a slice of the loop by the original and by each version, compare the states, and time them.

    All shadows are copies of one that ``come_to_entry`` has brought to the header, with ``values`` there. All versions
    have the same placement, each is written to its own shadow.
    ``slice_iterations``: how many iterations to run; fewer near the end of the loop. If the original is too slow for so
    many, it runs the first few, and in its shadow the first version runs the rest, from another start than in its own.
    ``exits``: addresses at which the program goes on behind the loop.
    ``exact``: results must agree bit for bit; else they may differ by as much as reassociation causes.
    ``others``: the pages of versions of other nests, which are not compared.
    The result, for each version: its times, or why it is refused: SHADOW_MISMATCH, NOT_FASTER, GUARD_FAILED,
    SHADOW_INCONCLUSIVE (a system call came first). Raises ``Rejected(SHADOW_INCONCLUSIVE)`` if the original cannot run.
    """
    first = versions[0][1]
    header, left = first.region.header, first.region.original_iterations
    try:
        own = tuple(span for placement in (first.placement, *others) for span in own_memory(placement))
        work = Work(first.region.scop, values)
        own_pages(original, first, results(first.region, values, 1 + left))
        overhead = run_original(original, first, 0)
        seconds, timed = max(run_original(original, first, 1) - overhead, SHORTEST), 0
        affordable = max(1, int(AFFORDABLE_SECONDS / seconds))
        by_hand = min(affordable, MOST_BY_HAND, ownable(first.region, values, MOST_BY_HAND))
        count = min(values[TRIPS] - 1 - left, max(slice_iterations, by_hand))
        by_hand = min(count, affordable)
        if by_hand > 1:
            settle_pages(original, first, values, by_hand + left)
            elapsed = run_original(original, first, by_hand - 1) - overhead
            seconds, timed = max(elapsed / (by_hand - 1), SHORTEST), 1
        if count > by_hand:
            run_version(original, first, count - by_hand)
        original.run_to(header, REACH_SECONDS, hits=left * first.region.period)
    except ShadowStopped as stopped:
        raise Rejected(Reason.SHADOW_INCONCLUSIVE, str(stopped)) from stopped
    reference = _Reference(original, values, work, count, overhead, exact, own, exits)
    times = [reference.run(shadow, compiled) for shadow, compiled in versions]
    if all(isinstance(t, Rejected) for t in times):
        return [t for t in times if isinstance(t, Rejected)]
    yardstick = Times.of(work, work.mean, seconds * (by_hand - timed), timed, by_hand - timed)
    # The first entry after a stop is slower than the later ones. So all are timed in one entry, or all in several.
    short = any(t.seconds < WARM_SECONDS for t in (yardstick, *times) if isinstance(t, Times))
    if yardstick.seconds < yardstick.run * COUNTED_SECONDS:
        yardstick = uncounted(original, first, yardstick, work.mean, functools.partial(admitted, first.region), exits)
    elif short:
        yardstick = reference.more(original, first, run_original, yardstick)
    return [t if isinstance(t, Rejected)
            else _judged(compiled, work, yardstick, reference.more(shadow, compiled, run_version, t) if short else t)
            for (shadow, compiled), t in zip(versions, times, strict=True)]


def come_to_entry(first: CompiledRegion, shadow: Shadow, next_entry: bool) -> dict[str, int]:
    """Run a shadow to an entry of the loop for which the guards hold and that has enough iterations; the values there.

    ``shadow`` stands at the header and has the pages of ``first``. Entries with other values are passed over, because a
    function may be called with other arrays every second time, and new copies would cost the program more.
    ``next_entry``: go on to the next entry first, if it comes soon. That one is complete, and may have other values.
    Raises ``Rejected``: GUARD_FAILED, TOO_SHORT (too few iterations are left), SHADOW_INCONCLUSIVE.
    """
    write_code(shadow, first)
    try:
        if next_entry:
            _pass_if_soon(first, shadow)
        values = _admitted_near(first, shadow)
        for _ in range(MOST_PASSED):
            if values is None or values[TRIPS] < 2 + first.region.original_iterations:
                _pass(first, shadow, _trips(first, shadow))
                values = _admitted_near(first, shadow)
    except ShadowStopped as stopped:
        raise Rejected(Reason.SHADOW_INCONCLUSIVE, str(stopped)) from stopped
    if values is None or values[TRIPS] < 2 + first.region.original_iterations:
        raise Rejected(Reason.GUARD_FAILED if values is None else Reason.TOO_SHORT, "in a trial copy")
    return values


def _admitted_near(first: CompiledRegion, shadow: Shadow) -> dict[str, int] | None:
    """``admitted`` here or after a few iterations: a version may leave the first ones to the original."""
    spent = 0.0
    for _ in range(FIRST_ITERATIONS):
        values = admitted(first.region, shadow)
        if values is not None or spent > SOON_SECONDS or _trips(first, shadow) <= 1:
            return values
        spent += pass_header(shadow, first, 1)
    return admitted(first.region, shadow)


def _pass_if_soon(first: CompiledRegion, shadow: Shadow) -> None:
    """Run on to the next entry of the loop, if the time of one iteration says that it comes soon."""
    if _trips(first, shadow) > 1:
        overhead = run_original(shadow, first, 0)
        seconds = run_original(shadow, first, 1) - overhead
        left = _trips(first, shadow)
        if seconds * left <= SOON_SECONDS:
            _pass(first, shadow, left)


def _trips(first: CompiledRegion, shadow: Shadow) -> int:
    """The trip count R where ``shadow`` stands, whether the guards hold or not."""
    try:
        return live_values(first.region, shadow)[TRIPS]
    except Rejected as rejected:
        raise Rejected(Reason.GUARD_FAILED, "in a trial copy") from rejected


def _pass(first: CompiledRegion, shadow: Shadow, iterations: int) -> None:
    """Run the ``iterations`` that are left of this entry, and on to the next entry of the loop."""
    if not 0 < iterations <= MOST_ITERATIONS:
        raise Rejected(Reason.GUARD_FAILED, "in a trial copy")
    run_original(shadow, first, iterations, PASSING_SECONDS)


@dataclass(frozen=True, slots=True)
class _Reference:
    """The state that every version must reproduce.

    ``original``: the shadow that has run ``count`` iterations and those that versions leave to the original, from
    ``values``. ``overhead``: seconds for running and stopping. ``exact``: compare bit for bit. ``own``: memory of
    versions, which is not compared. ``exits``: addresses at which the program goes on behind the loop.
    """

    original: Shadow
    values: dict[str, int]
    work: Work
    count: int
    overhead: float
    exact: bool
    own: tuple[tuple[int, int], ...]
    exits: Collection[int]

    def run(self, version: Shadow, compiled: CompiledRegion) -> Times | Rejected:
        """Let a version run the same iterations, compare the states, and time it; or the reason why it is refused."""
        try:
            return self._run(version, compiled)
        except ShadowStopped as stopped:
            return Rejected(Reason.SHADOW_INCONCLUSIVE, str(stopped))
        except Rejected as rejected:
            return rejected

    def _run(self, version: Shadow, compiled: CompiledRegion) -> Times:
        header, left, count = compiled.region.header, compiled.region.original_iterations, self.count
        placement = compiled.placement
        write_code(version, compiled)
        scratch = (placement.scratch, placement.scratch + placement.scratch_size)
        settle_pages(version, compiled, self.values, count + left + 1, [scratch])
        elapsed = self._timed(version, compiled, count)
        version.run_to(header, REACH_SECONDS, hits=left * compiled.region.period)
        check_agreement(self.original, version, compiled, self.values, self.own, self.exact)
        affordable = max(LEAST_TIMED, int(AFFORDABLE_SECONDS * count / elapsed))
        enough = max(TIMED_ITERATIONS, count) if compiled.region.rollback is None else self.values[TRIPS]  # see _judged
        most = min(self.values[TRIPS] - left, ownable(compiled.region, self.values, 2 * count + enough))
        more = min(most - count - 1, enough, affordable)
        if more > count:
            settle_pages(version, compiled, self.values, count + 1 + more + left)
            with suppress(Rejected):  # its guards may fail this time: by now there may be NaNs
                return Times.of(self.work, self.work.mean, self._timed(version, compiled, more), count + 1, more)
        return Times.of(self.work, self.work.mean, elapsed, 0, count)

    def _timed(self, version: Shadow, compiled: CompiledRegion, iterations: int) -> float:
        return max(run_version(version, compiled, iterations) - self.overhead, SHORTEST)

    def more(self, shadow: Shadow, compiled: CompiledRegion, run: Run, times: Times) -> Times:
        """The times of further entries if there are any, else ``times``."""
        if self.overhead == 0:  # not known: without room for the counter every iteration is stopped at
            return times
        return further(shadow, compiled, run, times, self.work.mean, functools.partial(admitted, compiled.region),
                       self.exits)


def _judged(compiled: CompiledRegion, work: Work, original: Times, version: Times) -> Measurement | Rejected:
    """The measurement, or why the version is refused: NOT_FASTER, GUARD_FAILED, SHADOW_INCONCLUSIVE.

    A version with a rollback copies, at every entry, all that it is going to write, which may be as much for a part of
    the iterations as for all of them. So it is compared as if it had run whole entries: it has surely lost if a part of
    the iterations takes longer than all of them take in the original.
    """
    least_version = max(version.seconds, ENTRY_SECONDS) / version.amount  # the time for stopping hides less
    measured = Measurement(original.per_iteration, least_version, version.run, work.even)
    least = _least_gain(compiled.plan, original, version)
    if least > 0:
        if original.seconds < (TELLING_SECONDS if original.entries > 1 else STEADY_SECONDS):
            if original.alone:  # GUARD_FAILED asks for a version that is for more values
                return Rejected(Reason.GUARD_FAILED, "in a trial copy, at other entries")
            # A single entry may be the last part of one that takes long: another copy may show more.
            reason = Reason.NOT_FASTER if original.entries > 1 else Reason.SHADOW_INCONCLUSIVE
            return Rejected(reason, f"{original.run} iterations take too little to be measured")
        amount = version.amount if compiled.region.rollback is None else version.entries * work.values[TRIPS]
        gain = amount * measured.original / version.seconds
        if gain < least:
            return Rejected(Reason.NOT_FASTER, f"{gain:.2f} times as fast")
    return measured


def _least_gain(plan: NestPlan, original: Times, version: Times) -> float:
    """The least speed-up that the version must have reached in the timed iterations; 0 if they show nothing.

    It tells nothing about few iterations of a version that packs operands: it packs once, for all iterations.
    """
    if version.run >= LEAST_TIMED:
        return GAIN
    packed = any(isinstance(p, Plan) and p.packs for p in plan.parts)
    if packed or min(original.seconds, version.seconds) < WARM_SECONDS:
        return 0.0
    return GAIN if version.run >= max(p.trial_iterations for p in plan.parts) else HOPELESS
