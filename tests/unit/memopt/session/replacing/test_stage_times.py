"""Each stage counts its own time, and a failure is put down to the stage that it happened in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from memopt.session.replacing import stage_times as timing
from memopt.session.replacing.stage_times import ASK_SECONDS, Timer, processor_limit


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    return clock


def test_a_stage_inside_another_counts_for_itself_alone(clock: Clock) -> None:
    timer = Timer()
    for _ in range(2):
        with timer.stage("capture"):
            clock.now += 1
            with timer.stage("reach"):
                clock.now += 2
            clock.now += 4
            with timer.stage("lift"):
                clock.now += 8
                with timer.stage("reach"):
                    clock.now += 16
            clock.now += 32
        clock.now += 64  # in no stage
    assert timer.seconds == {"capture": 2 * 37, "reach": 2 * 18, "lift": 2 * 8}
    assert sum(timer.seconds.values()) == clock.now - 100 - 2 * 64


def test_time_up_to_a_failure_counts(clock: Clock) -> None:
    timer = Timer()
    with suppress(ValueError), timer.stage("capture"):
        clock.now += 1
        with timer.stage("lift"):
            clock.now += 2
            raise ValueError
    assert timer.seconds == {"capture": 1, "lift": 2}


def fails_in_lift(timer: Timer) -> None:
    with timer.stage("capture"), timer.stage("lift"):
        raise ValueError


def fails_after_lift(timer: Timer) -> None:
    with timer.stage("capture"):
        with timer.stage("lift"):
            pass
        raise ValueError


def fails_after_a_failure_that_was_caught(timer: Timer) -> None:
    with timer.stage("capture"):
        with suppress(ValueError), timer.stage("lift"):
            raise ValueError
        raise ValueError


@pytest.mark.parametrize(("fails", "stage"), [
    (fails_in_lift, "lift"), (fails_after_lift, "capture"), (fails_after_a_failure_that_was_caught, "capture")])
def test_a_failure_is_blamed_on_the_stage_that_raised_it(fails: Callable[[Timer], None], stage: str) -> None:
    timer = Timer()
    with pytest.raises(ValueError):  # noqa: PT011
        fails(timer)
    assert timer.name == stage


def test_the_name_of_the_enclosing_stage_is_restored() -> None:
    timer = Timer()
    with timer.stage("capture"):
        with timer.stage("lift"):
            assert timer.name == "lift"
        assert timer.name == "capture"


def test_the_limit_ends_at_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two questions there may be a tenth of a second; what is tried after the first refusal asks again."""
    worked = iter([1.0, 5.9, 6.1, 6.2])
    clock = iter([0.0, 0.1, 0.2, 0.2 + ASK_SECONDS / 2, 0.3])
    monkeypatch.setattr(timing.time, "thread_time", lambda: next(worked))
    monkeypatch.setattr(timing.time, "monotonic", lambda: next(clock))
    within = processor_limit(5.0)
    assert [within() for _ in range(4)] == [True, False, False, False]
    monkeypatch.undo()
    assert list(clock) == list(worked) == []
