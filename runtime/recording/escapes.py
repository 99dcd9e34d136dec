"""Samples how much of a recorded program runs outside of copies, and so is not recorded.

In: samples of the program's processor time (perf events). Out: how many there were, and how many met no copy. Without
perf events nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime.recording.space import Space
from runtime.sampling.perf_events import Events
from runtime.sampling.samples import InterruptSampler, Sampler, sampler_of

_INTERVAL_NS = 10_000_000
LOOK_SECONDS = 1.0  # between two readings of the samples


class Escapes:
    """``samples``: samples in user mode until now. ``outside``: those that met no copy. ``known``: whether there are
    samples at all.
    """

    def __init__(self, pid: int) -> None:
        """To be made before the program is executed."""
        self._pid = pid
        self._sampler: Sampler = sampler_of(Events(pid, on_exec=True, interval_ns=_INTERVAL_NS, children=True))
        self.known = not isinstance(self._sampler, InterruptSampler)
        self.begin()

    def begin(self) -> None:
        """Begins anew: another program begins in the process."""
        self._sampler.read()
        self.samples = self.outside = 0

    def look(self, spaces: Mapping[int, Space]) -> None:
        """Reads the samples since last time. ``spaces``: by process, where its copies lay since then."""
        for sample in self._sampler.read():
            space = spaces.get(sample.child or self._pid)
            self.samples += 1
            self.outside += space is None or not space.in_copies(sample.address)

    def close(self) -> None:
        """Ends the sampling."""
        self._sampler.close()
