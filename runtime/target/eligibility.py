"""Eligibility: which processes memopt must not change, and whether a process id still means the same process.

A process is refused if it has changed user, group or capabilities, belongs to another user, is traced already, is under
seccomp, is 32-bit, has a second running thread, or has a SIGSEGV handler that may repair faults
(runtime/target/sigsegv.py).

In: a process id. Out: ``Identity``. Raises ``Rejected`` with the first reason found.

Invariant: only /proc is read, nothing is stopped or attached to. The answer holds for the moment, or as long as the
process is stopped. So whoever acts on a process asks in the stop in which it acts, every time: for a copy, for pages,
for the patch. Before that, it is asked to save work that would be in vain.
"""

from __future__ import annotations

import os
import stat

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected
from runtime.target.ptrace import TargetEnded
from runtime.target.sigsegv import check_loaded
from runtime.target.tracee import field_of, is_own_thread, thread_state, threads


@dataclass(frozen=True, slots=True)
class Identity:
    """One process for good: process ids are reused, this combination is not.

    ``device``, ``inode``: of the executable file. ``start_time``: clock ticks since boot.
    """

    pid: int
    pidfd: int
    device: int
    inode: int
    start_time: int

    def verify(self) -> None:
        """Raises ``Rejected(ENDED)`` if the process is over or has executed another program."""
        if _facts(self.pid) != (self.device, self.inode, self.start_time):
            raise Rejected(Reason.ENDED, f"process {self.pid} has ended or executed another program")

    def close(self) -> None:
        """Close the pidfd."""
        os.close(self.pidfd)


def identity(pid: int) -> Identity:
    """The identity of the process that ``pid`` means now. The caller closes it. Raises ``Rejected``: ENDED,
    PTRACE_FORBIDDEN."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        raise Rejected(Reason.ENDED, f"process {pid}: {error.strerror}") from error
    try:
        return Identity(pid, descriptor, *_facts(pid))
    except Rejected:
        os.close(descriptor)
        raise


def check_process(pid: int) -> None:
    """Raises ``Rejected`` with the first reason why memopt must not change this process.

    Reasons: ENDED, SET_UID, PTRACE_FORBIDDEN, THIRTY_TWO_BIT, SECCOMP, THREADS, SIGSEGV_HANDLER.
    """
    status = check_traceable(pid)
    if field_of(status, "Seccomp") not in ("", "0"):
        raise Rejected(Reason.SECCOMP, f"Seccomp: {field_of(status, 'Seccomp')} in /proc/{pid}/status")
    check_threads(pid)
    check_loaded(pid, status)


def check_traceable(pid: int) -> list[str]:
    """Raises ``Rejected`` if memopt may not even take its code out of this process; else the lines of /proc/PID/status.

    Reasons: ENDED, SET_UID, PTRACE_FORBIDDEN, THIRTY_TWO_BIT.
    """
    status = _status(pid)
    _check_owner(pid, status)
    _check_class(pid)
    _check_tracer(pid, status)
    return status


def check_in_service(pid: int) -> None:
    """Raises ``Rejected`` with the first reason why versions must not be in service in this process any more.

    Reasons: ENDED, THREADS, SIGSEGV_HANDLER. A process that has confined itself may keep them: they make no calls.
    """
    check_threads(pid)
    check_handlers(pid)


def check_handlers(pid: int) -> None:
    """Raises ``Rejected(SIGSEGV_HANDLER)`` if a handler of the process may repair faults, ``Rejected(ENDED)``."""
    check_loaded(pid, _status(pid))


def check_threads(pid: int) -> None:
    """Raises ``Rejected(THREADS)`` if there is a second thread that does not sleep in a system call.

    Threads that sleep all the time, as those of MPI libraries do, are harmless in a program without data races, as long
    as only one thread at a time enters a version (memopt.ir.region.Region.flags_dead).
    """
    others = other_threads(pid)
    awake = [tid for tid in others if thread_state(pid, tid) not in "SDX"]
    if awake:
        raise Rejected(Reason.THREADS, f"{len(others) + 1} threads, {len(awake) + 1} of them running")


def _status(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise Rejected(Reason.ENDED, f"process {pid}") from error


def other_threads(pid: int) -> tuple[int, ...]:
    """The ids of all threads except the main one. Raises ``Rejected(ENDED)``."""
    try:
        return tuple(tid for tid in threads(pid) if tid != pid)
    except TargetEnded as error:
        raise Rejected(Reason.ENDED, f"process {pid}") from error


def _check_owner(pid: int, status: list[str]) -> None:
    users = {int(word) for word in field_of(status, "Uid").split()}
    groups = {int(word) for word in field_of(status, "Gid").split()}
    if len(users) > 1 or len(groups) > 1:
        raise Rejected(Reason.SET_UID, f"process {pid} has changed its user or group")
    if users != {os.geteuid()}:
        raise Rejected(Reason.PTRACE_FORBIDDEN, f"process {pid} belongs to user {min(users)}: run memopt as that user")
    if os.geteuid() and int(field_of(status, "CapPrm") or "0", 16):
        raise Rejected(Reason.SET_UID, f"process {pid} has capabilities")
    try:
        mode = os.stat(f"/proc/{pid}/exe").st_mode
    except PermissionError as error:  # it is not dumpable, so that its /proc files belong to root
        raise Rejected(Reason.PTRACE_FORBIDDEN, f"process {pid} has made itself unreadable") from error
    except OSError as error:
        raise Rejected(Reason.ENDED, f"process {pid} has no executable file any more") from error
    if mode & (stat.S_ISUID | stat.S_ISGID) or _has_file_capabilities(pid):
        raise Rejected(Reason.SET_UID, f"the program file of process {pid}")


def _has_file_capabilities(pid: int) -> bool:
    try:
        return "security.capability" in os.listxattr(f"/proc/{pid}/exe")
    except OSError:  # a file system without extended attributes
        return False


def _check_class(pid: int) -> None:
    try:
        with open(f"/proc/{pid}/exe", "rb") as file:
            header = file.read(20)
    except PermissionError as error:
        raise Rejected(Reason.PTRACE_FORBIDDEN, f"process {pid} has made itself unreadable") from error
    except OSError as error:
        raise Rejected(Reason.ENDED, f"process {pid}") from error
    if header[:5] != b"\x7fELF\x02" or header[18:20] != b"\x3e\x00":
        raise Rejected(Reason.THIRTY_TWO_BIT, "its program is not x86-64")


def _check_tracer(pid: int, status: list[str]) -> None:
    tracer = field_of(status, "TracerPid")
    if tracer not in ("", "0") and not is_own_thread(tracer):
        raise Rejected(Reason.PTRACE_FORBIDDEN, f"process {tracer} already traces process {pid}: end the tracer first")


def _facts(pid: int) -> tuple[int, int, int]:
    """Device and inode of the executable, start time (field 22 of /proc/PID/stat)."""
    try:
        file = os.stat(f"/proc/{pid}/exe")
        with open(f"/proc/{pid}/stat", "rb") as text:
            start = int(text.read().rpartition(b") ")[2].split()[19])
    except PermissionError as error:
        raise Rejected(Reason.PTRACE_FORBIDDEN, f"memopt may not read /proc/{pid}/exe") from error
    except (FileNotFoundError, ProcessLookupError) as error:
        raise Rejected(Reason.ENDED, f"process {pid}") from error
    return file.st_dev, file.st_ino, start
