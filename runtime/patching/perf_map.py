"""The perf map /tmp/perf-PID.map, in which perf and other profilers find the names of generated code.

Example: ``7f0012340000 1a40 memopt:dgemm:avx512``: start, size and name, one line for each version.

Invariant: memopt writes to, and deletes, only a file that it has made itself. If the program has a perf map of its own,
as just-in-time compilers do, it stays untouched (tools/perf/Documentation/jit-interface.txt).
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

_PREFIX = "memopt:"
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def path_of(pid: int) -> str:
    """The path of the perf map of process ``pid``."""
    return f"/tmp/perf-{pid}.map"


def add(pid: int, start: int, size: int, nest: str, version: str) -> bool:
    """Name the code ``[start, start + size)``: version ``version`` of ``nest``. False if the file is not memopt's or
    cannot be written."""
    name = "".join(c if c.isprintable() and not c.isspace() else "_" for c in f"{_PREFIX}{nest}:{version}")
    try:
        descriptor = _open(path_of(pid))
        if descriptor is None:
            return False
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{start:x} {size:x} {name}\n")
    except OSError:  # on a full disk the version stays without a name
        return False
    return True


def delete(pid: int) -> None:
    """Delete the perf map of ``pid`` if memopt has made it."""
    with suppress(OSError):  # another thread has deleted it
        descriptor = os.open(path_of(pid), _SAFELY | os.O_RDONLY)
        try:
            ours = _ours(descriptor)
        finally:
            os.close(descriptor)
        if ours:
            os.unlink(path_of(pid))


def _open(path: str) -> int | None:
    """A descriptor to append to the file: a new one, or one that memopt has made; None if it is somebody else's.

    The file that is looked at is the one that is written to: everybody may put other files and links into /tmp."""
    try:
        return os.open(path, _SAFELY | os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        descriptor = os.open(path, _SAFELY | os.O_RDWR | os.O_APPEND)
    if _ours(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _ours(descriptor: int) -> bool:
    """Whether it is a plain file of this user's, under this name only, with nothing but memopt's lines in it."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
        return False
    with open(os.dup(descriptor), encoding="utf-8", errors="replace") as file:
        return all(line.split(maxsplit=2)[2:3] and line.split(maxsplit=2)[2].startswith(_PREFIX) for line in file)
