"""A/B measurement of an installed version: it and the original take turns in the running program.

Example: for 50 ms the version runs, for 50 ms the original, and so on. The program passes the header 2.0 million times
a second with the version and 1.9 million times without it: the gain is 1.05.

In: a process, the counters of an installed version. Out: a ``Comparison``, or None where turns give no result. Passes
by the header, the iterations of the version included, are counted per second of the program's own processor time. So
both rates include the other work of the program. A turn is many runs of the version, or one whole run where runs are
far apart. Nothing is stopped: a version whose limit is zero passes every entry on to the original. The version runs
again when the measurement ends, however it ends.

Why not the trial alone: it runs the original first, in a copy. Where operands lie in the last level of cache, the
original brings them there for the version, which then seems faster than it will be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from statistics import mean, median, quantiles

from memopt.ir.code import FRAME_BUSY, FRAME_LIMIT, FRAME_RETIRED
from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected
from runtime.patching.code_cache import NO_LIMIT, CodeCache, Statistics
from runtime.target.memory import Memory
from runtime.target.proc import processor_seconds

LEAST_RUNS = 20  # of the version in a turn: fewer would be no average
LEAST_PASSES = 20  # passes by the header in a run that is a turn: the version comes in at the second one
TURN_SECONDS, LONGEST_TURN_SECONDS = 0.05, 0.1  # of the version, or of the original
LOOKS = 1000  # at the counters, from run to run: the end of a turn must be seen at once
TICK_SECONDS = 0.005  # the kernel counts the processor time of another process in ticks of about this length
LONGEST_RUN_SECONDS = 0.03  # of the original: a run that has begun cannot be ended
DOUBTFUL, DOUBTFUL_RUN_SECONDS = 2.0, 0.3  # a speedup up to this in the trial may be none: runs may be this long
LEAST_PASS_SECONDS = 0.15e-6  # of the original from header to header
RESTING_SECONDS = 5e-9  # by which a version that rests makes a pass longer
CLEAR = 1.5  # a gain that one turn shows
AHEAD, MOST_INTERVALS = 5, 24  # turns won minus turns lost that decide; most turns: a sequential sign test (Wald 1945)
LOSS = 0.98  # a median gain below this is a loss
# Upper over lower quartile of the rates of turns of the version, and of the parts that it covers: a larger ratio means
# that there are phases.
STEADY = 1.3


@dataclass(frozen=True, slots=True)
class Interval:
    """A turn: ``passes`` by the header in ``seconds`` of the program, of which ``covered`` (0 to 1) were iterations of
    the version."""

    passes: int
    seconds: float
    covered: float = 0.0

    @property
    def rate(self) -> float:
        return self.passes / self.seconds


@dataclass(frozen=True, slots=True)
class Comparison:
    """``gain``: the program's speed with the version over that without it. ``pace``: seconds of the program for each
    pass by the header while the version is in service."""

    gain: float
    pace: float


def comparison(turns: Callable[[bool], Interval]) -> Comparison | None:
    """The result of turns; None where they give none: the original does not reach the header, or the program has
    phases.

    ``turns``: takes another turn, in which the version rests if the argument is True. A clear gain takes one turn of
    the original only. Where memory is shared with other processes one turn says little. So turns go on until one side
    is clearly ahead, or ``MOST_INTERVALS`` show that both are about as good.
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
    if not (_steady(turn.rate for turn in versions) and _steady(turn.covered for turn in versions)):
        return None
    return Comparison(median(ratios), median(turn.seconds / max(1, turn.passes) for turn in versions))


def _steady(values: Iterable[float]) -> bool:
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low * STEADY >= high


def measured(pid: int, cache: CodeCache, period: int, won: float, attempt: int,
             beside: Sequence[CodeCache] = ()) -> Comparison | None:
    """``comparison`` of a version that is in service in ``pid``. The versions ``beside`` it rest when it does: of two
    versions that share memory, each may gain from the other, while both together are slower than the originals.

    ``period``: passes by the header for one iteration (memopt.ir.region.Region). ``won``: the speedup in the trial.
    ``attempt``: from 1 on; turns are twice as long each time, so that phases of the program may fit into them. Also
    None where runs are too far apart or take too long, where iterations of the original are too short, and where the
    program has ended."""
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
    """Takes turns. ``apart``: processor seconds from run to run. ``rest``: sets whether the version rests from
    the next pass by the header on; a run that has begun goes on."""

    pid: int
    cache: CodeCache
    period: int
    apart: float
    rest: Callable[[bool], None]
    _run: int = 0  # passes by the header in a whole one

    def many(self, resting: bool, seconds: float) -> Interval:
        """A turn of ``seconds`` and the runs in it. It begins and ends at a pass by the header, so that each turn
        contains whole periods of runs and other work.
        """
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
        """Get ready for ``whole`` turns: the original has just come to the first pass by the header of a run.

        Raises Rejected where that takes too long, or runs have few passes."""
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
        """A turn of one run, from its first pass by the header to that of the next run; iterations need not be alike.

        Raises Rejected where that takes too long, or runs differ in length."""
        since = self._look()
        if not resting:
            self.rest(False)
            self._rest_after_next(since)
        self._must_come(lambda: self._passed(since) >= self._run)
        if self._ended(since) == resting:
            raise Rejected(Reason.NOT_REACHED)
        return self._turn(since)

    def _rest_after_next(self, since: _Look) -> None:
        """Let the version begin one more run, then rest."""
        self._must_come(lambda: self.cache.read_statistics().runs > since.counted.runs)
        self.rest(True)

    def _ended(self, since: _Look) -> bool:
        return self.cache.read_statistics().iterations > since.counted.iterations

    def _look(self) -> _Look:
        return _Look.at(self.pid, self.cache)

    def _turn(self, since: _Look) -> Interval:
        now = self._look()
        passes = self._passes(since.counted, now.counted)
        iterations = self.period * (now.counted.iterations - since.counted.iterations)
        return Interval(passes, max(now.spent(since), 1e-9), iterations / max(1, passes))

    def _passed(self, since: _Look) -> int:
        return self._passes(since.counted, self.cache.read_statistics())

    def _passes(self, first: Statistics, last: Statistics) -> int:
        return last.entries - first.entries + self.period * (last.iterations - first.iterations)

    def _comes(self, resting: bool) -> Callable[[], bool]:
        """A predicate: has the original passed the header, or has the version ended a run, since this call? (The
        iterations of a run count when it ends.)"""
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
    """The counters of a version at one moment, with the program's processor seconds and those of the clock."""

    counted: Statistics
    processor: float
    elapsed: float

    @staticmethod
    def at(pid: int, cache: CodeCache) -> _Look:
        return _Look(cache.read_statistics(), processor_seconds(pid), time.monotonic())

    def spent(self, since: _Look) -> float:
        return _finer(self.processor - since.processor, self.elapsed - since.elapsed)


def _seen_within(patience: float, seen: Callable[[], bool], pause: float) -> bool:
    """Whether ``seen`` gets true within ``patience`` seconds. ``pause``: seconds from one question to the next."""
    deadline = time.monotonic() + patience
    while not (found := seen()) and time.monotonic() < deadline:
        time.sleep(pause)
    return found


def _finer(used: float, passed: float) -> float:
    """Processor seconds: ``used``, unless it equals the elapsed time ``passed`` up to a clock tick.

    The kernel tells the processor time of another process in ticks only; the elapsed time is more precise then."""
    return passed if abs(used - passed) <= TICK_SECONDS else used


def _seconds_apart(pid: int, cache: CodeCache) -> float | None:
    """Processor seconds from run to run, None where no run comes in time."""
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
            if memory.word(cache.placement.frame + FRAME_BUSY) == FRAME_RETIRED:  # another memopt has taken it out
                continue
            memory.write(cache.placement.frame + FRAME_LIMIT, (0 if resting else NO_LIMIT).to_bytes(8, "little"))

    try:
        yield rest
    finally:
        with suppress(Rejected):
            rest(False)
        memory.close()
