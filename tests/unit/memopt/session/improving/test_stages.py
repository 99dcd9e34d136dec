"""What is tried at the next arrival at a header, and what is not; of what the copies of a trial are made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import TRIPS
from memopt.options import Options
from memopt.session.improving import stages
from memopt.session.improving.stages import TRIALS, UNLIKE_TRIALS, Stages
from runtime.trial.shadow import End, ShadowStopped


@dataclass
class Header:
    header: int = 0x401000


@dataclass
class Copy:
    """A shadow that comes to the header ``times`` more."""

    times: int
    arrived: list[int] = field(default_factory=list)

    def run_to(self, address: int, timeout_s: float) -> float:
        assert timeout_s > 0
        if len(self.arrived) == self.times:
            raise ShadowStopped(End.ENDED)
        self.arrived.append(address)
        return 0.0

    def run_out(self, addresses: frozenset[int], timeout_s: float) -> None:
        address, = addresses
        self.run_to(address, timeout_s)


@dataclass
class Trying(Stages):
    """Understands the loop, or refuses it for a reason of its own."""

    refusal: Reason | None = None

    def _lift(self, *_: object) -> Any:
        if self.refusal is not None:
            raise Rejected(self.refusal)
        return "lifted", "places"


def later(first: Reason, refusal: Reason | None = None, times: int = 1) -> tuple[object, list[int]]:
    copy = Copy(times)
    stages = Trying(Options(), 0, cast(Any, None), 0.0, refusal=refusal)
    return stages._lift_later(*cast(Any, (None, Header(), None, copy)), Rejected(first)), copy.arrived


def test_a_loop_is_looked_at_again_where_its_header_is_reached_next() -> None:
    assert later(Reason.DATA_DEPENDENT_BRANCH) == (("lifted", "places"), [0x401000])


@pytest.mark.parametrize("trips", [3, 2000])
def test_the_next_entry_is_two_stops_away_however_long_this_one_is(monkeypatch: pytest.MonkeyPatch,
                                                                   trips: int) -> None:
    copy, left = Copy(2), [trips, 4000]

    @contextmanager
    def copies(_shadow: object, _count: int) -> Iterator[tuple[Copy]]:
        yield copy,

    monkeypatch.setattr("runtime.trial.shadow.copies_of", copies)
    monkeypatch.setattr("runtime.trial.trial.live_values", lambda *_: {TRIPS: left.pop(0)})
    staged = Trying(Options(), 0, cast(Any, None), 0.0)
    assert staged._trips(cast(Any, Header()), frozenset({0x402000}), cast(Any, None)) == 4000
    assert copy.arrived == [0x402000, 0x401000]


@pytest.mark.parametrize(("first", "refusal", "times"), [
    (Reason.TRIP_COUNT, Reason.NON_AFFINE, 1),
    (Reason.TRIP_COUNT, None, 0),
    (Reason.UNSUPPORTED_INSTRUCTION, None, 1),
    (Reason.THREADS, None, 1),
])
def test_the_first_refusal_is_the_one_that_counts(first: Reason, refusal: Reason | None, times: int) -> None:
    with pytest.raises(Rejected) as refused:
        later(first, refusal, times)
    assert refused.value.reason is first


@dataclass
class Validating(Stages):
    """Every race ends as ``ends`` say, in turn; what it was made of is noted."""

    kept: bool = True
    ends: tuple[Reason | None, ...] = ()
    made_of: list[tuple[str, bool]] = field(default_factory=list)

    def standing(self, _header: int) -> Any:
        return "kept" if self.kept else None

    @contextmanager
    def _beside(self, kept: Any, _placement: object) -> Iterator[Any]:
        yield kept

    @contextmanager
    def _later(self, _header: int) -> Iterator[Any]:
        yield "program"

    def _race(self, shadow: Any, _versions: object, _out: object, on: bool) -> Any:
        self.made_of.append((shadow, on))
        end = self.ends[len(self.made_of) - 1]
        if end is not None:
            raise Rejected(end)
        return "version", "measurement"

    def validate(self) -> list[tuple[str, bool]]:
        self._copies = cast(Any, self)
        version = SimpleNamespace(placement=None)
        site, loop = SimpleNamespace(text=(0, 0)), SimpleNamespace(header=0, exits=())
        assert self._validate(cast(Any, site), cast(Any, loop), cast(Any, (version,))) == ("version", "measurement")
        return self.made_of


KEPT_ON, KEPT, PROGRAM = ("kept", True), ("kept", False), ("program", False)


@pytest.mark.parametrize(("kept", "ends", "made_of"), [
    (True, (None,), [KEPT_ON]),
    (True, (Reason.SHADOW_INCONCLUSIVE, None), [KEPT_ON, KEPT]),  # the next entry is not to be had
    (True, (Reason.TOO_SHORT, Reason.TOO_SHORT, None), [KEPT_ON, KEPT, PROGRAM]),
    (True, (Reason.GUARD_FAILED, None), [KEPT_ON, PROGRAM]),  # what was captured would pass its own guards
    (False, (Reason.NOT_REACHED, None), [("program", True), PROGRAM]),
])
def test_copies_of_a_trial_are_made_of_the_one_that_is_there(
        kept: bool, ends: tuple[Reason | None, ...], made_of: list[tuple[str, bool]],
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages.time, "sleep", lambda _: None)
    assert Validating(Options(), 0, cast(Any, None), 0.0, kept=kept, ends=ends).validate() == made_of


@pytest.mark.parametrize(("reason", "times"), [
    (Reason.NOT_FASTER, 1), (Reason.GUARD_FAILED, UNLIKE_TRIALS), (Reason.TOO_SHORT, TRIALS)])
def test_trials_end(reason: Reason, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages.time, "sleep", lambda _: None)
    trying = Validating(Options(), 0, cast(Any, None), 0.0, ends=(reason,) * 9)
    with pytest.raises(Rejected):
        trying.validate()
    assert len(trying.made_of) == times


def test_patience_ends_at_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two questions there may be a tenth of a second; what is tried after the first refusal asks again."""
    worked = iter([1.0, 5.9, 6.1, 6.2])
    clock = iter([0.0, 0.1, 0.2, 0.2 + stages.ASK_SECONDS / 2, 0.3])
    monkeypatch.setattr(stages.time, "thread_time", lambda: next(worked))
    monkeypatch.setattr(stages.time, "monotonic", lambda: next(clock))
    patient = stages._patient(5.0)
    assert [patient() for _ in range(4)] == [True, False, False, False]
    monkeypatch.undo()
    assert list(clock) == list(worked) == []
