"""What a profile tells of the files whose code ran: their functions, where they lay, and the samples in them.

Invariant: files are read when the process has ended.
"""

from __future__ import annotations

import bisect
import sqlite3
from collections.abc import Mapping
from contextlib import suppress

from memopt.analysis.structure import structures
from memopt.elf.image import ElfError, Image
from memopt.elf.symbols import Function, Symbols
from memopt.session.images import Images, Place
from memopt.store.static import add_functions, add_image
from runtime.sampling import Sample

_CHOSEN_BY_THE_SYSTEM = 1 << 32  # addresses from here on differ from program to program
MOST_FUNCTIONS = 5000  # of the program that are all described; of a larger one those that samples met


def write_structure(images: Images, connection: sqlite3.Connection, met: Mapping[str, set[int]]) -> dict[str, int]:
    """Files of ``images``, mappings, and the functions around the link-time addresses ``met`` in each: by its path
    its number."""
    numbers: dict[str, int] = {}
    for path in dict.fromkeys(place.path for place in sorted(images.places)):
        if path in met or path == images.first:
            number = numbers[path] = add_image(connection, path)
            connection.executemany("INSERT INTO mapping VALUES (?, ?, ?, ?)", (
                (number, p.start, p.end, p.bias) for p in sorted(images.places) if p.path == path))
            _describe(connection, number, path, met.get(path, set()), path == images.first)
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
    numbers = write_structure(program, connection, met)
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
