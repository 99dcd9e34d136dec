"""Memory budget of shadows: a process is forked only if there is room for all its private memory once more.

A fork shares its pages with the program until one of them writes (copy-on-write). In the worst case every page is
written. That must fit the free memory of the machine and the limit of every cgroup that contains the process.

In: a process id, a number of shadows. Raises ``Rejected(NO_MEMORY)``.

Sources: proc_meminfo(5), Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import os

from memopt.ir.reasons import Reason, Rejected
from runtime.target.tracee import field_of, status_field

_RESERVE = 64 << 20  # bytes that must stay free


def check_copies(pid: int, copies: int = 1) -> None:
    """Raises ``Rejected(NO_MEMORY)`` if ``copies`` full copies of the private memory of ``pid`` would not fit."""
    private = (_kibibytes(status_field(pid, "RssAnon")) + _kibibytes(status_field(pid, "VmSwap"))) << 10
    needed = copies * private + _RESERVE
    free = available(pid)
    if needed > free:
        raise Rejected(Reason.NO_MEMORY, f"trial copies may need {needed >> 20} MiB, {free >> 20} MiB are free")


def available(pid: int) -> int:
    """Bytes that ``pid`` can still allocate: the free memory of the machine, or less if a cgroup limits it."""
    with open("/proc/meminfo", encoding="ascii") as file:
        free = _kibibytes(field_of(file, "MemAvailable")) << 10
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return free
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            free = min(free, _room("/sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file"))
        elif "memory" in controllers.split(","):
            free = min(free, _room("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file"))
    return free


def _room(root: str, path: str, limit_file: str, usage_file: str, reclaimable: str) -> int:
    """The fewest bytes that any cgroup from ``path`` up to ``root`` has left; reclaimable page cache counts as left.

    ``limit_file``, ``usage_file``: the names of its files. ``reclaimable``: the line in memory.stat.
    """
    room = 1 << 62
    while True:
        directory = os.path.join(root, path.strip("/"))
        limit, usage = _number(f"{directory}/{limit_file}"), _number(f"{directory}/{usage_file}")
        if limit is not None and usage is not None:
            room = min(room, max(0, limit - usage + _statistic(f"{directory}/memory.stat", reclaimable)))
        if path in ("", "/"):
            return room
        path = os.path.dirname(path)


def _number(path: str) -> int | None:
    """The number in a file; None for "max", or if there is no such file."""
    try:
        with open(path, encoding="ascii") as file:
            text = file.read().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _statistic(path: str, name: str) -> int:
    try:
        with open(path, encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith(name + " ")), 0)
    except OSError:
        return 0


def _kibibytes(value: str) -> int:
    """The number in "123 kB"; 0 for an empty string."""
    return int(value.split()[0]) if value else 0
