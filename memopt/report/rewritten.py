"""What ``memopt inspect`` shows of a rewritten file: as text for people, as JSON for machines.

Example: one line for the file, and for each loop its versions: plan, guards, instruction set, what the trial measured,
and, of a running process, how often it was entered. In: an ``Inspection``. Out: lines, or JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from memopt.elf.rewriting.record import Record, VersionRecord

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of one version in a running process: passes of the header, runs of the version, and for how many
    more passes it rests."""

    entries: int
    runs: int
    resting: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """``patched``: the jumps are in the file; None where its code was changed otherwise. ``whole``: the file is as
    memopt has written it. ``counters``: one for each version; empty without a process."""

    path: str
    record: Record
    patched: bool | None
    whole: bool
    counters: tuple[Counters, ...] = ()


def lines(found: Inspection) -> Iterator[str]:
    """The text for people."""
    record = found.record
    count = len(record.versions)
    yield (f"{found.path}: rewritten by memopt {record.memopt}, {count} version{'' if count == 1 else 's'} of loops; "
           f"{record.state[1]:,} bytes of memory added")
    yield f"the original: {record.length:,} bytes, SHA-256 {record.sha256}" + (
        f", build id {record.build_id}" if record.build_id else "")
    if found.patched is None:
        yield "the code at a loop's header is neither the original's nor memopt's"
    elif not found.patched:
        yield "the jumps to the new code are not in it: it runs as the original"
    if not found.whole:
        yield "it was changed since memopt rewrote it (stripped, or other libraries named)"
    for number, version in enumerate(record.versions):
        yield from _version(version)
        if found.counters:
            counters = found.counters[number]
            yield f"    entries {counters.entries:,}, runs {counters.runs:,}, resting for {counters.resting:,} passes"


def _version(version: VersionRecord) -> Iterator[str]:
    where = f" in {version.function}" if version.function else ""
    yield f"loop at {version.header:#x}{where}: {version.code[1] - version.code[0]:,} bytes of code for {version.isa}"
    for name, text in (("plan", version.plan), ("planned for", version.machine)):
        if text:
            yield from (f"    {name + ': ' if not n else ''}{line}" for n, line in enumerate(text.splitlines()))
    yield from (f"    guard: {guard}" for guard in version.guards)
    if version.scratch:
        yield f"    copies of arrays: {version.scratch:,} bytes"
    if version.measured:
        yield "    in the trial: " + ", ".join(f"{name} {value:.4g}" for name, value in version.measured)


def as_json(found: Inspection) -> str:
    """The same as one JSON object; addresses are hexadecimal strings. ``FORMAT`` changes when a key is removed."""
    record = found.record
    return json.dumps({
        "format": FORMAT, "memopt": record.memopt, "patched": found.patched, "whole": found.whole,
        "original": {"length": record.length, "sha256": record.sha256, "build_id": record.build_id or None},
        "state": {"address": f"{record.state[0]:#x}", "size": record.state[1]},
        "changes": [{"offset": c.offset, "original": c.original.hex()} for c in record.changes],
        "patches": [{"address": f"{p.address:#x}", "original": p.original.hex(), "new": p.new.hex()}
                    for p in record.patches],
        "versions": [_version_json(v, found.counters[n] if found.counters else None)
                     for n, v in enumerate(record.versions)],
    }, indent=2, allow_nan=False) + "\n"


def _version_json(version: VersionRecord, counters: Counters | None) -> dict[str, Any]:
    return {
        "header": f"{version.header:#x}", "function": version.function or None, "guards": list(version.guards),
        "region": version.region or None, "plan": version.plan or None, "isa": version.isa, "machine": version.machine,
        "scratch": version.scratch, "code": [f"{address:#x}" for address in version.code],
        "measured": dict(version.measured),
        "counters": None if counters is None else
        {"entries": counters.entries, "runs": counters.runs, "resting": counters.resting},
    }
