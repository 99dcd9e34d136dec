"""The processor time of the processes that a program has started, which ``memopt exec`` leaves alone without --follow.

Example: ``memopt exec -- ./run.sh``, where the script runs ``stencil`` for 4 s: the report says so and names --follow.
In: the number of the program's process, looked at now and then. Out: a line for the user, or none. Nothing is changed.

Source: proc_pid_stat(5): a process that has been waited for is in the cutime and cstime of its parent.
"""

from __future__ import annotations

import os
import resource

from runtime.target.proc import descendants, stat_fields

LOOK_SECONDS = 0.25
WORTH_SECONDS, WORTH_SHARE = 0.5, 0.5  # of processor time, before the user is told
_MOST_NAMES = 3
_TICKS = os.sysconf("SC_CLK_TCK")


class Started:
    """Counts the processor time of the descendants of ``pid``, as far as they are seen every ``LOOK_SECONDS``."""

    def __init__(self, pid: int) -> None:
        self._pid, self._next = pid, 0.0
        self._own = self._system = self._waited_for = 0.0
        self._alive = 0.0  # seconds of those that lived at the last look
        self._seen: dict[int, tuple[str, float]] = {}  # name and seconds, when last seen

    def step(self, now: float) -> None:
        """Look, if it is time. ``now``: seconds on any clock."""
        if now < self._next:
            return
        self._next = now + LOOK_SECONDS
        found = _used(self._pid)
        if found is None:
            return
        _, self._own, self._waited_for, self._system = found
        self._alive = 0.0
        for pid in descendants(self._pid):
            used = _used(pid)
            if used is not None:
                name, own, waited_for, _ = used
                self._alive += own + waited_for
                self._seen[pid] = name, own

    def note(self) -> str:
        """The line for the user; "" where the program itself used most of the time, or little was used at all."""
        seconds = self._waited_for + self._alive
        if seconds < max(WORTH_SECONDS, WORTH_SHARE * (seconds + self._own)):
            return ""
        by_name: dict[str, float] = {}
        for name, used in self._seen.values():
            by_name[name] = by_name.get(name, 0.0) + used
        names = [name for name in sorted(by_name, key=lambda n: -by_name[n])[:_MOST_NAMES] if by_name[name] > 0]
        whom = f" ({', '.join(names)})" if names else ""
        share = 100 * seconds / (seconds + self._own)
        return (f"{share:.0f} % of the processor time, {seconds:.1f} s, went to processes that it started{whom}; "
                "without --follow they are left alone")


    def account(self, samples: float, usage: resource.struct_rusage | None) -> tuple[float, float]:
        """Seconds of the program in the kernel, and those of the processes that it has started.

        ``samples``: its seconds outside the kernel. ``usage``: as in ``Supervisor``."""
        if usage is None:
            return self._system, self._waited_for + self._alive
        if not self._seen and not self._waited_for:
            return usage.ru_stime, 0.0
        rest = usage.ru_utime + usage.ru_stime - samples - self._system
        return self._system, max(rest, self._waited_for + self._alive)  # ``usage`` lacks those it has not waited for


def _used(pid: int) -> tuple[str, float, float, float] | None:
    """Name, processor seconds, those of the children that were waited for, and its own in the kernel; None if the
    process is gone."""
    name, fields = stat_fields(pid)
    if not fields:
        return None
    user, system, waited_user, waited_system = map(int, fields[11:15])
    return name, (user + system) / _TICKS, (waited_user + waited_system) / _TICKS, system / _TICKS
