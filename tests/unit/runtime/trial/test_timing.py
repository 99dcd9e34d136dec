"""Times of short loops: summed over entries until they say something."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from memopt.ir.code import FRAME_CHUNK, FRAME_LIMIT, CompiledRegion, Placement
from memopt.ir.linear import Linear
from memopt.ir.region import Footprint, Interval, Region
from memopt.ir.scop import TRIPS, Access, Array, Dimension, ElementType, Read, Scop, Statement
from memopt.models.work import Work
from runtime.trial import timing
from runtime.trial.shadow import End, Shadow, ShadowStopped
from runtime.trial.timing import MOST_OWN, Times, further, look_at_pages, ownable, results, uncounted


@dataclass
class _Loop:
    """A loop of ``trips`` iterations that is entered ``entries`` times more, standing at the start of an entry."""

    trips: int
    entries: int
    to_go: int = 0
    runs: list[int] = field(default_factory=list)
    header: int = 0
    original_iterations: int = 1
    period: int = 1
    footprints: tuple[Footprint, ...] = ()
    owned: int = 0

    def __post_init__(self) -> None:
        self.to_go = self.trips

    @property
    def region(self) -> _Loop:
        return self

    @property
    def scop(self) -> Scop:
        return SCOP

    def run_to(self, _header: int, _timeout_s: float, hits: int = 1) -> float:
        for _ in range(hits):
            self.to_go -= 1
            if not self.to_go:
                self.to_go, self.entries = self.trips, self.entries - 1
            if self.entries < 0:
                raise ShadowStopped(End.SYSTEM_CALL)
        return 0.0

    def run_out(self, exits: Collection[int], _timeout_s: float) -> float:
        assert 77 in exits
        self.runs.append(self.to_go)
        self.to_go = 1
        return 1e-9 * self.runs[-1] + OVERHEAD

    def run(self, _shadow: Shadow, _compiled: CompiledRegion, iterations: int) -> float:
        assert iterations < self.to_go
        self.runs.append(iterations)
        self.to_go -= iterations
        return 1e-9 * iterations + OVERHEAD


OVERHEAD = 5e-6
_CELL = Access("A", (Linear.symbol("i"),))
SCOP = Scop((Array("A", ElementType.F64, Linear.symbol("p"), (8,)),),
            (Statement("S", (Dimension("i", Linear.symbol(TRIPS)),), _CELL, (_CELL,), Read(0), (0, 0)),))


def _found(loop: _Loop, monkeypatch: pytest.MonkeyPatch) -> Times:
    def own_pages(_shadow: Shadow, _compiled: CompiledRegion, parts: Iterable[tuple[int, int]]) -> None:
        loop.owned += sum(high - low for low, high in parts)

    monkeypatch.setattr(timing, "run_original", lambda _shadow, _compiled, iterations: OVERHEAD)
    monkeypatch.setattr(timing, "own_pages", own_pages)
    work = Work(SCOP, {TRIPS: loop.trips})
    return further(cast(Shadow, loop), cast(CompiledRegion, loop), loop.run, Times.of(work, work.mean, 5e-8, 0, 50),
                   work.mean, lambda _shadow: {TRIPS: loop.to_go, "p": 4096}, (77,))


@pytest.mark.parametrize(("trips", "entries", "timed"), [
    (4000, 1000, 40), (40_002, 1000, 8), (4000, 3, 4), (1_000_000, 1000, 8)])
def test_entries_are_timed_until_there_is_enough_of_them(
        trips: int, entries: int, timed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = _Loop(trips, entries)
    found = _found(loop, monkeypatch)
    assert len(loop.runs) == timed
    assert found.run == sum(loop.runs)
    assert found.per_iteration == pytest.approx(1e-9)


def _writing(size: int) -> tuple[Footprint, ...]:
    """What a loop writes to that comes ``size`` bytes further with each iteration."""
    base = Linear.symbol("p")
    return (Footprint("A", Interval(base, base + Linear.symbol(TRIPS, size)), True),
            Footprint("B", Interval(base - 8, base), False))


@pytest.mark.parametrize(("trips", "entries", "owned"), [
    (40_002, 1000, 40_002), (1_000_000, 1000, 40_003), (40_002, 0, 40_002), (10**8, 10, 40_003)])
def test_pages_become_the_copys_own_before_anything_is_timed(
        trips: int, entries: int, owned: int, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = _Loop(trips, entries, footprints=_writing(8))
    found = _found(loop, monkeypatch)
    assert loop.owned == 8 * owned
    assert found.run == sum(loop.runs)


def test_no_more_is_timed_than_pages_are_made_own_for(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = _Loop(100_000, 1000, footprints=_writing(MOST_OWN // 1000))
    _found(loop, monkeypatch)
    assert max(loop.runs) == 1000


@pytest.mark.parametrize(("trips", "expected"), [(5, 5), (10, 10), (1000, 10)])
def test_what_the_iterations_of_a_trial_write_to(trips: int, expected: int) -> None:
    region = cast(Region, _Loop(trips, 0, footprints=_writing(4096)))
    assert results(region, {"p": 4096, TRIPS: trips}, 10) == [(4096, 4096 + 4096 * expected)]


@pytest.mark.parametrize(("iterations", "expected"), [
    (10, [(4096, 8192), (1 << 30, (1 << 30) + 10 * 4096)]),
    (MOST_OWN // 4096, [(4096, 8192), (1 << 30, (1 << 30) + MOST_OWN - 4096)]),
])
def test_what_is_only_read_is_looked_at_up_to_a_limit(
        iterations: int, expected: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[tuple[int, int]] = []
    monkeypatch.setattr(timing, "_each_page", lambda _shadow, _compiled, parts, _access: walked.extend(parts))
    page, row = Linear.symbol("p"), Linear.symbol("q")
    loop = _Loop(1 << 20, 0, footprints=(Footprint("A", Interval(page, page + 4096), False),
                                         Footprint("B", Interval(page, page + Linear.symbol(TRIPS, 8)), True),
                                         Footprint("C", Interval(row, row + Linear.symbol(TRIPS, 4096)), False)))
    look_at_pages(cast(Shadow, None), cast(CompiledRegion, loop), {"p": 4096, "q": 1 << 30, TRIPS: 1 << 20}, iterations)
    assert walked == expected


@pytest.mark.parametrize(("size", "expected"), [(8, 1000), (MOST_OWN // 10 + 8, 9), (2 * MOST_OWN, 1)])
def test_iterations_whose_pages_may_become_own(size: int, expected: int) -> None:
    region = cast(Region, _Loop(10_000, 0, footprints=_writing(size)))
    assert ownable(region, {"p": 4096, TRIPS: 10_000}, 1000) == expected


def _uncounted(loop: _Loop, monkeypatch: pytest.MonkeyPatch, size: int = 9) -> Times:
    """Counted as 5.5 ns for an iteration, of which there were 50."""
    monkeypatch.setattr(timing, "run_original", lambda _shadow, _compiled, iterations: OVERHEAD)
    monkeypatch.setattr(timing, "own_pages", lambda *_: None)
    work = Work(SCOP, {TRIPS: loop.trips})
    return uncounted(cast(Shadow, loop), cast(CompiledRegion, loop), Times.of(work, work.mean, 275e-9, 0, 50),
                     work.mean, lambda _shadow: {TRIPS: loop.to_go, "p": 4096} if size == 9 else None, (77,))


@pytest.mark.parametrize(("trips", "entries", "timed"), [(4000, 1000, 40), (40_000, 1000, 8), (4000, 3, 4)])
def test_short_iterations_are_timed_without_a_counter(
        trips: int, entries: int, timed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = _Loop(trips, entries)
    found = _uncounted(loop, monkeypatch)
    assert loop.runs == [trips] * timed
    assert found.entries == timed
    assert found.per_iteration == pytest.approx(1e-9)


def test_an_entry_that_was_interrupted_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(_Loop):
        def run_out(self, exits: Collection[int], timeout_s: float) -> float:
            return super().run_out(exits, timeout_s) + (1e-3 if len(self.runs) == 1 else 0.0)

    assert _uncounted(Interrupted(40_000, 1000), monkeypatch).per_iteration == pytest.approx(1e-9)


def test_entries_of_cold_caches_do_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cold(_Loop):
        def run(self, _shadow: Shadow, _compiled: CompiledRegion, iterations: int) -> float:
            return super().run(_shadow, _compiled, iterations) * (4.0 / len(self.runs) if len(self.runs) < 4 else 1.0)

    assert _found(Cold(40_002, 1000), monkeypatch).per_iteration == pytest.approx(1e-9)


def test_what_counting_takes_is_left_out_where_no_whole_entry_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    for loop, size in ((_Loop(4000, 3), 8), (_Loop(1000, 1000, footprints=_writing(MOST_OWN // 500)), 9)):
        assert _uncounted(loop, monkeypatch, size).per_iteration == pytest.approx(1e-9)
    assert loop.entries < 1000  # those that write to too much are passed over


def test_whole_entries_begin_where_the_version_would_be_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves the first three iterations to the original."""
    monkeypatch.setattr(timing, "run_original", lambda _shadow, _compiled, iterations: OVERHEAD)
    monkeypatch.setattr(timing, "own_pages", lambda *_: None)
    loop = _Loop(4000, 1000)
    work = Work(SCOP, {TRIPS: loop.trips})

    def admit(_shadow: Shadow) -> dict[str, int] | None:
        return {TRIPS: loop.to_go, "p": 4096} if loop.to_go <= loop.trips - 3 else None

    found = uncounted(cast(Shadow, loop), cast(CompiledRegion, loop), Times.of(work, work.mean, 275e-9, 0, 50),
                      work.mean, admit, (77,))
    assert set(loop.runs) == {3997}
    assert found.per_iteration == pytest.approx(1e-9)


def test_entries_with_other_values_are_not_passed_over_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(timing, "run_original", lambda _shadow, _compiled, iterations: OVERHEAD)
    monkeypatch.setattr(timing.time, "monotonic", lambda: next(clock) * 1e-3)
    loop, start = _Loop(10, 1_000_000), Times(1e-7, 100, 100)
    found = further(cast(Shadow, loop), cast(CompiledRegion, loop), loop.run, start, 1.0, lambda _shadow: None, (77,))
    assert found == replace(start, alone=True)


def test_a_machine_that_stalls_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, *(0.2 + n * 1e-3 for n in range(1000))])
    monkeypatch.setattr(timing.time, "monotonic", lambda: next(clock))
    assert _found(_Loop(100, 1000), monkeypatch).entries == 40


def test_entries_that_are_far_apart_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Far(_Loop):
        def run_to(self, header: int, timeout_s: float, hits: int = 1) -> float:
            if timeout_s < 0.03:
                raise ShadowStopped(End.TIMEOUT)
            return super().run_to(header, timeout_s, hits) + 0.03

    assert _found(Far(100, 1000), monkeypatch).entries == 4


def test_entries_with_other_values_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = _Loop(10, 7)
    monkeypatch.setattr(timing, "run_original", lambda _shadow, _compiled, iterations: OVERHEAD)
    start = Times(1e-7, 100, 100)
    found = further(cast(Shadow, loop), cast(CompiledRegion, loop), loop.run, start, 1.0, lambda _shadow: None, (77,))
    assert found == replace(start, alone=True)
    assert loop.entries < 0


def test_a_version_may_run_its_slice_in_a_frame_that_was_only_mapped() -> None:
    """There all words are zero: a limit and a chunk of no iterations would keep every version out."""
    written: dict[int, bytes] = {}

    class Copy:
        def __getattr__(self, name: str) -> object:
            return {"write": written.__setitem__, "read": lambda *_: bytes(8)}.get(name, lambda *_: _Registers())

    class _Registers:
        pass

    compiled = Compiled(Placement(0x1000, 0x1000, 0x3000, 0x1000, 0x2000, 0, 0))
    with suppress(Exception):
        timing.run_version(cast(Shadow, Copy()), cast(CompiledRegion, compiled), 7)
    assert written == {0x3000 + word: (7).to_bytes(8, "little") for word in (FRAME_LIMIT, FRAME_CHUNK)}


@dataclass
class Compiled:
    placement: Placement
    entry: int = 0x1100
