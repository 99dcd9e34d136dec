"""Installed versions under watch: one that loses in service, or whose guard never holds, is taken out again.

The trial has measured the original; the version counts its own runs, iterations and time. What comes into the guard
and out of the version again costs time too, which the version's own clock does not see.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from memopt.ir.reasons import Reason
from runtime.patching.code_cache import Statistics

PASSAGE_SECONDS = 1e-6  # one run's guard, saved and restored vector state, and the way back
GAIN = 1.03
ENOUGH_SECONDS = 0.05  # of original work that a verdict must rest on
LOST_SECONDS, SURE_SECONDS = 0.03, 0.5  # lost, or of original work, before a version goes: a busy machine is no reason
ENOUGH_ENTRIES = 1024  # that all failed, before a guard counts as one that never holds
TICK_SECONDS = 50e-9  # a guard that fails
WATCH_SECONDS = 0.5  # in the version, from one look at its pace to the next; doubled by each that shows a loss
SLOWER = 1.1  # than it was while it took turns with the original


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a version is to be taken out. ``sizes``: it is for values that few entries come with."""

    reason: Reason
    detail: str
    sizes: bool = False


@dataclass
class Service:
    """One installed version; ``original_per_iteration``: seconds, None when there was no trial or iterations differ in
    length: entries with more iterations to go would then be taken for slower ones. What they gain is then taken to be
    ``speedup``, that of the trial. ``again``: a version for more values might be made instead of one that the original
    iterates more often than (an entry that fails is one iteration). ``period``: as in memopt.ir.region.Region.
    ``alone``: it touches what the original may pass over, for which the program must have one thread. ``turns``: how
    often it took turns with the original (memopt.session.improving.ab_measurement), and ``gain``, what came of it."""

    original_per_iteration: float | None
    began: tuple[float, float]  # elapsed and processor seconds of the program when it was last judged
    speedup: float | None = None
    again: bool = False
    period: int = 1
    alone: bool = False
    turns: int = 0
    gain: float | None = None
    _judged: Statistics = field(default=Statistics(0, 0, 0, 0))
    _pace: float | None = None
    _paced: Statistics = field(default=Statistics(0, 0, 0, 0))
    _watch: float = WATCH_SECONDS

    def judge(self, counted: Statistics, ticks_per_second: float, elapsed: float, processor: float,
              threads: int = 1) -> Verdict | None:
        """What happened since the last judgement says; None: it stays, or it is too early to tell.

        ``elapsed``: seconds on any clock, ``processor``: processor seconds of the program. The version's clock runs on
        while others have the processor; the part the program had of it is taken for the version's too. A run counts
        when it ends, with all its time: what lies before the last judgement is no part of this one.
        """
        if self.alone and threads > 1:
            return Verdict(Reason.THREADS, "they cannot be kept apart in this loop")
        entries, runs, iterations, cycles = (getattr(counted, f.name) - getattr(self._judged, f.name)
                                             for f in fields(Statistics))
        if counted.runs == 0 and entries >= ENOUGH_ENTRIES:
            return Verdict(Reason.GUARD_FAILED, f"{entries} entries, none with the values it was made for", True)
        # Every run comes back to the header, with too few iterations left for another one; it may begin late by some.
        others = entries - 2 * self.period * runs
        if self.again and others >= max(ENOUGH_ENTRIES, iterations):
            return Verdict(Reason.GUARD_FAILED, f"of the last {entries} entries {runs} had the values it was made for",
                           True)
        passed = max(1e-9, elapsed - self.began[0])
        share = min(1.0, (processor - self.began[1]) / passed)
        inside = share * min(cycles / ticks_per_second, passed)
        if self.original_per_iteration is not None:
            original = self.original_per_iteration * iterations
        elif self.speedup is not None:
            original = self.speedup * inside
        else:
            return None
        failed = max(0, entries - runs)
        if max(original, TICK_SECONDS * failed) < ENOUGH_SECONDS:
            return None
        version = inside + PASSAGE_SECONDS * runs + TICK_SECONDS * failed
        lost = version * GAIN - original
        if lost > 0 and (lost >= LOST_SECONDS or original >= SURE_SECONDS):
            return Verdict(Reason.NOT_FASTER, f"of the last {entries} entries {runs} had the values it was made for"
                           if failed > runs else f"{original / version:.2f} times as fast in service")
        if lost <= 0:
            self.pass_over(counted, elapsed, processor)
        return None

    def keeps(self, gain: float, pace: float, counted: Statistics) -> None:
        """It took turns with the original, and stays at ``pace``: seconds in it for each pass by the header."""
        self.gain, self._pace, self._paced = gain, pace, counted

    def slower(self, counted: Statistics, ticks_per_second: float) -> bool:
        """Whether what its turns have shown holds no longer: where memory is shared with others, its speed may change
        more than that of the original."""
        passes = counted.entries - self._paced.entries + self.period * (counted.iterations - self._paced.iterations)
        inside = (counted.cycles - self._paced.cycles) / ticks_per_second
        if self._pace is None or inside < self._watch:
            return False
        self._paced = counted
        slower = inside > SLOWER * self._pace * passes
        if slower:
            self._watch *= 2
        return slower

    def pass_over(self, counted: Statistics, elapsed: float, processor: float) -> None:
        """What happened up to now is judged, or says nothing of the version."""
        self._judged, self.began = counted, (elapsed, processor)
