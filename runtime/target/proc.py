"""What /proc tells of processes: which a program has started (scripts, mpirun), and how long they ran.

Invariant: only /proc is read. A process whose parent has ended is nobody's descendant any more and is not found.
"""

from __future__ import annotations

import contextlib
import os
import time

from runtime.target.tracee import status_field


def descendants(pid: int) -> tuple[int, ...]:
    """Every living process below ``pid``, parents first; those that memopt itself traces (its copies) left out."""
    found: list[int] = []
    pending = [pid]
    while pending:
        children = [c for c in _children(pending.pop()) if status_field(c, "TracerPid") != str(os.getpid())]
        found += children
        pending += children
    return tuple(found)


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{tid}/children", encoding="ascii") as file:
                children += map(int, file.read().split())
    return children


def running_seconds(pid: int) -> float:
    """Seconds the first thread of ``pid`` was on a processor, system time included; 0 when it is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0]) * 1e-9
    return 0.0


def processor_seconds(pid: int) -> float:
    """Seconds that all threads of ``pid`` were on processors, as of now (``running_seconds``: as of the last tick); 0
    when it is gone. The clock's number is that of clock_getcpuclockid(3)."""
    with contextlib.suppress(OSError):
        return time.clock_gettime(~pid << 3 | 2)
    return 0.0


def thread_count(pid: int) -> int:
    """Threads of ``pid``, 0 when it is gone."""
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/task"))
    return 0
