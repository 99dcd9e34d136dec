"""The entries of a cache file: for each loop a plan that was in service, or a refusal; and their text form.

Example::

    loop 0x1550 code 0x1550+108 0x15bc+4 bytes 0f3a...
    plan used 3 lost 0 unheld 0 times 0.0074 0.000115 9 even work 1048576.0 made 77ab...
    | nest
    | plan avx2 S0: j/1024 k/256 i/126 j/8 i/6
    : region <file+0x1550>, flags dead
    :   i = s32 r9

In: values. Out: text, and values from text: ``parse(text(stored)) == stored``; everything else is an ``OddFile``.
All addresses are link addresses. Texts of regions are only ever compared; those of plans are read by memopt.ir.parse.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.plans.identity import FORMAT, FileIdentity

MOST_BYTES = 1 << 20  # of a file
MOST_ENTRIES, MOST_OF_A_LOOP, MOST_RANGES = 512, 8, 4096
_MOST_COUNT = 10**6
_MOST_LINE = 1 << 16

_HEX = r"[0-9a-f]{64}"
_COUNT = r"(\d{1,7})"
_TIME = r"(\d[0-9.e+-]{0,30})"
_LOOP = re.compile(rf"loop (0x[0-9a-f]{{1,16}}) code((?: 0x[0-9a-f]{{1,16}}\+\d{{1,7}})+) bytes ({_HEX})")
_PLAN = re.compile(rf"plan used {_COUNT} lost {_COUNT} unheld {_COUNT} "
                   rf"times {_TIME} {_TIME} {_COUNT} (even|uneven) work {_TIME} made ({_HEX})")
_REFUSED = re.compile(rf'refused ([a-z0-9-]{{1,40}}) seen {_COUNT} used {_COUNT} (".*")')
_FILE = re.compile(rf"file (\d{{1,15}}) build-id (-|[0-9a-f]{{1,128}}) code ({_HEX})")


class OddFile(Exception):
    """A cache file that is not what memopt writes. The text says why, for the user."""


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan that was installed. ``region``: the region's text without addresses and code. ``made``: SHA-256 of the
    generated code's listing without addresses. Then what the trial measured (runtime.trial.trial.Measurement), and
    ``work``: the mean number of statement instances in an iteration.

    ``used``: runs that it was installed in; ``lost``, ``unheld``: in which it was not faster, or its guard never held.
    """

    region: str
    plan: str
    made: str
    original: float
    version: float
    iterations: int
    even: bool
    work: float
    used: int = 0
    lost: int = 0
    unheld: int = 0

    @property
    def usable(self) -> bool:
        return not self.lost and not self.unheld


@dataclass(frozen=True, slots=True)
class StoredRefusal:
    """A refusal that follows from the code. ``seen``: runs in which the stages came to it; ``used``: in which they were
    not asked."""

    reason: str  # the value of a memopt.ir.reasons.Reason
    detail: str
    seen: int = 0
    used: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known about the loop at ``header``, as long as the bytes of ``code`` are the same."""

    header: int
    code: tuple[tuple[int, int], ...]  # address and size of each range that was looked at
    digest: str  # SHA-256 of their bytes, one after the other
    what: StoredPlan | StoredRefusal

    @property
    def key(self) -> tuple[object, ...]:
        """What two runs have to agree on to talk of the same thing."""
        what = self.what
        same = what.region if isinstance(what, StoredPlan) else what.reason
        return self.header, self.code, self.digest, type(what), same


@dataclass(frozen=True, slots=True)
class Stored:
    """All that is known about one program file; what was used last comes first."""

    origin: tuple[str, ...]
    file: FileIdentity
    entries: tuple[Entry, ...] = ()


def text(stored: Stored) -> str:
    """The text of a cache file. Entries at the end are left out where it would become too long."""
    lines, size = [FORMAT, *stored.origin, str(stored.file)], 4096
    for entry in stored.entries[:MOST_ENTRIES]:
        more = list(_lines(entry))
        size += sum(len(line.encode()) + 1 for line in more)
        if size > MOST_BYTES or max(map(len, more)) > _MOST_LINE:
            break
        lines += more
    body = "".join(f"{line}\n" for line in lines)
    return f"{body}sum {hashlib.sha256(body.encode()).hexdigest()}\n"


def _lines(entry: Entry) -> Iterator[str]:
    ranges = " ".join(f"{address:#x}+{size}" for address, size in entry.code)
    yield f"loop {entry.header:#x} code {ranges} bytes {entry.digest}"
    match entry.what:
        case StoredRefusal(reason, detail, seen, used):
            yield f"refused {reason} seen {seen} used {used} {json.dumps(detail)}"
        case StoredPlan() as plan:
            yield (f"plan used {plan.used} lost {plan.lost} unheld {plan.unheld} times {plan.original!r} "
                   f"{plan.version!r} {plan.iterations} {'even' if plan.even else 'uneven'} work {plan.work!r} "
                   f"made {plan.made}")
            yield from (f"| {line}" for line in plan.plan.split("\n"))
            yield from (f": {line}" for line in plan.region.split("\n"))


def parse(content: str) -> Stored:
    """The value whose text is ``content``. Raises ``OddFile``."""
    body, found, last = content.rpartition("sum ")
    if not found or last != f"{hashlib.sha256(body.encode('utf-8', 'surrogateescape')).hexdigest()}\n":
        raise OddFile("its checksum does not match")
    lines = body.removesuffix("\n").split("\n")
    at = next((n for n, line in enumerate(lines[:16]) if line.startswith("file ")), 0)
    file = _FILE.fullmatch(lines[at])
    if lines[0] != FORMAT or file is None:
        raise OddFile("it is no file of this version")
    identity = FileIdentity(int(file[1]), "" if file[2] == "-" else file[2], file[3])
    return Stored(tuple(lines[1:at]), identity, tuple(_entries(lines[at + 1:])))


def _entries(lines: list[str]) -> Iterator[Entry]:
    at, count = 0, 0
    while at < len(lines):
        end = next((n for n in range(at + 1, len(lines)) if lines[n].startswith("loop ")), len(lines))
        count += 1
        if count > MOST_ENTRIES:
            raise OddFile("it has too many entries")
        yield _entry(lines[at:end])
        at = end


def _entry(lines: list[str]) -> Entry:
    loop = _LOOP.fullmatch(lines[0])
    if loop is None or len(lines) < 2:
        raise OddFile("an entry of it is malformed")
    ranges = tuple((int(a, 16), int(b)) for a, b in (r.split("+") for r in loop[2].split()))
    if len(ranges) > MOST_RANGES:
        raise OddFile("an entry of it is too large")
    return Entry(int(loop[1], 16), ranges, loop[3], _what(lines[1], lines[2:]))


def _what(head: str, rest: list[str]) -> StoredPlan | StoredRefusal:
    refused = _REFUSED.fullmatch(head)
    if refused is not None and not rest:
        try:
            return StoredRefusal(refused[1], str(json.loads(refused[4])), int(refused[2]), int(refused[3]))
        except ValueError:
            raise OddFile("an entry of it is malformed") from None
    planned = _PLAN.fullmatch(head)
    plan = [line[2:] for line in rest if line.startswith("| ")]
    region = [line[2:] for line in rest if line.startswith(": ")]
    if planned is None or not plan or not region or rest != [f"| {x}" for x in plan] + [f": {x}" for x in region]:
        raise OddFile("an entry of it is malformed")
    used, lost, unheld, original, version, iterations, even, work, made = planned.groups()
    return StoredPlan("\n".join(region), "\n".join(plan), made, _number(original), _number(version), int(iterations),
                      even == "even", _number(work), int(used), int(lost), int(unheld))


def _number(spelled: str) -> float:
    try:
        found = float(spelled)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise OddFile("a number of it is malformed")
    return found


def merged(known: Iterable[Entry], found: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries of earlier runs with those of this one, whose counts are added. A loop with a plan has no refusal;
    of one loop the ``MOST_OF_A_LOOP`` that were used last are kept."""
    entries = {entry.key: entry for entry in known}
    first: dict[tuple[object, ...], Entry] = {}
    for new in found:
        old = first.pop(new.key, None) or entries.pop(new.key, None)
        first[new.key] = new if old is None else replace(new, what=_added(old.what, new.what))
    every = [*first.values(), *entries.values()]
    planned = {entry.header for entry in every if isinstance(entry.what, StoredPlan) and entry.what.usable}
    kept: dict[int, int] = {}
    result = list[Entry]()
    for entry in every:
        kept[entry.header] = kept.get(entry.header, 0) + 1
        if kept[entry.header] <= MOST_OF_A_LOOP and not (
                isinstance(entry.what, StoredRefusal) and entry.header in planned):
            result.append(entry)
    return tuple(result[:MOST_ENTRIES])


def _added(old: StoredPlan | StoredRefusal, new: StoredPlan | StoredRefusal) -> StoredPlan | StoredRefusal:
    def total(one: int, two: int) -> int:
        return min(one + two, _MOST_COUNT)

    if isinstance(old, StoredPlan) and isinstance(new, StoredPlan):
        return replace(new, used=total(old.used, new.used), lost=total(old.lost, new.lost),
                       unheld=total(old.unheld, new.unheld))
    if isinstance(old, StoredRefusal) and isinstance(new, StoredRefusal):
        return replace(new, seen=total(old.seen, new.seen), used=total(old.used, new.used))
    return new
