"""Where the program spends its time: statistical samples of the user-mode instruction pointer of its threads.

A software clock event (no hardware counter is needed) interrupts each thread once per interval of the processor
time it uses; the kernel writes the interrupted address to a ring buffer that is read here. Where the kernel does not
allow that, the program is stopped for a moment at each ``read`` by a tracer that the caller brings.

Invariant: only the program's own threads count, never its children; a sampler never changes what the program does.
With inheritance the kernel wants one ring per processor, so there is one event per processor.

Sources: perf_event_open(2), linux/include/uapi/linux/perf_event.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

_libc = ctypes.CDLL(None, use_errno=True)

INTERVAL_NS = 1_000_000

_SYS_PERF_EVENT_OPEN = 298
_PERF_TYPE_SOFTWARE = 1
_PERF_COUNT_SW_CPU_CLOCK = 0
_PERF_SAMPLE_IP_TID = 1 | 2
_PERF_FLAG_FD_CLOEXEC = 8
_IOC_ENABLE, _IOC_DISABLE, _IOC_PERIOD = 0x2400, 0x2401, 0x40082404
# Bits of the flags word of perf_event_attr.
_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HV = 1 << 0, 1 << 1, 1 << 5, 1 << 6
_ENABLE_ON_EXEC, _WATERMARK, _INHERIT_THREAD = 1 << 12, 1 << 14, 1 << 35
_ATTRIBUTE = struct.Struct("<IIQQQQQI")  # up to wakeup_watermark; later fields are zero
_ATTRIBUTE_BYTES = 112  # PERF_ATTR_SIZE_VER5
_HEADER = struct.Struct("<IHH")
_SAMPLE = struct.Struct("<QII")
_RECORD_LOST, _RECORD_SAMPLE = 2, 9
_MODE_MASK, _MODE_USER = 7, 2
_HEAD, _TAIL = 1024, 1032  # offsets in the ring's control page
_RING_PAGES = 32  # a power of two: five seconds of samples at 1 kHz, and the locked-memory limit allows it
_MOST_RINGS = 64  # with more processors than this, only the threads known at the start are sampled
_PAGE = mmap.PAGESIZE


class Sample(NamedTuple):
    """``address``: user-mode instruction pointer; ``child``: 0, or the process that the program has started."""

    address: int
    tid: int
    child: int = 0


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
    interval_ns: int

    def read(self) -> list[Sample]:
        """The samples since the last call."""

    def set_interval(self, nanoseconds: int) -> None:
        """Change the processor time between samples."""

    def pause(self) -> None:
        """Take no samples until ``resume``."""

    def resume(self) -> None: ...

    def close(self) -> None:
        """Give everything back; may be called twice."""


Interrupter = Callable[[], Sequence[Sample]]
"""Stops the running threads of the program for a moment and returns where each was, or nothing if it has ended."""


def open_sampler(pid: int, *, on_exec: bool, interrupter: Interrupter | None = None,
                 interval_ns: int = INTERVAL_NS, children: bool = False) -> Sampler:
    """Sample process ``pid`` and its threads; ``children``: and what it starts from now on, where that is possible.

    ``on_exec``: the process has not called execve yet and sampling starts there (call it from ``launch``'s
    ``prepare``); otherwise it starts at once with the threads there are and those they make. Without permission for
    perf events, falls back to ``interrupter``, else to a sampler that sees nothing; ``note`` says so.
    """
    try:
        return _PerfSampler(pid, on_exec, interval_ns, children)
    except ProcessLookupError:  # it has ended
        return InterruptSampler(pid, None, "")
    except OSError as error:
        return InterruptSampler(pid, interrupter, _refusal(error))


class _Ring:
    """One perf event with its ring buffer."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        try:
            self.memory = mmap.mmap(descriptor, (1 + _RING_PAGES) * _PAGE)
        except OSError:
            os.close(descriptor)
            raise

    def take(self) -> bytes:
        """The bytes of the whole records that came since the last call."""
        head, tail = struct.unpack_from("<QQ", self.memory, _HEAD)
        if head == tail:
            return b""
        size = _RING_PAGES * _PAGE
        start, end = tail % size, head % size
        if start < end:
            data = self.memory[_PAGE + start:_PAGE + end]
        else:
            data = self.memory[_PAGE + start:_PAGE + size] + self.memory[_PAGE:_PAGE + end]
        struct.pack_into("<Q", self.memory, _TAIL, head)
        return data

    def close(self) -> None:
        self.memory.close()
        os.close(self.descriptor)


class _PerfSampler:
    source = Source.PERF_EVENT
    note = ""

    def __init__(self, pid: int, on_exec: bool, interval_ns: int, children: bool) -> None:
        self.interval_ns = interval_ns
        self._children = children
        self.lost = 0
        self._pid = pid
        self._rings: list[_Ring] = []
        try:
            self._open(on_exec)
        except OSError:
            self.close()
            raise

    def read(self) -> list[Sample]:
        samples: list[Sample] = []
        for ring in self._rings:
            found, lost = parse_records(ring.take(), self._pid, self._children)
            samples += found
            self.lost += lost
        return samples

    def set_interval(self, nanoseconds: int) -> None:
        self.interval_ns = nanoseconds
        for ring in self._rings:
            fcntl.ioctl(ring.descriptor, _IOC_PERIOD, struct.pack("<Q", nanoseconds))

    def pause(self) -> None:
        for ring in self._rings:
            fcntl.ioctl(ring.descriptor, _IOC_DISABLE, 0)

    def resume(self) -> None:
        for ring in self._rings:
            fcntl.ioctl(ring.descriptor, _IOC_ENABLE, 0)

    def close(self) -> None:
        while self._rings:
            self._rings.pop().close()

    def _open(self, on_exec: bool) -> None:
        start = _DISABLED | _ENABLE_ON_EXEC if on_exec else 0
        threads = [self._pid] if on_exec else _threads(self._pid)
        processors = _online_processors()
        if len(processors) * len(threads) > _MOST_RINGS:
            self._rings += (_Ring(_event(tid, -1, start, self.interval_ns)) for tid in threads[:_MOST_RINGS])
            return
        for tid in threads:
            try:
                for processor in processors:
                    self._rings.append(_Ring(
                        _event(tid, processor, start | _INHERIT, self.interval_ns) if self._children else
                        _inherited_event(tid, processor, start, self.interval_ns)))
            except ProcessLookupError:
                if tid == self._pid:
                    raise  # another thread has merely ended meanwhile


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

    def set_interval(self, nanoseconds: int) -> None:
        """Nothing to set: the caller's calls of ``read`` are the clock."""

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def close(self) -> None:
        self._interrupter = None


def parse_records(data: bytes, pid: int, children: bool = False) -> tuple[list[Sample], int]:
    """User-mode samples of process ``pid``, or of all processes, among perf records of type IP | TID, and the count of
    lost ones."""
    samples: list[Sample] = []
    lost = offset = 0
    while offset + _HEADER.size <= len(data):
        kind, misc, size = _HEADER.unpack_from(data, offset)
        if size < _HEADER.size:
            break
        if kind == _RECORD_SAMPLE and misc & _MODE_MASK == _MODE_USER:
            address, process, tid = _SAMPLE.unpack_from(data, offset + _HEADER.size)
            if process == pid or children:
                samples.append(Sample(address, tid, 0 if process == pid else process))
        elif kind == _RECORD_LOST:
            lost += struct.unpack_from("<8xQ", data, offset + _HEADER.size)[0]
        offset += size
    return samples, lost


def _attribute(flags: int, interval_ns: int) -> bytes:
    """A ``struct perf_event_attr``. Its watermark is the whole ring: nobody is woken, memopt reads when it likes."""
    flags |= _EXCLUDE_KERNEL | _EXCLUDE_HV | _WATERMARK
    packed = _ATTRIBUTE.pack(_PERF_TYPE_SOFTWARE, _ATTRIBUTE_BYTES, _PERF_COUNT_SW_CPU_CLOCK, interval_ns,
                             _PERF_SAMPLE_IP_TID, 0, flags, _RING_PAGES * _PAGE)
    return packed.ljust(_ATTRIBUTE_BYTES, b"\0")


def _event(tid: int, processor: int, flags: int, interval_ns: int) -> int:
    """The descriptor of a new event on thread ``tid``; ``processor`` -1 means wherever it runs."""
    attribute = ctypes.create_string_buffer(_attribute(flags, interval_ns))
    descriptor = _libc.syscall(_SYS_PERF_EVENT_OPEN, attribute, tid, processor, -1,
                               ctypes.c_ulong(_PERF_FLAG_FD_CLOEXEC))
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(descriptor)


def _inherited_event(tid: int, processor: int, flags: int, interval_ns: int) -> int:
    """Inherited by new threads; before Linux 5.13 by children too, whose samples ``parse_records`` drops."""
    try:
        return _event(tid, processor, flags | _INHERIT | _INHERIT_THREAD, interval_ns)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.E2BIG):
            raise
        return _event(tid, processor, flags | _INHERIT, interval_ns)


def _threads(pid: int) -> list[int]:
    return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))


def _online_processors() -> list[int]:
    """From a list such as ``0-3,8``."""
    with open("/sys/devices/system/cpu/online", encoding="ascii") as file:
        spans = [span.split("-") for span in file.read().strip().split(",")]
    return [number for span in spans for number in range(int(span[0]), int(span[-1]) + 1)]


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
