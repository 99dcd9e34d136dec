"""The files whose code ran, where it lay in the process, and their parts of a profile.

Invariant: mappings are noted while the process lives; files are read when it has ended.
"""

from __future__ import annotations

import bisect
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from memopt.analysis.structure import structures
from memopt.elf.image import ElfError, Image
from memopt.elf.symbols import Function, Symbols
from memopt.ir.reasons import Rejected
from memopt.store.static import add_functions, add_image
from runtime.memory import mappings
from runtime.sampling import Sample
from runtime.tracee import status_field

_CHOSEN_BY_THE_SYSTEM = 1 << 32  # addresses from here on differ from program to program
MOST_FUNCTIONS = 5000  # of the program that are all described; of a larger one those that samples met


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

    def write_structure(self, connection: sqlite3.Connection, met: Mapping[str, set[int]]) -> dict[str, int]:
        """Files, mappings, and the functions around the link-time addresses ``met`` in each: its number by its path."""
        numbers: dict[str, int] = {}
        for path in dict.fromkeys(place.path for place in sorted(self.places)):
            if path in met or path == self.first:
                number = numbers[path] = add_image(connection, path)
                connection.executemany("INSERT INTO mapping VALUES (?, ?, ?, ?)", (
                    (number, p.start, p.end, p.bias) for p in sorted(self.places) if p.path == path))
                _describe(connection, number, path, met.get(path, set()), path == self.first)
        return numbers


def write_samples(connection: sqlite3.Connection, program: Images, children: Mapping[int, Images],
                  samples: Mapping[Sample, tuple[int, float]]) -> None:
    """Structure, mappings and ``samples``: how many, and the seconds they stand for. A child that ended before it was
    looked at is taken for a copy of the program, where its addresses are the program's and no other's."""
    found: dict[Sample, Place | None] = {}
    for sample in samples:
        place = (children[sample.child] if sample.child else program).place(sample.address)
        if place is None and sample.address >= _CHOSEN_BY_THE_SYSTEM:
            place = program.place(sample.address)
        found[sample] = place
    met: dict[str, set[int]] = {}
    for sample, place in found.items():
        if place is not None:
            met.setdefault(place.path, set()).add(sample.address - place.bias)
    for images in children.values():
        program.places |= images.places
    numbers = program.write_structure(connection, met)
    by_image: dict[int | None, dict[tuple[int, int], tuple[int, float]]] = {}
    for sample, (count, seconds) in samples.items():
        place = found[sample]
        image, bias = (None, 0) if place is None else (numbers[place.path], place.bias)
        rows = by_image.setdefault(image, {})
        before = rows.get((sample.tid, sample.address - bias), (0, 0.0))
        rows[sample.tid, sample.address - bias] = before[0] + count, before[1] + seconds
    for image, rows in by_image.items():
        _add_samples(connection, image, rows)


def _describe(connection: sqlite3.Connection, number: int, path: str, met: set[int], whole: bool) -> None:
    """The functions of a file that samples met, all of them where it is the ``whole`` program."""
    ordered = sorted(met)

    def was_met(function: Function) -> bool:
        index = bisect.bisect_left(ordered, function.start)
        return index < len(ordered) and ordered[index] < function.end

    with suppress(ElfError, OSError), Image(path) as image:
        functions = Symbols(image).everything
        if not whole or len(functions) > MOST_FUNCTIONS:
            functions = tuple(filter(was_met, functions))
        add_functions(connection, number, structures(image, functions))


def _add_samples(connection: sqlite3.Connection, image: int | None,
                 found: Mapping[tuple[int, int], tuple[int, float]]) -> None:
    blocks = connection.execute("SELECT b.start, b.end, b.id FROM block b JOIN function f ON f.id = b.function "
                                "WHERE f.image IS ? ORDER BY b.start", (image,)).fetchall()

    def block(address: int) -> int | None:
        index = bisect.bisect_right(blocks, address, key=lambda b: b[0]) - 1
        return blocks[index][2] if index >= 0 and address < blocks[index][1] else None

    connection.execute("BEGIN")
    connection.executemany("INSERT INTO sample VALUES (?, ?, ?, ?, ?, ?)", (
        (thread, image, block(address), address, count, seconds)
        for (thread, address), (count, seconds) in sorted(found.items())))
    connection.execute("COMMIT")
