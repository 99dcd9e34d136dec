"""The file in which perf and other profilers look up code that belongs to no program file: /tmp/perf-PID.map.

Invariant: memopt only writes to and deletes a file that it made itself; a program that has its own (a just-in-time
compiler) keeps it untouched (tools/perf/Documentation/jit-interface.txt).
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

_PREFIX = "memopt:"


def path_of(pid: int) -> str:
    return f"/tmp/perf-{pid}.map"


def add(pid: int, start: int, size: int, nest: str, version: str) -> bool:
    """Name ``[start, start + size)`` as version ``version`` of ``nest``; False when the file is not ours or
    cannot be written."""
    name = "".join(c if c.isprintable() and not c.isspace() else "_" for c in f"{_PREFIX}{nest}:{version}")
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            descriptor = os.open(path_of(pid), flags | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            if not _ours(pid):
                return False
            descriptor = os.open(path_of(pid), flags)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{start:x} {size:x} {name}\n")
    except OSError:  # a full disk costs the name, not the version
        return False
    return True


def delete(pid: int) -> None:
    """Remove the file if memopt made it."""
    if _ours(pid):
        with suppress(FileNotFoundError):  # another thread was faster
            os.unlink(path_of(pid))


def _ours(pid: int) -> bool:
    try:
        descriptor = os.open(path_of(pid), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with open(descriptor, encoding="utf-8", errors="replace") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return False
        return all(line.split(maxsplit=2)[2:3] and line.split(maxsplit=2)[2].startswith(_PREFIX) for line in file)
