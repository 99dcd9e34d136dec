"""The verdict on an installed version: it stays, or it is taken out because it loses or its guard never holds.

Example: the trial measured 100 us per iteration of the original. The version has run 10,000 iterations in 1.6 s since
the last verdict, for which the original needs 1.0 s: it is taken out.

In: the version's counters of entries, runs and iterations, and the samples that fell into its code. Out: a ``Verdict``,
or None. A version has no clock of its own, because a program may forbid RDTSC (prctl(2), PR_SET_TSC; seccomp(2)), and
some virtual machines take microseconds for it. Samples tell its time with an error, which a verdict allows for.
"""

from __future__ import annotations

import math
from dataclasses import field, fields

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason
from runtime.patching.code_cache import Statistics

PASSAGE_SECONDS = 1e-6  # at least, for one run's guard, saved and restored vector state, and the way back
GAIN = 1.03  # a version must be faster than the original by this factor
ENOUGH_SECONDS = 0.05  # of original work that a verdict must rest on
# A version is taken out once it has lost 0.03 s, or over 0.5 s of original work: a busy machine alone is no reason.
LOST_SECONDS, SURE_SECONDS = 0.03, 0.5
ENOUGH_ENTRIES = 1024  # that all failed, before a guard counts as one that never holds
TICK_SECONDS = 50e-9  # of one guard that fails
SAMPLE_SECONDS = 0.016  # that a sample stands for where samples are rarest (memopt.session.watching.sampling_rate)
WATCH_SECONDS = 0.5  # of the program, from one look at its pace to the next; doubled by each that shows a loss
ERRORS = 2.0  # standard errors of the sampled time that a loss must exceed (samples are counted: Poisson)
TELLING_SECONDS = 0.1  # of samples in a version, to tell its time in service; else the trial tells it
_LEAST_SHARE = 0.05
STILL_SECONDS = 1.0  # without a run, before the lock of the version is looked at; twice as long each time it is in use
MOST_DOUBTS = 4  # A/B measurements that decide instead of the version's own clock
SLOWER = 1.1  # by this factor than in its A/B measurement


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a version is to be taken out."""

    reason: Reason
    detail: str
    sizes: bool = False  # few entries come with the values that it was made for: another version may be made


@dataclass
class Service:
    """The measurements of one version since it was installed, and the verdicts on it."""

    # Seconds in the trial. None where there was no trial, or where iterations differ in length: per-iteration times of
    # different entries cannot be compared then. The version is credited with ``speedup`` instead.
    original_per_iteration: float | None
    speedup: float | None = None  # in the trial
    again: bool = False  # a version for more values might be made, where the original iterates more often than this one
    period: int = 1  # as in memopt.ir.region.Region
    turns: int = 0  # A/B measurements so far (memopt.session.measuring.ab_measurement)
    gain: float | None = None  # the program's speed with it over that without it, in these measurements
    share: float = 1.0  # of the program's time that was spent in the version before them, 0 to 1
    doubts: int = 0  # how often its own clock has shown a loss, and an A/B measurement was to decide
    began: float | None = None  # samples of the program, in seconds, when the version was first looked at
    stuck: bool = False  # it could not be taken out, and is not judged any more
    _judged: Statistics = field(default=Statistics(0, 0, 0))
    _inside: float = 0.0  # when it was last judged
    _pace: float | None = None
    _paced: Statistics = field(default=Statistics(0, 0, 0))
    _processor: float = 0.0  # when it was last paced
    _timed: tuple[int, float] = (0, 0.0)  # iterations and seconds at the last answer of ``iteration_seconds``
    _watch: float = WATCH_SECONDS
    _rest: tuple[int, float] = (-1, 0.0)  # runs when the lock was looked at, or when they last changed, and the time
    _patience: float = STILL_SECONDS

    def judge(self, counted: Statistics, inside: float, *, others: bool = True) -> Verdict | None:
        """The verdict on the time since the last one; None: the version stays, or it is too early to tell.

        ``inside``: processor seconds in the version's code so far, by samples; guards, and saving and restoring
        registers, are in it. ``others``: another version may be made for other sizes (``earned``). An entry whose guard
        fails counts as one iteration of the original.
        """
        entries, runs, iterations = (getattr(counted, f.name) - getattr(self._judged, f.name)
                                     for f in fields(Statistics))
        if counted.runs == 0 and entries >= ENOUGH_ENTRIES:
            return Verdict(Reason.GUARD_FAILED, f"{entries} entries, none with the values it was made for", others)
        # After every run the header is entered again, with too few iterations left for another run; a run may also
        # begin some entries late.
        elsewhere = entries - 2 * self.period * runs
        if self.again and others and elsewhere >= max(ENOUGH_ENTRIES, iterations):
            return Verdict(Reason.GUARD_FAILED, f"of the last {entries} entries {runs} had the values it was made for",
                           True)
        sampled = inside - self._inside
        if self.original_per_iteration is not None:
            original = self.original_per_iteration * iterations
        elif self.speedup is not None:
            original = self.speedup * sampled
        else:
            return None
        failed = max(0, entries - runs)
        if max(original, TICK_SECONDS * failed) < ENOUGH_SECONDS:
            return None
        version = max(sampled - ERRORS * math.sqrt(SAMPLE_SECONDS * sampled),
                      PASSAGE_SECONDS * runs + TICK_SECONDS * failed)
        lost = version * GAIN - original
        if lost > 0 and (lost >= LOST_SECONDS or original >= SURE_SECONDS):
            return Verdict(Reason.NOT_FASTER, f"of the last {entries} entries {runs} had the values it was made for"
                           if failed > runs else f"{original / version:.2f} times as fast in service")
        if lost <= 0:
            self.pass_over(counted, inside)
        return None

    def earned(self, counted: Statistics, inside: float) -> float:
        """Seconds that the program has gained by the version since it was installed; infinite where there was no
        trial, so that nothing is known. ``inside``: as for ``judge``."""
        if self.original_per_iteration is not None:
            return self.original_per_iteration * counted.iterations - inside
        return math.inf if self.speedup is None else self.speedup * inside - inside

    def keeps(self, gain: float, pace: float, counted: Statistics, processor: float, share: float = 1.0) -> None:
        """Note the result of an A/B measurement. ``pace``: seconds of the program for each pass by the header.
        ``share``: as the field."""
        self.gain, self._pace, self._paced, self._processor = gain, pace, counted, processor
        self.share = min(max(share, _LEAST_SHARE), 1.0)

    @property
    def loop_gain(self) -> float | None:
        """The speed of the loop in the version over that in the original, by A/B measurement; None if there was none.

        ``gain`` is that of the whole program: of each second with the version, ``share`` is in it, and the rest is the
        same without it. A version that stays is not called slower: within the error both are equally fast."""
        return None if self.gain is None else max(1.0, (self.gain - 1 + self.share) / self.share)

    def speeds(self, counted: Statistics, inside: float) -> tuple[float, float] | None:
        """Seconds per iteration of the original and of the version, by the clock that decides whether it stays; None
        while that has not told. ``inside``: as for ``judge``."""
        if not counted.iterations or inside < TELLING_SECONDS:
            return None
        after = inside / counted.iterations
        if self.loop_gain is not None:
            return after * self.loop_gain, after
        before = self.original_per_iteration
        if before is None and self.speedup is not None:  # iterations differ: ``judge`` has no more than the ratio
            before = after * self.speedup
        return None if before is None or before < after else (before, after)

    def slower(self, counted: Statistics, processor: float) -> bool:
        """Whether the version has got slower than in its A/B measurement, whose result then holds no longer.

        Where memory is shared with other processes, its speed may change more than that of the original. ``processor``:
        processor seconds of the program."""
        passes = counted.entries - self._paced.entries + self.period * (counted.iterations - self._paced.iterations)
        passed = processor - self._processor
        if self._pace is None or passed < self._watch:
            return False
        self._paced, self._processor = counted, processor
        slower = passed > SLOWER * self._pace * passes
        if slower:
            self._watch *= 2
        return slower

    def iteration_seconds(self, counted: Statistics, inside: float) -> float | None:
        """Seconds of an outer iteration since the last answer; None until there are enough samples since then."""
        iterations, seconds = counted.iterations - self._timed[0], inside - self._timed[1]
        if seconds < ENOUGH_SECONDS or not iterations:
            return None
        self._timed = counted.iterations, inside
        return seconds / iterations

    def stands_still(self, counted: Statistics, elapsed: float) -> bool:
        """Whether no run has begun for a while: somebody may have left the version without giving back its lock.

        True at most once for each period of waiting, and the next period is twice as long. ``elapsed``: seconds on any
        clock."""
        runs, since = self._rest
        if counted.runs != runs:
            self._rest, self._patience = (counted.runs, elapsed), STILL_SECONDS
            return False
        if elapsed - since < self._patience:
            return False
        self._rest = runs, elapsed
        self._patience *= 2
        return True

    def pass_over(self, counted: Statistics, inside: float) -> None:
        """Leave everything up to now out of the next verdict."""
        self._judged, self._inside = counted, inside
