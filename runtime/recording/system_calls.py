"""What a system call of a recorded process means for its recording, looked at in front of the call.

Example: after ``prctl(PR_SET_SECCOMP, ...)`` the kernel may kill the process for a call that memopt makes in it. So
memopt lets go of the process in front of the call.

In: the registers of a thread that stands in front of a system call. Out: why memopt must leave the process alone from
here on, where code is about to change, whom it is about to trace.

Invariant: a thread in copies asks in front of each call that matters (translation.asked_calls). One that runs outside
of copies stops at each call (``Tracer``). So no such call is made unseen.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress

from memopt.ir.reasons import Reason
from runtime.launch.identify import CannotRun, identify
from runtime.recording.translation import asked_calls as calls
from runtime.target import ptrace
from runtime.target.memory import Memory
from runtime.target.ptrace import Registers

TRACED = "another process traces it"
_CONFINED = "it confines itself by seccomp"
_UNTRACED = "it makes a task that nobody may trace"
_LIMITED = "it limits its memory, of which recording takes some"
_REMAPPED = "it maps shared memory over other memory"
_TRACE_ME, _TRACE_ATTACH = 0, 16
_PR_SET_SECCOMP, _SECCOMP_SET_MODE_STRICT, _SECCOMP_SET_MODE_FILTER = 22, 0, 1
_CLONE_UNTRACED = 0x00800000
_RLIMIT_DATA, _RLIMIT_AS = 2, 9
_SHM_REMAP = 0x4000
_MREMAP_FIXED = 2
_MAP_FIXED = 0x10
_DONT_NEED, _DONT_NEED_LOCKED = 4, 24  # madvise(2): private pages of a file are as in the file again
_AT_FDCWD = -100
_PATH_BYTES = 4096


def number_of(registers: Registers) -> int:
    """The number of the system call that a thread stands in front of, whether or not the kernel knows of it yet."""
    return (registers.rax if registers.orig_rax >> 63 else registers.orig_rax) & 0xFFFFFFFF


def traced_by_it(registers: Registers) -> int | None:
    """The number of the thread that is to be traced by the one that makes this call, if it is ptrace(2)."""
    request = registers.rdi & 0xFFFFFFFF
    if number_of(registers) == calls.SYS_PTRACE and request in (_TRACE_ATTACH, ptrace.SEIZE):
        return registers.rsi & 0xFFFFFFFF
    return None


def why_left_alone(pid: int, registers: Registers) -> str:
    """Why memopt must not trace the process ``pid`` any more, given the system call that it is about to make; "" if it
    may.
    """
    match number_of(registers):
        case calls.SYS_PTRACE:
            return TRACED if registers.rdi & 0xFFFFFFFF == _TRACE_ME else ""
        case calls.SYS_PRCTL:
            return _CONFINED if registers.rdi & 0xFFFFFFFF == _PR_SET_SECCOMP else ""
        case calls.SYS_SECCOMP:
            modes = (_SECCOMP_SET_MODE_STRICT, _SECCOMP_SET_MODE_FILTER)
            return _CONFINED if registers.rdi & 0xFFFFFFFF in modes else ""
        case calls.SYS_CLONE:
            return _UNTRACED if registers.rdi & _CLONE_UNTRACED else ""
        case calls.SYS_CLONE3:
            with closing(Memory(pid)) as memory:
                flags = int.from_bytes(memory.read_some(registers.rdi, 8), "little")
            return _UNTRACED if flags & _CLONE_UNTRACED else ""
        case calls.SYS_SETRLIMIT:
            return _LIMITED if registers.rdi & 0xFFFFFFFF in (_RLIMIT_AS, _RLIMIT_DATA) else ""
        case calls.SYS_PRLIMIT64:
            return _LIMITED if registers.rdx and registers.rsi & 0xFFFFFFFF in (_RLIMIT_AS, _RLIMIT_DATA) else ""
        case calls.SYS_MLOCKALL:
            return _LIMITED
        case calls.SYS_SHMAT:
            return _REMAPPED if registers.rdx & _SHM_REMAP and not _segment_bytes(pid, registers.rdi) else ""
        case calls.SYS_EXECVE | calls.SYS_EXECVEAT:
            return _why_not_executed(pid, registers)
    return ""


def _why_not_executed(pid: int, registers: Registers) -> str:
    """Why memopt must leave the program alone that is about to be executed; "" if it need not."""
    at, path = _AT_FDCWD, registers.rdi
    if number_of(registers) == calls.SYS_EXECVEAT:
        at, path = (registers.rdi & 0xFFFFFFFF ^ 1 << 31) - (1 << 31), registers.rsi
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


def _segment_bytes(pid: int, number: int) -> int:
    """The size of a segment of System V shared memory of the process ``pid``; 0 if memopt cannot tell."""
    with suppress(OSError, ValueError):
        if os.stat(f"/proc/{pid}/ns/ipc").st_ino != os.stat("/proc/self/ns/ipc").st_ino:
            return 0
        with open("/proc/sysvipc/shm", encoding="ascii") as file:
            at, size = (column := file.readline().split()).index("shmid"), column.index("size")
            return next((int(row[size]) for row in map(str.split, file) if int(row[at]) == number & 0xFFFFFFFF), 0)
    return 0


def changed(pid: int, registers: Registers) -> list[tuple[int, int]]:
    """The addresses ``[start, end)`` at which memory of the process ``pid`` is other memory, has other contents, or may
    be written by the program behind this call.
    """
    first, size = registers.rdi, registers.rsi
    match number_of(registers):
        case calls.SYS_MREMAP:
            moved = [(registers.r8, registers.r8 + registers.rdx)] if registers.r10 & _MREMAP_FIXED else []
            return [(first, first + max(size, registers.rdx)), *moved]
        case calls.SYS_MADVISE:
            return [(first, first + size)] if registers.rdx & 0xFFFFFFFF in (_DONT_NEED, _DONT_NEED_LOCKED) else []
        case calls.SYS_SHMAT:
            return [(size, size + _segment_bytes(pid, first))] if registers.rdx & _SHM_REMAP else []
        case calls.SYS_MMAP if not registers.r10 & _MAP_FIXED:  # the kernel takes addresses that are free
            return []
        case (calls.SYS_MMAP | calls.SYS_MUNMAP | calls.SYS_MPROTECT | calls.SYS_PKEY_MPROTECT
              | calls.SYS_REMAP_FILE_PAGES):
            return [(first, first + size)]
    return []
