"""The identity of cached plans: the program file by its code, the options, the machine, memopt by its sources.

In: a path, the options that plans depend on. Out: the name of the file in the cache, 32 hexadecimal digits; and its
first lines (``origin``), which must be the same when it is read. The name costs little, because every run asks for it:
what takes longer to find out (the machine, memopt's sources) is in the lines, which only a run with a file needs.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from memopt import __version__
from memopt.elf.image import PF_X, PT_LOAD, ElfError, Image
from memopt.ir.frozen import dataclass

if TYPE_CHECKING:
    from memopt.machine.description import Machine

FORMAT = "memopt-plans 1"
_MOST_CODE = 256 << 20  # bytes of executable segments: hashing them takes a quarter of a second
_MOST_NOTES = 1 << 16
_PT_NOTE, _GNU_BUILD_ID = 4, 3
_NOTE = struct.Struct("<III")  # sizes of name and description, type: System V ABI, chapter 5, note section
_OWN_PACKAGES = ("memopt", "passes", "runtime")
_MODEL = re.compile(rb"^model name\s*:\s*(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """A program file, told by its code: files with other data and the same code are the same one."""

    size: int  # bytes
    build_id: str  # hexadecimal, "" without one
    code: str  # SHA-256 of the executable segments, hexadecimal

    def __str__(self) -> str:
        return f"file {self.size} build-id {self.build_id or '-'} code {self.code}"


def file_identity(path: str) -> FileIdentity | None:
    """The identity of the ELF file at ``path``. None where it cannot be read, is set-uid or set-gid, has too much code,
    or where root would run a file of another user."""
    with suppress(ElfError, OSError), Image(path) as image:
        status = os.stat(path)
        if status.st_mode & (stat.S_ISUID | stat.S_ISGID) or (os.geteuid() == 0 and status.st_uid != 0):
            return None
        parts = [s for s in image.segments if s.kind == PT_LOAD and s.flags & PF_X]
        if not parts or sum(s.file_size for s in parts) > _MOST_CODE:
            return None
        known = hashlib.sha256()
        for segment in parts:
            known.update(f"{segment.address:#x} {segment.file_size}\n".encode())
            known.update(image.read(segment.offset, segment.file_size))
        return FileIdentity(image.size, _build_id(image), known.hexdigest())
    return None


def _build_id(image: Image) -> str:
    for segment in image.segments:
        if segment.kind != _PT_NOTE or segment.file_size > _MOST_NOTES:
            continue
        notes, at = image.read(segment.offset, segment.file_size), 0
        while at + _NOTE.size <= len(notes):
            name_size, size, kind = _NOTE.unpack_from(notes, at)
            start = at + _NOTE.size + (name_size + 3 & -4)
            if kind == _GNU_BUILD_ID and notes[at + _NOTE.size:at + _NOTE.size + name_size] == b"GNU\0":
                return notes[start:start + size].hex()[:128]
            at = start + (size + 3 & -4)
    return ""


@functools.cache
def _processor() -> bytes:
    """The model of the processor. A home directory may be shared by machines of several kinds."""
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            found = _MODEL.search(file.read(4096))
    except OSError:
        return b""
    return found[1] if found else b""


def file_name(file: FileIdentity, fp: str, isa: str) -> str:
    """The name in the cache of what is known about ``file``. ``fp``: the floating-point option; ``isa``: the
    instruction set that the user named, "" for the widest."""
    told = "\0".join((FORMAT, __version__, str(file), fp, isa)).encode() + b"\0" + _processor()
    return hashlib.sha256(told).hexdigest()[:32]


def origin(machine: Machine, fp: str, isa: str, sources: Callable[[], str] | None = None) -> tuple[str, ...]:
    """The lines that say for which machine, with which options and by which memopt plans were made. The clock rate is
    left out: it changes."""
    described = hashlib.sha256(replace(machine, frequency=None).to_toml().encode()).hexdigest()
    return (f"memopt {__version__}", f"sources {(sources or own_sources)()}",
            f"machine {described} xcr0 {machine.xcr0:#x} {json.dumps(machine.model)}", f"fp {fp}", f"isa {isa or '-'}")


@functools.cache
def own_sources() -> str:
    """SHA-256 of memopt's own sources: where a pass was changed, old plans and old refusals mean nothing."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    known = hashlib.sha256()
    for package in _OWN_PACKAGES:
        for folder, folders, files in os.walk(os.path.join(root, package)):
            folders.sort()
            for name in sorted(files):
                if name.endswith((".py", ".s", ".c")):
                    path = os.path.join(folder, name)
                    with open(path, "rb", buffering=0) as file:
                        content = file.read()
                    known.update(f"{os.path.relpath(path, root)}\0{len(content)}\0".encode() + content)
    return known.hexdigest()
