"""What a program gains by a version, measured in service: it rests for a moment, then it runs again, in turns.

A trial runs the original first, in a copy: where operands lie in the last level of cache, it brings them there for the
version, which then seems faster than it will be. Here both run where they will run. What counts is how often the
program comes by the header per second of its own processor time, the iterations of the version included, so that what
else it does is in both figures. Invariant: the version runs again when this ends, however it ends.

Nothing is stopped: a version whose limit is zero passes every entry on to the original.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import mean, median, quantiles

from memopt.ir.code import FRAME_LIMIT
from memopt.ir.reasons import Rejected
from memopt.session.service import ticks_per_second
from runtime.codecache import NO_LIMIT, CodeCache
from runtime.memory import Memory
from runtime.processes import processor_seconds

LEAST_RUNS = 20  # of the version in a turn: less would be no average
TURN_SECONDS, LONGEST_TURN_SECONDS = 0.05, 0.1  # of the version, or of the original
TICK_SECONDS = 0.005  # between two looks of the kernel at what a process uses, at least
LONGEST_RUN_SECONDS = 0.03  # of the original: it cannot be called back
LEAST_PASS_SECONDS = 0.15e-6  # of the original from header to header
RESTING_SECONDS = 5e-9  # what a pass takes longer because it comes by a version that rests
CLEAR = 1.5  # a gain that one turn shows
AHEAD, MOST_TURNS = 5, 24  # won more than lost, or lost more than won: a sequential sign test (Wald 1945)
LOSS = 0.98  # of the middle turn
STEADY = 1.3  # of the time that turns of the version spend in it, upper quartile over lower: more, and there are phases


@dataclass(frozen=True, slots=True)
class Turn:
    """``passes`` by the header in ``seconds`` of the program, of which ``inside`` were spent in the version."""

    passes: int
    seconds: float
    inside: float = 0.0

    @property
    def rate(self) -> float:
        return self.passes / self.seconds


@dataclass(frozen=True, slots=True)
class Outcome:
    """``gain``: the program's speed with the version over that without it. ``pace``: seconds in the version a pass."""

    gain: float
    pace: float


def outcome(turns: Callable[[bool], Turn]) -> Outcome | None:
    """What comes of turns, None where they do not tell.

    ``turns``: has the version rest or not for another turn. A clear gain takes one turn of the original, no more. Where
    memory is shared with others a turn says little, so there are as many as tell which one is ahead, or that they are
    about as good.
    """
    versions, ratios, ahead = [turns(False)], list[float](), 0
    while len(ratios) < MOST_TURNS and abs(ahead) < AHEAD:
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
    return Outcome(median(ratios), median(turn.inside / max(1, turn.passes) for turn in versions))


def measured(pid: int, cache: CodeCache, period: int, won: float, attempt: int,
             beside: Sequence[CodeCache] = ()) -> Outcome | None:
    """``outcome`` of a version that is in service in ``pid``, and of those ``beside`` it, which rest when it does:
    versions that share memory may each be better off for the other, and both worse than the originals.

    ``period``: passes by the header for one iteration (memopt.ir.region.Region); ``won``: what the trial says of the
    gain; ``attempt``: from 1 on, with turns twice as long each time, which phases of the program may fit into. None
    also where runs are too far apart or take too long, or iterations of the original too short, and when the program
    ended."""
    apart = _seconds_apart(pid, cache)
    if apart is None or apart * won > LONGEST_RUN_SECONDS:
        return None
    length = max(TURN_SECONDS * 2 ** (attempt - 1), LEAST_RUNS * apart)
    with suppress(Rejected, OSError), _resting(pid, (cache, *beside)) as rest:
        def turn(resting: bool) -> Turn:
            rest(resting)
            _until_it_comes(cache, apart, resting)
            first, before, since = cache.read_statistics(), processor_seconds(pid), time.monotonic()
            time.sleep(length)
            _until_it_comes(cache, apart, resting)
            last, after, now = cache.read_statistics(), processor_seconds(pid), time.monotonic()
            passes = last.entries - first.entries
            spent = _finer(after - before, now - since) - (RESTING_SECONDS * passes if resting else 0.0)
            if resting and passes and spent / passes < LEAST_PASS_SECONDS:
                passes = 0
            return Turn(passes + period * (last.iterations - first.iterations), max(spent, 1e-9),
                        (last.cycles - first.cycles) / ticks_per_second())

        return outcome(turn)
    return None


def _finer(used: float, passed: float) -> float:
    """Of another process the kernel tells processor time to a tick only. Where that much has passed, it is as long as
    what has passed."""
    return passed if abs(used - passed) <= TICK_SECONDS else used


def _seconds_apart(pid: int, cache: CodeCache) -> float | None:
    """Processor seconds from run to run, None when they are too many."""
    runs, seconds = cache.read_statistics().runs, processor_seconds(pid)
    time.sleep(TURN_SECONDS)
    runs, seconds = cache.read_statistics().runs - runs, processor_seconds(pid) - seconds
    return seconds / runs if 0 < LEAST_RUNS * seconds <= runs * LONGEST_TURN_SECONDS else None


def _until_it_comes(cache: CodeCache, apart: float, resting: bool) -> None:
    """Until the version ends a run, or the original comes by the header: programs do other things in between, and a
    turn that begins or ends there is not like one that does not. A run counts when it ends."""
    def seen() -> int:
        counted = cache.read_statistics()
        return counted.entries if resting else counted.runs

    before, deadline = seen(), time.monotonic() + LONGEST_TURN_SECONDS
    while seen() == before and time.monotonic() < deadline:
        time.sleep(apart / 16)


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
