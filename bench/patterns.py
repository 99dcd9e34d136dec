"""Access patterns of a stencil that is blocked in space and time: their size, and whether they expand to the trace.

    python -m bench.patterns [X Y Z STEPS]

It prints the sizes of three texts: one line for each access; one line for each base pattern, which is a run of
accesses; and patterns of patterns, each defined once. Each access of the program's own code is expanded from its
patterns and compared with the trace. The exit code is 1 if an access differs, or the output of the program.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy

from bench.measure.execution import memopt_command, run
from bench.programs.variants import KERNELS, compile_c
from memopt.store.schema import open_existing
from memopt.traces.core.file import pieces
from memopt.traces.core.format import BLOCK
from memopt.traces.core.tables import Array
from memopt.traces.notation import expanded

_SIZES = ("129", "65", "65", "8")
_LINK = re.compile(r"(\(?)(?:([+-]\d+)\+)?\[ID(\d+)\](?:\)\*(\d+))?")
_PATIENCE_S = 1800.0


def main() -> int:
    """Prints the sizes. Returns 0 if all patterns expand to the trace, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("sizes", nargs="*", default=_SIZES)
    sizes = parser.parse_args().sizes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, path, trace = folder / "temporal_blocking", folder / "p.db", folder / "p.trace"
        compile_c(("gcc", "-O2"), KERNELS / "temporal_blocking.c", program, [])
        native = run((str(program), *sizes), _PATIENCE_S)
        watched = run((*memopt_command(), "profile", "--quiet", "--memory", "--trace", str(trace), "-o", str(path),
                       "--", str(program), *sizes), _PATIENCE_S)
        if (native.stdout, native.exit_code) != (watched.stdout, watched.exit_code):
            sys.stdout.write("the output is DIFFERENT\n")
            return 1
        connection = open_existing(str(path))
        texts = Texts(connection)
        checked, wrong = compared(connection, texts, trace, str(program))
        text = sum(len(lines) for lines in _text(trace))
        accesses, = connection.execute("SELECT sum(count) FROM access").fetchone()
        irregular, = connection.execute("SELECT COALESCE(sum(count), 0) FROM access WHERE parts IS NULL").fetchone()
        sys.stdout.write(f"temporal_blocking {' '.join(sizes)}: {accesses:,} accesses, {irregular:,} without patterns\n"
                         f"text of the trace: {text:,} bytes\nbase patterns: {texts.base_bytes():,} bytes\n"
                         f"patterns of patterns: {texts.bytes():,} bytes\n"
                         f"{checked} accesses of the program's own code are the trace, {wrong} are not\n")
        return int(wrong > 0)


def _text(trace: Path) -> Iterator[bytes]:
    """The trace as text, in pieces."""
    with subprocess.Popen((*memopt_command(), "trace", str(trace)), stdout=subprocess.PIPE) as writing:
        assert writing.stdout is not None
        while lines := writing.stdout.read(1 << 20):
            yield lines


class Texts:
    """The patterns of a profile, and the sizes of their texts."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        rows = connection.execute("SELECT id, level, text FROM pattern").fetchall()
        self.definitions = {number: text for number, _, text in rows}
        self._levels = {number: level for number, level, _ in rows}

    def parts(self, access: int) -> list[tuple[int, int]]:
        """The parts of an access, in order: pairs of first address and pattern id."""
        return self._connection.execute(
            "SELECT address, pattern FROM part WHERE access = ? ORDER BY position", (access,)).fetchall()

    def bytes(self) -> int:
        """The size of the definitions of all patterns, plus one line for each part."""
        defined = sum(len(f"[ID{number}]: {text}\n") for number, text in self.definitions.items())
        (named,) = self._connection.execute(
            "SELECT sum(length(printf('%x [ID%d]', address, pattern)) + 1) FROM part").fetchone()
        return defined + int(named)

    def base_bytes(self) -> int:
        """The size of a text with one line for each base pattern."""
        rows = self._connection.execute("SELECT printf('%x ', address), pattern FROM part").fetchall()
        return sum(len(address) + self._base(pattern) for address, pattern in rows)

    @functools.cache  # noqa: B019 - it lives as long as the program
    def _base(self, number: int) -> int:
        """The size of the lines that one pattern becomes."""
        text = self.definitions[number]
        if self._levels[number] == 0 and not text.startswith("["):
            return len(text) + 1
        links = _LINK.findall(text[1:-1])
        if self._levels[number] == 1 and len(links) == 2 and all(self._levels[int(n)] == 0 for *_, n, _ in links) and (
                not self.definitions[int(links[0][2])].startswith("[")):
            return len(re.sub(r"\[ID(\d+)\]", lambda found: self.definitions[int(found[1])], text)) + 1
        return sum((int(times or 1)) * (len(offset) + 1 + self._base(int(inner)))
                   for _, offset, inner, times in links)


def compared(connection: sqlite3.Connection, texts: Texts, trace: Path, program: str) -> tuple[int, int]:
    """Counts the accesses of the program's own code that were compared with the trace, and those that differ from it.

    Accesses in several calling contexts are left out: patterns do not tell the order between contexts.
    """
    rows = connection.execute("""
        SELECT a.address, a.id, a.kind FROM access a JOIN context c ON c.id = a.context JOIN image m ON m.id = c.image
        WHERE m.path = ? GROUP BY a.address, a.kind HAVING count(*) = 1 AND a.parts IS NOT NULL
        """, (str(Path(program).resolve()),)).fetchall()
    hashes, bias = _hashes(trace, str(Path(program).resolve()))
    wrong = 0
    for address, access, kind in rows:
        seen = hashlib.blake2b()
        for start, pattern in texts.parts(access):
            seen.update(expanded(f"[ID{pattern}]", texts.definitions, start).tobytes())
        wrong += hashes.get((address + bias, kind)) != seen.hexdigest()
    return len(rows), wrong


def _hashes(trace: Path, program: str) -> tuple[dict[tuple[int, str], str], int]:
    """Hashes of the addresses of each access, by (address of the instruction in the process, kind); and the load bias
    of the program. Repeated accesses (of string instructions) are left out."""
    known: list[list[tuple[int, int, str, bool]]] = []
    found: dict[tuple[int, str], hashlib.blake2b] = {}
    bias, last = 0, -1
    with trace.open("rb") as file:
        for kind, _, content in pieces(file):
            if kind == b"CODE":
                known += json.loads(content)
            elif kind == b"MAPS":
                bias = next(row[3] for row in json.loads(content) if row[0] == program)
            elif kind == b"WORD":
                last = _add(numpy.frombuffer(content, "<u8").astype(numpy.int64), known, found, last)
    return {key: state.hexdigest() for key, state in found.items()}, bias


def _add(words: Array, known: list[list[tuple[int, int, str, bool]]], found: dict[tuple[int, str], hashlib.blake2b],
         last: int) -> int:
    """Adds the words of one piece of the trace to the hashes ``found``. ``last``: the block whose run continues at the
    start of the piece. Returns the block whose run is open at its end."""
    index = words >> 48 & 0xFFFF
    heads = numpy.nonzero(index == BLOCK)[0]
    block = numpy.full(len(words), last)
    block[heads] = words[heads] & 0xFFFFFFFF
    at = numpy.zeros(len(words), numpy.int64)
    at[heads] = heads
    numpy.maximum.accumulate(at, out=at)
    block = block[at]
    access = numpy.ones(len(words), bool)
    access[heads] = access[heads + 1] = False
    for number in numpy.unique(block).tolist():
        if number >= 0 and not any(row[3] for row in known[number]):
            inside = access & (block == number)
            for place, (address, _, kind, _) in enumerate(known[number]):
                chosen = words[inside & (index == place)] & 0xFFFFFFFFFFFF
                found.setdefault((address, kind), hashlib.blake2b()).update(chosen.tobytes())
    return int(block[-1])


if __name__ == "__main__":
    sys.exit(main())
