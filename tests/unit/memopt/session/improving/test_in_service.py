"""What becomes of a version that loses, when no other can be made in its place, and when one can."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import pytest

from memopt.ir.parse import parse_region
from memopt.ir.reasons import Reason, Rejected
from memopt.options import Options
from memopt.session.improving import in_service
from memopt.session.improving.in_service import InService
from memopt.session.measuring.ab_measurement import Comparison
from memopt.session.measuring.verdict import Service, Verdict
from memopt.session.replacing.decision import Attempt, Decision, Installed, Refused
from memopt.session.replacing.history import History
from memopt.session.replacing.process import Process
from runtime.patching.code_cache import Statistics
from runtime.trial.trial import Measurement
from tests.support.installed import HEADER, SITE, installed
from tests.support.stored import PLAN, entry

OTHERS = Verdict(Reason.GUARD_FAILED, "other values", sizes=True)
LOST = Verdict(Reason.NOT_FASTER, "in service")
PUBLISHING = """region 0x401000
  rdi = s64 rdi
  R = (rdi) / 1
  array A0: f64 at rdi, strides (8)
  array A1: f64 at 2*rdi, strides (8)
  S0[i<R]: A0[i] = A0[i]
  S1[i<R] at (0, 1): A1[i] = A1[i]
"""
LOSING = Statistics(50_000_000, 100, 60_000)  # the guard fails nearly always


@dataclass
class Improving:
    """Attempts end as ``ends`` say, in turn: with a version, or refused."""

    history: History
    ends: list[Installed | Reason] = field(default_factory=list)
    improved: list[int] = field(default_factory=list)
    aside: list[Installed | None] = field(default_factory=list)

    def improve(self, address: int) -> None:
        self.improved.append(address)

    def attempt(self, attempt: Attempt) -> Decision:
        self.aside.append(self.history.aside)
        end = self.ends.pop(0)
        return Refused(attempt.address, attempt.ranges, None, end) if isinstance(end, Reason) else end

    def settle(self, decision: Decision) -> None:
        self.history.decisions.append(decision)


class Watched(InService):
    """One whose jobs are done at once, in a process where everything can be done; what is given back is noted."""

    def __init__(self, *ends: Installed | Reason) -> None:
        def start(job: Callable[[], None]) -> None:
            job()

        history = History()
        self.improving = Improving(history, list(ends))
        self.given_back: list[object] = []
        super().__init__(Process(0, Options(), nullcontext, 0.0), history, start, self.improving)


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Watched]:
    monkeypatch.setattr(in_service, "check_handlers", lambda _: None)
    for name, value in (("set_aside", True), ("put_back", True), ("running_seconds", 100.0), ("thread_count", 1)):
        monkeypatch.setattr(in_service, name, lambda *_, value=value: value)
    monkeypatch.setattr(in_service.time, "sleep", lambda _: None)

    def watching(*ends: Installed | Reason) -> Watched:
        watched = Watched(*ends)
        monkeypatch.setattr(in_service, "give_back", lambda _, cache: watched.given_back.append(cache) or 4096)
        return watched

    return watching


def test_a_version_that_is_put_back_is_judged_like_any_other(watching: Callable[..., Watched]) -> None:
    watched, old = watching(Reason.NOT_FASTER), installed()
    watched.history.decisions.append(old)
    watched.take_out(old, OTHERS)
    assert (watched.given_back, watched.history.decisions) == ([], [old])
    assert watched.improving.aside == [old]
    assert watched.history.aside is None
    old.cache.statistics = LOSING
    assert watched.review()
    (refused,) = watched.history.decisions
    assert (watched.given_back, refused.reason) == ([old.cache], Reason.NOT_FASTER)


@pytest.mark.parametrize(("verdict", "runs", "marked"), [
    (LOST, 100, [Reason.NOT_FASTER]), (replace(OTHERS, sizes=False), 0, [Reason.GUARD_FAILED]),
    (replace(OTHERS, sizes=False), 7, []), (Verdict(Reason.THREADS, ""), 0, []),
])
def test_a_plan_that_loses_is_not_for_later_runs(watching: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch,
                                                 verdict: Verdict, runs: int, marked: list[Reason]) -> None:
    """Not where the guard held now and then, or the process is to blame."""
    watched, found = watching(), list[Reason]()
    old = replace(installed(), stored=entry(1, PLAN))
    old.cache.statistics = Statistics(1000, runs, runs)
    watched.history.decisions.append(old)
    monkeypatch.setattr(watched.history.known, "failed", lambda path, stored, why: found.append(why))
    watched.take_out(old, verdict)
    assert found == marked


def test_what_the_version_in_front_was_is_judged_when_that_is_gone(watching: Callable[..., Watched]) -> None:
    watched, behind = watching(), installed()
    front = installed(behind)
    watched.history.decisions += [behind, front]
    behind.cache.statistics = LOSING
    assert not watched.review()
    watched.take_out(front, LOST)
    kept, refused = watched.history.decisions
    assert (watched.given_back, kept, refused.reason) == ([front.cache], behind, Reason.NOT_FASTER)
    assert watched.review()
    assert watched.history.decisions[0].reason is Reason.NOT_FASTER


def test_a_version_for_other_sizes_answers_for_the_code_of_the_one_behind_it(watching: Callable[..., Watched]) -> None:
    old = installed()
    new = installed(old)
    watched = watching(Reason.NOT_REACHED, new)
    watched.history.decisions.append(old)
    watched.take_out(old, OTHERS)
    behind, front = watched.history.decisions
    assert (behind.cache, behind.ranges, front.cache, front.behind) == (old.cache, (), new.cache, behind)
    assert front.ranges == new.ranges
    assert list(watched.versions()) == [front]


def test_what_a_loop_further_out_replaces_is_given_back(watching: Callable[..., Watched]) -> None:
    old, outer = installed(), installed()
    watched = watching(outer)
    watched.history.decisions.append(old)
    watched.take_out(old, OTHERS)
    assert (watched.history.decisions, watched.given_back) == ([outer], [old.cache])


def test_what_will_not_go_back_is_refused(watching: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch) -> None:
    watched, old = watching(Reason.NOT_FASTER), installed()
    monkeypatch.setattr(in_service, "put_back", lambda *_: False)
    watched.history.decisions.append(old)
    watched.take_out(old, OTHERS)
    (refused,) = watched.history.decisions
    assert (refused.reason, refused.detail) == (Reason.GUARD_FAILED, "it could not be put back in service")


def test_what_cannot_be_taken_out_stays_and_is_let_be(watching: Callable[..., Watched],
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    watched, old = watching(), installed()
    monkeypatch.setattr(in_service, "give_back", lambda *_: None)
    watched.history.decisions.append(old)
    watched.take_out(old, LOST)
    assert watched.history.decisions == [old]
    assert list(watched.versions()) == []


def test_loops_inside_one_that_was_taken_out_may_be_tried(watching: Callable[..., Watched]) -> None:
    watched, old = watching(), replace(installed(), loop=SITE.loops[0])
    watched.history.decisions.append(old)
    watched.take_out(old, LOST)
    assert [d.reason for d in watched.history.reopened] == [Reason.NOT_FASTER]
    assert watched.history.refused[old.loop].reason is Reason.NOT_FASTER


def test_where_it_cannot_be_set_aside_its_loop_is_tried_anew(watching: Callable[..., Watched],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    watched, old = watching(), installed()
    monkeypatch.setattr(in_service, "set_aside", lambda *_: False)
    watched.history.decisions.append(old)
    watched.take_out(old, OTHERS)
    assert (watched.history.decisions, watched.improving.improved) == ([], [HEADER])


def test_the_lock_of_a_version_that_stands_still_is_given_back(watching: Callable[..., Watched],
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while there are runs, and not where it is free."""
    watched, front = watching(), installed(installed())
    watched.history.decisions += [front.behind, front]
    clock, taken, freed = [0.0], list[Installed](), list[Installed]()
    monkeypatch.setattr(in_service.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(in_service, "lock_held", lambda _, version: version in taken)
    monkeypatch.setattr(in_service, "free_lock", lambda _, version: freed.append(version))
    for version, held, runs in ((front, False, 1), (front.behind, True, 1), (front, True, 2), (front, True, 2)):
        taken[:] = [version] if held else []
        version.cache.statistics = Statistics(9, runs, 9)
        watched.unlock()
        clock[0] += 100.0
        assert watched.unlock() is held
    assert freed == [front.behind, front, front]


def test_a_version_that_other_threads_keep_out_is_not_judged(watching: Callable[..., Watched],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """It stores in another order than the original, so its guard asks for a program with one thread."""
    watched, version = watching(), installed()
    ordered = replace(version.compiled, region=parse_region(PUBLISHING))
    watched.history.decisions.append(replace(version, compiled=ordered))
    watched.history.decisions[0].cache.statistics = LOSING
    monkeypatch.setattr(in_service, "thread_count", lambda _: 2)
    assert not watched.review()
    monkeypatch.setattr(in_service, "thread_count", lambda _: 1)
    assert not watched.review()  # what passed meanwhile does not count
    watched.history.decisions[0].cache.statistics = Statistics(100_000_000, 200, 120_000)
    assert watched.review()


def test_a_handler_that_may_repair_faults_ends_the_service(watching: Callable[..., Watched],
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    def set_later(_: int) -> None:
        raise Rejected(Reason.SIGSEGV_HANDLER)

    watched, old = watching(), installed()
    watched.history.decisions.append(old)
    assert not watched.review()
    monkeypatch.setattr(in_service, "check_handlers", set_later)
    assert watched.review()
    (refused,) = watched.history.decisions
    assert (watched.given_back, refused.reason) == ([old.cache], Reason.SIGSEGV_HANDLER)
    assert not watched.review()


SELDOM = Statistics(5_000, 10, 1_000)  # faster, but the guard fails nearly always


@pytest.mark.parametrize(("seconds", "asked"), [(0.2, False), (2.0, True)])
def test_a_third_version_is_made_once_the_others_have_paid(watching: Callable[..., Watched],
                                                           monkeypatch: pytest.MonkeyPatch, seconds: float,
                                                           asked: bool) -> None:
    watched, behind = watching(Reason.NOT_REACHED, Reason.NOT_FASTER), installed()
    front = installed(behind)
    watched.history.decisions += [behind, front]
    front.cache.statistics = SELDOM
    behind.cache.statistics = Statistics(1000, 1000, 100_000)  # twice as fast
    monkeypatch.setattr(watched, "_inside", lambda version: seconds if version is behind else 0.0)
    watched.review()
    assert watched.improving.aside == ([front, front] if asked else [])
    second = watching(Reason.NOT_REACHED, Reason.NOT_FASTER)
    second.history.decisions.append(replace(behind, cache=front.cache))
    second.review()
    assert second.improving.aside, "a second one is made in any case"


@pytest.mark.parametrize(("runs", "gone"), [(0, True), (3, False)])
def test_a_version_whose_sizes_do_not_come_again_goes_unless_it_ran(watching: Callable[..., Watched], runs: int,
                                                                    gone: bool) -> None:
    watched, old = watching(Reason.NEW_SIZES), installed()
    old.cache.statistics = Statistics(5_000, runs, runs)
    watched.history.decisions.append(old)
    watched.take_out(old, OTHERS)
    (decision,) = watched.history.decisions
    assert watched.given_back == ([old.cache] if gone else [])
    assert isinstance(decision, Refused) == gone
    if gone:
        assert decision.reason is Reason.NEW_SIZES


@pytest.mark.parametrize(("gain", "stays"), [(1.3, True), (0.9, False), (None, False)])
def test_an_ab_measurement_decides_where_two_moments_differ(watching: Callable[..., Watched], gain: float | None,
                                                            stays: bool) -> None:
    """The trial was quick on a machine that is busy now: the version seems to lose."""
    measurement = Measurement(1e-4, 1e-5, 100)
    version = replace(installed(), measurement=measurement, service=Service(1e-4))
    watched = watching()
    watched.history.decisions.append(version)
    version.cache.statistics = Statistics(10, 10, 100_000)
    placement = version.compiled.placement
    watched.hotness.add([placement.code] * 20, 1000)  # 20 s: twice as long as the original in the trial
    watched._compared = lambda *_: None if gain is None else Comparison(gain, 1e-4)
    assert watched.review()
    assert (version in watched.history.decisions) is stays
    if stays:
        assert version.service.original_per_iteration == pytest.approx(1.3 * 2e-4)  # the clock from now on
        version.cache.statistics = Statistics(20, 20, 200_000)
        watched.hotness.add([placement.code] * 20, 1000)
        assert not watched.review()
