"""What iterations take, in trial copies: of the original by a counter in front of its header, of a version by the limit
in its frame. One entry of a short loop takes less than stopping a process; then more entries are timed, for as long as
their sum says something, and the middle one counts of those that caches are warm for. What a version takes at a start
from cold, which it does not in service, is left out of it. Where iterations take no longer than counting them, whole
entries are timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import median

from memopt.ir.code import FRAME_LIMIT, STATISTICS_RUNS, CompiledRegion, Placement
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Footprint, Region
from memopt.ir.scop import TRIPS
from memopt.models.work import Work
from runtime.patching.install import jump, jump_bytes
from runtime.target.memory import PAGE
from runtime.trial.shadow import End, Shadow, ShadowStopped

REACH_SECONDS = 60.0  # for one outer iteration of the original
SHORTEST = 1e-9  # seconds that anything takes
STEADY_SECONDS = 200e-6  # of iterations that a comparison is to rest on
WARM_SECONDS = 2e-3  # of an entry, in which the caches a stop has emptied do not count
TELLING_SECONDS = 20e-6  # of those of several entries, below which there is none
COUNTED_SECONDS = 100e-9  # for one iteration, below which the counter tells in what it takes
COUNTING_SECONDS = 4.5e-9  # for that: the counter goes through memory
_COLD_ENTRIES = 3  # at most, until the caches that stops have emptied are full again
_LEAST_ENTRIES = 5  # timed for it behind those, so that one that was interrupted does not tell
COLD_SECONDS = 5e-6  # at most, of what a version takes longer when a stop has let its code leave the caches
ENTRY_SECONDS = 0.2e-6  # for coming into a version that is in the caches, and out
_MOST_ENTRIES = 40
FIRST_ITERATIONS = 16  # some of which the version may leave to the original
_MOST_SECONDS = 0.1  # of the copy's, for all of them
_PATIENCE_SECONDS = 0.4  # for them by the wall clock, a machine being busy or stops being many
MOST_OWN = 1 << 27  # bytes of results for which a trial copy gets pages of its own, and of operands it looks at before
_COUNTER, _SAVED = PAGE - 8, PAGE - 16  # in the page of the statistics
_SPARE_BYTES = 48  # of code for counting and a breakpoint behind it, or for this:
_TOUCH = bytes.fromhex("f0800f00"  # lock or byte ptr [rdi], 0
                       "4881c700100000"  # add rdi, 4096
                       "4839f7"  # cmp rdi, rsi
                       "72f0")  # jb to the start
_LOOK = bytes.fromhex("f607004881c7001000004839f772f1")  # the same with test byte ptr [rdi], 0

Run = Callable[[Shadow, CompiledRegion, int], float]
Admit = Callable[[Shadow], "dict[str, int] | None"]
"""The values at the header where a shadow stands, None where the version would not be entered."""


@dataclass(frozen=True, slots=True)
class Times:
    """``seconds`` of processor time for ``amount`` iterations of average length, ``run`` as they were counted, in
    ``entries`` of the loop. ``alone``: more entries were looked for, and came with other values."""

    seconds: float
    amount: float
    run: int
    entries: int = 1
    alone: bool = False

    @property
    def per_iteration(self) -> float:
        return self.seconds / self.amount

    @staticmethod
    def of(work: Work, mean: float, seconds: float, first: int, count: int) -> Times:
        """``count`` iterations from ``first`` on; ``mean``: what an iteration of average length does (Work.mean)."""
        return Times(max(seconds, SHORTEST), _amount(work, mean, first, count), count)


def _amount(work: Work, mean: float, first: int, count: int) -> float:
    return count * work.per_iteration(first, count) / mean


def further(shadow: Shadow, compiled: CompiledRegion, run: Run, times: Times, mean: float, admit: Admit,
            exits: Collection[int]) -> Times:
    """What follows ``times``, which is too little, is timed until there is enough of it; ``times`` where it does not
    come to as much. ``shadow`` stands at the header. ``exits``: where the program goes on behind the loop."""
    region, own = compiled.region, set[tuple[int, int]]()
    cold = 1 if run is run_version and region.rollback is None and not region.nan_free else 0

    def timed(values: dict[str, int], found: Sequence[_Entry]) -> _Entry | None:
        most = values[TRIPS] - 1 - region.original_iterations - cold
        if most <= 0:
            return None
        enough = int(STEADY_SECONDS / _LEAST_ENTRIES / (_middle(found) if found else times).per_iteration) + 1
        count = min(most, max(enough, times.run))
        count = min(count, ownable(region, values, count))
        parts = results(region, values, count + region.original_iterations + 1 + cold)
        own_pages(shadow, compiled, [part for part in parts if part not in own])
        own.update(parts)
        overhead = run_original(shadow, compiled, 0)
        if cold:
            start = run(shadow, compiled, cold) - overhead - ENTRY_SECONDS
            overhead += min(max(start, 0.0), COLD_SECONDS)
        amount = _amount(Work(region.scop, values), mean, cold, count)
        return _Entry(run(shadow, compiled, count), overhead, amount, count)

    found, alone = _search(shadow, region, admit, exits, region.original_iterations, timed)
    return _middle(found) if sum(f.run for f in found) >= times.run else replace(times, alone=alone)


def _search(shadow: Shadow, region: Region, admit: Admit, exits: Collection[int], left: int,
            timed: Callable[[dict[str, int], Sequence[_Entry]], _Entry | None]) -> tuple[list[_Entry], bool]:
    """What ``timed`` makes of the entries that follow, ``left`` iterations after each, until it is enough; whether
    there were only some with other values. One in which there is nothing to time at FIRST_ITERATIONS is left."""
    spent, deadline = 0.0, time.monotonic() + _PATIENCE_SECONDS
    found: list[_Entry] = []
    passed, others = 0, False
    # The end: it was the last entry, or the next one is too far away.
    with suppress(ShadowStopped, Rejected):
        while not _enough(found) and spent < _MOST_SECONDS and time.monotonic() < deadline:
            values = admit(shadow)
            entry = None if values is None else timed(values, found)
            if entry is not None:
                found.append(entry)
                spent, passed = spent + entry.seconds, 0
            else:
                passed, others = passed + 1, others or values is None
                if passed % FIRST_ITERATIONS == 0:
                    spent += shadow.run_out(exits, _MOST_SECONDS)
            spent += shadow.run_to(region.header, max(0.0, _MOST_SECONDS - spent), hits=1 + left * region.period)
    return found, others and not found


@dataclass(frozen=True, slots=True)
class _Entry:
    """``amount`` iterations of average length, ``run`` as they were counted, took ``seconds`` with the ``overhead``."""

    seconds: float
    overhead: float
    amount: float
    run: int


def _enough(found: Sequence[_Entry]) -> bool:
    return len(found) >= _MOST_ENTRIES or (
        len(found) >= _COLD_ENTRIES + _LEAST_ENTRIES and _middle(found).seconds >= STEADY_SECONDS)


def _middle(found: Sequence[_Entry]) -> Times:
    """All of them, as if each iteration took what it takes in the middle one of those that are not cold. What running
    and stopping take varies by more than a short entry takes: the middle of that is left out of each."""
    amount, overhead = sum(f.amount for f in found), median(f.overhead for f in found)
    warm = found[min(_COLD_ENTRIES, len(found) // 2):]
    per_iteration = median((f.seconds - overhead) / f.amount for f in warm)
    return Times(max(per_iteration * amount, SHORTEST), amount, sum(f.run for f in found), len(found))


def uncounted(shadow: Shadow, compiled: CompiledRegion, times: Times, mean: float, admit: Admit,
              exits: Collection[int]) -> Times:
    """``further`` for the original where its iterations are so short that counting them tells: what follows is timed up
    to one of ``exits``, entry by entry; else what counting takes is left out."""
    region = compiled.region

    def timed(values: dict[str, int], _found: Sequence[_Entry]) -> _Entry | None:
        trips = values[TRIPS]
        if not 0 < trips == ownable(region, values, trips):
            return None
        own_pages(shadow, compiled, results(region, values, trips))
        overhead = run_original(shadow, compiled, 0)
        amount = _amount(Work(region.scop, values), mean, 0, trips)
        return _Entry(shadow.run_out(exits, REACH_SECONDS), overhead, amount, trips)

    found, alone = _search(shadow, region, admit, exits, 0, timed)
    return _middle(found) if sum(f.run for f in found) >= times.run else replace(
        times, seconds=max(times.seconds - times.run * COUNTING_SECONDS, SHORTEST), alone=alone)


def written(region: Region, values: dict[str, int]) -> list[tuple[int, int]]:
    """Bytes ``[low, high)`` of each array that the loop writes to."""
    return [(f.interval.low.evaluate(values), f.interval.high.evaluate(values)) for f in region.footprints if f.written]


def results(region: Region, values: dict[str, int], iterations: int) -> list[tuple[int, int]]:
    """Bytes ``[low, high)`` of each array that ``iterations`` of the loop write to, from where ``values`` were read."""
    return _parts([f for f in region.footprints if f.written], values, iterations)


def _parts(footprints: Iterable[Footprint], values: dict[str, int], iterations: int) -> list[tuple[int, int]]:
    few, found = {**values, TRIPS: min(values[TRIPS], iterations)}, []
    for low, high in ((f.interval.low, f.interval.high) for f in footprints):
        first, last = max(low.evaluate(few), low.evaluate(values)), min(high.evaluate(few), high.evaluate(values))
        if first < last:
            found.append((first, last))
    return found


def ownable(region: Region, values: dict[str, int], most: int) -> int:
    """How many iterations, up to ``most``, write to so little that a shadow may get pages of its own for all of it; 1
    at least."""
    low, high = 1, max(1, most)
    while low < high:
        middle = (low + high + 1) // 2
        fits = sum(end - start for start, end in results(region, values, middle)) <= MOST_OWN
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def own_pages(shadow: Shadow, compiled: CompiledRegion, parts: Iterable[tuple[int, int]]) -> None:
    """Give the shadow pages of its own before anything is timed: the first write to a page that it shares with the
    program takes more time than many iterations. What cannot be written to stays as it is. Raises ``ShadowStopped``."""
    _each_page(shadow, compiled, parts, _TOUCH)


def settle_pages(shadow: Shadow, compiled: CompiledRegion, values: dict[str, int], iterations: int,
                 more: Sequence[tuple[int, int]] = ()) -> None:
    """Before a long run of ``iterations`` is timed: ``own_pages`` for its results and ``more``, ``look_at_pages``."""
    own_pages(shadow, compiled, [*more, *results(compiled.region, values, iterations)])
    look_at_pages(shadow, compiled, values, iterations)


def look_at_pages(shadow: Shadow, compiled: CompiledRegion, values: dict[str, int], iterations: int) -> None:
    """Let the shadow access what ``iterations`` only read before they are timed: a fork's page tables are in no cache,
    and a first access takes up to a microsecond, for the original and for a version alike, so that neither would seem
    faster than the other. Raises ``ShadowStopped``."""
    left, parts = MOST_OWN, []
    for low, high in _parts([f for f in compiled.region.footprints if not f.written], values, iterations):
        size = min(left, high - low)
        parts.append((low, low + size))
        left -= size
    _each_page(shadow, compiled, parts, _LOOK)


def _each_page(shadow: Shadow, compiled: CompiledRegion, parts: Iterable[tuple[int, int]], access: bytes) -> None:
    start = _spare(compiled)
    if start is None:
        return
    registers = shadow.registers()
    shadow.write(start, access)
    for low, high in parts:
        if low >= high:
            continue
        try:
            shadow.set_registers(replace(registers, rip=start, rdi=low // PAGE * PAGE, rsi=high))
            shadow.run_to(start + len(access), REACH_SECONDS)
        except ShadowStopped as stopped:
            if stopped.reason is not End.SIGNAL:
                raise
    shadow.set_registers(registers)


def _spare(compiled: CompiledRegion) -> int | None:
    """Where ``_SPARE_BYTES`` behind a version's code are free, if they are."""
    placement = compiled.placement
    start = -(-(placement.code + len(compiled.code)) // 16) * 16
    return start if start + _SPARE_BYTES <= placement.code + placement.code_size else None


def run_version(shadow: Shadow, compiled: CompiledRegion, iterations: int) -> float:
    """Enter the version at its guard and let it run ``iterations``, up to the displaced copy of the header."""
    placement = compiled.placement
    shadow.write(placement.frame + FRAME_LIMIT, iterations.to_bytes(8, "little"))
    before = _runs(shadow, placement.statistics)
    shadow.set_registers(replace(shadow.registers(), rip=compiled.entry))
    elapsed = shadow.run_to(placement.code, REACH_SECONDS)
    if _runs(shadow, placement.statistics) != before + 1:
        raise Rejected(Reason.GUARD_FAILED, "in a trial copy")
    return elapsed


def write_code(shadow: Shadow, compiled: CompiledRegion) -> None:
    shadow.write(compiled.placement.code, compiled.code)


def run_original(shadow: Shadow, compiled: CompiledRegion, iterations: int,
                 timeout_s: float = REACH_SECONDS) -> float:
    """Run ``iterations`` of the region in the original from the header, where it stands, to the header; processor
    seconds.

    A breakpoint at the header would cost more than many iterations, so a counter takes its place: the header leads to
    it, and it goes on to the displaced instructions until it is zero. No iteration at all takes what running and
    stopping take; 0 where that cannot be told.
    """
    return pass_header(shadow, compiled, iterations * compiled.region.period, timeout_s)


def pass_header(shadow: Shadow, compiled: CompiledRegion, times: int, timeout_s: float = REACH_SECONDS) -> float:
    """``run_original`` until the header is reached for the ``times``-th time."""
    region, start = compiled.region, _spare(compiled)
    if start is None:
        return shadow.run_to(region.header, timeout_s, hits=times) if times else 0.0
    code = _counting(start, compiled.placement)
    patch = jump(region.header, start, region.displaced)
    shadow.write(start, code)
    shadow.write(compiled.placement.statistics + _COUNTER, (times + 1).to_bytes(8, "little"))
    shadow.patch(patch.address, patch.replacement)
    elapsed = shadow.run_to(start + len(code), timeout_s)
    shadow.patch(patch.address, patch.original)
    shadow.set_registers(replace(shadow.registers(), rip=region.header))
    return elapsed


def _counting(start: int, placement: Placement) -> bytes:
    """Counts down in memory, and comes to its end at zero, else to the displaced instructions. It changes no flags:
    some loops bring theirs along (``inc`` leaves one as it was)."""
    code = b""

    def with_rcx(opcode: str, offset: int) -> None:
        nonlocal code
        there = placement.statistics + offset - (start + len(code) + 7)
        code += bytes.fromhex(opcode) + there.to_bytes(4, "little", signed=True)

    store, load = "48890d", "488b0d"
    with_rcx(store, _SAVED)
    with_rcx(load, _COUNTER)
    code += bytes.fromhex("488d49ff")  # lea rcx, [rcx - 1]
    with_rcx(store, _COUNTER)
    code += bytes.fromhex("e30c")  # jrcxz behind the jump
    with_rcx(load, _SAVED)
    code += jump_bytes(start + len(code), placement.code)
    with_rcx(load, _SAVED)
    return code


def _runs(shadow: Shadow, statistics: int) -> int:
    return int.from_bytes(shadow.read(statistics + STATISTICS_RUNS, 8), "little")


