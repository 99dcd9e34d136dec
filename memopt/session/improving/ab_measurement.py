"""What a program gains by a version, measured in service: it rests for a moment, then it runs again, in turns.

A trial runs the original first, in a copy: where operands lie in the last level of cache, it brings them there for the
version, which then seems faster than it will be. Here both run where they will run. What counts is how often the
program comes by the header per second of its own processor time, the iterations of the version included, so that what
else it does is in both figures. A turn is as long as many runs together, or one whole run where these are far apart.
Invariant: the version runs again when this ends, however it ends.

Nothing is stopped: a version whose limit is zero passes every entry on to the original.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from statistics import mean, median, quantiles

from memopt.ir.code import FRAME_LIMIT
from memopt.ir.reasons import Reason, Rejected
from memopt.machine.tsc import ticks_per_second
from runtime.patching.code_cache import NO_LIMIT, CodeCache, Statistics
from runtime.target.memory import Memory
from runtime.target.proc import processor_seconds

LEAST_RUNS = 20  # of the version in a turn: less would be no average
LEAST_PASSES = 20  # passes by the header in a run that is a turn: the version comes in at the second one
TURN_SECONDS, LONGEST_TURN_SECONDS = 0.05, 0.1  # of the version, or of the original
LOOKS = 1000  # at the counters, from run to run: where a turn ends must be seen at once
TICK_SECONDS = 0.005  # between two looks of the kernel at what a process uses, at least
LONGEST_RUN_SECONDS = 0.03  # of the original: it cannot be called back
DOUBTFUL, DOUBTFUL_RUN_SECONDS = 2.0, 0.3  # the same, where a trial has shown no more: it may be nothing
LEAST_PASS_SECONDS = 0.15e-6  # of the original from header to header
RESTING_SECONDS = 5e-9  # what a pass takes longer because it comes by a version that rests
CLEAR = 1.5  # a gain that one turn shows
AHEAD, MOST_INTERVALS = 5, 24  # won more than lost, or lost more than won: a sequential sign test (Wald 1945)
LOSS = 0.98  # of the middle turn
STEADY = 1.3  # of the time that turns of the version spend in it, upper quartile over lower: more, and there are phases


@dataclass(frozen=True, slots=True)
class Interval:
    """``passes`` by the header in ``seconds`` of the program, of which ``inside`` were spent in the version."""

    passes: int
    seconds: float
    inside: float = 0.0

    @property
    def rate(self) -> float:
        return self.passes / self.seconds


@dataclass(frozen=True, slots=True)
class Comparison:
    """``gain``: the program's speed with the version over that without it. ``pace``: seconds in the version a pass."""

    gain: float
    pace: float


def comparison(turns: Callable[[bool], Interval]) -> Comparison | None:
    """What comes of turns, None where they do not tell.

    ``turns``: has the version rest or not for another turn. A clear gain takes one turn of the original, no more. Where
    memory is shared with others a turn says little, so there are as many as tell which one is ahead, or that they are
    about as good.
    """
    versions, ratios, ahead = [turns(False)], list[float](), 0
    while len(ratios) < MOST_INTERVALS and abs(ahead) < AHEAD:
        original = turns(True)
        versions.append(turns(False))
        if not original.passes:
            return None
        ratios.append(mean(turn.rate for turn in versions[-2:]) / original.rate)
        ahead += 1 if ratios[-1] > 1 else -1
        if ratios[0] >= CLEAR:
            break
    low, _, high = quantiles((turn.inside / turn.seconds for turn in versions), n=4, method="inclusive")
    if low * STEADY < high:
        return None
    return Comparison(median(ratios), median(turn.inside / max(1, turn.passes) for turn in versions))


def measured(pid: int, cache: CodeCache, period: int, won: float, attempt: int,
             beside: Sequence[CodeCache] = ()) -> Comparison | None:
    """``comparison`` of a version that is in service in ``pid``, and of those ``beside`` it, which rest when it does:
    versions that share memory may each be better off for the other, and both worse than the originals.

    ``period``: passes by the header for one iteration (memopt.ir.region.Region); ``won``: what the trial says of the
    gain; ``attempt``: from 1 on, with turns twice as long each time, which phases of the program may fit into. None
    also where runs are too far apart or take too long, or iterations of the original too short, and when the program
    ended."""
    apart = _seconds_apart(pid, cache)
    if apart is None or apart * won > (LONGEST_RUN_SECONDS if won > DOUBTFUL else DOUBTFUL_RUN_SECONDS):
        return None
    with suppress(Rejected, OSError), _resting(pid, (cache, *beside)) as rest:
        turns = _Turns(pid, cache, period, apart, rest)
        if LEAST_RUNS * apart > LONGEST_TURN_SECONDS:
            turns.begin()
            return comparison(turns.whole)
        length = max(TURN_SECONDS * 2 ** (attempt - 1), LEAST_RUNS * apart)
        return comparison(lambda resting: turns.many(resting, length))
    return None


@dataclass
class _Turns:
    """How turns are taken. ``apart``: processor seconds from run to run; ``rest``: sets whether the version rests from
    the next pass by the header on, a run that has begun being none."""

    pid: int
    cache: CodeCache
    period: int
    apart: float
    rest: Callable[[bool], None]
    _run: int = 0  # passes by the header in a whole one

    def many(self, resting: bool, seconds: float) -> Interval:
        """As many runs as there are. Programs do other things in between: a turn that begins or ends there is not like
        one that does not, so all begin and end where the loop comes by."""
        self.rest(resting)
        self._until(self._comes(resting), LONGEST_TURN_SECONDS)
        since = self._look()
        time.sleep(seconds)
        self._until(self._comes(resting), LONGEST_TURN_SECONDS)
        turn = self._turn(since)
        if not resting:
            return turn
        turn = replace(turn, seconds=max(turn.seconds - RESTING_SECONDS * turn.passes, 1e-9))
        return turn if turn.seconds >= LEAST_PASS_SECONDS * turn.passes else replace(turn, passes=0)

    def begin(self) -> None:
        """Before ``whole`` turns, which are of one run each, from the first pass by the header to that of the next: at
        the end of this the original has come there. Raises Rejected where that takes too long, or runs are short."""
        self._must_come(self._comes(False))
        first = self._look()
        self._must_come(self._comes(False))
        second = self._look()
        self._run = self._passes(first.counted, second.counted)
        if self._run < LEAST_PASSES:
            raise Rejected(Reason.NOT_REACHED)
        left_over = second.counted.entries - first.counted.entries - 1
        self._rest_after_next(second)
        self._must_come(lambda: self._ended(second))
        third = self._look()
        self._must_come(lambda: self._passed(third) > left_over)

    def whole(self, resting: bool) -> Interval:
        """A run; its iterations need not be alike. Raises Rejected where that takes too long, or runs differ."""
        since = self._look()
        if not resting:
            self.rest(False)
            self._rest_after_next(since)
        self._must_come(lambda: self._passed(since) >= self._run)
        if self._ended(since) == resting:
            raise Rejected(Reason.NOT_REACHED)
        return self._turn(since)

    def _rest_after_next(self, since: _Look) -> None:
        """The next run of the version is to be its last for the time being."""
        self._must_come(lambda: self.cache.read_statistics().runs > since.counted.runs)
        self.rest(True)

    def _ended(self, since: _Look) -> bool:
        return self.cache.read_statistics().iterations > since.counted.iterations

    def _look(self) -> _Look:
        return _Look.at(self.pid, self.cache)

    def _turn(self, since: _Look) -> Interval:
        now = self._look()
        inside = (now.counted.cycles - since.counted.cycles) / ticks_per_second()
        return Interval(self._passes(since.counted, now.counted), max(now.spent(since), 1e-9), inside)

    def _passed(self, since: _Look) -> int:
        return self._passes(since.counted, self.cache.read_statistics())

    def _passes(self, first: Statistics, last: Statistics) -> int:
        return last.entries - first.entries + self.period * (last.iterations - first.iterations)

    def _comes(self, resting: bool) -> Callable[[], bool]:
        """Whether the original has come by the header, or the version ended a run, since this was asked for: the
        iterations of a run count when it ends."""
        def seen() -> int:
            counted = self.cache.read_statistics()
            return counted.entries if resting else counted.iterations

        before = seen()
        return lambda: seen() != before

    def _until(self, seen: Callable[[], bool], patience: float) -> bool:
        return _seen_within(patience, seen, self.apart / LOOKS)

    def _must_come(self, seen: Callable[[], bool]) -> None:
        if not self._until(seen, LONGEST_TURN_SECONDS + 4 * self.apart):
            raise Rejected(Reason.NOT_REACHED)


@dataclass(frozen=True, slots=True)
class _Look:
    """What a version has counted, and seconds: those that the program has used, and those of the clock."""

    counted: Statistics
    processor: float
    elapsed: float

    @staticmethod
    def at(pid: int, cache: CodeCache) -> _Look:
        return _Look(cache.read_statistics(), processor_seconds(pid), time.monotonic())

    def spent(self, since: _Look) -> float:
        return _finer(self.processor - since.processor, self.elapsed - since.elapsed)


def _seen_within(patience: float, seen: Callable[[], bool], pause: float) -> bool:
    """Whether ``seen`` within so many seconds; ``pause``: from one look to the next."""
    deadline = time.monotonic() + patience
    while not (found := seen()) and time.monotonic() < deadline:
        time.sleep(pause)
    return found


def _finer(used: float, passed: float) -> float:
    """Of another process the kernel tells processor time to a tick only. Where that much has passed, it is as long as
    what has passed."""
    return passed if abs(used - passed) <= TICK_SECONDS else used


def _seconds_apart(pid: int, cache: CodeCache) -> float | None:
    """Processor seconds from run to run, None when they are too many."""
    def runs() -> int:
        return cache.read_statistics().runs

    def next_run() -> _Look:
        before = runs()
        _seen_within(DOUBTFUL_RUN_SECONDS, lambda: runs() > before, TICK_SECONDS / 5)
        return _Look.at(pid, cache)

    first = next_run()
    time.sleep(TURN_SECONDS)
    last = next_run()
    between = last.counted.runs - first.counted.runs
    return last.spent(first) / between if between else None


@contextmanager
def _resting(pid: int, caches: Sequence[CodeCache]) -> Iterator[Callable[[bool], None]]:
    memory = Memory(pid)

    def rest(resting: bool) -> None:
        for cache in caches:
            memory.write(cache.placement.frame + FRAME_LIMIT, (0 if resting else NO_LIMIT).to_bytes(8, "little"))

    try:
        yield rest
    finally:
        with suppress(Rejected):
            rest(False)
        memory.close()
