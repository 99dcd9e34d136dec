"""Which hot address is taken up next, which loop around it is tried, and which loops are refused for good.

Example: samples fall into the innermost of three loops of a matrix product. The candidates are tried from the outermost
inwards; the first that can be replaced is. Where none can be, the loop that calls the function is tried.

In: ``Hotness``, samples of the process. Out: the decisions in ``History``, and the ``RunReport``. A loop has exactly
one decision in the end, an installed version or a typed refusal.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from memopt import __version__
from memopt.console import say_internal
from memopt.ir.reasons import Reason, Rejected
from memopt.report.model import LoopReport, RunReport, Stage, Tried
from memopt.session.improving.account import account
from memopt.session.improving.in_service import RETRIES, RETRY_SECONDS, InService
from memopt.session.improving.prefilter import around, worth_lifting
from memopt.session.improving.worker import Worker
from memopt.session.replacing import stages
from memopt.session.replacing.decision import (
    AT_ONCE,
    TRANSIENT,
    Attempt,
    Decision,
    Findings,
    Installed,
    Refused,
    loop_report,
    more_telling,
)
from memopt.session.replacing.history import History
from memopt.session.replacing.process import Process
from memopt.session.replacing.source import Sources
from runtime.patching import perf_map
from runtime.target.memory import Mapping, mappings

if TYPE_CHECKING:
    from memopt.ir.graph import Loop
    from memopt.ir.region import Guard
    from memopt.session.measuring.hotness import Hotness
    from memopt.session.replacing.site import Site

# memopt tries a hot address if at least 20 % of the time was spent in code that is not decided; 50 % once it has worked
# in vain for too long (VAIN_SECONDS).
LEAST_SHARE, MOST_SHARE = 0.2, 0.5
LONG_SECONDS = 0.5  # an outer loop whose attempt took longer is not tried again before the loops inside it
SAME_LOOKS = 3  # a loop whose sizes differ between entries is given up when the same guards have failed so often
EXPECTING_SECONDS = 2.0  # of the program, in which a loop with a stored plan is waited for with more looks
GONE_SAMPLES, GONE_SHARE = 300, 0.05  # in so many units of time, less than this share in the loop: it is left
# While no version is in service, memopt may work 1 s plus 20 % of the program's time before it counts as in vain.
VAIN_SECONDS, VAIN_SHARE = 1.0, 0.2

# Refusals after which no copy is kept. After all others it may run on to the next loop.
_NEW_COPY = TRANSIENT | {Reason.ENDED, Reason.COPY_COSTS, Reason.INTERNAL}

ReplaceLoop = Callable[[Process, "Site", "Loop", History], Installed]


class Improver:
    """Works on one hot address of a process at a time, in a thread of its own.

    ``replace_loop``: the function that is called for a loop, with the contract of ``stages.replace_loop``.
    ``short_looks``: how often a loop with inner loops is tried while it has too few iterations left (None: as often as
    a loop that is not reached).
    """

    def __init__(self, process: Process, worker: Worker | None = None, *, history: History | None = None,
                 replace_loop: ReplaceLoop = stages.replace_loop, short_looks: int | None = None) -> None:
        self.process = process
        self.worker = worker or Worker()
        self.history = history or History()
        self.history.given_up, self.history.copies.keep = self._left, True
        self.in_service = InService(process, self.history, self.worker.start, self)
        self.closed = False  # the program has ended, and memopt holds nothing of it any more
        self._replace_loop, self._short_looks = replace_loop, short_looks
        self._settled: list[tuple[int, int]] = []
        self._tries: dict[int, int] = {}
        self._spent = 0.0  # seconds of work on addresses, with or without success
        self._postponed: dict[int, Refused] = {}  # by address: what waits until a copy is worth its cost
        self._waiting: list[tuple[int, int]] = []  # the code around what was postponed, since a copy was worth it last
        self._current: Attempt | None = None
        self._hotness: Hotness | None = None
        self._before: dict[int, int] = {}  # the samples at the start of the current attempt
        self._sources = Sources()
        self._maps: tuple[Mapping, ...] = ()  # those with code, when a loop was looked at last
        self._look_at_code()

    @property
    def busy(self) -> bool:
        return self.worker.busy

    @property
    def decisions(self) -> list[Decision]:
        return self.history.decisions

    def consider(self, hotness: Hotness) -> bool:
        """Work on the hottest address that is not settled yet, or on a version in service; False when nothing is to be
        done.

        Precondition: not ``busy``.
        """
        self._hotness = self.in_service.hotness = hotness
        settled, self._settled = self._settled, []
        for refused in self.history.reopened:
            hotness.reopen(refused.ranges)
        if settled:
            hotness.settle(settled)
        self.in_service.adapt_chunks()
        if self.in_service.review() or self.in_service.unlock():
            return True
        known = self.history.known.come_to(hotness.recent, self._executable) if self.history.known.expecting else None
        if known is not None:
            self.worker.start(functools.partial(self.improve, known))
            return True
        address = hotness.hottest()
        if address is None or hotness.open_share < (MOST_SHARE if self._in_vain() else LEAST_SHARE):
            if self.history.copies.kept:
                self.worker.start(self.history.copies.drop)
                return False
            return self.in_service.hold()
        self.process.copies.at_stake = hotness.open_share
        if self._waits(address):
            return self.in_service.hold()
        job = self.improve if worth_lifting(self.process.pid, address) else self._pass_over
        self.worker.start(functools.partial(job, address))
        return True

    def _waits(self, address: int) -> bool:
        """Whether the loop around ``address`` was postponed, and a copy is not worth its cost yet."""
        if self._waiting and self.process.copies.enough(self.process.pid):
            self._waiting.clear()
        return any(low <= address < high for low, high in self._waiting)

    def _in_vain(self) -> bool:
        """Whether memopt has worked too long without a version in service: a program that gains nothing must not get
        much slower.
        """
        limit = VAIN_SECONDS + VAIN_SHARE * (time.monotonic() - self.process.started)
        return not self.history.installed and self._spent > limit

    @property
    def expecting(self) -> bool:
        """Whether the program may soon come to a loop that an earlier run has replaced. One that has not come to it for
        a while is no longer looked at more often than others."""
        return self.history.known.expecting and time.monotonic() - self.process.started < EXPECTING_SECONDS

    @property
    def _executable(self) -> tuple[tuple[int, int, int, str], ...]:
        return tuple((m.start, m.end, m.offset, m.path) for m in self._maps)

    def _look_at_code(self) -> None:
        """Note where code is mapped: the report is made when the program has ended."""
        with suppress(Rejected):
            self._maps = tuple(m for m in mappings(self.process.pid) if m.executable)

    # -- one address ----------------------------------------------------------------------------------------------

    def improve(self, address: int) -> None:
        """Decide about the loops around ``address``, and enter the decision in the history."""
        began = time.monotonic()
        self._look_at_code()
        self._before = {} if self._hotness is None else dict(self._hotness.samples)
        attempt = self._current = Attempt(address, ((address & -16, (address & -16) + 16),))
        decision = self.attempt(attempt)
        self.settle(decision)
        if isinstance(decision, Refused) and decision.reason is Reason.COPY_COSTS:
            self._waiting.append(around(address))
        self._current = None
        self._spent += time.monotonic() - began

    def _pass_over(self, address: int) -> None:
        """Settle a hot place with nothing to compute: it is reported, and never looked at again."""
        from memopt.session.replacing.site import find_site

        self._look_at_code()
        attempt = Attempt(address, (around(address),))
        with suppress(Rejected):
            attempt.site = find_site(self.process.pid, address)
            inner = attempt.site.loops[-1].header if attempt.site.loops else address
            attempt.source = self._sources.of_header(attempt.site, inner)
        self.settle(attempt.refused(Reason.NO_PLAN, "no arithmetic on memory in a loop", Findings()))

    def attempt(self, attempt: Attempt) -> Decision:
        """Try to replace a loop around the attempt's address; whatever fails inside, the program runs on."""
        from runtime.target.ptrace import TargetEnded

        process, history = self.process, self.history
        history.findings, attempt.decision = Findings(), None
        try:
            attempt.decision = installed = self._improve(attempt)
            compiled, history.named = installed.compiled, True
            perf_map.add(process.pid, compiled.placement.code, len(compiled.code),
                         installed.site.function or hex(compiled.region.header), compiled.plan.isa.value)
            if self.closed:
                perf_map.delete(process.pid)
        except Rejected as rejected:
            site = attempt.site
            statement = None if site is None else self._sources.statement(site, rejected.detail)
            attempt.decision = attempt.refused(rejected.reason, rejected.detail, history.findings, statement)
        except TargetEnded:
            attempt.decision = attempt.refused(Reason.ENDED, "", history.findings)
        except Exception as error:  # noqa: BLE001 - whatever fails inside, the program runs on
            text = " ".join(f"{process.timer.name}: {type(error).__name__}: {error}".split())
            attempt.decision = attempt.refused(Reason.INTERNAL, text, history.findings)
            say_internal(process.timer.name, error)
        finally:
            decided = attempt.decision
            if not isinstance(decided, Refused) or decided.reason in _NEW_COPY:
                history.copies.drop()
        return attempt.decision

    def settle(self, decision: Decision) -> None:
        """Enter ``decision`` in the history, unless its address is to be tried again."""
        reason = decision.reason if isinstance(decision, Refused) else None
        if reason is Reason.ENDED and decision.site is None:
            return
        self._postponed.pop(decision.address, None)
        if isinstance(decision, Refused) and reason is Reason.COPY_COSTS:
            self._postponed[decision.address] = decision
            return
        tries = self._tries.get(decision.address, 0) + 1
        self._tries[decision.address] = tries
        if reason in TRANSIENT and tries < RETRIES:
            time.sleep(RETRY_SECONDS * tries)
            return
        for old in [d for d in self.history.reopened if not set(d.ranges).isdisjoint(decision.ranges)]:
            self.history.reopened.remove(old)
            self.decisions.remove(old)
        self.decisions.append(decision)
        self._settled += decision.ranges
        if isinstance(decision, Installed):
            placement = decision.cache.placement
            self._settled.append((placement.code, placement.code + placement.code_size))

    def _left(self) -> bool:
        """Whether the program seems to have left the loop that is worked on.

        Example: a loop that sets up data runs only once. A shadow would not reach its header again,
        either.
        """
        if self._hotness is None or self._current is None:
            return False
        inside, total = self._hotness.since(self._before, self._current.ranges)
        return total >= GONE_SAMPLES and inside < GONE_SHARE * total

    def _improve(self, attempt: Attempt) -> Installed:
        """Replace the first candidate that can be replaced. Raises Rejected: of the candidates' refusals the most
        telling one.
        """
        from memopt.session.replacing.site import calls_of, find_site

        with self.process.timer.stage("find"):
            site = attempt.site = find_site(self.process.pid, attempt.address)
            attempt.source = self._sources.of_header(site, site.loops[-1].header if site.loops else attempt.address)
        attempt.tried.clear()
        if not site.loops:
            attempt.ranges += site.straight_line()
            if (installed := self._replace_around(attempt, site)) is not None:
                return installed
            if site.function and not calls_of(self.process.pid, site):
                raise Rejected(Reason.CALL, f"{site.function} is called through a pointer, or from elsewhere")
            raise Rejected(Reason.NOT_A_NEST, f"{attempt.address:#x} is in no loop")
        nest, attempt.ranges = site.decided(site.loops[-1])
        attempt.address, attempt.source = nest.header, self._sources.of_loop(site, nest)
        refusals: list[tuple[Loop, Rejected]] = []

        def left_alone(loop: Loop, why: Rejected) -> None:
            refusals.append((loop, why))
            self._note(attempt, site, loop, why, site.loops.index(loop))

        first = self.history.known.planned(site, site.loops)
        for loop in sorted(site.loops, key=lambda loop: loop is not first):
            known = self.history.refused.get(loop) or self.history.known.refusal(site, loop)
            if known is not None:
                self.history.refused[loop] = known
                left_alone(loop, known)
                continue
            began = time.monotonic()
            if self._left():
                raise Rejected(Reason.NOT_REACHED, "the program has left the loop")
            try:
                installed = self._replace_at_sizes(site, loop)
                return replace(installed, source=self._sources.of_loop(site, loop), tried=attempt.left_alone)
            except Rejected as rejected:
                most = RETRIES
                if loop is not site.loops[-1] and rejected.reason in (Reason.NOT_REACHED, Reason.TOO_SHORT):
                    most = self._most_tries(rejected.reason, time.monotonic() - began)
                again = rejected.reason in TRANSIENT and self._tries.get(attempt.address, 0) + 1 < most
                if again or rejected.reason in AT_ONCE:
                    raise  # a later attempt may succeed
                left_alone(loop, rejected)
                if rejected.reason not in TRANSIENT or most == 1:
                    self.history.refused[loop] = Rejected(rejected.reason, rejected.detail)
                    self.history.known.left_alone(site, loop, rejected)
            if loop is site.loops[0] and (installed := self._replace_around(attempt, site)) is not None:
                return installed
        own = [r for loop, r in refusals if loop.blocks <= nest.blocks]  # other refusals are of loops around the nest
        raise functools.reduce(more_telling, own or [r for _, r in refusals])

    def _note(self, attempt: Attempt, site: Site, loop: Loop, why: Rejected, order: int) -> None:
        """Note that ``loop``, a candidate of ``site``, was left alone. ``order``: larger for loops further in."""
        attempt.tried[order] = Tried(loop.header, site.function, self._sources.of_loop(site, loop), why.reason,
                                     why.detail, self._sources.statement(site, why.detail), site.code_at(loop.header))

    def _most_tries(self, reason: Reason, seconds: float) -> int:
        """How often an outer loop is tried when the last try took so long: it may never have more iterations."""
        if reason is Reason.TOO_SHORT and self._short_looks is not None:
            return self._short_looks
        return 2 if seconds < LONG_SECONDS else 1

    def _replace_around(self, attempt: Attempt, site: Site) -> Installed | None:
        """A version of a loop that calls the function of ``site``, and nothing that is not understood; None where there
        is no such loop, or it is refused."""
        from memopt.session.replacing.site import calling

        around = calling(self.process.pid, site)
        if around is None:
            return None
        for order, loop in enumerate(around.loops, -len(around.loops)):
            if loop in self.history.refused:
                self._note(attempt, around, loop, self.history.refused[loop], order)
                continue
            attempt.site = around
            try:
                installed = self._replace_at_sizes(around, loop)
            except Rejected as rejected:
                self._note(attempt, around, loop, rejected, order)
                attempt.site, self.history.findings = site, Findings()
                again = rejected.reason in TRANSIENT and not self._tries.get(attempt.address, 0)
                if again or rejected.reason in (Reason.ENDED, Reason.COPY_COSTS):
                    raise
                if rejected.reason not in TRANSIENT:
                    self.history.refused[loop] = Rejected(rejected.reason, rejected.detail)
            else:
                return replace(installed, ranges=installed.ranges + attempt.ranges,
                               source=self._sources.of_loop(around, loop), tried=attempt.left_alone)
        return None

    def _replace_at_sizes(self, site: Site, loop: Loop) -> Installed:
        """``replace_loop``, repeated where guards fail at another entry: the next version is for all sizes seen so far.
        A refusal says nothing about code that has changed meanwhile: then it is CODE_CHANGED.
        """
        from memopt.session.replacing.site import changed

        history = self.history
        failed: list[tuple[Guard, ...]] = []
        while True:
            try:
                return self._replace_loop(self.process, site, loop, history)
            except Rejected as rejected:
                if rejected.reason not in TRANSIENT | AT_ONCE and changed(self.process.pid, site):
                    raise Rejected(Reason.CODE_CHANGED, "while memopt worked on it") from rejected
                found = history.findings
                failed.append(found.guards)
                if (rejected.reason is not Reason.GUARD_FAILED or failed.count(found.guards) == SAME_LOOKS
                        or not history.look_again(loop.header, found.entry)):
                    raise
                history.copies.leave(site.exits(loop))

    @property
    def unfinished(self) -> Attempt | None:
        """The attempt that was not settled when the program ended, if there is one."""
        current = self._current
        return None if current is None or current.site is None or current.decision in self.decisions else current

    # -- reporting ----------------------------------------------------------------------------------------------

    def report(self, hotness: Hotness, notes: tuple[str, ...], program: tuple[str, ...]) -> RunReport:
        """The report on all loops, once the program has ended."""
        decisions, process = list(self.decisions), self.process
        if (current := self.unfinished) is not None:
            decisions.append(current.decision or current.refused(Reason.ENDED, "", self.history.findings))
        decisions += [d for d in self._postponed.values() if d.address not in {x.address for x in decisions}]
        loops = [loop_report(d, hotness, process.started) for d in decisions]
        notes = (*notes, *self.history.known.notes)
        if (count := self.history.known.refused) and process.options.verbose:
            whom = "1 loop was" if count == 1 else f"{count} loops were"
            notes = (*notes, f"{whom} left alone as in earlier runs, without another look")
        found, unlooked = account(hotness.samples, decisions, tuple(hotness.settled), self._maps, self._sources,
                                  LEAST_SHARE)
        if self.history.left:
            notes = (*notes, (f"{self.history.left >> 10} KiB of code that was taken out stay in the program until it "
                             "ends: a suspended context may still stand there"))
        seconds = tuple(Stage(n, s) for n, s in list(process.timer.seconds.items()))
        elapsed = time.monotonic() - process.started
        return RunReport(__version__, program, (*loops, *unlooked), seconds, notes, elapsed,
                         sum(hotness.samples.values()), account=found,
                         seconds_without=self._without(loops, elapsed))

    def _without(self, loops: Sequence[LoopReport], elapsed: float) -> float:
        """Seconds that the run would have taken without memopt: iterations cost what the original takes for them, and
        the program never stands still for memopt, nor copies pages for it. What others have of its processor is not
        known: all is processor time, as if the program had one for itself."""
        gained = sum(x.iterations_run * (x.seconds_per_iteration_before - x.seconds_per_iteration_after) for x in loops
                     if x.seconds_per_iteration_before is not None and x.seconds_per_iteration_after is not None)
        return max(0.0, elapsed + gained - self.process.copies.spent - self.process.timer.stopped)

    def keep(self) -> None:
        """Leave what was found out to later runs."""
        try:
            self.history.known.write()
        except Exception as error:  # noqa: BLE001 - the program's end must still become memopt's
            say_internal("plans", error)

    def close(self) -> None:
        """The program has ended: give up what memopt still holds of it.

        Imports nothing: the thread may have been given up in the middle of an import (``Worker.give_up``)."""
        self.closed = True
        if self.history.named:
            perf_map.delete(self.process.pid)
