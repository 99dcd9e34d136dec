"""Statistical sampling: user-mode instruction pointers of a program's threads, one per interval of processor time.

A software clock event (no hardware counter is needed) interrupts each thread once per interval of the processor time
that it uses. The kernel writes the interrupted address to a ring buffer, which is parsed here. If the kernel refuses
perf events, a tracer that the caller brings stops the program for a moment at each ``read`` instead.

In: ``Events`` (runtime/sampling/perf_events.py). Out: a ``Sampler``: samples and, if the events record them, lifecycle
events of processes (``News``).

Invariant: only the program's own threads are counted; its children are counted only if they are asked for. A sampler
never changes what the program does.

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
_SAMPLE = struct.Struct("<QIIQQQ")  # address, process, thread, time, event, the event that was inherited from it
_MAPPED = struct.Struct("<IIQQQIIQQII")  # process, thread, start, size, offset, device, inode, generation, how
_RECORD_LOST, _RECORD_COMM, _RECORD_EXIT, _RECORD_FORK, _RECORD_SAMPLE, _RECORD_MMAP2 = 2, 3, 4, 7, 9, 10
_MODE_MASK, _MODE_USER = 7, 2
_COMM_EXEC = 1 << 13
_IDENTIFIER_BYTES = 32  # process, thread, time and two numbers of events, at the end of each record that is no sample
_TIME_FROM_END = 24


class Sample(NamedTuple):
    """One sample: the user-mode instruction pointer of thread ``tid``. ``child``: the id of a child process, 0 for the
    program itself. ``inherited``: the number of the event, if a thread has inherited it, so that ``set_interval`` does
    not reach it; else 0. ``time_ns``: on the kernel's clock, 0 if it is not known."""

    address: int
    tid: int
    child: int = 0
    inherited: int = 0
    time_ns: int = 0


class Mapped(NamedTuple):
    """Process ``pid`` has mapped the file ``path``, from its byte ``offset`` on, executable at ``[start, end)``."""

    pid: int
    start: int
    end: int
    offset: int
    inode: int
    path: str


class Forked(NamedTuple):
    """Process ``pid`` has been forked from ``parent``; if both are the same, a new thread of it has begun."""

    pid: int
    parent: int


class Executed(NamedTuple):
    """Process ``pid`` has executed another program. The ``Mapped`` events that follow tell which."""

    pid: int


class Ended(NamedTuple):
    """A thread of process ``pid`` has ended."""

    pid: int


News = Mapped | Forked | Executed | Ended


class Source(Enum):
    """How samples are taken; the value appears in reports."""

    PERF_EVENT = "perf-event"
    INTERRUPT = "interrupt"
    NONE = "none"


class Sampler(Protocol):
    """Takes samples of one program.

    ``note``: one line for the user if samples are coarser than they could be, else "". ``lost``: records lost because
    the ring was full. ``interval_ns``: the processor time that one sample stands for, 0 if it is not known.
    """

    source: Source
    note: str
    lost: int

    @property
    def interval_ns(self) -> int: ...

    def read(self) -> list[Sample]:
        """The samples that have come since the last call."""

    def read_all(self, *, last: bool = False) -> list[Sample | News]:
        """Samples and, where they are recorded, lifecycle events, in the order of their times.

        Unless this is the ``last`` call, the newest ones may be kept for the next call, because older ones may still
        come. ``lost`` also counts lost lifecycle events.
        """

    def set_interval(self, nanoseconds: int) -> None:
        """Change the processor time between two samples."""

    def pause(self) -> None:
        """Take no samples until ``resume``."""

    def resume(self) -> None:
        """Take samples again after ``pause``."""

    def close(self) -> None:
        """Release all resources; may be called twice."""


Interrupter = Callable[[], Sequence[Sample]]
"""Stops the running threads of the program for a moment; a sample of each, none if the program has ended."""


def sampler_of(events: Events, interrupter: Interrupter | None = None) -> Sampler:
    """The sampler that reads ``events``.

    If the kernel has refused them, it is one that calls ``interrupter``; without an interrupter, one that finds
    nothing. Its ``note`` tells the user so.
    """
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
        self._kept: list[tuple[int, Sample | News]] = []  # with their times, to be returned by the next call
        self.lost = 0

    @property
    def interval_ns(self) -> int:
        return self._events.interval_ns

    def read(self) -> list[Sample]:
        return [happened for happened in self.read_all(last=True) if isinstance(happened, Sample)]

    def read_all(self, *, last: bool = False) -> list[Sample | News]:
        """The rings are read one after another, so that a record may be read before an older one of another ring. All
        that is older than the newest record of the last call has been read by now: that is returned, in order."""
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
    """Samples by interruption: each ``read`` stops the running threads once. ``reason``: why there are no perf events,
    for the user."""

    interval_ns = 0
    lost = 0

    def __init__(self, pid: int, interrupter: Interrupter | None, reason: str) -> None:
        self.source = Source.NONE if interrupter is None else Source.INTERRUPT
        self._pid = pid
        self._interrupter = interrupter
        self._paused = False
        how = ("memopt cannot sample the program" if interrupter is None else
               "memopt stops the program for each sample, which is coarser")
        self.note = f"{reason}; {how}" if reason else ""

    def read(self) -> list[Sample]:
        """One sample of each running thread. A process whose main thread waits in a system call is not stopped, because
        that could make the call fail."""
        if self._interrupter is None or self._paused or not _runs(self._pid):
            return []
        return list(self._interrupter())

    def read_all(self, *, last: bool = False) -> list[Sample | News]:
        return list(self.read())

    def set_interval(self, nanoseconds: int) -> None:
        """Does nothing: the caller's calls of ``read`` set the interval."""

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def close(self) -> None:
        self._interrupter = None


def parse_records(data: bytes, pid: int, children: bool = False) -> tuple[list[tuple[int, Sample | News]], int]:
    """Parse perf records: samples and lifecycle events, each with its time, and the number of lost records.

    Only user-mode samples of process ``pid`` are returned; with ``children`` those of all processes. ``data``: complete
    records of sample type IP | TID | TIME | ID | STREAM_ID, with identifiers (sample_id_all).
    """
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
            found.append((struct.unpack_from("<Q", body, len(body) - _TIME_FROM_END)[0], happened))
        offset += size
    return found, lost


def _happened(kind: int, misc: int, body: bytes, pid: int, children: bool) -> Sample | News | None:
    if kind == _RECORD_SAMPLE and misc & _MODE_MASK == _MODE_USER:
        address, process, tid, time, event, inherited = _SAMPLE.unpack_from(body)
        if process != pid and not children:
            return None
        return Sample(address, tid, 0 if process == pid else process, inherited if inherited != event else 0, time)
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
    """Whether the main thread runs, or waits for a processor."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read(4096).rpartition(b")")[2].split()[:1] == [b"R"]
    return False


def _refusal(error: OSError) -> str:
    """For the user: why the kernel refuses perf events, and what to do."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"perf events are refused ({error.strerror}): set kernel.perf_event_paranoid to 2 or less"
    if error.errno == errno.ENOSYS:
        return "this kernel has no perf events"
    return f"perf events cannot be opened ({error.strerror})"
