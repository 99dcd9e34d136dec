"""The verdict on an installed version, from its counters."""

from __future__ import annotations

import pytest

from memopt.ir.reasons import Reason
from memopt.session.measuring.verdict import ENOUGH_ENTRIES, PASSAGE_SECONDS, STILL_SECONDS, Service, Verdict
from runtime.patching.code_cache import Statistics

counted = Statistics


def judge(statistics: Statistics, version_seconds: float, original_per_iteration: float | None) -> Verdict | None:
    return Service(original_per_iteration).judge(statistics, version_seconds)


def test_a_version_that_wins_stays() -> None:
    assert judge(counted(10, 10, 10_000), 0.02, 1e-4) is None


@pytest.mark.parametrize("seconds", [100.0, 101.0])
def test_a_version_that_is_no_faster_goes(seconds: float) -> None:
    verdict = judge(counted(10, 10, 1_000_000), 1.03 * seconds, 1e-4)
    assert verdict is not None
    assert verdict.reason is Reason.NOT_FASTER


def test_iterations_that_a_run_leaves_over_are_no_other_entries() -> None:
    """A round of three is left to the original, which comes by the header each time."""
    runs = ENOUGH_ENTRIES
    left_over = counted(4 * runs, runs, runs)
    assert Service(1e-4, again=True, period=3).judge(left_over, 0.01) is None
    assert Service(1e-4, again=True).judge(left_over, 0.01) is not None


def test_a_loss_must_exceed_the_error_of_samples() -> None:
    """A twentieth of 6 s is some sixty samples more or less, of a tenth of 600 s nobody can be wrong."""
    service = Service(1e-4)
    assert service.judge(counted(10, 10, 60_000), 1.05 * 6) is None
    assert service.judge(counted(10, 10, 6_000_000), 1.1 * 600) is not None


def test_the_way_in_and_out_counts() -> None:
    runs = 1_000_000
    assert judge(counted(runs, runs, runs), 0.1, 10 * PASSAGE_SECONDS) is None
    assert judge(counted(runs, runs, runs), 0.1, PASSAGE_SECONDS) is not None


def test_too_early_to_tell() -> None:
    assert judge(counted(1, 1, 10), 1.0, 1e-4) is None
    assert judge(counted(10, 10, 10_000), 5.0, None) is None


def test_a_guard_that_never_holds() -> None:
    assert judge(counted(ENOUGH_ENTRIES - 1, 0, 0), 0.0, 1.0) is None
    verdict = judge(counted(ENOUGH_ENTRIES, 0, 0), 0.0, 1.0)
    assert verdict is not None
    assert verdict.reason is Reason.GUARD_FAILED


def test_iterations_of_uneven_length_gain_what_they_did_in_the_trial() -> None:
    def verdict(entries: int, seconds: float) -> Verdict | None:
        return Service(None, speedup=3.0).judge(counted(entries, 10, 1000), seconds)

    assert verdict(10, 0.1) is None
    assert verdict(1_000_000, 0.1) is None  # 50 ms of guards that failed, 200 ms gained
    lost = verdict(10_000_000, 0.1)
    assert lost is not None
    assert lost.reason is Reason.NOT_FASTER


def test_past_gains_do_not_excuse_present_losses() -> None:
    service = Service(1e-4)
    assert service.judge(counted(10, 10, 100_000), 1.0) is None
    verdict = service.judge(counted(1_000_010, 1_000_010, 1_100_010), 201.0)
    assert verdict is not None
    assert verdict.reason is Reason.NOT_FASTER


def test_samples_before_the_last_verdict_are_not_held_against_this_one() -> None:
    service = Service(1e-4)
    assert service.judge(counted(10, 10, 100_000), 1.0) is None
    assert service.judge(counted(20, 20, 200_000), 10.0) is None
    assert service.judge(counted(30, 30, 300_000), 40.0) is not None


def test_other_sizes_ask_for_another_version_when_they_come_more_often() -> None:
    service = Service(None, again=True)
    assert service.judge(counted(2 * ENOUGH_ENTRIES, ENOUGH_ENTRIES, ENOUGH_ENTRIES), 0.0) is None
    assert service.judge(counted(ENOUGH_ENTRIES + 2, 1, 2 * ENOUGH_ENTRIES), 0.0) is None
    verdict = service.judge(counted(3 * ENOUGH_ENTRIES, 1, 2 * ENOUGH_ENTRIES), 0.0)
    assert verdict is not None
    assert verdict.sizes
    assert judge(counted(3 * ENOUGH_ENTRIES, 1, 2 * ENOUGH_ENTRIES), 1e-9, 1.0) is None  # no other can be made


def test_a_version_that_gets_slower_than_in_its_turns_is_looked_at_again() -> None:
    """Each time it is found slower, twice as much must be seen before the next."""
    service = Service(None, period=2)
    assert not service.slower(counted(0, 0, 1), 9.0)  # it never took turns
    service.keeps(1.1, 1e-3, counted(0, 0, 0), 0.0)
    assert not service.slower(counted(0, 0, 10), 0.1)
    assert not service.slower(counted(0, 0, 300), 0.6)
    assert service.slower(counted(0, 0, 500), 1.2)
    assert not service.slower(counted(0, 0, 600), 1.8)
    assert service.slower(counted(0, 0, 700), 2.3)


def test_standing_still_is_told_once_for_each_period_and_periods_get_longer() -> None:
    service, told = Service(1e-4), list[float]()
    for tick in range(80):
        now = 100.0 + tick * STILL_SECONDS / 10
        if service.stands_still(counted(50, 7, 700), now):
            told.append(round((now - 100.0) / STILL_SECONDS, 1))
    assert told == [1.0, 3.0, 7.0]


def test_each_run_begins_the_period_anew() -> None:
    service = Service(1e-4)
    for tick in range(1, 40):
        assert not service.stands_still(counted(50, tick, 700), tick * STILL_SECONDS * 0.99)
    assert service.stands_still(counted(50, 39, 700), 41 * STILL_SECONDS)


def test_what_a_version_has_earned() -> None:
    """10,000 iterations in 0.4 s for which the original needs 1 s."""
    ran = counted(1000, 1000, 10_000)
    assert Service(1e-4).earned(ran, 0.4) == pytest.approx(0.6)
    assert Service(None, speedup=3.0).earned(ran, 0.4) == pytest.approx(0.8)
    assert Service(None).earned(ran, 0.4) == float("inf"), "there was no trial"


def test_other_sizes_wait_until_another_version_may_be_made() -> None:
    service = Service(None, again=True)
    often = counted(3 * ENOUGH_ENTRIES, 1, 2 * ENOUGH_ENTRIES)
    assert service.judge(often, 0.0, others=False) is None
    assert service.judge(often, 0.0) is not None
    never = service.judge(counted(ENOUGH_ENTRIES, 0, 0), 0.0, others=False)
    assert never is not None
    assert not never.sizes


def test_speeds_are_told_by_one_clock() -> None:
    """Before and after come from the clock that decides; none is told while that shows a loss that is not sure yet."""
    service = Service(3e-4)
    assert service.speeds(counted(10, 10, 100), 0.05) is None  # too little was sampled
    assert service.speeds(counted(10, 10, 1000), 0.1) == (3e-4, 1e-4)
    assert service.speeds(counted(10, 10, 1000), 0.6) is None
    assert Service(None, speedup=3.0).speeds(counted(10, 10, 1000), 0.1) == pytest.approx((3e-4, 1e-4))
    assert Service(None).speeds(counted(10, 10, 1000), 0.1) is None


@pytest.mark.parametrize(("gain", "share", "before"), [
    (2.0, 1.0, 2e-4),
    (1.5, 0.5, 2e-4),  # half of the time is the loop: of 1 s it takes 0.5 s, and the program 1.5 s without it
    (0.99, 0.2, 1e-4),  # it stays, because that is within the error
])
def test_an_ab_measurement_tells_the_speed_of_the_loop(gain: float, share: float, before: float) -> None:
    service = Service(7e-4)
    service.keeps(gain, 1.0, counted(1, 1, 1), 1.0, share)
    told = service.speeds(counted(10, 10, 1000), 0.1)
    assert told is not None
    assert told == pytest.approx((before, 1e-4))
