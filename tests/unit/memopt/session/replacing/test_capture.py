"""What is tried at the next arrival at a header, and what is not; how many iterations are planned for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import TRIPS
from memopt.options import Options
from memopt.session.replacing.capture import lift_at_next_arrival, trip_count
from memopt.session.replacing.process import Process
from runtime.trial.shadow import End, ShadowStopped

HEADER = 0x401000


@dataclass
class Region:
    header: int = HEADER


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


def at_next_arrival(first: Reason, refusal: Reason | None = None, times: int = 1) -> tuple[str, list[int]]:
    def lift() -> str:
        if refusal is not None:
            raise Rejected(refusal)
        return "lifted"

    copy, process = Copy(times), Process(0, Options(), nullcontext, 0.0)
    return lift_at_next_arrival(process, HEADER, copy, Rejected(first), lift), copy.arrived


def test_a_loop_is_looked_at_again_where_its_header_is_reached_next() -> None:
    assert at_next_arrival(Reason.DATA_DEPENDENT_BRANCH) == ("lifted", [HEADER])


@pytest.mark.parametrize(("first", "refusal", "times"), [
    (Reason.TRIP_COUNT, Reason.NON_AFFINE, 1),
    (Reason.TRIP_COUNT, None, 0),
    (Reason.UNSUPPORTED_INSTRUCTION, None, 1),
    (Reason.THREADS, None, 1),
])
def test_the_first_refusal_is_the_one_that_counts(first: Reason, refusal: Reason | None, times: int) -> None:
    with pytest.raises(Rejected) as refused:
        at_next_arrival(first, refusal, times)
    assert refused.value.reason is first


@pytest.mark.parametrize("trips", [3, 2000])
def test_the_next_entry_is_two_stops_away_however_long_this_one_is(monkeypatch: pytest.MonkeyPatch,
                                                                   trips: int) -> None:
    copy, left = Copy(2), [trips, 4000]

    @contextmanager
    def copies(_shadow: object, _count: int) -> Iterator[tuple[Copy]]:
        yield copy,

    monkeypatch.setattr("runtime.trial.shadow.copies_of", copies)
    monkeypatch.setattr("runtime.trial.trial.live_values", lambda *_: {TRIPS: left.pop(0)})
    assert trip_count(Region(), frozenset({0x402000}), Copy(0)) == 4000
    assert copy.arrived == [0x402000, HEADER]
