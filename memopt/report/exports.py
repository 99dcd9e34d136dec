"""Exports of a profile: speedscope's JSON, and callgrind's text, which kcachegrind and callgrind_annotate read.

In: the tree of a profile (``memopt.store.tree``), or the open profile. Out: the text of the file.

Sources: speedscope's file format (its repository's wiki, "Importing from custom sources"); the Valgrind manual, section
"Callgrind Format Specification".
"""

from __future__ import annotations

import bisect
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from memopt import __version__
from memopt.store.tree import Frame

_NO_FILE = "???"
_APART = re.compile(r"( \[clone )?\.cold(\.\d+)?\]?$")  # the end of the name of a part of a function


def speedscope(root: Frame, unit: str) -> str:
    """Speedscope's JSON, with one profile for each thread. Each path from the thread down to a frame with a weight of
    its own is one sample. ``unit``: "seconds" or "instructions"."""
    frames: dict[tuple[str, str], int] = {}
    profiles = []
    for thread in root.below:
        samples: list[list[int]] = []
        weights: list[float] = []
        path: list[int] = []
        for depth, frame in thread.walk():
            if depth == 0:
                continue
            del path[depth - 1:]
            path.append(frames.setdefault((frame.name, frame.file), len(frames)))
            if frame.own > 0:
                samples.append(list(path))
                weights.append(frame.own)
        profiles.append({"type": "sampled", "name": thread.name, "unit": "seconds" if unit == "seconds" else "none",
                         "startValue": 0, "endValue": sum(weights), "samples": samples, "weights": weights})
    return json.dumps({
        "$schema": "https://www.speedscope.app/file-format-schema.json", "name": root.name,
        "exporter": f"memopt {__version__}", "profiles": profiles,
        "shared": {"frames": [{"name": name, "file": file} for name, file in frames]}})


def callgrind(connection: sqlite3.Connection) -> Iterator[str]:
    """Lines of callgrind's format: costs at instructions and their source lines, calls at their call sites.

    Costs are instructions; in a sampled profile nanoseconds, at the addresses of samples and without calls. The costs
    of a function are those of its contexts in the tree, and all costs add up to the total of the tree.
    """
    (command,) = connection.execute("SELECT command FROM run").fetchone()
    exact = connection.execute("SELECT EXISTS (SELECT 1 FROM context)").fetchone()[0]
    found = _counted(connection) if exact else _sampled(connection)
    total = sum(cost for function in found.values() for cost in function.costs.values())
    yield from ("# callgrind format", "version: 1", f"creator: memopt {__version__}", f"cmd: {command}",
                "positions: instr line", f"events: {'Ir' if exact else 'Nanoseconds'}", f"summary: {total}", "")
    lines = {key: _Lines(connection, function) for key, function in found.items()}
    for key, function in found.items():
        yield from (f"ob={function.path}", f"fl={lines[key].file}", f"fn={function.name}")
        for address, cost in sorted(function.costs.items()):
            yield f"{address:#x} {lines[key].at(address)} {cost}"
        for site, callee, entries, inclusive in function.calls:
            to = found[callee]
            # A function that goes on behind a jump from elsewhere (longjmp) has no call; to readers, 0 is no number.
            yield from (f"cob={to.path}", f"cfi={lines[callee].file}", f"cfn={to.name}",
                        f"calls={max(1, entries)} {to.start:#x} {lines[callee].at(to.start)}",
                        f"{site:#x} {lines[key].at(site)} {inclusive}")
        yield ""
    yield f"totals: {total}"


_Key = tuple[str, int]  # file and entry


@dataclass(slots=True)
class _Function:
    """A function with its costs by address, and its calls: site, callee, entries, cost with all that it calls."""

    name: str
    path: str
    start: int
    end: int
    parts: list[tuple[int, int]] = field(default_factory=list)  # that lie apart (.cold)
    costs: dict[int, int] = field(default_factory=dict)
    calls: list[tuple[int, _Key, int, int]] = field(default_factory=list)

    def add(self, address: int, cost: int) -> None:
        self.costs[address] = self.costs.get(address, 0) + cost


class _Lines:
    """The source lines of a function, in the file that it is written in."""

    def __init__(self, connection: sqlite3.Connection, function: _Function) -> None:
        rows = connection.execute("""SELECT i.address, i.file, i.line FROM image m JOIN function f ON f.image = m.id
            JOIN block b ON b.function = f.id JOIN instruction i ON i.block = b.id
            WHERE m.path = ? AND f.start = ? AND i.file IS NOT NULL""", (function.path, function.start)).fetchall()
        self.file = rows[0][1] if rows else _NO_FILE
        self._lines: dict[int, int] = {address: line for address, file, line in rows if file == self.file}

    def at(self, address: int) -> int:
        """The line of the instruction at ``address``; 0 if it is not known."""
        return self._lines.get(address, 0)


def _counted(connection: sqlite3.Connection) -> dict[_Key, _Function]:
    """The functions of an exact profile."""
    found: dict[_Key, _Function] = {}
    own: dict[_Key, int] = {}
    keys: dict[int, _Key] = {}  # by context
    for number, name, path, start, end, entry, instructions in connection.execute(
            """SELECT c.id, f.name, m.path, f.start, f.end, c.entry, c.instructions FROM context c
            LEFT JOIN function f ON f.id = c.function LEFT JOIN image m ON m.id = c.image"""):
        key = keys[number] = path or _NO_FILE, entry if start is None else start
        found.setdefault(key, _Function(name or f"{entry:#x}", key[0], key[1], end or entry + 1))
        own[key] = own.get(key, 0) + instructions
    for site, parent, number, entry, entries, inclusive in connection.execute(
            """SELECT c.site, p.id, min(c.id), p.entry, sum(c.entries), sum(c.inclusive) FROM context c
            JOIN context p ON p.id = c.parent
            GROUP BY p.image, p.function, p.entry, c.site, c.image, c.function, c.entry"""):
        found[keys[parent]].calls.append((entry if site is None else site, keys[number], entries, inclusive))
    _name_apart(found)
    ranges = _ranges(connection, found)
    for path, address, cost in _executed(connection):
        of = ranges.get(path, [])
        index = bisect.bisect_right(of, address, key=lambda piece: piece[0]) - 1
        if index >= 0 and address < of[index][1]:
            of[index][2].add(address, cost)
    for key, function in found.items():
        _settle(function, own[key])
    return found


def _name_apart(found: Mapping[_Key, _Function]) -> None:
    """Tells functions of one name in one file apart by their addresses: to readers one name is one function."""
    named = Counter((function.path, function.name) for function in found.values())
    for function in found.values():
        if named[function.path, function.name] > 1:
            function.name += f" ({function.start:#x})"


def _ranges(connection: sqlite3.Connection, found: Mapping[_Key, _Function]
            ) -> dict[str, list[tuple[int, int, _Function]]]:
    """The functions by file and the addresses ``[start, end)`` of their code, sorted. Enters the parts of functions."""
    ranges: dict[str, list[tuple[int, int, _Function]]] = {}
    named = {(function.path, function.name): function for function in found.values()}
    for path, name, start, end in connection.execute("""SELECT m.path, f.name, f.start, f.end FROM function f
            JOIN image m ON m.id = f.image WHERE f.name LIKE '%.cold%'"""):
        function = named.get((path, _APART.sub("", name)))
        if function is not None and (path, start) not in found:
            function.parts.append((start, end))
    for function in found.values():
        ranges.setdefault(function.path, []).extend(
            (start, end, function) for start, end in ((function.start, function.end), *function.parts))
    return {path: sorted(pieces, key=lambda piece: piece[0]) for path, pieces in ranges.items()}


def _executed(connection: sqlite3.Connection) -> Iterator[tuple[str, int, int]]:
    """Triples of a file, the address of an instruction, and how often it was executed."""
    listed: dict[tuple[int, int], set[int]] = {}  # by file and start of a block
    for image, start, address in connection.execute(
            """SELECT f.image, b.start, i.address FROM instruction i JOIN block b ON b.id = i.block
            JOIN function f ON f.id = b.function"""):
        listed.setdefault((image, start), set()).add(address)
    for image, path, start, end, count, instructions in connection.execute(
            """SELECT m.id, m.path, e.start, e.end, sum(e.count), sum(e.instructions) FROM execution e
            JOIN image m ON m.id = e.image GROUP BY e.image, e.start, e.end"""):
        addresses = sorted(a for a in listed.get((image, start), ()) if a < end)
        if len(addresses) * count > instructions:  # some were left out where a thread ended or a handler came
            addresses = []
        yield from ((path, address, count) for address in addresses)
        yield path, start, instructions - len(addresses) * count


def _settle(function: _Function, own: int) -> None:
    """Makes the costs add up to those of the contexts. Stubs belong to their callers there, and so does a nameless part
    that lies apart."""
    missing = own - sum(function.costs.values())
    if missing > 0:
        function.add(function.start, missing)
    for address in sorted(function.costs, key=function.costs.__getitem__, reverse=True):
        taken = min(function.costs[address], max(0, -missing))
        function.costs[address] -= taken
        missing += taken


def _sampled(connection: sqlite3.Connection) -> dict[_Key, _Function]:
    """The functions of a sampled profile, with nanoseconds."""
    found: dict[_Key, _Function] = {}
    for name, path, start, end, address, cost in connection.execute(
            """SELECT f.name, m.path, f.start, f.end, s.address, CAST(round(1e9 * sum(s.seconds)) AS INTEGER)
            FROM sample s LEFT JOIN block b ON b.id = s.block LEFT JOIN function f ON f.id = b.function
            LEFT JOIN image m ON m.id = s.image GROUP BY s.image, b.function, s.address"""):
        key = path or _NO_FILE, 0 if start is None else start
        function = found.setdefault(key, _Function(name or "unknown function", key[0], key[1], end or 0))
        function.add(max(0, address), cost)
    return found
