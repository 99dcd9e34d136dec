"""Times iterations of a loop in shadows: those of the original code and those of a version.

In: a shadow that stands at the loop header, the version (``CompiledRegion``), a number of iterations. Out: processor
seconds; ``Times`` with the number of iterations and entries. Raises ``ShadowStopped``, ``Rejected(GUARD_FAILED)``.

The original is timed by a counter: in the shadow, a patch at the header leads to it, and it stops the shadow after the
given number of iterations. A version is timed by the limit on iterations in its frame.

One entry of a short loop takes less time than stopping a process. Then more entries are timed, until their sum is
significant. An iteration is taken to last as long as in the median of the entries that find warm caches. A version that
starts with cold caches, because a stop has evicted its code, takes longer than in service: that time is subtracted.
If an iteration takes no longer than counting it, whole entries are timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median

from memopt.ir.code import FRAME_CHUNK, FRAME_LIMIT, STATISTICS_RUNS, CompiledRegion, Placement
from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Footprint, Region
from memopt.ir.scop import TRIPS
from memopt.models.work import Work
from runtime.patching.install import jump, jump_bytes
from runtime.target.memory import PAGE
from runtime.trial.shadow import End, Shadow, ShadowStopped

REACH_SECONDS = 60.0  # limit on the time to reach an address: one outer iteration of the original may be long
SHORTEST = 1e-9  # lower bound of every measured time
STEADY_SECONDS = 200e-6  # a comparison should be based on this much time, and must if it is of a single entry
WARM_SECONDS = 2e-3  # an entry this long hides that its caches were emptied by a stop
TELLING_SECONDS = 20e-6  # the least time that a comparison is based on if it is the sum of several entries
COUNTED_SECONDS = 100e-9  # if an iteration is shorter, the time for counting it falsifies the result
COUNTING_SECONDS = 4.5e-9  # for counting one iteration: the counter lies in memory
_COLD_ENTRIES = 3  # the first entries are left out, at most so many: the stops have emptied the caches
_LEAST_ENTRIES = 5  # to be timed behind those, so that their median ignores one that was interrupted
COLD_SECONDS = 5e-6  # subtracted at most, for a version whose code a stop has evicted from the caches
ENTRY_SECONDS = 0.2e-6  # to enter and leave a version whose code is in the caches
_MOST_ENTRIES = 40
FIRST_ITERATIONS = 16  # of an entry: a version may leave some of them to the original
_MOST_SECONDS = 0.1  # of the copy's processor time, for all entries
_PATIENCE_SECONDS = 0.4  # of the wall clock, for all entries: the machine may be busy, or the stops many
MOST_OWN = 1 << 27  # bytes of results whose pages a copy gets for itself before timing, and of operands it reads before
_COUNTER, _SAVED = PAGE - 8, PAGE - 16  # offsets in the statistics page: the counter, and the program's rcx
_SPARE_BYTES = 48  # room for the counting code and a breakpoint behind it, or for one of these loops over pages:
_TOUCH = bytes.fromhex("f0800f00"  # lock or byte ptr [rdi], 0
                       "4881c700100000"  # add rdi, 4096
                       "4839f7"  # cmp rdi, rsi
                       "72f0")  # jb to the start
_LOOK = bytes.fromhex("f607004881c7001000004839f772f1")  # the same with test byte ptr [rdi], 0

Run = Callable[[Shadow, CompiledRegion, int], float]
Admit = Callable[[Shadow], "dict[str, int] | None"]
"""The live-in values at the header where a shadow stands; None if the version's guard would fail."""


@dataclass(frozen=True, slots=True)
class Times:
    """A measurement: ``run`` iterations took ``seconds`` of processor time.

    ``amount``: the same work in iterations of average length. ``entries``: entries of the loop that were timed.
    ``alone``: further entries were looked for, but they came with values that the guard refuses.
    """

    seconds: float
    amount: float
    run: int
    entries: int = 1
    alone: bool = False

    @property
    def per_iteration(self) -> float:
        """Seconds for one iteration of average length."""
        return self.seconds / self.amount

    @staticmethod
    def of(work: Work, mean: float, seconds: float, first: int, count: int) -> Times:
        """The measurement of ``count`` iterations from ``first`` on, which took ``seconds``. ``mean``: the work of an
        iteration of average length (Work.mean)."""
        return Times(max(seconds, SHORTEST), _amount(work, mean, first, count), count)


def _amount(work: Work, mean: float, first: int, count: int) -> float:
    return count * work.per_iteration(first, count) / mean


def further(shadow: Shadow, compiled: CompiledRegion, run: Run, times: Times, mean: float, admit: Admit,
            exits: Collection[int]) -> Times:
    """Time further entries of the loop, because ``times`` is too short to be significant.

    The result is ``times`` if fewer iterations than it has could be timed. ``run``: ``run_original`` or
    ``run_version``. ``shadow`` stands at the header. ``exits``: addresses at which the program goes on behind the loop.
    """
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
    """Let ``timed`` measure the entries that follow until they are enough.

    The second result: no entry was measured, and some came with values that the guard refuses. After a measurement,
    ``left`` iterations are left to the original. An entry in which FIRST_ITERATIONS iterations in a row could not be
    timed is left by running to one of ``exits``.
    """
    spent, deadline = 0.0, time.monotonic() + _PATIENCE_SECONDS
    found: list[_Entry] = []
    passed, others = 0, False
    # An exception ends the search: that was the last entry, or the next one is too far away.
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
    """One timed entry: ``run`` iterations, as much work as ``amount`` of average length, took ``seconds``. They
    include ``overhead``: the time for running and stopping."""

    seconds: float
    overhead: float
    amount: float
    run: int


def _enough(found: Sequence[_Entry]) -> bool:
    return len(found) >= _MOST_ENTRIES or (
        len(found) >= _COLD_ENTRIES + _LEAST_ENTRIES and _middle(found).seconds >= STEADY_SECONDS)


def _middle(found: Sequence[_Entry]) -> Times:
    """All entries, as if each iteration took what it takes in the median of the warm entries.

    The time for running and stopping varies by more than a short entry takes. So its median is subtracted from each.
    """
    amount, overhead = sum(f.amount for f in found), median(f.overhead for f in found)
    warm = found[min(_COLD_ENTRIES, len(found) // 2):]
    per_iteration = median((f.seconds - overhead) / f.amount for f in warm)
    return Times(max(per_iteration * amount, SHORTEST), amount, sum(f.run for f in found), len(found))


def uncounted(shadow: Shadow, compiled: CompiledRegion, times: Times, mean: float, admit: Admit,
              exits: Collection[int]) -> Times:
    """``further`` for the original if its iterations are so short that counting them falsifies the time.

    Whole entries are timed, from the header to one of ``exits``. If too few could be timed, the result is ``times``
    less the time for counting.
    """
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
    """The bytes ``[low, high)`` of each array that the loop writes."""
    return [(f.interval.low.evaluate(values), f.interval.high.evaluate(values)) for f in region.footprints if f.written]


def results(region: Region, values: dict[str, int], iterations: int) -> list[tuple[int, int]]:
    """The bytes ``[low, high)`` of each array that the next ``iterations`` write, if ``values`` are those at the header
    now."""
    return _parts([f for f in region.footprints if f.written], values, iterations)


def _parts(footprints: Iterable[Footprint], values: dict[str, int], iterations: int) -> list[tuple[int, int]]:
    few, found = {**values, TRIPS: min(values[TRIPS], iterations)}, []
    for low, high in ((f.interval.low, f.interval.high) for f in footprints):
        first, last = max(low.evaluate(few), low.evaluate(values)), min(high.evaluate(few), high.evaluate(values))
        if first < last:
            found.append((first, last))
    return found


def ownable(region: Region, values: dict[str, int], most: int) -> int:
    """The largest number of iterations, from 1 to ``most``, whose results have at most MOST_OWN bytes, so that a shadow
    may get pages of its own for all of them."""
    low, high = 1, max(1, most)
    while low < high:
        middle = (low + high + 1) // 2
        fits = sum(end - start for start, end in results(region, values, middle)) <= MOST_OWN
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def own_pages(shadow: Shadow, compiled: CompiledRegion, parts: Iterable[tuple[int, int]]) -> None:
    """Give the shadow pages of its own for the intervals ``parts`` before anything is timed (copy-on-write).

    The first write to a page that it shares with the program takes more time than many iterations. Pages that cannot
    be written stay as they are. Raises ``ShadowStopped``.
    """
    _each_page(shadow, compiled, parts, _TOUCH)


def settle_pages(shadow: Shadow, compiled: CompiledRegion, values: dict[str, int], iterations: int,
                 more: Sequence[tuple[int, int]] = ()) -> None:
    """Prepare the pages for timing a long run of ``iterations``: ``own_pages`` for its results and for ``more``,
    ``look_at_pages`` for its operands."""
    own_pages(shadow, compiled, [*more, *results(compiled.region, values, iterations)])
    look_at_pages(shadow, compiled, values, iterations)


def look_at_pages(shadow: Shadow, compiled: CompiledRegion, values: dict[str, int], iterations: int) -> None:
    """Let the shadow read the pages that ``iterations`` only read, before they are timed.

    The page tables of a fork are in no cache, so that a first access takes up to a microsecond. That would be the same
    for the original and for a version, and hide which is faster. At most MOST_OWN bytes. Raises ``ShadowStopped``.
    """
    left, parts = MOST_OWN, []
    for low, high in _parts([f for f in compiled.region.footprints if not f.written], values, iterations):
        size = min(left, high - low)
        parts.append((low, low + size))
        left -= size
    _each_page(shadow, compiled, parts, _LOOK)


def _each_page(shadow: Shadow, compiled: CompiledRegion, parts: Iterable[tuple[int, int]], access: bytes) -> None:
    """Run the loop ``access`` in the shadow over the pages of ``parts``; a page that it cannot access ends its part."""
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
    """The address of ``_SPARE_BYTES`` free bytes behind a version's code, None if there are fewer."""
    placement = compiled.placement
    start = -(-(placement.code + len(compiled.code)) // 16) * 16
    return start if start + _SPARE_BYTES <= placement.code + placement.code_size else None


def run_version(shadow: Shadow, compiled: CompiledRegion, iterations: int) -> float:
    """Enter the version at its guard and let it run ``iterations``, up to the displaced copy of the header; processor
    seconds. Raises ``Rejected(GUARD_FAILED)``, ``ShadowStopped``."""
    placement = compiled.placement
    for word in (FRAME_LIMIT, FRAME_CHUNK):  # a frame that was only mapped is empty
        shadow.write(placement.frame + word, iterations.to_bytes(8, "little"))
    before = _runs(shadow, placement.statistics)
    shadow.set_registers(replace(shadow.registers(), rip=compiled.entry))
    elapsed = shadow.run_to(placement.code, REACH_SECONDS)
    if _runs(shadow, placement.statistics) != before + 1:
        raise Rejected(Reason.GUARD_FAILED, "in a trial copy")
    return elapsed


def write_code(shadow: Shadow, compiled: CompiledRegion) -> None:
    """Write the version's code to its place in the shadow."""
    shadow.write(compiled.placement.code, compiled.code)


def run_original(shadow: Shadow, compiled: CompiledRegion, iterations: int,
                 timeout_s: float = REACH_SECONDS) -> float:
    """Run ``iterations`` of the region in the original, from the header to the header; processor seconds.

    A breakpoint at the header would cost more than many iterations. So the header gets a jump to a counter, which goes
    on to the displaced instructions until it is zero. For no iterations, the result is the time for running and
    stopping; 0 if there is no room for a counter, because a breakpoint does not tell it. Raises ``ShadowStopped``.
    """
    return pass_header(shadow, compiled, iterations * compiled.region.period, timeout_s)


def pass_header(shadow: Shadow, compiled: CompiledRegion, times: int, timeout_s: float = REACH_SECONDS) -> float:
    """``run_original`` until the ``times``-th arrival at the header, whatever the region's period is."""
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
    """Code that decrements the counter in memory. At zero it runs to its own end, else it jumps to the displaced
    instructions. It changes no flags: some loops carry them from iteration to iteration (``inc`` keeps the carry)."""
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


