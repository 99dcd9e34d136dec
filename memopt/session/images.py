"""The files whose code ran, and where it lay in the process. What a profile tells of them: memopt.session.described.

Invariant: mappings are noted while the process lives. Nothing slow is imported here: the program waits for it.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from memopt.elf.image import ElfError, Image
from memopt.ir.reasons import Rejected
from runtime.memory import mappings
from runtime.tracee import status_field


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Live bytes ``[start, end)`` hold code of the file at ``path``, ``bias`` above its link-time addresses."""

    start: int
    end: int
    path: str
    bias: int


@dataclass
class Images:
    """What one process has had mapped; ``first``: the program itself; ``parent``: the process that has made it, 0 where
    it was not seen."""

    pid: int
    places: set[Place] = field(default_factory=set)
    first: str = ""
    parent: int = 0
    _covered: list[tuple[int, int]] = field(default_factory=list)  # of the last look, code in no file too

    def see(self, addresses: Collection[int]) -> None:
        """Look where files lie now if one of ``addresses`` is in none that was seen there."""
        if all(any(start <= a < end for start, end in self._covered) for a in addresses):
            return
        with suppress(Rejected):  # it has ended
            maps = [m for m in mappings(self.pid) if m.executable]
            self._covered = [(m.start, m.end) for m in maps]
            self.parent = self.parent or int(status_field(self.pid, "PPid") or 0)
            for mapping in maps:
                if mapping.path.startswith("/"):
                    with suppress(ElfError, OSError), Image(mapping.path) as image:
                        bias = image.load_bias(mapping.start, mapping.offset)
                        self.places.add(Place(mapping.start, mapping.end, mapping.path, bias))
                        self.first = self.first or mapping.path

    def place(self, address: int) -> Place | None:
        """What lay at a live address, most lately seen last where several did."""
        return next((p for p in sorted(self.places, reverse=True) if p.start <= address < p.end), None)
