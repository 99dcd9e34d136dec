"""One process of the program that is recorded: the program itself, or what it has forked or started."""

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
    """``parent``: the process that has made it, 0 for the program itself. ``program``: path of what it executes.
    ``threads``: all it has had. ``mapped``: memory it had, by its start; what came later counts. ``stacks``: an
    address in each. ``space``: None when nothing of it is recorded any more; ``leaves``: that is to be so from the next
    stop on."""

    pid: int
    parent: int
    space: Space | None
    program: str
    threads: list[int] = field(default_factory=list)
    mapped: dict[int, Mapping] = field(default_factory=dict)
    stacks: list[int] = field(default_factory=list)
    leaves: bool = False
    _texts: list[Text] = field(default_factory=list)

    @property
    def texts(self) -> list[Text]:
        """Where its code lay."""
        return self._texts if self.space is None else self.space.code.all

    def end(self) -> None:
        if self.space is not None:
            self._texts = self.space.code.all
            self.space.close()
            self.space = None


def is_64_bit(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/exe", "rb") as file:
            return file.read(len(_ELF_64)) == _ELF_64
    except OSError:
        return False


def why_left_alone(pid: int, registers: Registers) -> str:
    """Why memopt must not trace the process ``pid`` any more, for the system call that it is about to make; "" where it
    may: another process is to trace it, or the program that it executes is to be left alone."""
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
    """The number of a thread of memopt's that does nothing. When memopt is killed the thread is gone at once, while
    memopt itself stays in the list of processes until its parent asks for it."""
    thread = threading.Thread(target=threading.Event().wait, daemon=True, name="memopt witness")
    thread.start()
    assert thread.native_id is not None
    return thread.native_id
