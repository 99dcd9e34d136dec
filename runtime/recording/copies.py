"""The copies of functions that a recorded run has made so far, and the memory they lie in.

Example: a function of a library that two processes share is translated once and has one ``Unit``; each process has a
``Region`` within reach of the library, from which copies are cut off one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from memopt.cfg.functions import Surroundings, flow
from memopt.cfg.loop_nesting import find_nesting
from memopt.ir.graph import FlowGraph, Kind
from memopt.ir.reasons import Reason, Rejected
from runtime import faults
from runtime.patching.code_cache import choose_address
from runtime.recording.kits import Kit, Known, load_kit
from runtime.recording.translation.code_map import CodeMap, Files, Text
from runtime.recording.translation.probe_routines import Routines
from runtime.recording.translation.relocations import Place
from runtime.recording.translation.trace_probes import Recording
from runtime.recording.translation.translate import translate
from runtime.recording.translation.unit import Linkage, Unit
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
    files: Files = field(default_factory=Files)  # what is known of files with code
    kits: dict[tuple[tuple[str, int, int], int, int], list[Kit]] = field(default_factory=dict)
    keeps: bool = False  # whether kits are kept between runs
    elided: bool = True  # as in Recording

    def kit(self, text: Text, table: int) -> Kit:
        """The kit of units of ``text``, for processes whose table of targets is at ``table``."""
        found = self.kits.setdefault((text.file, text.mapping.offset, table), [])
        kit = next((kit for kit in found if kit.serves(text)), None)
        if kit is None:
            kit = load_kit(text, (table, self.elided), len(self.units) + 1) if self.keeps else None
            if kit is None:
                kit = Kit(text)
            for known in kit.known.values():
                self.units.append(known.unit)
                self.texts[known.unit.number] = kit.text_of(known)
            found.append(kit)
        return kit

    def keep(self) -> None:
        """Keeps the kits for later runs."""
        for (_, _, table), kits in self.kits.items() if self.keeps else ():
            for kit in kits:
                kit.keep((table, self.elided))


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


def translated(code: CodeMap, address: int, text: Text, made: Made, region: Region, table: int,
               recording: Recording) -> Known:
    """Translates the function that begins at the original ``address`` of ``text``, to lie where ``region`` is free.
    ``code``: of the process. Raises ``Rejected`` for what cannot be copied.
    """
    read = code.read
    bounds = text.bounds(address)
    try:
        graph = flow(read, address, bounds, Surroundings(text.functions, text.pads, text.endings))
    except Rejected as error:
        if error.reason is not Reason.NOT_A_NEST:
            raise
        graph = flow(read, address, (address, min(bounds[1], address + PAGE)))
    name = text.name(address)
    unit = translate(len(made.units) + 1, graph, find_nesting(graph), region.next, region.shared, table, recording,
                     made.watched, name, _linkage(code, text, graph))
    faults.point(f"record.copy.{name}")
    made.watched += len(unit.watched) + len(unit.points)
    made.units.append(unit)
    made.texts[unit.number] = text
    parts = tuple(b - text.bias for b in graph.led if b != address and text.bounds(b)[0] == b)
    return Known(unit, Place(region.next, text.bias, region.shared.start), parts)


def _linkage(code: CodeMap, text: Text, graph: FlowGraph) -> Linkage:
    """What the code of ``graph`` has to do with calls between files. A stub jumps at once, its rest pushes a number."""
    if text.has_stub(graph.entry):
        *before, last = graph.blocks[graph.entry].instructions
        alone = last.kind is Kind.INDIRECT and all(i.mnemonic.startswith("endbr") for i in before)
        return Linkage.STUB if alone else Linkage.REST
    return Linkage.RESOLVER if code.is_resolver(graph.entry) else Linkage.NONE
