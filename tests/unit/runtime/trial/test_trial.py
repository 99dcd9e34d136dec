"""Whether a trial copy stands where a version would be entered, and how it comes to such a place."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from memopt.ir.code import CompiledRegion
from memopt.ir.linear import Linear
from memopt.ir.plan import Plan
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region, Relation, Trips
from memopt.ir.scop import TRIPS, Scop
from memopt.models.work import Work
from runtime.trial import trial
from runtime.trial.shadow import End, Shadow, ShadowStopped
from runtime.trial.timing import Times
from runtime.trial.trial import admitted, come_to_entry


@pytest.mark.parametrize(("size", "passes"), [(9, True), (10, False), (None, False)])
def test_an_entry_with_other_values_is_told_before_its_arrays_are_looked_at(
        size: int | None, passes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def live_values(_region: Region, _shadow: Shadow) -> dict[str, int]:
        if size is None:
            raise Rejected(Reason.PROTECTED_MAPPING, "reading 0x10")
        return {"n": size}

    monkeypatch.setattr(trial, "live_values", live_values)
    guard = Relation(Linear.symbol("n") - 9, True, "specialised")
    region = Region(0, b"", (), Trips(Linear.of(5), 1), (guard,), (), (), Scop((), ()))
    assert admitted(region, cast(Shadow, None)) == ({"n": size} if passes else None)


@dataclass
class Walk:
    """A copy at the header of the first of ``entries``, each the size it comes with and its iterations; the version is
    for size 9 and leaves two of them; it is not entered in the ``first`` ones. ``seconds``: what one takes."""

    entries: list[tuple[int, int]]
    seconds: float = 1e-6
    ran: list[int] = field(default_factory=list)
    original_iterations: int = 2
    period: int = 1
    first: int = 0
    done: int = 50  # iterations of the entry

    @property
    def region(self) -> Walk:
        return self

    def live_values(self, _region: object, _shadow: object) -> dict[str, int]:
        return {"n": self.entries[0][0], TRIPS: self.entries[0][1]}

    def admitted(self, _region: object, _shadow: object) -> dict[str, int] | None:
        values = self.live_values(None, None)
        return values if values["n"] == 9 and self.done >= self.first else None

    def run_original(self, _shadow: object, _compiled: object, iterations: int, _timeout_s: float = 0.0) -> float:
        if iterations:
            self.ran.append(iterations)
        size, trips = self.entries[0]
        assert iterations <= trips
        self.entries[0] = size, trips - iterations
        self.done += iterations
        if iterations == trips:
            del self.entries[0]
            self.done = 0
        if not self.entries:
            raise ShadowStopped(End.SYSTEM_CALL)
        return 3e-5 + iterations * self.seconds

    pass_header = run_original

    def come(self, monkeypatch: pytest.MonkeyPatch, on: bool) -> dict[str, int]:
        for name in ("live_values", "admitted", "run_original", "pass_header"):
            monkeypatch.setattr(trial, name, getattr(self, name))
        monkeypatch.setattr(trial, "write_code", lambda *_: None)
        return come_to_entry(cast(CompiledRegion, self), cast(Shadow, self), on)


@pytest.mark.parametrize(("entries", "seconds", "on", "trips", "ran"), [
    ([(9, 50), (9, 100)], 1e-6, True, 100, [1, 49]),  # the next entry is a whole one
    ([(9, 50), (9, 100)], 1e-6, False, 50, []),
    ([(9, 50), (9, 100)], 1e-2, True, 49, [1]),  # it would take too long
    ([(8, 50), (9, 100)], 1e-2, False, 100, [1] * 3 + [47]),  # this one has other values
    ([(9, 50), (8, 60), (9, 100)], 1e-6, True, 100, [1, 49] + [1] * 16 + [44]),
    ([(9, 3), (9, 100)], 1e-2, False, 100, [3]),  # too little of it is left
    ([(9, 4), (9, 100)], 1e-2, False, 4, []),
    ([(9, 1), (9, 100)], 1e-2, True, 100, [1]),
])
def test_a_copy_comes_to_an_entry_the_version_is_for(
        entries: list[tuple[int, int]], seconds: float, on: bool, trips: int, ran: list[int],
        monkeypatch: pytest.MonkeyPatch) -> None:
    walk = Walk(entries, seconds)
    assert walk.come(monkeypatch, on) == {"n": 9, TRIPS: trips}
    assert walk.ran == ran


@pytest.mark.parametrize(("entries", "reason"), [
    ([(8, 50)] * 9, Reason.GUARD_FAILED),
    ([(9, 3)] * 9, Reason.TOO_SHORT),
    ([(8, 0)] * 9, Reason.GUARD_FAILED),
    ([(8, 50)] * 2, Reason.SHADOW_INCONCLUSIVE),
])
def test_a_copy_does_not_go_on_for_ever(entries: list[tuple[int, int]], reason: Reason,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    walk = Walk(entries)
    with pytest.raises(Rejected) as refused:
        walk.come(monkeypatch, False)
    assert refused.value.reason is reason
    assert sum(iterations > 1 for iterations in walk.ran) <= trial.MOST_PASSED


def test_a_version_may_leave_first_iterations_to_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = Walk([(9, 50), (9, 100), (9, 100)], first=3)
    assert walk.come(monkeypatch, True) == {"n": 9, TRIPS: 97}
    assert walk.ran == [1, 49, 1, 1, 1]


@pytest.mark.parametrize(("run", "original", "version", "refusal"), [
    (100, 1e-3, 1e-4, None),
    (100, 1e-3, 1e-3, "1.00 times as fast"),
    (10, 1e-3, 1e-2, None),  # too few iterations, in too little time, to say
    (100, 1e-4, 1e-5, "100 iterations take too little to be measured"),  # in one entry, perhaps interrupted
    (10, 1e-6, 1e-7, None),
])
def test_a_version_must_be_measured_to_be_faster(
        run: int, original: float, version: float, refusal: str | None) -> None:
    assert judged(Times(original, run, run), Times(version, run, run), None) == refusal


@pytest.mark.parametrize(("run", "version", "refusal"), [
    (20, 1.1e-2, "0.91 times as fast"),  # all that it does was met
    (19, 1.1e-2, None),
    (19, 2.1e-2, "0.48 times as fast"),
    (20, 9e-3, None),
])
def test_few_long_iterations_tell_too(run: int, version: float, refusal: str | None) -> None:
    assert judged(Times(1e-2, run, run), Times(version, run, run), None) == refusal
    packing = object.__new__(Plan)
    object.__setattr__(packing, "packs", (object(),))
    assert judged(Times(1e-2, run, run), Times(version, run, run), None, (packing,)) is None


def test_one_short_entry_among_others_with_other_values_asks_for_a_version_for_those() -> None:
    refused = Times(1e-4, 100, 100, alone=True)
    assert judged(refused, Times(1e-5, 100, 100), None) == "in a trial copy, at other entries"


@pytest.mark.parametrize(("original", "refusal"), [
    (1e-4, None), (1e-6, "100 iterations take too little to be measured")])
def test_short_entries_tell_when_there_are_several(original: float, refusal: str | None) -> None:
    assert judged(Times(original, 100, 100, 2), Times(original / 10, 100, 100, 2), None) == refusal


@pytest.mark.parametrize(("version", "entries", "refusal"), [
    (9e-3, 1, None),  # 400 iterations of the original take 40 ms, whatever the copies took of this
    (5e-2, 1, "0.80 times as fast"),
    (5e-2, 2, None),
])
def test_a_version_that_copies_first_must_beat_the_whole_entry(version: float, entries: int,
                                                               refusal: str | None) -> None:
    assert judged(Times(1e-2, 100, 100), Times(version, 50, 70, entries), (object(),)) == refusal


@pytest.mark.parametrize(("entries", "reason"), [(1, Reason.SHADOW_INCONCLUSIVE), (2, Reason.NOT_FASTER)])
def test_the_short_rest_of_an_entry_says_nothing_and_another_copy_is_tried(entries: int, reason: Reason) -> None:
    found = verdict(Times(1e-6, 100, 100, entries), Times(1e-7, 100, 100, entries), None)
    assert isinstance(found, Rejected)
    assert found.reason is reason


def judged(original: Times, version: Times, retried: tuple[object, ...] | None,
           parts: tuple[object, ...] = (SimpleNamespace(trial_iterations=20),)) -> str | None:
    found = verdict(original, version, retried, parts)
    return found.detail if isinstance(found, Rejected) else None


def verdict(original: Times, version: Times, retried: tuple[object, ...] | None,
            parts: tuple[object, ...] = (SimpleNamespace(trial_iterations=20),)) -> trial.Measurement | Rejected:
    compiled = SimpleNamespace(region=SimpleNamespace(rollback=retried), plan=SimpleNamespace(parts=parts))
    return trial._judged(cast(CompiledRegion, compiled), cast(Work, SimpleNamespace(even=True, values={TRIPS: 400})),
                         original, version)
