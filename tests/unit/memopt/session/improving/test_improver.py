"""What becomes of a version that loses, when no other can be made in its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from memopt.ir.reasons import Reason
from memopt.options import Options
from memopt.session.improving import improver as improve
from memopt.session.improving.decision import Decision
from memopt.session.improving.improver import Improver
from memopt.session.improving.service import Service, Verdict
from memopt.session.improving.worker import Worker
from runtime.patching.code_cache import Statistics

OTHERS = Verdict(Reason.GUARD_FAILED, "other values", sizes=True)


@dataclass
class Cache:
    statistics: Statistics = field(default=Statistics(0, 0, 0, 0))

    def read_statistics(self) -> Statistics:
        return self.statistics


class AtOnce(Worker):
    def start(self, work: Any) -> None:
        work()


@dataclass
class Failing(Improver):
    """No other version can be made; what is given back is noted."""

    given_back: list[object] = field(default_factory=list)

    def _attempt(self, decision: Decision) -> None:
        decision.reason = Reason.NOT_FASTER

    def _give_back(self, cache: Any) -> bool:
        self.given_back.append(cache)
        return True


@pytest.fixture
def improver(monkeypatch: pytest.MonkeyPatch) -> Failing:
    for name, value in (("set_aside", True), ("put_back", True), ("running_seconds", 100.0), ("thread_count", 1)):
        monkeypatch.setattr(improve, name, lambda *_, value=value: value)
    return Failing(Options(), 0, cast(Any, None), 0.0, worker=AtOnce())


def installed(speedup: float = 2.0) -> Decision:
    service = Service(None, (0.0, 0.0), speedup=speedup, again=True)
    return Decision(0x401000, (), cache=cast(Any, Cache()), service=service, entry=cast(Any, {}))


def test_a_version_that_is_put_back_is_judged_like_any_other(improver: Failing) -> None:
    old = installed()
    improver.decisions.append(old)
    improver._take_out(old, OTHERS)
    assert (improver.given_back, old.reason) == ([], None)
    cast(Any, old.cache).statistics = Statistics(50_000_000, 100, 60_000, 50_000)  # the guard fails nearly always
    assert improver._review()
    assert (len(improver.given_back), old.reason) == (1, Reason.NOT_FASTER)


def test_what_the_version_in_front_was_is_judged_when_that_is_gone(improver: Failing) -> None:
    behind, front = installed(), installed()
    front.behind = behind
    improver.decisions += [behind, front]
    cast(Any, behind.cache).statistics = Statistics(50_000_000, 100, 60_000, 50_000)
    assert not improver._review()
    improver._take_out(front, Verdict(Reason.NOT_FASTER, "in service"))
    assert (len(improver.given_back), front.reason, behind.reason) == (1, Reason.NOT_FASTER, None)
    assert improver._review()
    assert behind.reason is Reason.NOT_FASTER


def test_the_end_imports_nothing(improver: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread may have been given up in the middle of an import; what it was importing fails for others too."""
    decision = installed()
    decision.installed_after = 1.0
    improver.decisions.append(decision)

    def refused(name: str, *_: object) -> None:
        raise ImportError(name)

    with monkeypatch.context() as patches:
        patches.setattr("builtins.__import__", refused)
        improver.close()
    assert improver.closed
