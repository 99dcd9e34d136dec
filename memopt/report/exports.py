"""Exports of a profile: speedscope's JSON, and callgrind's text, which kcachegrind and callgrind_annotate read.

In: the tree of a profile (``memopt.store.tree``), or the open profile. Out: the text of the file.

Sources: speedscope's file format (its repository's wiki, "Importing from custom sources"); the Valgrind manual, section
"Callgrind Format Specification".
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

from memopt import __version__
from memopt.store.tree import Frame


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
    """Lines of callgrind's format: costs at the addresses of blocks, calls at their call sites.

    Costs are instructions; in a sampled profile nanoseconds, at the addresses of samples and without calls.
    """
    (command,) = connection.execute("SELECT command FROM run").fetchone()
    exact = connection.execute("SELECT EXISTS (SELECT 1 FROM context)").fetchone()[0]
    yield from ("# callgrind format", "version: 1", f"creator: memopt {__version__}", f"cmd: {command}",
                "positions: instr", f"events: {'Ir' if exact else 'Nanoseconds'}", "")
    costs: dict[int, list[tuple[int, int]]] = {}
    for function, address, cost in connection.execute(
            """SELECT f.id, e.start, sum(e.instructions) FROM execution e
            JOIN function f ON f.image = e.image AND e.start >= f.start AND e.start < f.end GROUP BY f.id, e.start
            """ if exact else """SELECT b.function, s.address, CAST(1e9 * sum(s.seconds) AS INTEGER) FROM sample s
            JOIN block b ON b.id = s.block GROUP BY b.function, s.address"""):
        costs.setdefault(function, []).append((address, cost))
    calls: dict[int, list[tuple[int, int, int, int]]] = {}
    for caller, site, callee, entries, inclusive in connection.execute(
            """SELECT p.function, COALESCE(c.site, p.entry), c.function, sum(c.entries), sum(c.inclusive) FROM context c
            JOIN context p ON p.id = c.parent WHERE p.function IS NOT NULL AND c.function IS NOT NULL
            GROUP BY p.function, c.site, c.function"""):
        calls.setdefault(caller, []).append((site, callee, entries, inclusive))
    named = {number: (name, path, start) for number, name, path, start in connection.execute(
        "SELECT f.id, f.name, m.path, f.start FROM function f JOIN image m ON m.id = f.image")}
    for function in sorted(costs.keys() | calls.keys()):
        name, path, _ = named[function]
        yield from (f"ob={path}", "fl=???", f"fn={name}")
        for address, cost in costs.get(function, ()):
            yield f"{address:#x} {cost}"
        for site, callee, entries, inclusive in calls.get(function, ()):
            yield from (f"cob={named[callee][1]}", "cfi=???", f"cfn={named[callee][0]}",
                        f"calls={entries} {named[callee][2]:#x}", f"{site:#x} {inclusive}")
        yield ""
