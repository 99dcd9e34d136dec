"""Descendants, thread count and processor time of a process, from /proc.

Example: under ``memopt exec -- mpirun -n 4 ./solver`` the four solvers are descendants of mpirun.

Nothing is changed. A process whose parent has ended is no descendant any more, and is not found.
"""

from __future__ import annotations

import contextlib
import os
import time

from runtime.target.tracee import is_own_thread, status_field, thread_state

_LOOK_SECONDS = 0.0005  # between two looks at a process that sleeps


def descendants(pid: int) -> tuple[int, ...]:
    """All living descendants of ``pid``, parents first, except processes that memopt traces (its trial copies)."""
    found: list[int] = []
    pending = [pid]
    while pending:
        children = [c for c in _children(pending.pop()) if not is_own_thread(status_field(c, "TracerPid"))]
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
    """Processor seconds of the main thread of ``pid``, system time included; 0 if it is gone.

    The kernel updates them at each tick and when the thread stops.
    """
    with contextlib.suppress(OSError), open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0]) * 1e-9
    return 0.0


def processor_seconds(pid: int) -> float:
    """Processor seconds of all threads of ``pid``, up to this moment; 0 if it is gone.

    The clock's number is computed as clock_getcpuclockid(3) does.
    """
    with contextlib.suppress(OSError):
        return time.clock_gettime(~pid << 3 | 2)
    return 0.0


def stat_fields(pid: int) -> tuple[str, list[str]]:
    """Name of a process, and the fields of /proc/PID/stat behind it (proc_pid_stat(5)): the first one, number 3 there,
    is the state. Empty if the process is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        head, _, rest = file.read().rpartition(") ")
        return head.partition("(")[2], rest.split()
    return "", []


def await_running(pid: int, seconds: float) -> bool:
    """Waits for at most ``seconds`` while the main thread of ``pid`` sleeps in a system call. Whether it runs then."""
    end = time.monotonic() + seconds
    while thread_state(pid, pid) in ("S", "D"):
        if time.monotonic() > end:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def thread_count(pid: int) -> int:
    """The number of threads of ``pid``; 0 if it is gone."""
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/task"))
    return 0
