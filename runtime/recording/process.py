"""A recorded process (the program itself, or one that it made), and whether a process may be recorded at all."""

from __future__ import annotations

import os
import resource
import threading
from dataclasses import dataclass, field

from memopt.ir.reasons import Reason, Rejected
from runtime.recording.space import Space
from runtime.recording.translation.code_map import Text
from runtime.target.memory import Mapping
from runtime.target.tracee import field_of

_ELF_64 = b"\x7fELF\x02"


@dataclass
class Process:
    """A recorded process."""

    pid: int
    number: int  # by which results name it: that of its first thread
    parent: int  # the number of the process that has made it; 0 for the program itself
    space: Space | None  # None when it is not recorded any more
    program: str  # the path of what it executes
    threads: list[int] = field(default_factory=list)  # the numbers of all that it has had
    mapped: dict[int, Mapping] = field(default_factory=dict)  # memory that it has had, by start; the last one counts
    stacks: list[int] = field(default_factory=list)  # an address in the stack of each thread
    leaves: bool = False  # whether it is to be let go of at its next stop
    _texts: list[Text] = field(default_factory=list)

    @property
    def texts(self) -> list[Text]:
        """The mappings of code that it has had."""
        return self._texts if self.space is None else self.space.code.all

    def end(self) -> None:
        """Ends its recording; the mappings stay known."""
        if self.space is not None:
            self._texts = self.space.code.all
            self.space.close()
            self.space = None


def is_64_bit(pid: int) -> bool:
    """Whether the process executes a 64-bit ELF file."""
    try:
        with open(f"/proc/{pid}/exe", "rb") as file:
            return file.read(len(_ELF_64)) == _ELF_64
    except OSError:
        return False


def check_place(pid: int) -> None:
    """Raises ``Rejected`` if questions of the process could not reach memopt, or be its end.

    They are system calls. A filter that memopt is not under, too, may kill a process that makes them
    (seccomp(2)). In another namespace memopt's number is that of another process (pid_namespaces(7)). Nor may its
    memory be limited, since it would have less of it than alone.
    """
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        if resource.prlimit(pid, kind)[0] != resource.RLIM_INFINITY:
            raise Rejected(Reason.NO_MEMORY, "its memory is limited (ulimit -v, -d), and recording takes some")
    own, others = _filters("self"), _filters(str(pid))
    if others[0] not in ("", "0") and others != own:
        raise Rejected(Reason.SECCOMP)
    if os.readlink("/proc/self/ns/pid") != os.readlink(f"/proc/{pid}/ns/pid"):
        raise Rejected(Reason.BLOCKED, "it has process numbers of its own")


def _filters(process: str) -> tuple[str, str]:
    """The mode of seccomp in a process, and how many filters it is under."""
    with open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    return field_of(lines, "Seccomp"), field_of(lines, "Seccomp_filters")


def witness() -> int:
    """The number of a thread of memopt that does nothing. When memopt is killed, the thread is gone at once. memopt
    itself stays in the list of processes until its parent collects it.
    """
    thread = threading.Thread(target=threading.Event().wait, daemon=True, name="memopt witness")
    thread.start()
    assert thread.native_id is not None
    return thread.native_id
