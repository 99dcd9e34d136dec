"""Which loop is tried, how often, and what is settled; what the end of the program leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

import pytest

from memopt.ir.graph import Loop
from memopt.ir.reasons import Reason, Rejected
from memopt.options import Options
from memopt.session.improving import improver as improving
from memopt.session.improving.improver import Improver
from memopt.session.improving.in_service import RETRIES
from memopt.session.measuring.hotness import Hotness
from memopt.session.replacing.decision import Attempt, Refused
from memopt.session.replacing.history import History
from memopt.session.replacing.known import KnownLoops
from memopt.session.replacing.process import Process
from memopt.session.replacing.site import Site
from runtime.trial.copy_cost import CopyBudget
from tests.support.sites import NESTS, site_of

ADDRESS = 0x401000


class Trying:
    """Stages that refuse every loop, as ``reason`` says."""

    def __init__(self, reason: Callable[[Loop], Reason]) -> None:
        self.reason = reason
        self.tried: list[Loop] = []

    def __call__(self, process: Process, site: Site, loop: Loop, history: History) -> None:
        self.tried.append(loop)
        raise Rejected(self.reason(loop))


@pytest.fixture
def improver_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Improver]:
    site = site_of(NESTS)
    monkeypatch.setattr("memopt.session.replacing.site.find_site", lambda *_: site)
    monkeypatch.setattr("memopt.session.replacing.site.calling", lambda *_: None)
    monkeypatch.setattr("memopt.session.replacing.site.changed", lambda *_: False)
    monkeypatch.setattr(improving.time, "sleep", lambda _: None)
    return lambda stages, **more: Improver(Process(0, Options(), nullcontext, 0.0), replace_loop=stages, **more)


def test_loops_are_tried_from_the_outermost_inwards_and_refused_for_good(
        improver_with: Callable[..., Improver]) -> None:
    trying = Trying(lambda _: Reason.NON_AFFINE)
    improver = improver_with(trying)
    decision = improver.attempt(Attempt(ADDRESS, ()))
    assert isinstance(decision, Refused)
    assert decision.reason is Reason.NON_AFFINE
    assert [len(loop.blocks) for loop in trying.tried] == sorted((len(x.blocks) for x in trying.tried), reverse=True)
    assert set(improver.history.refused) == set(trying.tried)
    assert [x.address for x in decision.tried] == [loop.header for loop in trying.tried]
    assert {x.reason for x in decision.tried} == {Reason.NON_AFFINE}
    before = len(trying.tried)
    assert improver.attempt(Attempt(ADDRESS, ())).reason is Reason.NON_AFFINE
    assert len(trying.tried) == before


@pytest.mark.parametrize(("reason", "told"), [
    (Reason.NON_AFFINE, Reason.CODE_CHANGED),
    (Reason.GUARD_FAILED, Reason.CODE_CHANGED),
    (Reason.NOT_REACHED, Reason.NOT_REACHED),
])
def test_a_refusal_tells_nothing_about_code_that_was_exchanged_meanwhile(
        improver_with: Callable[..., Improver], monkeypatch: pytest.MonkeyPatch, reason: Reason, told: Reason) -> None:
    improver = improver_with(Trying(lambda _: reason))
    monkeypatch.setattr("memopt.session.replacing.site.changed", lambda *_: True)
    assert improver.attempt(Attempt(ADDRESS, ())).reason is told
    assert not improver.history.refused


def test_what_may_pass_is_settled_after_some_tries(improver_with: Callable[..., Improver]) -> None:
    improver = improver_with(Trying(lambda _: Reason.THREADS))
    for number in range(1, RETRIES + 1):
        improver.settle(improver.attempt(Attempt(ADDRESS, ())))
        assert len(improver.decisions) == (number == RETRIES)


def test_a_failure_inside_is_a_refusal_that_names_the_stage(improver_with: Callable[..., Improver],
                                                            capsys: pytest.CaptureFixture[str]) -> None:
    def failing(process: Process, site: Site, loop: Loop, history: History) -> None:
        with process.timer.stage("capture"):
            with process.timer.stage("lift"):
                pass
            raise ValueError("no such register")

    decision = improver_with(failing).attempt(Attempt(ADDRESS, ()))
    assert (decision.reason, decision.detail) == (Reason.INTERNAL, "capture: ValueError: no such register")


@pytest.mark.parametrize(("looks", "tries"), [(None, 2), (4, 4)])
def test_how_often_an_outer_loop_is_looked_at_that_is_too_short(improver_with: Callable[..., Improver],
                                                               looks: int | None, tries: int) -> None:
    trying = Trying(lambda _: Reason.TOO_SHORT)
    improver = improver_with(trying, short_looks=looks)
    for _ in range(RETRIES):
        improver.settle(improver.attempt(Attempt(ADDRESS, ())))
    assert [x is trying.tried[0] for x in trying.tried].index(False) == tries


def hot_at(address: int) -> Hotness:
    """Samples enough at one address."""
    hotness = Hotness()
    hotness.add([address] * 100)
    return hotness


def test_a_loop_waits_until_a_copy_is_worth_its_cost(improver_with: Callable[..., Improver],
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no attempt that counts, and the report says why. A loop elsewhere is looked at once, for the report."""
    reasons = iter([Reason.COPY_COSTS] * (RETRIES + 2) + [Reason.NON_AFFINE] * 100)
    trying = Trying(lambda _: next(reasons))
    improver, hotness = improver_with(trying), hot_at(ADDRESS)
    monkeypatch.setattr(improving, "worth_lifting", lambda *_: True)
    monkeypatch.setattr(improver.worker, "start", lambda job: job())
    enough = False
    monkeypatch.setattr(CopyBudget, "enough", lambda *_: enough)
    assert improver.consider(hotness)
    assert len(trying.tried) == 1
    assert improver.decisions == []
    for _ in range(3):
        assert not improver.consider(hotness)
    assert len(trying.tried) == 1
    loop, = improver.report(hotness, (), ()).loops
    assert loop.reason is Reason.COPY_COSTS
    hotness.add([ADDRESS + 0x10000] * 300)
    assert improver.consider(hotness)
    assert not improver.consider(hotness)
    assert len(trying.tried) == 2
    enough = True
    for _ in range(RETRIES):
        assert improver.consider(hotness)
    assert len(trying.tried) == 2 + RETRIES
    assert improver.decisions == []
    assert improver.consider(hotness)
    assert [d.reason for d in improver.decisions if isinstance(d, Refused)] == [Reason.NON_AFFINE]
    assert [x.reason for x in improver.report(hotness, (), ()).loops] == [Reason.NON_AFFINE]


def test_what_is_at_stake_is_the_open_share(improver_with: Callable[..., Improver],
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    improver, hotness = improver_with(Trying(lambda _: Reason.NON_AFFINE)), hot_at(ADDRESS)
    hotness.settled.append((0x500000, 0x501000))
    hotness.add([0x500100] * 100)
    monkeypatch.setattr(improving, "worth_lifting", lambda *_: True)
    monkeypatch.setattr(improver.worker, "start", lambda _: None)
    assert improver.consider(hotness)
    assert improver.process.copies.at_stake == pytest.approx(0.5)


class Remembered(KnownLoops):
    """What an earlier run has found: a plan for the loop ``planned``, refusals for those of ``refused``."""

    def __init__(self, planned: Loop | None = None, refused: frozenset[Loop] = frozenset()) -> None:
        super().__init__()
        self.plan_of, self.refused_loops = planned, refused
        self.come = planned is not None
        self.seen: list[tuple[Loop, Reason]] = []

    @property
    def expecting(self) -> bool:
        return self.come

    def come_to(self, samples: Mapping[int, int], _: object) -> int | None:
        found, self.come = (next(iter(samples)) if samples and self.come else None), self.come and not samples
        return found

    def planned(self, _: Site, loops: Sequence[Loop]) -> Loop | None:
        return next((loop for loop in loops if loop == self.plan_of), None)

    def refusal(self, _: Site, loop: Loop) -> Rejected | None:
        return Rejected(Reason.ATOMIC) if loop in self.refused_loops else None

    def left_alone(self, _: Site, loop: Loop, why: Rejected) -> None:
        self.seen.append((loop, why.reason))


def test_a_loop_with_a_plan_is_worked_on_at_its_first_sample(improver_with: Callable[..., Improver],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    inner = site_of(NESTS).loops[-1]
    trying = Trying(lambda _: Reason.NON_AFFINE)
    improver = improver_with(trying, history=History(known=Remembered(inner)))
    monkeypatch.setattr(improver.worker, "start", lambda job: job())
    hotness = Hotness()
    assert not improver.consider(hotness)
    hotness.add([ADDRESS])
    assert improver.consider(hotness)
    assert trying.tried[0] == inner
    assert len(trying.tried) == len(site_of(NESTS).loops)
    assert not improver.expecting


def test_what_an_earlier_run_has_refused_is_not_tried(improver_with: Callable[..., Improver]) -> None:
    outer, *others = site_of(NESTS).loops
    known = Remembered(refused=frozenset((outer,)))
    trying = Trying(lambda _: Reason.NON_AFFINE)
    decision = improver_with(trying, history=History(known=known)).attempt(Attempt(ADDRESS, ()))
    assert trying.tried == others
    assert [x.reason for x in decision.tried] == [Reason.ATOMIC, *(Reason.NON_AFFINE for _ in others)]
    assert known.seen == [(loop, Reason.NON_AFFINE) for loop in others]


def test_only_at_first_a_loop_with_a_plan_is_looked_for_more_often(improver_with: Callable[..., Improver],
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    known = Remembered(site_of(NESTS).loops[0])
    improver = improver_with(Trying(lambda _: Reason.ENDED), history=History(known=known))
    monkeypatch.setattr(improving.time, "monotonic", lambda: 1.0)
    assert improver.expecting
    monkeypatch.setattr(improving.time, "monotonic", lambda: 60.0)
    assert not improver.expecting
    assert known.expecting


def test_loops_that_nobody_looked_at_again_are_told_of(improver_with: Callable[..., Improver]) -> None:
    known = Remembered()
    known.refused = 2
    improver = improver_with(Trying(lambda _: Reason.ENDED), history=History(known=known))
    assert improver.report(Hotness(), (), ()).notes == ()
    improver.process = replace(improver.process, options=Options(verbose=True))
    assert improver.report(Hotness(), (), ()).notes == (
        "2 loops were left alone as in earlier runs, without another look",)


def test_the_end_imports_nothing(improver_with: Callable[..., Improver], monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread may have been given up in the middle of an import; what it was importing fails for others too."""
    improver = improver_with(Trying(lambda _: Reason.NO_PLAN))
    improver.history.named = True

    def refused(name: str, *_: object) -> None:
        raise ImportError(name)

    with monkeypatch.context() as patches:
        patches.setattr("builtins.__import__", refused)
        improver.close()
    assert improver.closed
