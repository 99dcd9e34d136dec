"""The rows of the executables whose code ran: where they were mapped, their functions and blocks, and the samples.

Example: libm.so.6 was mapped at 0x7f10; of its functions only ``exp`` has samples and gets rows. In: mappings,
link-time addresses that were met, samples. Out: rows of the static tables and of ``sample``. Files are read after the
process has ended.
"""

from __future__ import annotations

import bisect
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

from memopt.cfg.functions import FunctionStructure, structures
from memopt.elf.image import ElfError, Image
from memopt.elf.kept import load, store
from memopt.elf.lines import SourceLines
from memopt.elf.symbols import Function, Symbols
from memopt.session.profiling.images import Located, MappedCode
from memopt.store.static import add_functions, add_image

_KIND = "structures"
MOST_FUNCTIONS = 5000  # of a program with more than these, only the functions with samples are described


def write_structure(connection: sqlite3.Connection, places: Collection[MappedCode], program: str,
                    met: Mapping[str, set[int]]) -> dict[str, int]:
    """Write the files mapped at ``places``, their mappings, and the functions around the link-time addresses ``met`` in
    each file; for ``program``, all functions. The number of each file, by its path."""
    numbers: dict[str, int] = {}
    by_path: dict[str, list[MappedCode]] = {}
    for place in sorted(places):
        by_path.setdefault(place.path, []).append(place)
    for path, there in by_path.items():
        if path in met or path == program:
            number = numbers[path] = add_image(connection, path)
            connection.executemany("INSERT INTO mapping VALUES (?, ?, ?, ?)", (
                (number, p.start, p.end, p.bias) for p in there))
            _describe(connection, number, path, met.get(path, set()), path == program)
    return numbers


def write_samples(connection: sqlite3.Connection, places: Collection[MappedCode], program: str,
                  samples: Mapping[Located, tuple[int, float]]) -> None:
    """``write_structure`` for ``samples``, and their rows: (number, seconds that they stand for) by place."""
    met: dict[str, set[int]] = {}
    for located in samples:
        if located.path is not None:
            met.setdefault(located.path, set()).add(located.address)
    numbers = write_structure(connection, places, program, met)
    by_image: dict[int | None, dict[tuple[int, int], tuple[int, float]]] = {}
    for located, found in samples.items():
        image = None if located.path is None else numbers[located.path]
        by_image.setdefault(image, {})[located.tid, located.address] = found
    for image, rows in by_image.items():
        _add_samples(connection, image, rows)


def _describe(connection: sqlite3.Connection, number: int, path: str, met: set[int], whole: bool) -> None:
    """Write the functions of a file with an address in ``met``; all of them where it is the ``whole`` program."""
    ordered = sorted(met)

    def was_met(function: Function) -> bool:
        index = bisect.bisect_left(ordered, function.start)
        return index < len(ordered) and ordered[index] < function.end

    with suppress(ElfError, OSError), Image(path) as image:
        functions = Symbols(image).everything
        if not whole or len(functions) > MOST_FUNCTIONS:
            functions = tuple(filter(was_met, functions))
        add_functions(connection, number, _structures(image, functions), SourceLines(path), was_met)


def _structures(image: Image, functions: Sequence[Function]) -> Iterator[FunctionStructure]:
    """The structures of functions. Those that an earlier run has found in the same file are not looked for again."""
    digest = image.digest()
    kept = load(_KIND, digest) if digest else None
    known: dict[int, FunctionStructure | None] = kept if isinstance(kept, dict) else {}
    missing = [function for function in functions if function.start not in known]
    if missing:
        known |= dict.fromkeys((function.start for function in missing), None)
        known |= {found.function.start: found for found in structures(image, missing)}
        if digest and len(known) <= MOST_FUNCTIONS:
            store(known, _KIND, digest)
    return (found for found in (known[function.start] for function in functions) if found is not None)


def _add_samples(connection: sqlite3.Connection, image: int | None,
                 found: Mapping[tuple[int, int], tuple[int, float]]) -> None:
    blocks = connection.execute("SELECT b.start, b.end, b.id FROM block b JOIN function f ON f.id = b.function "
                                "WHERE f.image IS ? ORDER BY b.start", (image,)).fetchall()

    def block(address: int) -> int | None:
        index = bisect.bisect_right(blocks, address, key=lambda b: b[0]) - 1
        return blocks[index][2] if index >= 0 and address < blocks[index][1] else None

    def signed(address: int) -> int:
        return address if address < 1 << 63 else address - (1 << 64)

    connection.execute("BEGIN")
    connection.executemany("INSERT INTO sample VALUES (?, ?, ?, ?, ?, ?)", (
        (thread, image, block(address), signed(address), count, seconds)
        for (thread, address), (count, seconds) in sorted(found.items())))
    connection.execute("COMMIT")
