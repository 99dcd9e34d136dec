"""The record in a rewritten file: what was changed, and what each version of a loop is.

Example: a file with one version has a record with the SHA-256 of the original, the bytes that stood where the program
header table grew and at the loop's header, and the version's guards, plan and counters. ``memopt inspect`` shows it and
``memopt rewrite --undo`` goes by it.

The new segment begins with a header of 64 bytes: magic, version, length and offset of the text, SHA-256 of the text.
So the record is found by the section ``.memopt``, or, where the section headers were removed, at the start of the last
PT_LOAD. The text is JSON in one canonical form: the same input gives the same bytes. It holds no times, no paths and
no command lines, which may contain secrets.

In: an image. Out: a ``Record``. Whoever made the file is not trusted: sizes, types, counts and addresses are checked,
and anything odd is an ``ElfError``.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from memopt.elf.image import PF_W, PT_LOAD, ElfError, Image

SECTION = ".memopt"
STATE_SECTION = ".memopt.bss"
HEADER_SIZE = 64
_MAGIC = b"\x7fmemopt\n"
_VERSION = 1
_HEADER = struct.Struct("<8sIIQQ32s")  # magic, version, length of the text, its offset in the segment, zero, hash
_MOST_TEXT = 16 << 20
_MOST_PLACES = 1 << 16
_ADDRESSES = 1 << 48
_T = TypeVar("_T")
_DAMAGED = "its record of what memopt changed is damaged"


@dataclass(frozen=True, slots=True)
class Change:
    """``original`` stood at file offset ``offset``."""

    offset: int
    original: bytes


@dataclass(frozen=True, slots=True)
class PatchRecord:
    """``original`` stood at link address ``address``, where the code now has ``new``."""

    address: int
    original: bytes
    new: bytes


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """One version of a loop. Addresses are link-time ones.

    ``header``: of the loop, where the patch is. ``guards``: what is checked at entry. ``region``, ``plan``: text forms.
    ``isa``: the value of an ``Isa``. ``machine``: the one that it was planned for. ``scratch``: bytes of the state that
    hold copies of arrays. ``code``: start and end. ``entries``, ``runs``, ``resting``: offsets of its counters in the
    state (8, 8 and 4 bytes, unsigned). ``measured``: what the trial measured, names and numbers.
    """

    header: int
    function: str
    guards: tuple[str, ...]
    region: str
    plan: str
    isa: str
    machine: str
    scratch: int
    code: tuple[int, int]
    entries: int
    runs: int
    resting: int
    measured: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """What ``written`` did to a file.

    ``memopt``: the version of memopt. ``length``, ``sha256``: of the original. ``build_id``: hexadecimal, "" without
    one. ``state``: link address and size of the zeroed memory. ``changes``: all that was changed in the original's
    bytes but for ``patches``, sorted and apart.
    """

    memopt: str
    length: int
    sha256: str
    build_id: str
    state: tuple[int, int]
    changes: tuple[Change, ...]
    patches: tuple[PatchRecord, ...]
    versions: tuple[VersionRecord, ...]


def text_of(record: Record) -> bytes:
    """The canonical text of a record."""
    return json.dumps(asdict(record), default=bytes.hex, ensure_ascii=True, sort_keys=True, indent=0,
                      allow_nan=False).encode()


def header_of(text: bytes, offset: int) -> bytes:
    """The first 64 bytes of the new segment, for a text ``offset`` bytes behind the segment's start."""
    if len(text) > _MOST_TEXT:
        raise ElfError(f"the record of what is changed would have more than {_MOST_TEXT >> 20} MiB")
    return _HEADER.pack(_MAGIC, _VERSION, len(text), offset, 0, hashlib.sha256(text).digest())


def segment_start(image: Image) -> int | None:
    """The file offset of the new segment of a rewritten file; None where the file was not rewritten."""
    named = [s.offset for s in image.sections if s.name == SECTION]
    loaded = [s for s in image.segments if s.kind == PT_LOAD]
    last = [max(loaded, key=lambda s: s.address).offset] if loaded else []
    return next((at for at in (*named, *last)
                 if 0 <= at <= image.size - HEADER_SIZE and image.read(at, len(_MAGIC)) == _MAGIC), None)


def record_of(image: Image) -> Record | None:
    """The record of a rewritten file; None where the file was not rewritten. Raises ``ElfError`` for damaged ones."""
    start = segment_start(image)
    if start is None:
        return None
    _, version, length, offset, _, digest = _HEADER.unpack(image.read(start, HEADER_SIZE))
    if version != _VERSION:
        raise ElfError("another version of memopt has rewritten it; use that one")
    if length > _MOST_TEXT or offset > image.size:
        raise ElfError(_DAMAGED)
    text = image.read(start + offset, length)
    if hashlib.sha256(text).digest() != digest:
        raise ElfError(_DAMAGED)
    record = parsed(text)
    _check_state(image, record)
    return record


def parsed(text: bytes) -> Record:
    """The record with this text. Raises ``ElfError`` for anything that ``text_of`` does not make."""
    try:
        return _record(json.loads(text))
    except (ValueError, RecursionError, TypeError, KeyError, OverflowError) as error:
        raise ElfError(_DAMAGED) from error


def _check_state(image: Image, record: Record) -> None:
    start, size = record.state
    if size and not any(s.kind == PT_LOAD and s.flags & PF_W and s.address <= start and start + size <= s.end
                        for s in image.segments):
        raise ElfError(_DAMAGED)


def _record(found: Any) -> Record:
    record = Record(
        memopt=_text(found["memopt"]), length=_number(found["length"]), sha256=_hash(found["sha256"]),
        build_id=_text(found["build_id"]), state=_pair(found["state"]),
        changes=_values(found["changes"], lambda c: Change(_number(c["offset"]), _bytes(c["original"]))),
        patches=_values(found["patches"], lambda p: PatchRecord(
            _number(p["address"]), _bytes(p["original"]), _bytes(p["new"]))),
        versions=_values(found["versions"], _version))
    ends = [0]
    for change in record.changes:
        if change.offset < ends[-1] or change.offset + len(change.original) > record.length:
            raise ValueError
        ends.append(change.offset + len(change.original))
    if any(len(p.original) != len(p.new) for p in record.patches):
        raise ValueError
    _check_versions(record)
    return record


def _check_versions(record: Record) -> None:
    size = record.state[1]
    for version in record.versions:
        counters = ((version.entries, 8), (version.runs, 8), (version.resting, 4))
        if version.code[0] > version.code[1] or any(at + bytes_of > size for at, bytes_of in counters):
            raise ValueError


def _version(found: Any) -> VersionRecord:
    return VersionRecord(
        header=_number(found["header"]), function=_text(found["function"]),
        guards=_values(found["guards"], _text), region=_text(found["region"]), plan=_text(found["plan"]),
        isa=_text(found["isa"]), machine=_text(found["machine"]), scratch=_number(found["scratch"]),
        code=_pair(found["code"]), entries=_number(found["entries"]), runs=_number(found["runs"]),
        resting=_number(found["resting"]),
        measured=_values(found["measured"], lambda m: (_text(m[0]), _measure(m[1]))))


def _values(found: Any, of: Callable[[Any], _T]) -> tuple[_T, ...]:
    if not isinstance(found, list) or len(found) > _MOST_PLACES:
        raise ValueError
    return tuple(of(value) for value in found)


def _number(found: Any) -> int:
    if type(found) is not int or not 0 <= found < _ADDRESSES:
        raise ValueError
    return found


def _pair(found: Any) -> tuple[int, int]:
    first, second = _values(found, _number)
    return first, second


def _measure(found: Any) -> float:
    if type(found) not in (int, float) or not math.isfinite(found):
        raise ValueError
    return float(found)


def _text(found: Any) -> str:
    if not isinstance(found, str) or not all(c.isprintable() or c == "\n" for c in found):
        raise ValueError
    return found


def _hash(found: Any) -> str:
    if len(bytes.fromhex(_text(found))) != hashlib.sha256().digest_size:
        raise ValueError
    return str(found)


def _bytes(found: Any) -> bytes:
    return bytes.fromhex(_text(found))


def changes_of(image: Image, places: Iterable[tuple[int, int]]) -> tuple[Change, ...]:
    """What ``image`` has at ``places`` (file offset, size); places that touch become one change."""
    merged: list[tuple[int, int]] = []
    for start, size in sorted(places):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], start + size)
        else:
            merged.append((start, start + size))
    return tuple(Change(start, image.read(start, end - start)) for start, end in merged)


def printable(name: str) -> str:
    """``name`` as a record may hold it: without control characters, which might act on a terminal."""
    return "".join(c if c.isprintable() else "?" for c in name)
