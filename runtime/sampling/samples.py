"""Where the program spends its time: statistical samples of the user-mode instruction pointer of its threads.

A software clock event (no hardware counter is needed) interrupts each thread once per interval of the processor
time it uses; the kernel writes the interrupted address to a ring buffer that is read here. Where the kernel does not
allow that, the program is stopped for a moment at each ``read`` by a tracer that the caller brings.

Invariant: only the program's own threads count, never its children, unless these are asked for; a sampler never changes
what the program does.

Sources: perf_event_open(2) under MMAP layout.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import os
import struct
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from runtime.sampling.perf_events import Events

_HEADER = struct.Struct("<IHH")
_SAMPLE = struct.Struct("<QII")
_MAPPED = struct.Struct("<IIQQQIIQQII")  # process, thread, start, size, offset, device, inode, generation, how
_RECORD_LOST, _RECORD_COMM, _RECORD_EXIT, _RECORD_FORK, _RECORD_SAMPLE, _RECORD_MMAP2 = 2, 3, 4, 7, 9, 10
_MODE_MASK, _MODE_USER = 7, 2
_COMM_EXEC = 1 << 13
_IDENTIFIER_BYTES = 16  # process and thread, then the time, behind each record that is no sample


class Sample(NamedTuple):
    """``address``: user-mode instruction pointer; ``child``: 0, or the process that the program has started."""

    address: int
    tid: int
    child: int = 0


class Mapped(NamedTuple):
    """Process ``pid`` has the file at ``path`` from its byte ``offset`` on, executable, at ``[start, end)``."""

    pid: int
    start: int
    end: int
    offset: int
    inode: int
    path: str


class Forked(NamedTuple):
    """Process ``pid`` begins as a copy of ``parent``; where they are the same, a thread of it."""

    pid: int
    parent: int


class Executed(NamedTuple):
    """Process ``pid`` is another program from now on; what that is comes next, as Mapped."""

    pid: int


class Ended(NamedTuple):
    """A thread of process ``pid`` has ended."""

    pid: int


News = Mapped | Forked | Executed | Ended


class Source(Enum):
    """How samples are taken; the value is for reports."""

    PERF_EVENT = "perf-event"
    INTERRUPT = "interrupt"
    NONE = "none"


class Sampler(Protocol):
    """``note``: one line for the user when samples are worse than they could be, else "". ``lost``: samples that
    found no room. ``interval_ns``: processor time one sample stands for (0: not known)."""

    source: Source
    note: str
    lost: int

    @property
    def interval_ns(self) -> int: ...

    def read(self) -> list[Sample]:
        """The samples since the last call."""

    def read_all(self, *, last: bool = False) -> list[Sample | News]:
        """The samples, and what became of processes where that is told, in the order in which it happened. What came
        since the last call may be kept for the next one, if this is not the ``last``: more may come that happened
        before. ``lost`` counts what was told, too."""

    def set_interval(self, nanoseconds: int) -> None:
        """Change the processor time between samples."""

    def pause(self) -> None:
        """Take no samples until ``resume``."""

    def resume(self) -> None: ...

    def close(self) -> None:
        """Give everything back; may be called twice."""


Interrupter = Callable[[], Sequence[Sample]]
"""Stops the running threads of the program for a moment and returns where each was, or nothing if it has ended."""


def sampler_of(events: Events, interrupter: Interrupter | None = None) -> Sampler:
    """Read what ``events`` sample. Where they are refused, falls back to ``interrupter``, else to a sampler that sees
    nothing; ``note`` says so."""
    if events.refused is None:
        return _PerfSampler(events)
    if isinstance(events.refused, ProcessLookupError):  # it has ended
        return InterruptSampler(events.pid, None, "")
    return InterruptSampler(events.pid, interrupter, _refusal(events.refused))


class _PerfSampler:
    source = Source.PERF_EVENT
    note = ""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._kept: list[tuple[int, Sample | News]] = []  # what is to be told yet, with its time
        self.lost = 0

    @property
    def interval_ns(self) -> int:
        return self._events.interval_ns

    def read(self) -> list[Sample]:
        return [happened for happened in self.read_all(last=True) if isinstance(happened, Sample)]

    def read_all(self, *, last: bool = False) -> list[Sample | News]:
        """All that happened before the rings were read has been read; of what happened since then, a ring that was read
        later may tell more than one that was read before."""
        until = max((time for time, _ in self._kept), default=0)
        for data in self._events.take():
            found, lost = parse_records(data, self._events.pid, self._events.children)
            self._kept += found
            self.lost += lost
        self._kept.sort(key=lambda timed: timed[0])
        due = len(self._kept) if last else bisect.bisect_right(self._kept, until, key=lambda timed: timed[0])
        told, self._kept = self._kept[:due], self._kept[due:]
        return [happened for _, happened in told]

    def set_interval(self, nanoseconds: int) -> None:
        self._events.set_interval(nanoseconds)

    def pause(self) -> None:
        self._events.pause()

    def resume(self) -> None:
        self._events.resume()

    def close(self) -> None:
        self._events.close()


class InterruptSampler:
    """One sample of each running thread per ``read``, by stopping it. ``reason``: why not better, for the user."""

    interval_ns = 0
    lost = 0

    def __init__(self, pid: int, interrupter: Interrupter | None, reason: str) -> None:
        self.source = Source.NONE if interrupter is None else Source.INTERRUPT
        self._pid = pid
        self._interrupter = interrupter
        self._paused = False
        how = "nothing can be sampled" if interrupter is None else "sampling is coarser, by stopping the program"
        self.note = f"{reason}; {how}" if reason else ""

    def read(self) -> list[Sample]:
        """Only a thread that is on a processor is stopped: a system call that waits is never disturbed."""
        if self._interrupter is None or self._paused or not _runs(self._pid):
            return []
        return list(self._interrupter())

    def read_all(self, *, last: bool = False) -> list[Sample | News]:
        return list(self.read())

    def set_interval(self, nanoseconds: int) -> None:
        """Nothing to set: the caller's calls of ``read`` are the clock."""

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def close(self) -> None:
        self._interrupter = None


def parse_records(data: bytes, pid: int, children: bool = False) -> tuple[list[tuple[int, Sample | News]], int]:
    """User-mode samples of process ``pid``, or of all processes, and what became of these, among perf records of type
    IP | TID | TIME that all have identifiers; each with its time. And the count of lost ones."""
    found: list[tuple[int, Sample | News]] = []
    lost = offset = 0
    while offset + _HEADER.size <= len(data):
        kind, misc, size = _HEADER.unpack_from(data, offset)
        if size < _HEADER.size:
            break
        body = data[offset + _HEADER.size:offset + size]
        if kind == _RECORD_LOST:
            lost += struct.unpack_from("<8xQ", body)[0]
        elif (happened := _happened(kind, misc, body, pid, children)) is not None:
            found.append((struct.unpack_from("<Q", body, len(body) - 8)[0], happened))
        offset += size
    return found, lost


def _happened(kind: int, misc: int, body: bytes, pid: int, children: bool) -> Sample | News | None:
    if kind == _RECORD_SAMPLE and misc & _MODE_MASK == _MODE_USER:
        address, process, tid = _SAMPLE.unpack_from(body)
        return Sample(address, tid, 0 if process == pid else process) if process == pid or children else None
    if kind == _RECORD_MMAP2:
        process, _, start, size, offset, _, _, inode, *_ = _MAPPED.unpack_from(body)
        path = body[_MAPPED.size:-_IDENTIFIER_BYTES].split(b"\0", 1)[0]
        return Mapped(process, start, start + size, offset, inode, os.fsdecode(path))
    if kind == _RECORD_COMM and misc & _COMM_EXEC:
        return Executed(*struct.unpack_from("<I", body))
    if kind == _RECORD_FORK:
        return Forked(*struct.unpack_from("<II", body))
    if kind == _RECORD_EXIT:
        return Ended(*struct.unpack_from("<I", body))
    return None


def _runs(pid: int) -> bool:
    """Whether the first thread is on a processor or waits for one."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read(4096).rpartition(b")")[2].split()[:1] == [b"R"]
    return False


def _refusal(error: OSError) -> str:
    """Why perf events are not to be had, and what to do."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"perf events are refused ({error.strerror}): set kernel.perf_event_paranoid to 2 or less"
    if error.errno == errno.ENOSYS:
        return "this kernel has no perf events"
    return f"perf events cannot be opened ({error.strerror})"
