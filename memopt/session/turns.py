"""What a program gains by a version, measured in service: it rests for a moment, then it runs again, in turns.

A trial runs the original first, in a copy: where operands lie in the last level of cache, it brings them there for the
version, which then seems faster than it will be. Here both run where they will run. What counts is how often the
program comes by the header per second of its own processor time, the iterations of the version included, so that what
else it does is in both figures. Invariant: the version runs again when this ends, however it ends.

Nothing is stopped: a version whose limit is zero passes every entry on to the original.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import mean, median

from memopt.ir.code import FRAME_LIMIT
from memopt.ir.reasons import Rejected
from memopt.session.service import ticks_per_second
from runtime.codecache import NO_LIMIT, CodeCache
from runtime.memory import Memory
from runtime.processes import processor_seconds

LEAST_RUNS = 20  # of the version in a turn: less would be no average
TURN_SECONDS, LONGEST_TURN_SECONDS = 0.025, 0.1  # of the version, or of the original
TICK_SECONDS = 0.005  # between two looks of the kernel at what a process uses, at least
LONGEST_RUN_SECONDS = 0.03  # of the original: it cannot be called back
LEAST_PASS_SECONDS = 0.15e-6  # of the original from header to header
RESTING_SECONDS = 5e-9  # what a pass takes longer because it comes by a version that rests
CLEAR = 1.3  # a gain that one turn shows
LEAST_TURNS, MOST_TURNS = 5, 8
LOSS = 0.98  # of the middle turn, where nearly all lose
STEADY = 1.3  # between the shares of the time that turns of the version spend in it: more, and the program has phases


@dataclass(frozen=True, slots=True)
class Turn:
    """``passes`` by the header in ``seconds`` of the program, of which ``inside`` were spent in the version."""

    passes: int
    seconds: float
    inside: float = 0.0

    @property
    def rate(self) -> float:
        return self.passes / self.seconds


def gain(turns: Callable[[bool], Turn]) -> float | None:
    """The program's speed with the version over that without it, None where turns do not tell or do not agree.

    ``turns``: has the version rest or not for another turn. A clear gain takes one turn of the original, no more.
    """
    versions, ratios = [turns(False)], list[float]()
    while len(ratios) < MOST_TURNS:
        original = turns(True)
        versions.append(turns(False))
        shares = [turn.inside / turn.seconds for turn in versions]
        if not original.passes or min(shares) * STEADY < max(shares):
            return None
        ratios.append(mean(turn.rate for turn in versions[-2:]) / original.rate)
        if ratios[0] >= CLEAR or (len(ratios) >= LEAST_TURNS and _agreed(ratios)):
            break
    return median(ratios) if ratios[0] >= CLEAR or _agreed(ratios) else None


def _agreed(ratios: list[float]) -> bool:
    """All turns but one, out of eight or less, say the same."""
    won = sum(ratio > 1 for ratio in ratios)
    return won <= len(ratios) // 8 or won >= len(ratios) - len(ratios) // 8


def measured(pid: int, cache: CodeCache, period: int, won: float, attempt: int) -> float | None:
    """``gain`` of a version that is in service in ``pid``. ``period``: passes by the header for one iteration
    (memopt.ir.region.Region); ``won``: what the trial says of the gain; ``attempt``: from 1 on, with turns twice
    as long each time, which phases of the program may fit into. None also where runs are too far apart or take
    too long, or iterations of the original too short, and when the program ended."""
    apart = _seconds_apart(pid, cache)
    if apart is None or apart * won > LONGEST_RUN_SECONDS:
        return None
    length = max(TURN_SECONDS * 2 ** (attempt - 1), LEAST_RUNS * apart)
    with suppress(Rejected, OSError), _resting(pid, cache) as rest:
        def turn(resting: bool) -> Turn:
            rest(resting)
            _until_run_ends(cache, apart, resting)
            first, before, since = cache.read_statistics(), processor_seconds(pid), time.monotonic()
            time.sleep(length)
            if not resting:
                _until_run_ends(cache, apart, resting)
            last, after, now = cache.read_statistics(), processor_seconds(pid), time.monotonic()
            passes = last.entries - first.entries
            spent = _finer(after - before, now - since) - (RESTING_SECONDS * passes if resting else 0.0)
            if resting and passes and spent / passes < LEAST_PASS_SECONDS:
                passes = 0
            return Turn(passes + period * (last.iterations - first.iterations), max(spent, 1e-9),
                        (last.cycles - first.cycles) / ticks_per_second())

        return gain(turn)
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


def _until_run_ends(cache: CodeCache, apart: float, resting: bool) -> None:
    """A run counts when it ends. Returns then, or when it must have ended, the next one not beginning."""
    runs, deadline = cache.read_statistics().runs, time.monotonic() + 2 * apart
    while time.monotonic() < deadline and (resting or cache.read_statistics().runs == runs):
        time.sleep(apart / 16)


@contextmanager
def _resting(pid: int, cache: CodeCache) -> Iterator[Callable[[bool], None]]:
    memory, limit = Memory(pid), cache.placement.frame + FRAME_LIMIT

    def rest(resting: bool) -> None:
        memory.write(limit, (0 if resting else NO_LIMIT).to_bytes(8, "little"))

    try:
        yield rest
    finally:
        with suppress(Rejected):
            rest(False)
        memory.close()
