"""The copies of functions that a recorded run has made so far, and the memory they lie in.

Example: a function of a library that two processes share is translated once and has one ``Unit``; each process has a
``Region`` within reach of the library, from which copies are cut off one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from memopt.ir.reasons import Rejected
from runtime.patching.code_cache import choose_address
from runtime.recording.translation.code_map import Text
from runtime.recording.translation.probe_routines import Routines
from runtime.recording.translation.unit import Unit
from runtime.target.memory import PAGE, Mapping

LOWEST = 1 << 20  # address of memopt's memory, at least
REGION_BYTES = 64 << 20
_REGION_REACH = (1 << 31) - (256 << 20)  # at most, between a region and what its copies refer to


@dataclass
class Made:
    """The copies of one run. Processes that fork share those that were made before."""

    units: list[Unit] = field(default_factory=list)
    texts: dict[int, Text] = field(default_factory=dict)  # where each unit's original lies, by number
    watched: int = 0  # how many hyperblocks, or points of values, have numbers


@dataclass
class Region:
    """Memory for copies; it is free from ``next`` on."""

    start: int
    end: int
    next: int
    shared: Routines

    def serves(self, address: int) -> bool:
        """Whether the region has room, and lies within reach of ``address``."""
        return abs(self.start - address) < _REGION_REACH and self.end - self.next > REGION_BYTES // 16


def free_address(maps: Sequence[Mapping], near: int) -> int:
    """Free addresses for a region near ``near``. If only addresses are left into which the heap might grow, chooses one
    far up: malloc can do without it. Raises ``Rejected``.
    """
    try:
        return choose_address(maps, near, REGION_BYTES, LOWEST)
    except Rejected:
        start = near // PAGE * PAGE + _REGION_REACH - REGION_BYTES
        if any(m.start < start + REGION_BYTES and start < m.end for m in maps):
            raise
        return start
