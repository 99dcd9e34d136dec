"""How often one process is sampled: often where a hot loop may turn up, seldom where nothing does.

A sample costs the process some 25 microseconds on a virtual machine, where both the timer and its interrupt leave the
guest: a thousand a second would be all that memopt may cost. So the interval doubles each time that as long again
passes without news; code that belongs to no settled loop is news. While a loop is worked on, samples only serve the
report. Invariant: no more than BURST samples and PER_SECOND for each second are taken, beyond the slowest rate.
"""

from __future__ import annotations

from memopt.session.improving.hotness import Hotness
from runtime.sampling.perf_events import INTERVAL_NS
from runtime.sampling.samples import Sampler, Source

FRESH_SECONDS = 0.1  # without news, until the interval doubles for the first time
SLOWEST = 16  # times the shortest interval
BURST = 1000
PER_SECOND = 120
LOOK_AFTER = 25  # intervals, between looks at what was sampled


class SamplingRate:
    """Samples of one process on their way from ``sampler`` to ``hotness``; times are seconds on any clock."""

    def __init__(self, sampler: Sampler, hotness: Hotness, now: float) -> None:
        self._sampler, self._hotness = sampler, hotness
        self._news = self._now = now
        self._credit = float(BURST)
        self._interval = 1  # in units of the shortest

    @property
    def look_after_seconds(self) -> float:
        """How long to wait until the next ``step`` when there is nothing else to do."""
        return LOOK_AFTER * self._interval * INTERVAL_NS * 1e-9

    def news(self) -> None:
        """A hot loop was taken up: others may follow."""
        self._news = self._now

    def step(self, now: float, busy: bool) -> None:
        """Take the new samples and see when the next ones are due. ``busy``: a loop is worked on, no other will be
        taken up meanwhile."""
        stopping = self._sampler.source is Source.INTERRUPT  # and the loop's stages stop the process often enough
        new = [] if busy and stopping else [sample.address for sample in self._sampler.read()]
        fresh = self._hotness.add(new, self._interval)
        self._credit = min(BURST, self._credit + (now - self._now) * PER_SECOND) - len(new)
        self._now = now
        if busy or 2 * fresh > len(new):
            self._news = now
        interval = SLOWEST if busy or self._credit <= 0 else interval_after(now - self._news)
        if interval != self._interval:
            self._interval = interval
            self._sampler.set_interval(interval * INTERVAL_NS)


def interval_after(seconds: float) -> int:
    """The interval, in units of the shortest, ``seconds`` after the last news."""
    return min(SLOWEST, 1 << int(max(0.0, seconds) / FRESH_SECONDS).bit_length())
