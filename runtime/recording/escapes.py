"""How much of what a recorded program executes is not seen, because it runs as it is: by samples of its processor time.

Where the system has no perf events, nothing is known.
"""

from __future__ import annotations

from runtime.perfevents import Events
from runtime.recording.space import Space
from runtime.sampling import InterruptSampler, Sampler, sampler_of

_INTERVAL_NS = 10_000_000
LOOK_SECONDS = 1.0  # between looks at what was sampled


class Escapes:
    """``samples``: in user mode, until now; ``outside``: those of them that met no copy."""

    def __init__(self, pid: int) -> None:
        """Before the program is executed."""
        self._sampler: Sampler = sampler_of(Events(pid, on_exec=True, interval_ns=_INTERVAL_NS))
        self.known = not isinstance(self._sampler, InterruptSampler)
        self.begin()

    def begin(self) -> None:
        """A program begins; what was sampled before was of another one."""
        self._sampler.read()
        self.samples = self.outside = 0

    def look(self, space: Space | None) -> None:
        """``space``: where the copies lie that the program has had since the last time."""
        found = self._sampler.read()
        self.samples += len(found)
        self.outside += sum(space is None or not space.in_copies(sample.address) for sample in found)

    def close(self) -> None:
        self._sampler.close()
