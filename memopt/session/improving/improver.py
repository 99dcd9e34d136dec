"""Which hot address is taken up when, which of its loops are tried, and what becomes of versions in service.

Invariant: a loop ends in exactly one report, replaced or kept with a typed reason.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from memopt import __version__
from memopt.console import say_internal
from memopt.ir.reasons import Reason, Rejected
from memopt.machine.tsc import ticks_per_second
from memopt.report.model import RunReport, Stage
from memopt.session.improving.decision import Decision
from memopt.session.improving.prefilter import around, worth_lifting
from memopt.session.improving.service import Service, Verdict
from memopt.session.improving.stages import LOOKS, SAME_LOOKS, TRANSIENT, Stages, exits
from memopt.session.improving.versions import put_back, set_aside
from memopt.session.improving.worker import Worker
from runtime.patching import perf_map
from runtime.target.proc import running_seconds, thread_count

if TYPE_CHECKING:
    from memopt.ir.graph import Loop
    from memopt.ir.region import Guard, Sample
    from memopt.session.improving.ab_measurement import Comparison
    from memopt.session.improving.hotness import Hotness
    from memopt.session.improving.site import Site
    from runtime.patching.code_cache import CodeCache

RETRIES = 6
LEAST_SHARE, MOST_SHARE = 0.2, 0.5  # of the time: less is not worth another look; more is, whatever was in vain
LONG_SECONDS = 0.5  # for one loop: what takes longer is not tried again before those in it
TURNS_AFTER = 0.2, 0.6, 2.0  # seconds in service, while turns with the original do not tell
GONE_SAMPLES, GONE_SHARE = 300, 0.05  # units of time with so little of it in a loop: the program has left it
VAIN_SECONDS, VAIN_SHARE = 1.0, 0.2  # of work, and of the program's time, while nothing that was tried is in service


@dataclass
class Improver(Stages):
    """Works on one address at a time in a thread of its own."""

    worker: Worker = field(default_factory=Worker)

    def __post_init__(self) -> None:
        self._copies.keep = True
        self._settled: list[tuple[int, int]] = []
        self._together: frozenset[int] = frozenset()  # the versions that last took turns all at once
        self._reopened: list[Decision] = []  # about loops that were taken out, until one in them is decided
        self._tries: dict[int, int] = {}
        self._spent = 0.0  # seconds of work on addresses, with or without success
        self._refused: dict[Loop, Rejected] = {}  # for good
        self._current: Decision | None = None
        self._hotness: Hotness | None = None
        self._before: dict[int, int] = {}  # samples when the current decision was begun

    @property
    def busy(self) -> bool:
        return self.worker.busy

    def consider(self, hotness: Hotness) -> bool:
        """Take up the hottest address that is not settled yet, or pass over it; False when there is none.

        Precondition: not ``busy``.
        """
        self._hotness = hotness
        settled, self._settled = self._settled, []
        for decision in self._reopened:
            hotness.reopen(decision.ranges)
        if settled:
            hotness.settle(settled)
        if self._review():
            return True
        address = hotness.hottest()
        if address is None or hotness.open_share < (MOST_SHARE if self._in_vain() else LEAST_SHARE):
            if self._copies.kept:
                self.worker.start(self._copies.drop)
                return False
            return self._hold()
        if worth_lifting(self.pid, address):
            self.worker.start(functools.partial(self._work, address))
        else:  # a hot place with nothing to compute: reported, and never looked at again
            self._settle(Decision(address, (around(address),), reason=Reason.NO_PLAN,
                                  detail="no arithmetic on memory in a loop"))
        return True

    def _in_vain(self) -> bool:
        """Whether too much was tried for nothing by now: a program that gains nothing must not be much slower."""
        serves = any(d.reason is None and d.cache is not None for d in self.decisions)
        return not serves and self._spent > VAIN_SECONDS + VAIN_SHARE * (time.monotonic() - self.started)

    # -- versions in service ------------------------------------------------------------------------------------

    def _in_service(self) -> Iterator[tuple[Decision, CodeCache, Service]]:
        """Versions that may be judged; those behind another are let be."""
        behind = [id(d.behind) for d in self.decisions]
        for decision in self.decisions:
            if decision.reason is None and id(decision) not in behind and (
                    decision.cache is not None and decision.service is not None):
                yield decision, decision.cache, decision.service

    def _review(self) -> bool:
        """Take up a version that does not win in service, if there is one."""
        for decision, cache, service in self._in_service():
            verdict = service.judge(cache.read_statistics(), ticks_per_second(), time.monotonic(),
                                    running_seconds(self.pid), thread_count(self.pid))
            if verdict is not None:
                self.worker.start(functools.partial(self._take_out, decision, verdict))
                return True
        return False

    def _hold(self) -> bool:
        """Have a version take turns with the original, if there is one that has not yet, or got slower since; then
        those that gained little, all at once."""
        installed = tuple(self._in_service())
        if not installed:
            return False
        from memopt.session.improving.ab_measurement import CLEAR

        little = list[Decision]()
        for decision, cache, service in installed:
            since = decision.installed_after
            if since is None or decision.measurement is None or decision.behind is not None:
                continue
            due = service.turns < len(TURNS_AFTER) and (
                time.monotonic() - self.started - since > TURNS_AFTER[service.turns])
            if service.gain is not None and service.gain < CLEAR:
                little.append(decision)
                due = due or service.slower(cache.read_statistics(), ticks_per_second())
            if due:
                self.worker.start(functools.partial(self._take_turns, decision, cache, service))
                return True
        if len(little) > 1 and (together := frozenset(map(id, little))) != self._together:
            self._together = together
            self.worker.start(functools.partial(self._take_turns_together, little))
            return True
        return False

    def _take_turns(self, decision: Decision, cache: CodeCache, service: Service) -> None:
        from memopt.session.improving.ab_measurement import LOSS

        service.turns = service.turns % len(TURNS_AFTER) + 1
        found = self._measured(decision, service.turns)
        service.pass_over(cache.read_statistics(), time.monotonic(), running_seconds(self.pid))
        if found is not None:
            service.turns = len(TURNS_AFTER)
            service.keeps(found.gain, found.pace, cache.read_statistics())
            if found.gain < LOSS:
                self._take_out(decision, Verdict(Reason.NOT_FASTER, f"{found.gain:.2f} times as fast in service"))

    def _take_turns_together(self, decisions: list[Decision]) -> None:
        from memopt.session.improving.ab_measurement import LOSS

        found = self._measured(decisions[0], 1, decisions[1:])
        for decision in decisions:
            if decision.service is not None and decision.cache is not None:
                decision.service.pass_over(decision.cache.read_statistics(), time.monotonic(),
                                           running_seconds(self.pid))
        if found is not None and found.gain < LOSS:
            for decision in decisions:
                self._take_out(decision, Verdict(Reason.NOT_FASTER, f"{found.gain:.2f} times as fast in service, with "
                                                                    f"{len(decisions) - 1} more"))

    def _measured(self, decision: Decision, attempt: int, others: Sequence[Decision] = ()) -> Comparison | None:
        """What comes of turns of a version, or of several at once, with the original."""
        from memopt.session.improving.ab_measurement import measured

        assert decision.cache is not None
        assert decision.measurement is not None
        try:
            with self._timed("turns"):
                return measured(self.pid, decision.cache, decision.period, decision.measurement.speedup, attempt,
                                [d.cache for d in others if d.cache is not None])
        except Exception as error:  # noqa: BLE001 - it goes on as it was
            say_internal(self._stage, error)
            return None

    def _take_out(self, decision: Decision, verdict: Verdict) -> None:
        assert decision.cache is not None
        self._refused.clear()
        again = verdict.sizes and self._look_again(decision.address, decision.entry)
        try:
            if again and set_aside(self.pid, self.attached, decision):
                self._follow(decision)
                return
            with self._timed("remove"):
                gone = self._give_back(decision.cache)
        except Exception as error:  # noqa: BLE001 - it stays, and the program runs on
            say_internal(self._stage, error)
            gone = False
        if gone:  # the cache is not closed: the main thread may be reading its statistics for the report
            for _, _, service in self._in_service():  # what they gained beside it says nothing any more
                service.turns = 0
            decision.reason, decision.detail, decision.cache = verdict.reason, verdict.detail, None
            before, decision.behind = decision.behind, None
            if before is not None and self._put_back(before):
                return
            if again:
                self.decisions.remove(decision)
                self._work(decision.address)
            elif verdict.reason is not Reason.THREADS and decision.holds_loops:  # these may be better off
                assert decision.loop is not None
                self._refused[decision.loop] = Rejected(verdict.reason, verdict.detail)
                self._reopened.append(decision)
        else:
            decision.service = None  # it could not be taken out: no use trying for ever

    def _follow(self, old: Decision) -> None:
        """A version for other sizes in front of ``old``, which is set aside: it is back, or behind, in the end."""
        new = Decision(old.address, old.ranges)
        for number in range(1, RETRIES + 1):
            self._aside = old
            try:
                self._attempt(new)
            finally:
                self._aside = None
            if new.reason not in TRANSIENT:
                break
            new.reason, new.detail = None, ""
            time.sleep(0.05 * number)
        if new.behind is old:
            old.ranges = ()
        elif new.cache is not None:  # a loop further out was replaced
            assert old.cache is not None
            self._give_back(old.cache)
            self.decisions.remove(old)
        else:
            self._put_back(old)
        if new.cache is not None:
            self._settle(new)

    def _put_back(self, decision: Decision) -> bool:
        """A version that was set aside, or behind another, is in service again, with no other one to be made; is it?"""
        if put_back(self.pid, self.attached, decision):
            if decision.service is not None:
                decision.service.again = False
            return True
        decision.reason, decision.detail, decision.cache = Reason.GUARD_FAILED, "nor would it go back", None
        return False

    # -- one address ----------------------------------------------------------------------------------------------

    def _work(self, address: int) -> None:
        began = time.monotonic()
        self._before = {} if self._hotness is None else dict(self._hotness.samples)
        decision = self._current = Decision(address, ((address & -16, (address & -16) + 16),))
        self._attempt(decision)
        self._settle(decision)
        self._current = None
        self._spent += time.monotonic() - began
        decision.look_up_source()

    def _left(self) -> bool:
        """Programs set their data up in loops that never come again: a copy would not come to their headers either."""
        if self._hotness is None or self._current is None:
            return False
        inside, total = self._hotness.since(self._before, self._current.ranges)
        return total >= GONE_SAMPLES and inside < GONE_SHARE * total

    def _attempt(self, decision: Decision) -> None:
        """Improve, or leave in ``decision`` why not."""
        from runtime.target.ptrace import TargetEnded

        try:
            self._improve(decision)
        except Rejected as rejected:
            decision.reason, decision.detail = rejected.reason, rejected.detail
        except TargetEnded:
            decision.reason = Reason.ENDED
        except Exception as error:  # noqa: BLE001 - whatever fails inside, the program runs on
            text = " ".join(f"{type(error).__name__}: {error}".split())
            decision.reason, decision.detail = Reason.INTERNAL, f"{self._stage}: {text}"
            say_internal(self._stage, error)
        finally:
            if decision.reason is None or decision.reason in (*TRANSIENT, Reason.ENDED, Reason.INTERNAL):
                self._copies.drop()  # after a refusal, the next address may be met in it

    def _settle(self, decision: Decision) -> None:
        if decision.reason is Reason.ENDED and decision.site is None:
            return
        tries = self._tries.get(decision.address, 0) + 1
        self._tries[decision.address] = tries
        if decision.reason in TRANSIENT and tries < RETRIES:
            time.sleep(0.05 * tries)
            return
        for old in [d for d in self._reopened if not set(d.ranges).isdisjoint(decision.ranges)]:
            self._reopened.remove(old)
            self.decisions.remove(old)
        self.decisions.append(decision)
        self._settled += decision.ranges
        if decision.cache is not None and decision.reason is None:
            placement = decision.cache.placement
            self._settled.append((placement.code, placement.code + placement.code_size))

    def _improve(self, decision: Decision) -> None:
        from memopt.session.improving.site import calls_of

        site = self._find(decision.address)
        decision.site = site
        if not site.loops:
            decision.ranges += site.straight_line()
            if self._replace_around(decision, site):
                return
            if site.function and not calls_of(self.pid, site):
                raise Rejected(Reason.CALL, f"{site.function} is called through a pointer, or from elsewhere")
            raise Rejected(Reason.NOT_A_NEST, f"{decision.address:#x} is in no loop")
        nest, decision.ranges = site.decided(site.loops[-1])
        decision.address = nest.header
        refusals: list[tuple[Loop, Rejected]] = []
        for loop in site.loops:
            known = self._refused.get(loop)
            if known is not None:
                refusals.append((loop, known))
                continue
            began = time.monotonic()
            if self._left():
                raise Rejected(Reason.NOT_REACHED, "the program has left it")
            try:
                self._replace_at_sizes(decision, site, loop)
                return
            except Rejected as rejected:
                most = RETRIES
                if loop is not site.loops[-1] and rejected.reason in (Reason.NOT_REACHED, Reason.TOO_SHORT):
                    most = self._most_tries(rejected.reason, time.monotonic() - began)
                again = rejected.reason in TRANSIENT and self._tries.get(decision.address, 0) + 1 < most
                if again or rejected.reason in (Reason.ENDED, Reason.DRY_RUN):
                    raise  # the next look may find it otherwise; or it would have been replaced
                refusals.append((loop, rejected))
                if rejected.reason not in TRANSIENT or most == 1:
                    self._refused[loop] = Rejected(rejected.reason, rejected.detail)
            if loop is site.loops[0] and self._replace_around(decision, site):
                return
        own = [r for loop, r in refusals if loop.blocks <= nest.blocks]  # the others are about more than the nest
        raise functools.reduce(more_telling, own or [r for _, r in refusals])

    def _most_tries(self, _: Reason, seconds: float) -> int:
        """Of a loop with others in it, where the last try has taken so long: it may never have more iterations."""
        return 2 if seconds < LONG_SECONDS else 1

    def _replace_around(self, decision: Decision, site: Site) -> bool:
        """Whether a loop that calls the function of ``site``, and nothing that is not understood, was replaced."""
        from memopt.session.improving.site import calling

        around, own = calling(self.pid, site), decision.ranges
        if around is None:
            return False
        for loop in around.loops:
            if loop in self._refused:
                continue
            decision.site = around
            try:
                self._replace_at_sizes(decision, around, loop)
            except Rejected as rejected:
                decision.site, decision.plan, decision.measurement = site, None, None
                again = rejected.reason in TRANSIENT and not self._tries.get(decision.address, 0)
                if again or rejected.reason is Reason.ENDED:
                    raise
                if rejected.reason not in TRANSIENT:
                    self._refused[loop] = Rejected(rejected.reason, rejected.detail)
            else:
                decision.ranges += own
                return True
        return False

    def _replace_at_sizes(self, decision: Decision, site: Site, loop: Loop) -> None:
        """``_replace``, where need be for several sizes at once: those of the entries that were seen."""
        failed: list[tuple[Guard, ...]] = []
        while True:
            try:
                self._replace(decision, site, loop)
                return
            except Rejected as rejected:
                failed.append(decision.guards)
                if (rejected.reason is not Reason.GUARD_FAILED or failed.count(decision.guards) == SAME_LOOKS
                        or not self._look_again(loop.header, decision.entry)):
                    raise
                self._copies.leave(exits(site, loop))

    def _look_again(self, header: int, entry: Sample | None) -> bool:
        """Whether a loop is to be lifted once more, knowing that other entries than ``entry`` came."""
        earlier = self._earlier.setdefault(header, [])
        if entry is not None:
            earlier.append(entry)
        return entry is not None and len(earlier) < LOOKS

    @property
    def unfinished(self) -> Decision | None:
        """What was not settled when the program ended."""
        current = self._current
        return None if current is None or current.site is None or current in self.decisions else current

    # -- reporting ----------------------------------------------------------------------------------------------

    def report(self, hotness: Hotness, notes: tuple[str, ...], program: tuple[str, ...]) -> RunReport:
        """What is known when the program has ended."""
        decisions = list(self.decisions)
        if (current := self.unfinished) is not None:
            decisions.append(current if current.cache is not None else replace(
                current, reason=current.reason or Reason.ENDED))
        if not self.busy:  # else the thread may be in the middle of importing what this needs
            for decision in decisions:
                decision.look_up_source()
        loops = tuple(d.report(hotness, self.started) for d in decisions)
        stages = tuple(Stage(n, s) for n, s in self.stages.items())
        return RunReport(__version__, program, loops, stages, notes, time.monotonic() - self.started,
                         sum(hotness.samples.values()))

    def close(self) -> None:
        """The program has ended: give up what memopt still holds of it.

        Imports nothing: the thread may have been given up in the middle of an import (``Worker.give_up``)."""
        self.closed = True
        last = () if self._current is None else (self._current,)  # the thread may be about to settle it
        if any(d.installed_after is not None for d in (*self.decisions, *last)):
            perf_map.delete(self.pid)


def more_telling(first: Rejected, second: Rejected) -> Rejected:
    """Which of the refusals of two loops, the outer one first, is reported."""
    if first.reason in TRANSIENT:
        return second
    # A loop that calls functions stands around the nest; it is not the nest.
    return second if first.reason is Reason.CALL and second.reason not in TRANSIENT else first
