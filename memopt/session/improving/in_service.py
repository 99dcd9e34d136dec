"""The watch over installed versions: one that loses in service, or whose guard never holds, is taken out again.

Example: a version was faster in the trial, but is now entered for three iterations at a time, and entering and leaving
it costs more than it gains. Its counters (``review``) or an A/B measurement (``hold``) show the loss. Then the version
is taken out, or another one is made for the current sizes. All versions are taken out when the program sets a handler
for SIGSEGV. The lock of a version that somebody has left by longjmp is given back (``unlock``).

In: the decisions in ``History``, the counters of the versions. Changes the process: takes versions out, puts them back.
``review``, ``unlock`` and ``hold`` only choose what is to be done; the worker thread does it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from memopt.console import say_internal
from memopt.ir.reasons import Reason, Rejected
from memopt.session.improving.worker import others_first
from memopt.session.measuring.hotness import Hotness
from memopt.session.measuring.verdict import MOST_DOUBTS, Verdict
from memopt.session.replacing.decision import TRANSIENT, Attempt, Decision, Installed
from memopt.session.replacing.history import History
from memopt.session.replacing.others import chunk
from memopt.session.replacing.process import Process
from memopt.session.replacing.reservation import give_back
from memopt.session.replacing.versions import free_lock, line, lock_held, put_back, set_aside
from runtime.target.eligibility import check_handlers
from runtime.target.memory import Memory
from runtime.target.proc import running_seconds, thread_count

if TYPE_CHECKING:
    from memopt.session.measuring.ab_measurement import Comparison

RETRIES = 6  # attempts at a loop that is refused for a reason that may pass
RETRY_SECONDS = 0.05  # before the second try, twice as long before the third, and so on
COST_SECONDS = 0.5  # of processor time, to make one version
TURNS_AFTER = 0.2, 0.6, 2.0  # seconds in service before each A/B measurement, until one gives a result


class Improving(Protocol):
    """The methods of the improver that the watch calls."""

    def improve(self, address: int) -> None:
        """Decide about the loops around ``address``."""

    def attempt(self, attempt: Attempt) -> Decision:
        """Try to replace a loop around the attempt's address; the decision is not settled yet."""

    def settle(self, decision: Decision) -> None:
        """Enter ``decision`` in the history."""


class InService:
    """The installed versions of one process. ``start``: runs a job in the improver's thread."""

    def __init__(self, process: Process, history: History, start: Callable[[Callable[[], None]], None],
                 improving: Improving) -> None:
        self.process, self.history = process, history
        self._start, self._improving = start, improving
        self.hotness = Hotness()  # the samples of the process so far
        self._together: frozenset[int] = frozenset()  # the versions of the last joint A/B measurement

    def versions(self) -> Iterator[Installed]:
        """The versions that may be judged. A version behind another one is not judged: it gets only entries that the
        other refuses.
        """
        installed = self.history.installed
        behind = [id(d.behind.cache) for d in installed if d.behind is not None]
        for version in installed:
            if id(version.cache) not in behind and not version.service.stuck:
                yield version

    def review(self) -> bool:
        """Start to take out a version that is not faster in service; False if there is none."""
        unfit = self._unfit()
        threads = thread_count(self.process.pid)
        for version in self.versions():
            if unfit is None and threads > 1 and version.compiled.region.single_threaded:  # its guard keeps it out
                version.service.pass_over(version.cache.read_statistics(), self._inside(version))
                continue
            service = version.service
            service.began = self.hotness.total_seconds if service.began is None else service.began
            verdict = unfit or service.judge(version.cache.read_statistics(), self._inside(version),
                                             others=self._earned(version))
            if (verdict is not None and verdict.reason is Reason.NOT_FASTER and version.measurement is not None
                    and service.doubts < MOST_DOUBTS):
                service.doubts += 1
                self._start(functools.partial(self._decide, version, verdict))
                return True
            if verdict is not None:
                self._start(functools.partial(self.take_out, version, verdict))
                return True
        return False

    def adapt_chunks(self) -> None:
        """Adapt the iterations after which versions go through their guards again to how long iterations are now."""
        for version in self.history.installed:
            if version.compiled.region.returns_often:
                seconds = version.service.iteration_seconds(version.cache.read_statistics(), self._inside(version))
                iterations = None if seconds is None else chunk(version.compiled.region, version.entry, seconds)
                if iterations is not None:
                    with suppress(Rejected), closing(Memory(self.process.pid)) as memory:
                        version.cache.set_chunk(memory, iterations)

    def unlock(self) -> bool:
        """Start to look whether a version's lock can be given back; False if all are free, or were used of late."""
        for version in self.history.installed:
            if (version.service.stands_still(version.cache.read_statistics(), time.monotonic())
                    and lock_held(self.process, version)):
                self._start(functools.partial(self._free, version))
                return True
        return False

    def _free(self, version: Installed) -> None:
        try:
            with self.process.timer.stage("unlock"):
                free_lock(self.process, version)
        except Exception as error:  # noqa: BLE001 - it stays taken, and the original runs
            say_internal(self.process.timer.name, error)

    def _earned(self, version: Installed) -> bool:
        """Whether one more version may be made for other sizes: a second one always, a third one once the first two
        have earned what they cost, and so on. So sizes that never come again cost little, however slowly they change.
        """
        made = list(line(version))
        gained = sum(v.service.earned(v.cache.read_statistics(), self._inside(v)) for v in made)
        return len(made) == 1 or gained >= COST_SECONDS * len(made)

    def hold(self) -> bool:
        """Start an A/B measurement if one is due: of a version that was not measured yet, or got slower since; then of
        all versions with a small gain together. False where none is due.
        """
        installed = tuple(self.versions())
        if not installed:
            return False
        from memopt.session.measuring.ab_measurement import CLEAR

        little = list[Installed]()
        for version in installed:
            service = version.service
            if version.measurement is None or version.behind is not None:
                continue
            due = service.turns < len(TURNS_AFTER) and (
                time.monotonic() - self.process.started - version.installed_after > TURNS_AFTER[service.turns])
            if service.gain is not None and service.gain < CLEAR:
                little.append(version)
                due = due or service.slower(version.cache.read_statistics(), running_seconds(self.process.pid))
            if due:
                self._start(functools.partial(self._take_turns, version))
                return True
        if len(little) > 1 and (together := frozenset(id(version.cache) for version in little)) != self._together:
            self._together = together
            self._start(functools.partial(self._take_turns_together, little))
            return True
        return False

    def _unfit(self) -> Verdict | None:
        """Why no version may be in service any more: the program has set a handler that may repair faults."""
        if not self.history.installed:
            return None
        try:
            check_handlers(self.process.pid)
        except Rejected as rejected:
            return None if rejected.reason is Reason.ENDED else Verdict(rejected.reason, rejected.detail)
        return None

    def take_out(self, version: Installed, verdict: Verdict) -> None:
        """Take ``version`` out of service. Then the version behind it is put back, or another version is made for the
        current sizes, or a loop inside may be tried.
        """
        history = self.history
        history.refused.clear()
        again = verdict.sizes and history.look_again(version.address, version.entry)
        never_ran = verdict.reason is Reason.GUARD_FAILED and not version.cache.read_statistics().runs
        if verdict.reason is Reason.NOT_FASTER or never_ran:
            history.known.failed(version.site.path, version.stored, verdict.reason)
        try:
            if again and set_aside(self.process, version):
                self._follow(version)
                return
            with self.process.timer.stage("remove"):
                gone = self._give_back(version)
        except Exception as error:  # noqa: BLE001 - it stays, and the program runs on
            say_internal(self.process.timer.name, error)
            gone = False
        if not gone:
            version.service.stuck = True  # no use trying for ever
            return
        # The cache is not closed: the main thread may be reading its statistics for the report.
        for other in self.versions():  # their gains were measured beside this version: measure again
            other.service.turns = 0
        refused = version.refused(verdict.reason, verdict.detail)
        history.replace(version, refused)
        if version.behind is not None and self._put_back(version.behind):
            return
        if again:
            history.decisions.remove(refused)
            self._improving.improve(refused.address)
        elif verdict.reason is not Reason.THREADS and version.holds_loops:  # one of these loops may gain alone
            history.refused[version.loop] = Rejected(verdict.reason, verdict.detail)
            history.reopened.append(refused)

    def _follow(self, old: Installed) -> None:
        """Make a version for other sizes in front of ``old``, which is set aside. In the end ``old`` is behind the new
        one, or in service again, or gone because a loop further out was replaced."""
        attempt, new = Attempt(old.address, old.ranges), None
        for number in range(1, RETRIES + 1):
            self.history.aside = old
            try:
                new = self._improving.attempt(attempt)
            finally:
                self.history.aside = None
            if isinstance(new, Installed) or new.reason not in TRANSIENT:
                break
            time.sleep(RETRY_SECONDS * number)
        if not isinstance(new, Installed):
            never_ran = old.behind is None and not old.cache.read_statistics().runs
            if new is not None and new.reason is Reason.NEW_SIZES and never_ran:
                give_back(self.process, old.cache)
                self.history.replace(old, old.refused(new.reason, new.detail))
            else:
                self._put_back(old)
            return
        if new.behind is old:
            behind = replace(old, ranges=())  # the code belongs to the new version now
            self.history.replace(old, behind)
            new = replace(new, behind=behind)
        else:
            for version in line(old):
                self._give_back(version)
            self.history.decisions.remove(old)
        self._improving.settle(new)

    def _give_back(self, version: Installed) -> bool:
        """Take the version's jump and memory out of the process, and note how much stays; False where that failed."""
        stays = give_back(self.process, version.cache)
        self.history.left += stays or 0
        return stays is not None

    def _put_back(self, version: Installed) -> bool:
        """Put a version that was set aside, or behind another, in service again; False where that is not possible. No
        other version is made in its place.
        """
        if put_back(self.process, version):
            version.service.again = False
            return True
        self.history.replace(version, version.refused(Reason.GUARD_FAILED, "it could not be put back in service"))
        return False

    def _decide(self, version: Installed, verdict: Verdict) -> None:
        """Take ``version`` out, unless an A/B measurement shows that it is faster.

        ``verdict`` compares its time with that of the original in the trial, at another moment: on a busy machine one
        may be twice the other."""
        if not self._measure(version, 1):
            self.take_out(version, verdict)

    def _take_turns(self, version: Installed) -> None:
        service = version.service
        service.turns = service.turns % len(TURNS_AFTER) + 1
        if self._measure(version, service.turns):
            service.turns = len(TURNS_AFTER)

    def _measure(self, version: Installed, attempt: int) -> bool:
        """Take ``version`` out if it loses an A/B measurement; else that is the clock by which it is judged. False
        where the measurement gives no result."""
        from memopt.session.measuring.ab_measurement import LOSS

        service = version.service
        passed = self.hotness.total_seconds - (service.began or 0.0)  # before the original takes turns with it
        share = self._inside(version) / passed if passed > 0 else 1.0
        found = self._compared(version, attempt)
        counted, inside = version.cache.read_statistics(), self._inside(version)
        service.pass_over(counted, inside)
        if found is None:
            return False
        if found.gain < LOSS:
            self.take_out(version, Verdict(Reason.NOT_FASTER, f"{found.gain:.2f} times as fast in service"))
            return True
        service.keeps(found.gain, found.pace, counted, running_seconds(self.process.pid), share)
        speeds = service.speeds(counted, inside)
        if service.original_per_iteration is not None and speeds is not None:
            service.original_per_iteration = speeds[0]
        return True

    def _take_turns_together(self, versions: list[Installed]) -> None:
        from memopt.session.measuring.ab_measurement import LOSS

        found = self._compared(versions[0], 1, versions[1:])
        for version in versions:
            version.service.pass_over(version.cache.read_statistics(), self._inside(version))
        if found is not None and found.gain < LOSS:
            for version in versions:
                self.take_out(version, Verdict(Reason.NOT_FASTER, f"{found.gain:.2f} times as fast in service, with "
                                                                  f"{len(versions) - 1} more"))

    def _inside(self, version: Installed) -> float:
        """Processor seconds in the code of ``version`` so far, by samples."""
        placement = version.compiled.placement
        return self.hotness.seconds(placement.code, placement.code + placement.code_size)

    def _compared(self, version: Installed, attempt: int, others: Sequence[Installed] = ()) -> Comparison | None:
        """The A/B measurement of a version, or of several together, against the original; None where it gives no
        result.
        """
        from memopt.session.measuring.ab_measurement import measured

        assert version.measurement is not None
        try:
            with others_first(), self.process.timer.stage("turns"):
                return measured(self.process.pid, version.cache, version.period, version.measurement.speedup, attempt,
                                [other.cache for other in others])
        except Exception as error:  # noqa: BLE001 - it goes on as it was
            say_internal(self.process.timer.name, error)
            return None
