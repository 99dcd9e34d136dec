"""The cost of a copy, in processor time of the program, and whether the copy is worth it.

Example: a program with 450 MB is copied. As long as the copy lives, each page that the program writes is a page fault
and a page to copy: 115,000 pages of 4 microseconds are half a second. A program that has run for one second, and will
perhaps run for one more, loses by that, whatever is found. A program that has run for a minute does not.

In: a process id, and the share of its time that may be gained from. Out: ``CopyBudget.check`` raises
``Rejected(COPY_COSTS)`` for a copy that is not worth it yet. It may be later, as the program goes on, or as it turns
out that the program hardly uses its memory.

The rule: how long the program has run is the best guess of how long it goes on. New code may save half of the hot
share of that. All copies together may cost a quarter of that, as many lead to nothing, and ``FREE_SECONDS``.
"""

from __future__ import annotations

import functools
import math
import mmap
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from memopt.ir.reasons import Reason, Rejected
from runtime.target.memory import PAGE
from runtime.target.proc import running_seconds, stat_fields
from runtime.target.tracee import field_of, status_field

FREE_SECONDS = 0.2  # a program with 100 MB is not made to wait for its copy
COPIES_SHARE, SAVED_SHARE = 0.25, 0.5

_USED_S = 1.0  # about as long as a copy lives
_ASKING = 20  # at most one part of the time in so many is spent on asking

_PAGES, _TRIES = 256, 3
# A page that is copied costs more than one that is cleared: it is read from memory, and other processors give up their
# translations of it. Measured on a virtual machine with two processors: 3 to 5 times as much.
_COPIED = 4.0
_FAULT_S = 0.5e-6, 5e-6  # bounds for what is measured, which a busy machine disturbs


@functools.cache
def page_seconds() -> float:
    """Processor seconds that a program takes for one page it writes while a copy lives, by the time memopt takes to
    touch new memory."""
    least = min(_touch(_PAGES) for _ in range(_TRIES)) / _PAGES
    low, high = _FAULT_S
    return _COPIED * min(max(least, low), high)


def _touch(pages: int) -> float:
    with mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        began = time.thread_time()
        for at in range(0, pages * PAGE, PAGE):
            memory[at] = 1
        return time.thread_time() - began


@dataclass
class Touched:
    """How many pages a process uses of those that it has: a table of 10 GB may lie there and hardly be read.

    The kernel forgets which pages were used (proc_pid_clear_refs(5)), and tells later which were used since. Nothing in
    the process changes by that. It takes some milliseconds for each GB, so it is asked for rarely.
    """

    _since: float | None = None
    _next: float = 0.0
    _found: int | None = None

    def pages(self, pid: int, most: int) -> int:
        """The number of pages used since the first call; ``most`` as long as that is less than ``_USED_S`` ago."""
        now = time.monotonic()
        if self._since is None:
            self._since, self._next = now, now + _USED_S if _forget(pid) else math.inf
        elif now >= self._next:
            self._found = _used(pid)
            after = time.monotonic()
            self._next = after + max(_USED_S / 2, _ASKING * (after - now))
        return most if self._found is None else self._found


@dataclass
class CopyBudget:
    """What the copies of one process have cost so far, and may cost.

    ``at_stake``: the share of the program's time that is spent in code that may be improved, 0 to 1. ``written``: how
    many pages the program has written during the copy that lived longest, None before the first one.
    """

    at_stake: float = 1.0
    spent: float = 0.0
    written: int | None = None
    _longest: float = 0.0
    _touched: Touched = field(default_factory=Touched)

    def check(self, pid: int) -> None:
        """Raises ``Rejected(COPY_COSTS)`` if a copy of ``pid`` is not worth its cost now."""
        cost = self.cost(pid)
        if self.spent + cost > self.limit(pid):
            raise Rejected(Reason.COPY_COSTS, f"{cost:.2g} s for {_pages(pid) * PAGE >> 20} MiB, after "
                                              f"{running_seconds(pid):.2g} s of the program's time")

    def enough(self, pid: int) -> bool:
        """Whether ``check`` raises nothing."""
        return self.spent + self.cost(pid) <= self.limit(pid)

    def cost(self, pid: int) -> float:
        """Seconds that a copy will cost: at most a fault for each page that the program uses at all these days, and at
        most twice as many as the last time."""
        pages = _pages(pid)
        if self.written is not None:
            pages = min(pages, 2 * self.written)
        elif pages * page_seconds() > self.limit(pid):
            pages = min(pages, self._touched.pages(pid, pages))
        return pages * page_seconds()

    def limit(self, pid: int) -> float:
        """Seconds that all copies together may cost by now."""
        return FREE_SECONDS + COPIES_SHARE * SAVED_SHARE * self.at_stake * running_seconds(pid)

    @contextmanager
    def counted(self, pid: int) -> Iterator[None]:
        """A context in which a copy lives: its cost is counted by the faults that the program takes meanwhile."""
        faults, pages, began = _faults(pid), _pages(pid), time.monotonic()
        try:
            yield
        finally:
            written, lived = min(pages, max(0, _faults(pid) - faults)), time.monotonic() - began
            self.spent += written * page_seconds()
            if self.written is None or lived >= self._longest:
                self.written, self._longest = written, lived


def _forget(pid: int) -> bool:
    """Let the kernel forget which pages were used; False if it does not."""
    try:
        with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("1")
    except OSError:
        return False
    return True


def _used(pid: int) -> int | None:
    """The pages used since ``_forget``, None if the kernel does not tell."""
    with suppress(OSError, ValueError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        words = field_of(file, "Referenced").split()
        return (int(words[0]) << 10) // PAGE if words else None
    return None


def _pages(pid: int) -> int:
    """The pages of private memory that the program may write."""
    words = status_field(pid, "RssAnon").split()
    return (int(words[0]) << 10) // PAGE if words else 0


def _faults(pid: int) -> int:
    """The page faults of ``pid`` that needed no disk: field 10 of /proc/PID/stat."""
    _, fields = stat_fields(pid)
    return int(fields[7]) if fields else 0
