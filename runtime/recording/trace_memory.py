"""The memory of a recorded process for the traces of its threads.

memopt sees it, too, so that nothing has to be copied. If the process may not share memory, it is private, and words are
read from there.

In: a stopped process. Out: its address; words of traces.

Invariant: a child gets other memory before it goes on, so that it never writes to the traces of its parent.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy
from numpy.typing import NDArray

from runtime.patching.code_cache import MEMFD_NAME, map_here
from runtime.recording.slots import TRACES_BYTES
from runtime.target import remote_calls
from runtime.target.memory import Memory
from runtime.target.remote_calls import SYS_CLOSE, SYS_MEMFD_CREATE, SYS_MMAP, SYS_MUNMAP, Call, UnusedBytes
from runtime.target.tracee import Tracee

_READ, _WRITE = 1, 2
_SHARED, _PRIVATE, _FIXED, _ANONYMOUS, _NORESERVE = 1, 2, 0x10, 0x20, 0x4000
_CLOSE_ON_EXEC = 1


class TraceMemory:
    """``start``: its address in the process."""

    def __init__(self, tracee: Tracee, at: int = 0, place: UnusedBytes | None = None) -> None:
        """Maps the memory. ``at``: where the process has memory for traces already, which the new memory replaces.
        ``place``: where the system calls are made from. Raises ``Rejected``.
        """
        fixed = _FIXED if at else 0
        seen: list[mmap.mmap] = []

        def map_them_here(index: int, result: int) -> None:
            if index == 0 and result >= 0:
                with suppress(OSError):
                    seen.append(map_here(tracee.pid, result, TRACES_BYTES))

        _, address, _ = remote_calls.run(tracee, (
            Call(SYS_MEMFD_CREATE, (f"{MEMFD_NAME}-traces\0".encode(), _CLOSE_ON_EXEC), keep=True),
            Call(SYS_MMAP, (at, TRACES_BYTES, _READ | _WRITE, _SHARED | _NORESERVE | fixed, remote_calls.KEPT, 0)),
            Call(SYS_CLOSE, (remote_calls.KEPT,))), place=place, observe=map_them_here)
        if seen and address >= 0:
            self._seen = numpy.frombuffer(seen[0], numpy.uint64)
        else:
            self._seen = numpy.zeros(0, numpy.uint64)
            if address >= 0 and not at:
                remote_calls.run(tracee, (Call(SYS_MUNMAP, (address, TRACES_BYTES)),))
            (address,) = remote_calls.run(tracee, (
                Call(SYS_MMAP, (at, TRACES_BYTES, _READ | _WRITE, _PRIVATE | _ANONYMOUS | _NORESERVE | fixed, -1, 0)),
            ), place=place)
        self.start = remote_calls.check(address, "memory for traces")

    def words(self, memory: Memory, start: int, end: int) -> NDArray[numpy.uint64]:
        """The words at ``[start, end)`` of the process, whose ``memory`` this is. Where they are shared, they change
        when the process writes there.
        """
        if len(self._seen):
            return self._seen[(start - self.start) // 8:(end - self.start) // 8]
        words = numpy.empty((end - start) // 8, numpy.uint64)
        memory.read_into(start, words.data.cast("B"))
        return words

    def close(self) -> None:
        """Lets go of the memory that is shared."""
        self._seen = numpy.zeros(0, numpy.uint64)
