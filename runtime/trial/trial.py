"""Trial runs in forked copies: reach a loop header, and hold a version against the original.

Shadows of one instant run the same iterations, one by the original code, one by each version: they are copies of one
that has come to the right entry of the loop before. All then run as many iterations of the original as a version has to
leave to it, and must agree in every register, all vector state and every byte of memory. Those iterations also rewrite
what a version may leave behind in registers; stack cells that nobody reads again (``Region.stale``) are left out. Then
each runs on by itself, for as long as its time takes to say something (runtime.trial.timing).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from memopt.ir.code import CompiledRegion, Placement
from memopt.ir.plan import NestPlan, Plan
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Cell, Lane, LiveIn, Region, Register, admits
from memopt.ir.scop import FLOATS, TRIPS, ElementType
from memopt.models.work import Work
from memopt.x86.frame import XMM_OFFSET, YMM_OFFSET
from runtime.target.memory import PAGE, check_private, mappings
from runtime.target.ptrace import Registers
from runtime.trial.shadow import Shadow, ShadowStopped, compare
from runtime.trial.timing import (
    COUNTED_SECONDS,
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
    written,
)

AFFORDABLE_SECONDS = 0.06  # of original iterations in one trial, and of timing the version
TIMED_ITERATIONS = 256  # of the version alone: fewer would mostly time the packing of operands
MOST_BY_HAND = 2048  # iterations of the original: more would tell nothing new about short ones
SOON_SECONDS = 0.03  # within which the next entry of a loop is waited for
MOST_PASSED = 4  # entries with other values than a version is for
MOST_ITERATIONS = 1 << 24  # of one of them
PASSING_SECONDS = 0.5  # for one of them
LEAST_TIMED = 64  # iterations from which on the measured time decides, whatever a version does first
GAIN = 1.03  # a version must be faster by this factor
HOPELESS = 0.7  # or where its iterations were too few to meet all that it does, by this one
CLOSE = {ElementType.F64: 1e-10, ElementType.F32: 1e-3}  # error relative to the largest result under --fp fast


@dataclass(frozen=True, slots=True)
class Measurement:
    """Processor seconds per outer iteration of average length (memopt.models.work); ``iterations`` the version ran.
    ``even``: all iterations are about equally long, so that other runs can be compared with these."""

    original: float
    version: float
    iterations: int
    even: bool = True

    @property
    def speedup(self) -> float:
        return self.original / max(self.version, 1e-12)


def reach(shadow: Shadow, header: int, timeout_s: float = REACH_SECONDS) -> float:
    """Run to ``header``; processor seconds. Rejected(NOT_REACHED) when a system call or a signal comes first, or the
    reason why memory that the loop writes to is none of a copy's (runtime.target.memory.check_private)."""
    try:
        return shadow.run_to(header, timeout_s)
    except ShadowStopped as stopped:
        if stopped.fault is not None:
            check_private(mappings(shadow.pid), stopped.fault, stopped.fault + 1, written=False)
        raise Rejected(Reason.NOT_REACHED, str(stopped)) from stopped


def general_registers(registers: Registers) -> dict[str, int]:
    """The sixteen general registers, unsigned."""
    names = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{n}" for n in range(8, 16)))
    return {name: getattr(registers, name) for name in names}


def vector_registers(shadow: Shadow) -> dict[str, bytes]:
    """The 32 bytes of each of the first sixteen vector registers, under the names of their lower halves ("xmm3")."""
    state = shadow.vector_state()
    return {f"xmm{n}": state[at:at + 16] + state[up:up + 16].ljust(16, b"\0")
            for n in range(16) for at, up in [(XMM_OFFSET + 16 * n, YMM_OFFSET + 16 * n)]}


def peek(shadow: Shadow, address: int, bits: int) -> int:
    """``bits`` of memory as a signed number."""
    return int.from_bytes(shadow.read(address, bits // 8), "little", signed=True)


def live_values(region: Region, shadow: Shadow) -> dict[str, int]:
    """The live-in symbols and R of ``region`` in a shadow that stands at its header."""
    registers, vectors = general_registers(shadow.registers()), vector_registers(shadow)
    values: dict[str, int] = {}
    pending = list(region.live_ins)
    while pending:  # a cell behind another one after that
        waiting = {live.symbol for live in pending}
        for live in pending:
            if not isinstance(live.location, Cell) or live.location.base not in waiting:
                values[live.symbol] = _live_value(live, registers | values, vectors, shadow)
        pending = [live for live in pending if live.symbol not in values]
    values[TRIPS] = region.trips.numerator.evaluate(values) // region.trips.divisor
    return values


def admitted(region: Region, shadow: Shadow) -> dict[str, int] | None:
    """``live_values``, None where the guards would not let them pass."""
    try:
        values = live_values(region, shadow)
        return values if admits(region, values, functools.partial(peek, shadow)) else None
    except Rejected as rejected:
        if rejected.reason is not Reason.PROTECTED_MAPPING:
            raise
        return None  # what leads there is no pointer at this entry


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
    """Run a slice of the original and of each version, compare, and time them; all shadows are copies of one that
    ``come_to_entry`` brought to the header, with ``values`` there.

    The versions are for one place, each written to its own shadow. ``slice_iterations``: how many iterations they
    should run (fewer near the end of the loop). Where the original is too slow for that many, it runs the first few
    and the first version the rest in its shadow, starting elsewhere. ``exits``: where the program goes on behind the
    loop. ``exact``: bit for bit; else results may differ as far as reassociation makes them. ``others``: where versions
    of other nests lie. For each version its times or
    why it is out: SHADOW_MISMATCH, NOT_FASTER, SHADOW_INCONCLUSIVE (a system call came first). Raises Rejected where
    the original cannot be run: SHADOW_INCONCLUSIVE.
    """
    first = versions[0][1]
    header, left = first.region.header, first.region.original_iterations
    try:
        own = tuple(span for placement in (first.placement, *others) for span in _own(placement))
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
    heat = _Heat(original, values, work, count, overhead, exact, own, exits)
    times = [heat.run(shadow, compiled) for shadow, compiled in versions]
    if all(isinstance(t, Rejected) for t in times):
        return [t for t in times if isinstance(t, Rejected)]
    yardstick = Times.of(work, work.mean, seconds * (by_hand - timed), timed, by_hand - timed)
    # The first entry after a stop is slower than the next ones are: all are timed in one entry, or in several.
    short = any(t.seconds < WARM_SECONDS for t in (yardstick, *times) if isinstance(t, Times))
    if yardstick.seconds < yardstick.run * COUNTED_SECONDS:
        yardstick = uncounted(original, first, yardstick, work.mean, functools.partial(admitted, first.region), exits)
    elif short:
        yardstick = heat.more(original, first, run_original, yardstick)
    return [t if isinstance(t, Rejected)
            else _judged(compiled, work, yardstick, heat.more(shadow, compiled, run_version, t) if short else t)
            for (shadow, compiled), t in zip(versions, times, strict=True)]


def come_to_entry(first: CompiledRegion, shadow: Shadow, on: bool) -> dict[str, int]:
    """The values at the header once a shadow that stands there, with the pages of ``first``, came to an entry that the
    guards let in, with iterations enough. ``on``: to the next entry if it comes soon, which is a whole one and may come
    with other values. A function may be called with other arrays every second time, and new copies would cost the
    program more. Raises Rejected: GUARD_FAILED, TOO_SHORT (too few iterations left), SHADOW_INCONCLUSIVE.
    """
    write_code(shadow, first)
    try:
        if on:
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
    """``admitted``, after a few iterations if need be: a version may leave the first ones to the original."""
    spent = 0.0
    for _ in range(FIRST_ITERATIONS):
        values = admitted(first.region, shadow)
        if values is not None or spent > SOON_SECONDS or _trips(first, shadow) <= 1:
            return values
        spent += pass_header(shadow, first, 1)
    return admitted(first.region, shadow)


def _pass_if_soon(first: CompiledRegion, shadow: Shadow) -> None:
    if _trips(first, shadow) > 1:
        overhead = run_original(shadow, first, 0)
        seconds = run_original(shadow, first, 1) - overhead
        left = _trips(first, shadow)
        if seconds * left <= SOON_SECONDS:
            _pass(first, shadow, left)


def _trips(first: CompiledRegion, shadow: Shadow) -> int:
    """How many iterations the entry has in which ``shadow`` stands, whatever values it has."""
    try:
        return live_values(first.region, shadow)[TRIPS]
    except Rejected as rejected:
        raise Rejected(Reason.GUARD_FAILED, "in a trial copy") from rejected


def _pass(first: CompiledRegion, shadow: Shadow, iterations: int) -> None:
    """Run on to the next entry of the loop, which has ``iterations`` to go."""
    if not 0 < iterations <= MOST_ITERATIONS:
        raise Rejected(Reason.GUARD_FAILED, "in a trial copy")
    run_original(shadow, first, iterations, PASSING_SECONDS)


@dataclass(frozen=True, slots=True)
class _Heat:
    """What every version is held against: ``original`` after ``count`` iterations and those left to it; ``overhead``:
    seconds that running and stopping take; ``own``: memory of versions, which is not compared; ``exits``: where the
    program goes on behind the loop."""

    original: Shadow
    values: dict[str, int]
    work: Work
    count: int
    overhead: float
    exact: bool
    own: tuple[tuple[int, int], ...]
    exits: Collection[int]

    def run(self, version: Shadow, compiled: CompiledRegion) -> Times | Rejected:
        """Let a version do what the original did, and compare."""
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
        rounded = [] if self.exact else written(_floating(compiled.region), self.values)
        ignored = [*self.own, *rounded, *_stale(compiled.region, version)]
        _agree(self.original, version, compiled.region.dead_registers, ignored, self.exact)
        _check_close(self.original, version, _floating(compiled.region), rounded)
        affordable = max(LEAST_TIMED, int(AFFORDABLE_SECONDS * count / elapsed))
        enough = max(TIMED_ITERATIONS, count) if compiled.region.rollback is None else self.values[TRIPS]  # see _judged
        most = min(self.values[TRIPS] - left, ownable(compiled.region, self.values, 2 * count + enough))
        more = min(most - count - 1, enough, affordable)
        if more > count:
            settle_pages(version, compiled, self.values, count + 1 + more + left)
            with suppress(Rejected):  # the guards may not let it in again: by now there may be NaNs
                return Times.of(self.work, self.work.mean, self._timed(version, compiled, more), count + 1, more)
        return Times.of(self.work, self.work.mean, elapsed, 0, count)

    def _timed(self, version: Shadow, compiled: CompiledRegion, iterations: int) -> float:
        return max(run_version(version, compiled, iterations) - self.overhead, SHORTEST)

    def more(self, shadow: Shadow, compiled: CompiledRegion, run: Run, times: Times) -> Times:
        """The times of further entries where there are some, else ``times``."""
        if self.overhead == 0:  # it cannot be told: every iteration is stopped at
            return times
        return further(shadow, compiled, run, times, self.work.mean, functools.partial(admitted, compiled.region),
                       self.exits)


def _judged(compiled: CompiledRegion, work: Work, original: Times, version: Times) -> Measurement | Rejected:
    """A version that can be taken back copies at every entry what all iterations write. So it loses for sure where a
    part of them takes longer than the original does for the whole."""
    measured = Measurement(original.per_iteration, version.per_iteration, version.run, work.even)
    least = _least_gain(compiled.plan, original, version)
    if least > 0:
        if original.seconds < (TELLING_SECONDS if original.entries > 1 else STEADY_SECONDS):
            if original.alone:  # a version for more values may be made
                return Rejected(Reason.GUARD_FAILED, "in a trial copy, at other entries")
            return Rejected(Reason.NOT_FASTER, f"{original.run} iterations take too little to be measured")
        amount = version.amount if compiled.region.rollback is None else version.entries * work.values[TRIPS]
        gain = amount * measured.original / version.seconds
        if gain < least:
            return Rejected(Reason.NOT_FASTER, f"{gain:.2f} times as fast")
    return measured


def _least_gain(plan: NestPlan, original: Times, version: Times) -> float:
    """What a version must reach to be kept, by what was timed of it; 0 where that says nothing: operands are packed
    once, for all iterations."""
    if version.run >= LEAST_TIMED:
        return GAIN
    packed = any(isinstance(p, Plan) and p.packs for p in plan.parts)
    if packed or min(original.seconds, version.seconds) < WARM_SECONDS:
        return 0.0
    return GAIN if version.run >= max(p.trial_iterations for p in plan.parts) else HOPELESS


def _own(placement: Placement) -> tuple[tuple[int, int], ...]:
    """Memory that belongs to a version and not to the program."""
    return ((placement.code, placement.code + placement.code_size),
            (placement.frame, placement.frame + placement.frame_size),
            (placement.statistics, placement.statistics + PAGE),
            (placement.scratch, placement.scratch + placement.scratch_size))


def _stale(region: Region, shadow: Shadow) -> list[tuple[int, int]]:
    registers = general_registers(shadow.registers())
    starts = [(registers[c.base] + c.displacement, c.width) for c in region.dead_stack_cells]
    return [(start, start + width) for start, width in starts]


def _floating(region: Region) -> Region:
    """``region`` with those footprints alone whose elements are rounded; integers are never close, but equal."""
    return replace(region, footprints=tuple(
        f for f in region.footprints if region.scop.array(f.array).element in FLOATS))


def _check_close(original: Shadow, version: Shadow, region: Region, results: list[tuple[int, int]]) -> None:
    """Written arrays agree up to rounding, relative to their largest elements (``--fp fast``)."""
    if not results:
        return
    import numpy

    elements = [region.scop.array(f.array).element for f in region.footprints if f.written]
    for (low, high), element in zip(results, elements, strict=False):
        kind = numpy.float64 if element is ElementType.F64 else numpy.float32
        ours, theirs = (numpy.frombuffer(s.read(low, high - low), kind) for s in (original, version))
        with numpy.errstate(all="ignore"):
            finite = numpy.isfinite(ours) & numpy.isfinite(theirs)
            largest = float(numpy.abs(ours[finite]).max(initial=0.0))
            error = float(numpy.abs(ours[finite] - theirs[finite]).max(initial=0.0))
        if not numpy.array_equal(numpy.isfinite(ours), numpy.isfinite(theirs)) or error > CLOSE[element] * largest:
            raise Rejected(Reason.SHADOW_MISMATCH, f"an error of {error:.3g} where values reach {largest:.3g}")


def _agree(original: Shadow, version: Shadow, dead: Collection[str], ignore: Sequence[tuple[int, int]],
           exact: bool) -> None:
    ours, theirs = original.registers(), version.registers()
    names = [n for n in Registers.__dataclass_fields__ if getattr(ours, n) != getattr(theirs, n) and n not in dead]
    if names:
        raise Rejected(Reason.SHADOW_MISMATCH, f"registers {', '.join(names)}")
    if exact and original.vector_state() != version.vector_state():
        raise Rejected(Reason.SHADOW_MISMATCH, "vector registers")
    differences = compare(original, version, ignore)
    if differences:
        raise Rejected(Reason.SHADOW_MISMATCH, f"{len(differences)} or more differences, first {differences[0]}")
