"""The verdict on an installed version, from its counters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.ir.reasons import Reason
from memopt.session.measuring.verdict import ENOUGH_ENTRIES, PASSAGE_SECONDS, Service, Verdict
from runtime.patching.code_cache import Statistics

RATE = 1e9


def counted(entries: int, runs: int, iterations: int) -> Statistics:
    return Statistics(entries, runs, iterations, 0)


def judge(statistics: Statistics, version_seconds: float, original_per_iteration: float | None) -> Verdict | None:
    service = Service(original_per_iteration, (0.0, 0.0))
    return service.judge(replace(statistics, cycles=int(version_seconds * RATE)), RATE, 10.0, 10.0)


def test_a_version_that_wins_stays() -> None:
    assert judge(counted(10, 10, 10_000), 0.02, 1e-4) is None


@pytest.mark.parametrize("seconds", [1.0, 0.99])
def test_a_version_that_is_no_faster_goes(seconds: float) -> None:
    verdict = judge(counted(10, 10, 10_000), seconds, 1e-4)
    assert verdict is not None
    assert verdict.reason is Reason.NOT_FASTER


def test_iterations_that_a_run_leaves_over_are_no_other_entries() -> None:
    """A round of three is left to the original, which comes by the header each time."""
    runs = ENOUGH_ENTRIES
    left_over = replace(counted(4 * runs, runs, runs), cycles=int(0.01 * RATE))
    assert Service(1e-4, (0.0, 0.0), again=True, period=3).judge(left_over, RATE, 10.0, 10.0) is None
    assert Service(1e-4, (0.0, 0.0), again=True).judge(left_over, RATE, 10.0, 10.0) is not None


def test_a_small_loss_is_waited_for() -> None:
    """A tenth of 50 ms may be another program's doing; a tenth of 500 ms is not."""
    service = Service(1e-4, (0.0, 0.0))
    early, later = (Statistics(10, 10, n, int(1.1e-4 * n * RATE)) for n in (600, 6000))
    assert service.judge(early, RATE, 10.0, 10.0) is None
    assert service.judge(later, RATE, 20.0, 20.0) is not None


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
        service = Service(None, (0.0, 0.0), speedup=3.0)
        return service.judge(Statistics(entries, 10, 1000, int(seconds * RATE)), RATE, 10.0, 10.0)

    assert verdict(10, 0.1) is None
    assert verdict(1_000_000, 0.1) is None  # 50 ms of guards that failed, 200 ms gained
    lost = verdict(10_000_000, 0.1)
    assert lost is not None
    assert lost.reason is Reason.NOT_FASTER


def test_past_gains_do_not_excuse_present_losses() -> None:
    service = Service(1e-4, (0.0, 0.0))
    assert service.judge(Statistics(10, 10, 100_000, 0), RATE, 10.0, 10.0) is None
    later = Statistics(1_000_010, 1_000_010, 1_100_010, int(200 * RATE))
    verdict = service.judge(later, RATE, 300.0, 290.0)
    assert verdict is not None
    assert verdict.reason is Reason.NOT_FASTER


def test_time_that_others_had_is_not_the_versions() -> None:
    counters = Statistics(10, 10, 10_000, int(1.5 * RATE))
    assert Service(1e-4, (0.0, 0.0)).judge(counters, RATE, 2.0, 1.0) is None
    assert Service(1e-4, (0.0, 0.0)).judge(counters, RATE, 2.0, 2.0) is not None


def test_a_run_that_was_interrupted_before_the_last_judgement_is_not_held_against_this_one() -> None:
    service = Service(1e-4, (0.0, 0.0))
    assert service.judge(Statistics(10, 10, 10_000, int(0.1 * RATE)), RATE, 1.0, 1.0) is None
    assert service.judge(Statistics(20, 20, 20_000, int(5.0 * RATE)), RATE, 1.2, 1.2) is None
    assert service.judge(Statistics(30, 30, 30_000, int(6.0 * RATE)), RATE, 2.2, 2.2) is not None


def test_other_sizes_ask_for_another_version_when_they_come_more_often() -> None:
    service = Service(None, (0.0, 0.0), again=True)
    assert service.judge(counted(2 * ENOUGH_ENTRIES, ENOUGH_ENTRIES, ENOUGH_ENTRIES), RATE, 10.0, 10.0) is None
    assert service.judge(counted(ENOUGH_ENTRIES + 2, 1, 2 * ENOUGH_ENTRIES), RATE, 10.0, 10.0) is None
    verdict = service.judge(counted(3 * ENOUGH_ENTRIES, 1, 2 * ENOUGH_ENTRIES), RATE, 10.0, 10.0)
    assert verdict is not None
    assert verdict.sizes
    assert judge(counted(3 * ENOUGH_ENTRIES, 1, 2 * ENOUGH_ENTRIES), 1e-9, 1.0) is None  # no other can be made


def test_a_version_for_one_thread_goes_when_there_are_more() -> None:
    wins = replace(counted(10, 10, 10_000), cycles=int(0.02 * RATE))
    assert Service(1e-4, (0.0, 0.0), alone=True).judge(wins, RATE, 10.0, 10.0, threads=1) is None
    assert Service(1e-4, (0.0, 0.0)).judge(wins, RATE, 10.0, 10.0, threads=2) is None
    verdict = Service(1e-4, (0.0, 0.0), alone=True).judge(wins, RATE, 10.0, 10.0, threads=2)
    assert verdict is not None
    assert verdict.reason is Reason.THREADS


def test_a_version_that_gets_slower_than_in_its_turns_is_looked_at_again() -> None:
    """Each time it is found slower, twice as much must be seen before the next."""
    def at(seconds: float, iterations: int) -> Statistics:
        return replace(counted(0, 0, iterations), cycles=int(seconds * RATE))

    service = Service(None, (0.0, 0.0), period=2)
    assert not service.slower(at(9.0, 1), RATE)  # it never took turns
    service.keeps(1.1, 1e-3, at(0.0, 0))
    assert not service.slower(at(0.1, 10), RATE)
    assert not service.slower(at(0.6, 300), RATE)
    assert service.slower(at(1.2, 500), RATE)
    assert not service.slower(at(1.8, 600), RATE)
    assert service.slower(at(2.3, 700), RATE)
