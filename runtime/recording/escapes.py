"""How much of what a recorded program executes is not seen, because it runs as it is: by samples of its processor time.

Where the system has no perf events, nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime.recording.space import Space
from runtime.sampling.perf_events import Events
from runtime.sampling.samples import InterruptSampler, Sampler, sampler_of

_INTERVAL_NS = 10_000_000
LOOK_SECONDS = 1.0  # between looks at what was sampled


class Escapes:
    """``samples``: in user mode, until now; ``outside``: those of them that met no copy."""

    def __init__(self, pid: int) -> None:
        """Before the program is executed."""
        self._pid = pid
        self._sampler: Sampler = sampler_of(Events(pid, on_exec=True, interval_ns=_INTERVAL_NS, children=True))
        self.known = not isinstance(self._sampler, InterruptSampler)
        self.begin()

    def begin(self) -> None:
        """A program begins; what was sampled before was of another one."""
        self._sampler.read()
        self.samples = self.outside = 0

    def look(self, spaces: Mapping[int, Space]) -> None:
        """``spaces``: by process, where the copies lie that it has had since the last time."""
        for sample in self._sampler.read():
            space = spaces.get(sample.child or self._pid)
            self.samples += 1
            self.outside += space is None or not space.in_copies(sample.address)

    def close(self) -> None:
        self._sampler.close()
