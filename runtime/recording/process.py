"""A recorded process (the program itself, or one that it made), and which processes memopt must leave alone."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from dataclasses import dataclass, field

from memopt.ir.reasons import Reason
from runtime.launch.identify import CannotRun, identify
from runtime.recording.space import Space
from runtime.recording.translation.code_map import Text
from runtime.target.memory import Mapping, Memory
from runtime.target.ptrace import Registers

TRACED = "another process traces it"
SYS_PTRACE, _SYS_EXECVE, _SYS_EXECVEAT = 101, 59, 322
_TRACE_ME = 0
_AT_FDCWD = -100
_PATH_BYTES = 4096
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


def why_left_alone(pid: int, registers: Registers) -> str:
    """Why memopt must not trace the process ``pid`` any more, given the system call that it is about to make; "" if it
    may.

    Reasons: another process is to trace it, or it is about to execute a program that memopt must leave alone.
    """
    number = registers.rax if registers.orig_rax >> 63 else registers.orig_rax
    at, path = _AT_FDCWD, registers.rdi
    if number == SYS_PTRACE:
        return TRACED if registers.rdi == _TRACE_ME else ""
    if number == _SYS_EXECVEAT:
        at, path = (registers.rdi & 0xFFFFFFFF ^ 1 << 31) - (1 << 31), registers.rsi
    elif number != _SYS_EXECVE:
        return ""
    with closing(Memory(pid)) as memory:
        name = os.fsdecode(memory.read_some(path, _PATH_BYTES).split(b"\0", 1)[0])
    folder = f"/proc/{pid}/" + ("cwd" if at == _AT_FDCWD else f"fd/{at}")
    found = f"/proc/{pid}/root{name}" if name.startswith("/") else f"{folder}/{name}" if name else folder
    try:
        note = identify(found, None).note
    except CannotRun:
        return ""
    may_be_traced = note is None or (note.reason is Reason.SET_UID and os.geteuid() == 0)
    return "" if may_be_traced else str(note)


def witness() -> int:
    """The number of a thread of memopt that does nothing. When memopt is killed, the thread is gone at once. memopt
    itself stays in the list of processes until its parent collects it.
    """
    thread = threading.Thread(target=threading.Event().wait, daemon=True, name="memopt witness")
    thread.start()
    assert thread.native_id is not None
    return thread.native_id
