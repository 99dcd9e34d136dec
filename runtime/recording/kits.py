"""Kits: all units of one text of a file that a run has translated, ready to be placed in another process.

Example: a script starts ``grep`` a hundred times. The first ``grep`` asks for the copy of each function that it meets.
Those that follow get all of them at once when they meet the first function of the file, with calls among them linked.

In: units that were translated in some process. Out: the same units in the memory of another one.

Invariant: a kit serves a text only if all bytes of the two texts agree, and the files they come from. So a copy never
belongs to other code than it was made of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import field, replace

from memopt.elf.kept import load, store
from memopt.ir.frozen import dataclass
from runtime.recording.placed import Placed
from runtime.recording.translation.code_map import Text
from runtime.recording.translation.layout import SITE_LINK, SITE_UNIT
from runtime.recording.translation.relocations import Place, Relocations, joined, moved_to, relocations
from runtime.recording.translation.unit import Unit
from runtime.target.memory import Mapping

_ALIGNMENT = 16
_KIND = "kit"


@dataclass(slots=True)
class Known:
    """A unit of a kit. ``first``: the place that it was made for. ``parts``: starts of parts of the function that lie
    apart, link-time. ``target``: link-time address of the function.
    """

    unit: Unit
    first: Place
    parts: tuple[int, ...]
    made: Relocations | None = None

    @property
    def target(self) -> int:
        """The link-time address of the function."""
        return self.unit.graph.entry - self.first.bias

    def relocations(self) -> Relocations:
        """The words of its code that depend on its place."""
        if self.made is None:
            self.made = relocations(self.unit.code, self.unit.marks, self.first)
        return self.made


@dataclass(slots=True)
class Kit:
    """The units of one text. ``ways``: link-time addresses of functions that were entered by the table of targets.
    ``kept``: how many units an earlier run has kept.
    """

    text: Text
    known: dict[int, Known] = field(default_factory=dict)  # by link-time address
    ways: set[int] = field(default_factory=set)
    kept: int = 0

    def serves(self, text: Text) -> bool:
        """Whether its units are copies of ``text``."""
        return text.bytes == self.text.bytes

    def text_of(self, known: Known) -> Text:
        """The text where a unit was made. Units of one kit come from several runs, in which it was mapped elsewhere."""
        moved, mapping = known.first.bias - self.text.bias, self.text.mapping
        if not moved:
            return self.text
        return replace(self.text, bias=known.first.bias,
                       mapping=replace(mapping, start=mapping.start + moved, end=mapping.end + moved))

    def keep(self, made_for: object) -> None:
        """Keeps the units for later runs, if there are new ones. ``made_for``: what else their code depends on."""
        if len(self.known) > self.kept:
            for known in self.known.values():
                known.relocations()
            mapping, bias = self.text.mapping, self.text.bias
            store((mapping, bias, self.known, self.ways), _KIND, *_depends_on(self.text, made_for))


def load_kit(text: Text, made_for: object, number: int) -> Kit | None:
    """The kit of a text that an earlier run has kept, or None. Its units get the numbers from ``number`` on."""
    match load(_KIND, *_depends_on(text, made_for)):
        case (Mapping() as mapping, int() as bias, dict() as known, set() as ways):
            for at, found in enumerate(known.values()):
                found.unit = replace(found.unit, number=number + at)
            return Kit(replace(text, mapping=mapping, bias=bias), known, ways, len(known))
    return None


def _depends_on(text: Text, made_for: object) -> tuple[object, ...]:
    return text.file, text.mapping.offset, hashlib.sha256(text.bytes).hexdigest(), made_for

@dataclass(frozen=True, slots=True)
class Laid:
    """Units of a kit, laid out one behind the other. ``code``: of all of them. ``links``: for each linked call the
    address of its record, and the unit that it calls.
    """

    units: tuple[tuple[Known, Placed], ...]
    code: bytearray
    links: tuple[tuple[int, Placed], ...]


def lay_out(units: Sequence[Known], place: Place) -> Laid:
    """Lays out units from ``place`` on. Calls among them are linked. Raises Rejected(NO_ROOM)."""
    offsets, size = [], 0
    for known in units:
        offsets.append(size)
        size += -(-len(known.unit.code) // _ALIGNMENT) * _ALIGNMENT
    block, made = joined([(at, known.unit.code, known.relocations())
                          for at, known in zip(offsets, units, strict=True)], size)
    code = moved_to(block, made, place)
    placed = [Placed(known.unit, place.start + at - known.unit.start, place.bias - known.first.bias)
              for at, known in zip(offsets, units, strict=True)]
    by_target = {known.target: of for known, of in zip(units, placed, strict=True)}
    links = []
    for at, known in zip(offsets, units, strict=True):
        for site in known.unit.sites:
            record = at + site.record - known.unit.start
            called = None if site.target is None else by_target.get(site.target - known.first.bias)
            if called is None or called.unit.linkage.continues:  # it may have been linked to another unit
                code[record + SITE_LINK:record + SITE_LINK + 8] = bytes(8)
                code[record + SITE_UNIT:record + SITE_UNIT + 16] = bytes(16)
            else:
                code[record + SITE_LINK:record + SITE_LINK + 8] = called.entry.to_bytes(8, "little")
                code[record + SITE_UNIT:record + SITE_UNIT + 16] = (called.number.to_bytes(8, "little")
                                                                    + called.node_bytes.to_bytes(8, "little"))
                links.append((place.start + record, called))
    return Laid(tuple(zip(units, placed, strict=True)), code, tuple(links))
