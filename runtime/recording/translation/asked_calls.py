"""System calls before which a copy asks memopt: those that change code, confine the process, or make tasks.

Example: ``mprotect`` of the program's own text asks, ``mprotect`` of a stack and ``read`` do not.

In: the numbers of system calls (arch/x86/entry/syscalls/syscall_64.tbl). Out: which routine a call goes through
(``Before``). Where the number is in no instruction in front of the call, a routine compares it at run time.
"""

from __future__ import annotations

from enum import Enum

SYS_MMAP, SYS_MPROTECT, SYS_MUNMAP, SYS_MREMAP, SYS_MADVISE, SYS_SHMAT = 9, 10, 11, 25, 28, 30
SYS_REMAP_FILE_PAGES, SYS_PKEY_MPROTECT = 216, 329
SYS_RT_SIGRETURN, SYS_CLONE, SYS_EXECVE, SYS_PTRACE, SYS_PRCTL = 15, 56, 59, 101, 157
SYS_MLOCKALL, SYS_SETRLIMIT, SYS_PRLIMIT64, SYS_SECCOMP, SYS_EXECVEAT, SYS_CLONE3 = 151, 160, 302, 317, 322, 435


class Before(Enum):
    """What happens before a system call. RETURN: memopt is asked, a handler returns. CHANGE: memopt is asked if the
    first two arguments, an address and a size, meet code. CALL: memopt is asked.
    """

    RETURN = "return"
    CHANGE = "change"
    CALL = "call"


ASKED_CALLS = {
    SYS_RT_SIGRETURN: Before.RETURN,
    **dict.fromkeys((SYS_MMAP, SYS_MPROTECT, SYS_MUNMAP, SYS_MADVISE, SYS_REMAP_FILE_PAGES, SYS_PKEY_MPROTECT),
                    Before.CHANGE),
    **dict.fromkeys((SYS_MREMAP, SYS_SHMAT, SYS_CLONE, SYS_CLONE3, SYS_EXECVE, SYS_EXECVEAT, SYS_PTRACE, SYS_PRCTL,
                     SYS_SECCOMP, SYS_MLOCKALL, SYS_SETRLIMIT, SYS_PRLIMIT64), Before.CALL),
}
