"""perf events that sample a program's threads: opened, controlled, and their ring buffers read.

In: a process id. Out: the bytes of the records in the rings; runtime/sampling/samples.py parses them. The event is the
software clock of the processor, which needs no hardware counter: one sample per interval of processor time.

There is one event, with a ring, for each thread and processor: for an event that new threads inherit, the kernel
demands a ring for each processor.

Invariant: like runtime/launch/launch.py this module imports nothing slow, because the events are opened before the
program runs. Later it might be too late: a normal user may not sample a program that has made itself undumpable.

Sources: perf_event_open(2), linux/include/uapi/linux/perf_event.h, prctl(2) under PR_SET_DUMPABLE.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)

INTERVAL_NS = 1_000_000

_SYS_PERF_EVENT_OPEN = 298
_PERF_TYPE_SOFTWARE = 1
_PERF_COUNT_SW_CPU_CLOCK = 0
_PERF_SAMPLE = 1 | 2 | 4 | 1 << 6 | 1 << 9  # IP, TID, TIME, ID, STREAM_ID
_PERF_FLAG_FD_CLOEXEC = 8
_IOC_ENABLE, _IOC_DISABLE, _IOC_PERIOD = 0x2400, 0x2401, 0x40082404
# Bits of the flags word of perf_event_attr.
_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HV = 1 << 0, 1 << 1, 1 << 5, 1 << 6
_ENABLE_ON_EXEC, _WATERMARK, _INHERIT_THREAD = 1 << 12, 1 << 14, 1 << 35
_SAMPLE_ID_ALL = 1 << 18  # records of other kinds have a time, too
_NEWS = 1 << 8 | 1 << 9 | 1 << 13 | 1 << 23 | 1 << 24  # mmap, comm, task, mmap2, comm_exec
_ATTRIBUTE = struct.Struct("<IIQQQQQI")  # up to wakeup_watermark; later fields are zero
_ATTRIBUTE_BYTES = 112  # PERF_ATTR_SIZE_VER5
_HEAD, _TAIL = 1024, 1032  # offsets in the ring's control page
_RING_PAGES = 32  # a power of two: five seconds of samples at 1 kHz, and the locked-memory limit allows it
_MOST_RINGS = 64  # with more processors than this, only the threads known at the start are sampled
_PAGE = mmap.PAGESIZE


class Events:
    """The perf events that sample process ``pid`` and the threads it makes.

    ``on_exec``: the process has not called execve yet, and sampling starts there (call this from the ``prepare`` of
    ``launch_prepared``). Otherwise sampling starts at once, with the threads that exist.
    ``interval_ns``: processor time between two samples.
    ``children``: processes that the program starts are sampled, too.
    ``news``: also record lifecycle events: files mapped, forks, execs, ends.
    ``refused``: the error if the kernel refuses the events; all methods then do nothing. Else None.
    """

    def __init__(self, pid: int, *, on_exec: bool, interval_ns: int = INTERVAL_NS, children: bool = False,
                 news: bool = False) -> None:
        self.pid, self.interval_ns, self.children = pid, interval_ns, children
        self.refused: OSError | None = None
        self._rings: list[_Ring] = []
        try:
            self._open((_DISABLED | _ENABLE_ON_EXEC if on_exec else 0) | (_NEWS if news else 0), on_exec)
        except OSError as error:
            self.refused = error
            self.close()

    def take(self) -> list[bytes]:
        """The records that have come since the last call: one byte string for each ring."""
        return [ring.take() for ring in self._rings]

    def set_interval(self, nanoseconds: int) -> None:
        """Change the processor time between two samples. Events that threads have inherited already keep theirs; the
        kernel may exchange the events of two threads."""
        self.interval_ns = nanoseconds
        self._control(_IOC_PERIOD, struct.pack("<Q", nanoseconds))

    def pause(self) -> None:
        """Record nothing until ``resume``."""
        self._control(_IOC_DISABLE)

    def resume(self) -> None:
        """Record again after ``pause``."""
        self._control(_IOC_ENABLE)

    def close(self) -> None:
        """Close all events and rings; may be called twice."""
        while self._rings:
            self._rings.pop().close()

    def _control(self, request: int, argument: int | bytes = 0) -> None:
        for ring in self._rings:
            fcntl.ioctl(ring.descriptor, request, argument)

    def _open(self, flags: int, on_exec: bool) -> None:
        threads = [self.pid] if on_exec else _threads(self.pid)
        processors = _online_processors()
        if len(processors) * len(threads) > _MOST_RINGS:
            flags &= ~_NEWS  # children are not sampled then, so nobody needs their lifecycle
            self._rings += (_Ring(_event(tid, -1, flags, self.interval_ns)) for tid in threads[:_MOST_RINGS])
            return
        for tid in threads:
            try:
                for processor in processors:
                    self._rings.append(_Ring(
                        _event(tid, processor, flags | _INHERIT, self.interval_ns) if self.children else
                        _inherited_event(tid, processor, flags, self.interval_ns)))
            except ProcessLookupError:
                if tid == self.pid:
                    raise  # else only another thread has ended meanwhile


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
        """The bytes of the complete records that have come since the last call."""
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


def _attribute(flags: int, interval_ns: int) -> bytes:
    """A ``struct perf_event_attr``. The watermark is the size of the ring, so that the kernel wakes nobody: memopt
    polls the ring."""
    flags |= _EXCLUDE_KERNEL | _EXCLUDE_HV | _WATERMARK | _SAMPLE_ID_ALL
    packed = _ATTRIBUTE.pack(_PERF_TYPE_SOFTWARE, _ATTRIBUTE_BYTES, _PERF_COUNT_SW_CPU_CLOCK, interval_ns,
                             _PERF_SAMPLE, 0, flags, _RING_PAGES * _PAGE)
    return packed.ljust(_ATTRIBUTE_BYTES, b"\0")


def _event(tid: int, processor: int, flags: int, interval_ns: int) -> int:
    """The descriptor of a new event on thread ``tid``; ``processor`` -1: on every processor. Raises OSError."""
    attribute = ctypes.create_string_buffer(_attribute(flags, interval_ns))
    descriptor = _libc.syscall(_SYS_PERF_EVENT_OPEN, attribute, tid, processor, -1,
                               ctypes.c_ulong(_PERF_FLAG_FD_CLOEXEC))
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(descriptor)


def _inherited_event(tid: int, processor: int, flags: int, interval_ns: int) -> int:
    """An event that new threads inherit. Before Linux 5.13 children inherit it, too: ``parse_records`` drops their
    samples."""
    try:
        return _event(tid, processor, flags | _INHERIT | _INHERIT_THREAD, interval_ns)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.E2BIG):
            raise
        return _event(tid, processor, flags | _INHERIT, interval_ns)


def _threads(pid: int) -> list[int]:
    return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))


def _online_processors() -> list[int]:
    """The numbers of the online processors, from a list such as ``0-3,8``."""
    with open("/sys/devices/system/cpu/online", encoding="ascii") as file:
        spans = [span.split("-") for span in file.read().strip().split(",")]
    return [number for span in spans for number in range(int(span[0]), int(span[-1]) + 1)]
