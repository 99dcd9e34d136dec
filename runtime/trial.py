"""Trial runs in forked copies: reach a loop header, and hold a version against the original.

Shadows of one instant run the same iterations, one by the original code, one by each version; all then run as many
iterations of the original as a version has to leave to it, and must agree in every register, all vector state and
every byte of memory. Those iterations also rewrite what a version may leave behind (dead registers), so nothing has to
be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from memopt.ir.code import FRAME_LIMIT, STATISTICS_RUNS, CompiledRegion, Placement
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Cell, Lane, LiveIn, Region, Register
from memopt.ir.scop import TRIPS, ElementType
from memopt.models.work import Work
from memopt.x86.frame import XMM_OFFSET, YMM_OFFSET
from runtime.install import jump, jump_bytes
from runtime.memory import PAGE, check_private, mappings
from runtime.ptrace import Registers
from runtime.shadow import Shadow, ShadowStopped, compare

REACH_SECONDS = 60.0  # for one outer iteration of the original
AFFORDABLE_SECONDS = 0.06  # of original iterations in one trial, and of timing the version
MOST_COPIED = 1 << 24  # bytes of results that each trial copy gets for itself before anything is timed
TIMED_ITERATIONS = 256  # of the version alone: fewer would mostly time the packing of operands
MOST_BY_HAND = 2048  # iterations of the original: more would tell nothing new about short ones
LEAST_TIMED = 64  # iterations from which on the measured time decides
GAIN = 1.03  # a version must be faster by this factor
_COUNTING_BYTES = 20
SHORTEST = 1e-9  # seconds that anything takes
CLOSE = {ElementType.F64: 1e-10, ElementType.F32: 1e-3}  # error relative to the largest result under --fp fast


@dataclass(frozen=True, slots=True)
class Measurement:
    """Processor seconds per outer iteration of average length (memopt.models.work); ``iterations`` the version ran.
    ``even``: all iterations are about equally long, so that other runs can be compared with these."""

    original: float
    version: float
    iterations: int
    even: bool = True


def reach(shadow: Shadow, header: int) -> float:
    """Run to ``header``; processor seconds. Rejected(NOT_REACHED) when a system call or a signal comes first, or the
    reason why memory that the loop writes to is none of a copy's (runtime.memory.check_private)."""
    try:
        return shadow.run_to(header, REACH_SECONDS)
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
    values = {live.symbol: _live_value(live, registers, vectors, shadow) for live in region.live_ins}
    values[TRIPS] = region.trips.numerator.evaluate(values) // region.trips.divisor
    return values


def _live_value(live: LiveIn, registers: dict[str, int], vectors: dict[str, bytes], shadow: Shadow) -> int:
    match live.location:
        case Cell(base, displacement, _):
            raw = shadow.read((registers[base] if base else 0) + displacement, live.width)
        case Lane(register, offset, _):
            raw = vectors[register][offset:offset + live.width]
        case Register(name):
            raw = registers[name].to_bytes(8, "little")[:live.width]
    return int.from_bytes(raw, "little", signed=live.signed)


def race(original: Shadow, versions: Sequence[tuple[Shadow, CompiledRegion]], slice_iterations: int,
         exact: bool = True, others: Sequence[Placement] = ()) -> list[Measurement | Rejected]:
    """Run a slice of the original and of each version, compare, and time them; all shadows are of one instant.

    The versions are for one place, each written to its own shadow. ``slice_iterations``: how many iterations they
    should run (fewer near the end of the loop). Where the original is too slow for that many, it runs the first few
    and the first version the rest in its shadow, starting elsewhere. ``exact``: bit for bit; else results may differ
    as far as reassociation makes them. ``others``: where versions of other nests lie. For each version its times or
    why it is out: SHADOW_MISMATCH, NOT_FASTER, SHADOW_INCONCLUSIVE (a system call came first). Raises Rejected where
    the original cannot be run: TOO_SHORT (too few iterations left), SHADOW_INCONCLUSIVE.
    """
    first = versions[0][1]
    header, left = first.region.header, first.region.left
    try:
        original.run_to(header, REACH_SECONDS)
        values = live_values(first.region, original)
        work = Work(first.region.scop, values)
        usual = max(slice_iterations, MOST_BY_HAND, TIMED_ITERATIONS) + left + 1
        if values[TRIPS] < 2 + left:
            raise Rejected(Reason.TOO_SHORT, f"{values[TRIPS]} iterations left in the trial")
        for shadow in (original, *(s for s, _ in versions)):
            _copy_results(shadow, first.region, values, usual)
        _write_code(original, first)
        overhead = _run_original(original, first, 0)
        seconds, timed = max(_run_original(original, first, 1) - overhead, SHORTEST), 0
        affordable = max(1, int(AFFORDABLE_SECONDS / seconds))
        count = min(values[TRIPS] - 1 - left, max(slice_iterations, min(affordable, MOST_BY_HAND)))
        by_hand = min(count, affordable)
        if by_hand > 1:
            elapsed = _run_original(original, first, by_hand - 1) - overhead
            seconds, timed = max(elapsed / (by_hand - 1), SHORTEST), 1
        if count > by_hand:
            _run_version(original, first, count - by_hand)
        original.run_to(header, REACH_SECONDS, hits=left)
    except ShadowStopped as stopped:
        raise Rejected(Reason.SHADOW_INCONCLUSIVE, str(stopped)) from stopped
    seconds *= work.mean / work.per_iteration(timed, max(1, by_hand - timed))
    own = tuple(span for placement in (first.placement, *others) for span in _own(placement))
    heat = _Heat(original, values, work, count, seconds, overhead, exact, own)
    return [heat.run(shadow, compiled) for shadow, compiled in versions]


@dataclass(frozen=True, slots=True)
class _Heat:
    """What every version is held against: ``original`` after ``count`` iterations and those left to it, in
    ``seconds`` each (of average length); ``overhead``: what running and stopping take; ``own``: memory of
    versions, which is not compared."""

    original: Shadow
    values: dict[str, int]
    work: Work
    count: int
    seconds: float
    overhead: float
    exact: bool
    own: tuple[tuple[int, int], ...]

    def run(self, version: Shadow, compiled: CompiledRegion) -> Measurement | Rejected:
        try:
            return self._run(version, compiled)
        except ShadowStopped as stopped:
            return Rejected(Reason.SHADOW_INCONCLUSIVE, str(stopped))
        except Rejected as rejected:
            return rejected

    def _run(self, version: Shadow, compiled: CompiledRegion) -> Measurement:
        header, left, count = compiled.region.header, compiled.region.left, self.count
        _write_code(version, compiled)
        version.run_to(header, REACH_SECONDS)
        elapsed = self._timed(version, compiled, count)
        version.run_to(header, REACH_SECONDS, hits=left)
        results = [] if self.exact else _written(compiled.region, self.values)
        _agree(self.original, version, [*self.own, *results], self.exact)
        _check_close(self.original, version, compiled.region, results)
        affordable = max(LEAST_TIMED, int(AFFORDABLE_SECONDS * count / elapsed))
        more = min(self.values[TRIPS] - count - 1 - left, max(TIMED_ITERATIONS, count), affordable)
        start = 0
        if more > count:
            start, elapsed, count = count + 1, self._timed(version, compiled, more), more
        measured = Measurement(self.seconds,
                               elapsed / count * self.work.mean / self.work.per_iteration(start, count), count,
                               self.work.even)
        whole = compiled.region.retried is None  # else a few iterations pay for copies that would serve all
        if whole and count >= LEAST_TIMED and measured.version * GAIN > measured.original:
            raise Rejected(Reason.NOT_FASTER, f"{measured.original / measured.version:.2f} times as fast")
        return measured

    def _timed(self, version: Shadow, compiled: CompiledRegion, iterations: int) -> float:
        return max(_run_version(version, compiled, iterations) - self.overhead, SHORTEST)


def _own(placement: Placement) -> tuple[tuple[int, int], ...]:
    """Memory that belongs to a version and not to the program."""
    return ((placement.code, placement.code + placement.code_size),
            (placement.frame, placement.frame + placement.frame_size),
            (placement.statistics, placement.statistics + PAGE),
            (placement.scratch, placement.scratch + placement.scratch_size))


def _written(region: Region, values: dict[str, int]) -> list[tuple[int, int]]:
    return [(f.interval.low.evaluate(values), f.interval.high.evaluate(values)) for f in region.footprints if f.written]


def _copy_results(shadow: Shadow, region: Region, values: dict[str, int], iterations: int) -> None:
    """Give the shadow pages of its own where ``iterations`` of the loop write: a fault takes more time than a short
    iteration, and a loop that walks down a column meets a page at each."""
    few = {**values, TRIPS: min(values[TRIPS], iterations)}
    parts = [(max(low, first), min(high, last)) for (low, high), (first, last) in
             zip(_written(region, few), _written(region, values), strict=True)]
    if sum(high - low for low, high in parts) <= MOST_COPIED:
        for low, high in parts:
            if low < high:
                shadow.write(low, shadow.read(low, high - low))


def _check_close(original: Shadow, version: Shadow, region: Region, results: list[tuple[int, int]]) -> None:
    """Written arrays agree up to rounding, relative to their largest elements (``--fp fast``)."""
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


def _run_version(shadow: Shadow, compiled: CompiledRegion, iterations: int) -> float:
    """Enter the version at its guard and let it run ``iterations``, up to the displaced copy of the header."""
    placement = compiled.placement
    shadow.write(placement.frame + FRAME_LIMIT, iterations.to_bytes(8, "little"))
    before = _runs(shadow, placement.statistics)
    shadow.set_registers(replace(shadow.registers(), rip=compiled.entry))
    elapsed = shadow.run_to(placement.code, REACH_SECONDS)
    if _runs(shadow, placement.statistics) != before + 1:
        raise Rejected(Reason.GUARD_FAILED, "in a trial copy")
    return elapsed


def _write_code(shadow: Shadow, compiled: CompiledRegion) -> None:
    shadow.write(compiled.placement.code, compiled.code)


def _run_original(shadow: Shadow, compiled: CompiledRegion, iterations: int) -> float:
    """Run ``iterations`` of the original from the header, where it stands, to the header; processor seconds.

    A breakpoint at the header would cost more than a short iteration. Where the flags are dead there, a counter takes
    its place: the header leads to it, and it goes on to the displaced instructions until it is zero. No iteration at
    all takes what running and stopping take; 0 where that cannot be told.
    """
    region, placement = compiled.region, compiled.placement
    start = -(-(placement.code + len(compiled.code)) // 16) * 16
    counter = placement.frame + placement.frame_size - 8
    end = start + _COUNTING_BYTES
    if not region.flags_dead or end > placement.code + placement.code_size:
        return shadow.run_to(region.header, REACH_SECONDS, hits=iterations) if iterations else 0.0
    code = b"\x48\x83\x2d" + (counter - (start + 8)).to_bytes(4, "little", signed=True) + b"\x01"  # sub [counter], 1
    code += b"\x74\x05" + jump_bytes(start + 10, placement.code)  # je to the end
    code += jump_bytes(start + 15, placement.code)
    patch = jump(region.header, start, region.displaced)
    shadow.write(start, code)
    shadow.write(counter, (iterations + 1).to_bytes(8, "little"))
    shadow.patch(patch.address, patch.replacement)
    elapsed = shadow.run_to(start + 15, REACH_SECONDS)
    shadow.patch(patch.address, patch.original)
    shadow.set_registers(replace(shadow.registers(), rip=region.header))
    return elapsed


def _runs(shadow: Shadow, statistics: int) -> int:
    return int.from_bytes(shadow.read(statistics + STATISTICS_RUNS, 8), "little")


def _agree(original: Shadow, version: Shadow, ignore: Sequence[tuple[int, int]], exact: bool) -> None:
    ours, theirs = original.registers(), version.registers()
    if ours != theirs:
        names = [n for n in Registers.__dataclass_fields__ if getattr(ours, n) != getattr(theirs, n)]
        raise Rejected(Reason.SHADOW_MISMATCH, f"registers {', '.join(names)}")
    if exact and original.vector_state() != version.vector_state():
        raise Rejected(Reason.SHADOW_MISMATCH, "vector registers")
    differences = compare(original, version, ignore)
    if differences:
        raise Rejected(Reason.SHADOW_MISMATCH, f"{len(differences)} or more differences, first {differences[0]}")
