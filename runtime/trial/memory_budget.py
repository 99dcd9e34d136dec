"""Memory budget of shadows: a process is forked only if there is room for all its private memory once more.

A fork shares its pages with the program until one of them writes (copy-on-write). In the worst case every page is
written. That must fit the free memory of the machine and the limit of every cgroup that contains the process. Where the
kernel promises no more memory than there is (vm.overcommit_memory 2), a copy takes half of what is left to promise at
most. And a copy is a process: the program must be able to start as many as it will.

In: a process id, a number of shadows. Raises ``Rejected(NO_MEMORY)``.

Sources: proc_meminfo(5), Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress

from memopt.ir.reasons import Reason, Rejected
from runtime.target.tracee import field_of, status_field

_RESERVE = 64 << 20  # bytes that must stay free
_MOST_COPIES = 16
_PROCESSES = 64  # that the program, or another one of its user or cgroup, must still be able to start


def check_copies(pid: int, copies: int = 1) -> None:
    """Raises ``Rejected(NO_MEMORY)`` if ``copies`` full copies of the private memory of ``pid`` would not fit."""
    private = (_kibibytes(status_field(pid, "RssAnon")) + _kibibytes(status_field(pid, "VmSwap"))) << 10
    needed = copies * private + _RESERVE
    free = available(pid)
    if needed > free:
        raise Rejected(Reason.NO_MEMORY, f"trial copies may need {needed >> 20} MiB, {free >> 20} MiB are free")
    promised = copies * (_kibibytes(status_field(pid, "VmData")) + _kibibytes(status_field(pid, "VmStk"))) << 10
    left = promises_left()
    if left is not None and 2 * (promised + _RESERVE) > left:
        raise Rejected(Reason.NO_MEMORY, f"trial copies need {promised >> 20} MiB more of the {left >> 20} MiB that "
                                         "the kernel may still promise")
    if processes_left(pid) < copies + _PROCESSES:
        raise Rejected(Reason.NO_MEMORY, f"a limit leaves {max(0, processes_left(pid))} processes to start")


def promises_left() -> int | None:
    """Bytes that the kernel may still promise to processes; None where it promises any number."""
    if _number("/proc/sys/vm/overcommit_memory") != 2:
        return None
    with open("/proc/meminfo", encoding="ascii") as file:
        lines = file.readlines()
    return (_kibibytes(field_of(lines, "CommitLimit")) - _kibibytes(field_of(lines, "Committed_AS"))) << 10


def processes_left(pid: int) -> int:
    """How many processes and threads may still be started in the cgroups of ``pid``, and by its user."""
    left = 1 << 62
    for controllers, path in _cgroups(pid):
        root = "/sys/fs/cgroup" if not controllers else "/sys/fs/cgroup/pids"
        if not controllers or "pids" in controllers.split(","):
            left = min(left, _room(root, path, "pids.max", "pids.current", ""))
    with suppress(OSError, ValueError, IndexError):
        most, _ = resource.prlimit(pid, resource.RLIMIT_NPROC)
        user = int(status_field(pid, "Uid").split()[0])
        if most != resource.RLIM_INFINITY and user:  # no limit holds for root
            left = min(left, most - _threads_of(user, most - _PROCESSES - _MOST_COPIES))
    return left


def _threads_of(user: int, enough: int) -> int:
    """The number of threads of a user; or that of all users, if that is less than ``enough``, as is known at once."""
    with open("/proc/loadavg", encoding="ascii") as file:
        everybody = int(file.read().split()[3].partition("/")[2])
    if everybody < enough:
        return everybody
    found = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with suppress(OSError):
                if entry.stat().st_uid == user:
                    found += os.stat(f"/proc/{entry.name}/task").st_nlink - 2
    return found


def _cgroups(pid: int) -> list[tuple[str, str]]:
    """The controllers and the path of each cgroup of ``pid``."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            return [(controllers, path) for _, controllers, path in
                    (line.split(":", 2) for line in file.read().splitlines())]
    except (FileNotFoundError, ProcessLookupError):
        return []


def available(pid: int) -> int:
    """Bytes that ``pid`` can still allocate: the free memory of the machine, or less if a cgroup limits it."""
    with open("/proc/meminfo", encoding="ascii") as file:
        free = _kibibytes(field_of(file, "MemAvailable")) << 10
    for controllers, path in _cgroups(pid):
        if not controllers:
            free = min(free, _room("/sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file"))
        elif "memory" in controllers.split(","):
            free = min(free, _room("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file"))
    return free


def _room(root: str, path: str, limit_file: str, usage_file: str, reclaimable: str) -> int:
    """The least that any cgroup from ``path`` up to ``root`` has left; reclaimable page cache counts as left.

    ``limit_file``, ``usage_file``: the names of its files. ``reclaimable``: the line in memory.stat, or
    "".
    """
    room = 1 << 62
    while True:
        directory = os.path.join(root, path.strip("/"))
        limit, usage = _number(f"{directory}/{limit_file}"), _number(f"{directory}/{usage_file}")
        if limit is not None and usage is not None:
            again = _statistic(f"{directory}/memory.stat", reclaimable) if reclaimable else 0
            room = min(room, max(0, limit - usage + again))
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
