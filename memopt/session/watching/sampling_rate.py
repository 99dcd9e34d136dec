"""The sampling rate of one process: high while a hot loop may turn up, low while nothing new does.

Example: 0.1 s after the last news the interval doubles, after 0.2 s again, up to 16 times the shortest. News are
samples in code that belongs to no settled loop.

Why: a sample costs the process some 25 microseconds on a virtual machine, where both the timer and its interrupt leave
the guest; a thousand a second would be all that memopt may cost. While a loop is worked on, the rate is the lowest: the
samples only serve the report. Beyond the lowest rate, no more than ``BURST`` samples and ``PER_SECOND`` for each second
are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from memopt.session.measuring.hotness import Hotness
from runtime.sampling.perf_events import INTERVAL_NS
from runtime.sampling.samples import Sample, Sampler, Source

FRESH_SECONDS = 0.1  # without news, until the interval doubles for the first time
SLOWEST = 16  # times the shortest interval
BURST = 1000
PER_SECOND = 120
LOOK_AFTER = 25  # intervals, between looks at what was sampled


class SamplingRate:
    """Moves the samples of one process from ``sampler`` to ``hotness``. Times are seconds on any clock."""

    def __init__(self, sampler: Sampler, hotness: Hotness, now: float) -> None:
        self._sampler, self._hotness = sampler, hotness
        self._news = self._now = now
        self._credit = float(BURST)
        self._interval = 1  # in units of the shortest
        self._kept: dict[int, int] = {}  # by inherited event: its interval, in the same units
        self._times: dict[int, tuple[int, int]] = {}  # of its last sample, and the least between two, in nanoseconds

    @property
    def look_after_seconds(self) -> float:
        """Seconds to wait until the next ``step`` where there is nothing else to do."""
        return LOOK_AFTER * self._interval * INTERVAL_NS * 1e-9

    def news(self) -> None:
        """Note that a hot loop was taken up: others may follow."""
        self._news = self._now

    def step(self, now: float, busy: bool) -> None:
        """Take the new samples, and set the interval. ``busy``: a loop is worked on, and no other is taken up
        meanwhile."""
        stopping = self._sampler.source is Source.INTERRUPT  # samples by stopping: the stages stop the process, too
        new = [] if busy and stopping else self._sampler.read()
        self._learn(new)
        fresh = 0
        for weight, some in groupby(sorted(new, key=self._weight), key=self._weight):
            fresh += self._hotness.add([sample.address for sample in some], weight)
        self._credit = min(BURST, self._credit + (now - self._now) * PER_SECOND) - len(new)
        self._now = now
        if busy or 2 * fresh > len(new):
            self._news = now
        interval = SLOWEST if busy or self._credit <= 0 else interval_after(now - self._news)
        if interval != self._interval:
            self._interval = interval
            self._sampler.set_interval(interval * INTERVAL_NS)

    def _weight(self, sample: Sample) -> int:
        """The units of time that ``sample`` stands for."""
        return self._kept.get(sample.inherited, 1) if sample.inherited else self._interval

    def _learn(self, samples: Sequence[Sample]) -> None:
        """Find out the intervals of inherited events: the least time between two samples."""
        for sample in samples:
            if sample.inherited:
                last, least = self._times.get(sample.inherited, (sample.time_ns, SLOWEST * INTERVAL_NS))
                least = min(least, sample.time_ns - last) if sample.time_ns > last else least
                self._times[sample.inherited] = sample.time_ns, least
                self._kept[sample.inherited] = max(1, round(least / INTERVAL_NS))


def interval_after(seconds: float) -> int:
    """The interval in units of the shortest, ``seconds`` after the last news."""
    return min(SLOWEST, 1 << int(max(0.0, seconds) / FRESH_SECONDS).bit_length())
