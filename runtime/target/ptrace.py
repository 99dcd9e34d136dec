"""ptrace(2) as a thin layer: one Python function for each request, frozen values for the answers.

In: the number of a stopped thread. Out: ``Registers``, ``Stop`` (a decoded wait status), vector state, signal mask,
siginfo. Raises OSError for a refused request, ``TargetEnded`` and ``WaitTimeout`` from ``wait``.

Invariant: this layer decides nothing. Every request passes a fault point named after it, so that a test can kill memopt
between any two steps. All requests must come from the thread that attached.
"""

from __future__ import annotations

import ctypes
import operator
import os
import signal
import struct
import time
from dataclasses import fields, replace
from enum import Enum

from memopt.ir.frozen import dataclass
from runtime import faults

# include/uapi/linux/ptrace.h, arch/x86/include/uapi/asm/ptrace-abi.h
CONT, SINGLESTEP, DETACH, SYSCALL, SYSEMU, SYSEMU_SINGLESTEP = 7, 9, 17, 24, 31, 32
SETOPTIONS, GETEVENTMSG, GETSIGINFO, SETSIGINFO, GETREGSET, SETREGSET = 0x4200, 0x4201, 0x4202, 0x4203, 0x4204, 0x4205
SEIZE, INTERRUPT, LISTEN, GETSIGMASK, SETSIGMASK = 0x4206, 0x4207, 0x4208, 0x420A, 0x420B
GET_SYSCALL_INFO, GET_RSEQ_CONFIGURATION = 0x420E, 0x420F
_NAMES = {
    CONT: "cont", SINGLESTEP: "singlestep", DETACH: "detach", SYSCALL: "syscall", SYSEMU: "sysemu",
    SYSEMU_SINGLESTEP: "sysemu-singlestep", SETOPTIONS: "setoptions", GETEVENTMSG: "geteventmsg",
    GETSIGINFO: "getsiginfo", SETSIGINFO: "setsiginfo",
    GETREGSET: "getregset", SETREGSET: "setregset", SEIZE: "seize", INTERRUPT: "interrupt", LISTEN: "listen",
    GETSIGMASK: "getsigmask", SETSIGMASK: "setsigmask", GET_SYSCALL_INFO: "get-syscall-info",
    GET_RSEQ_CONFIGURATION: "get-rseq-configuration",
}

OPTION_SYSGOOD, OPTION_FORK, OPTION_VFORK, OPTION_CLONE, OPTION_EXEC, OPTION_EXIT = 1, 2, 4, 8, 16, 64
OPTION_EXITKILL = 1 << 20
_EVENT_FORK, _EVENT_VFORK, _EVENT_CLONE, _EVENT_EXEC, _EVENT_EXIT, _EVENT_STOP = 1, 2, 3, 4, 6, 128
_WALL = 0x40000000
_SYS_TGKILL = 234

NT_PRSTATUS, NT_X86_XSTATE = 1, 0x202
_XSTATE_BYTES = 16384  # more than the state of any processor today (11 KiB with AMX)

# In rax, these say that the kernel will restart the system call; only a tracer sees them (include/linux/errno.h).
_RESTART_ERRORS = frozenset({-512, -513, -514, -516})

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class TargetEnded(Exception):
    """The process has exited or was killed. ``status``: its wait status; None if another part of memopt, or the
    process's own parent, has taken it."""

    def __init__(self, pid: int, status: int | None) -> None:
        super().__init__(f"process {pid} ended, status {status}")
        self.pid = pid
        self.status = status


class WaitTimeout(Exception):
    """``wait`` saw no stop within its timeout."""


@dataclass(frozen=True, slots=True)
class Registers:
    """The registers of a thread, as in user_regs_struct: unsigned 64-bit values in the kernel's order."""

    r15: int
    r14: int
    r13: int
    r12: int
    rbp: int
    rbx: int
    r11: int
    r10: int
    r9: int
    r8: int
    rax: int
    rcx: int
    rdx: int
    rsi: int
    rdi: int
    orig_rax: int
    rip: int
    cs: int
    eflags: int
    rsp: int
    ss: int
    fs_base: int
    gs_base: int
    ds: int
    es: int
    fs: int
    gs: int

    @property
    def restarting(self) -> bool:
        """Whether the kernel will restart an interrupted system call. It then sets rip and rax anew: do not rely on the
        values here."""
        return not self.orig_rax >> 63 and self.rax - (1 << 64) in _RESTART_ERRORS

    def outside_call(self) -> Registers:
        """The same state, but marked as outside any system call (orig_rax -1), so that the kernel restarts none."""
        return replace(self, orig_rax=(1 << 64) - 1)


_REGISTERS = struct.Struct("<27Q")
_values = operator.attrgetter(*(field.name for field in fields(Registers)))  # astuple copies deeply, for 100 us


class StopKind(Enum):
    """Why a traced thread has stopped.

    INTERRUPT: PTRACE_INTERRUPT, or the first stop of a new child. GROUP: a stop by job control. SIGNAL: a signal is
    about to be delivered. SYSCALL: entry or exit of a system call. The others are ptrace events: NEW_PROCESS of fork
    and clone, VFORK, NEW_PROGRAM of execve, ENDING of exit.
    """

    INTERRUPT = "interrupt"
    GROUP = "group"
    SIGNAL = "signal"
    SYSCALL = "syscall"
    NEW_PROCESS = "new process"
    VFORK = "new process in the memory of this one, which waits for it"
    NEW_PROGRAM = "new program"
    ENDING = "ending"


_EVENTS = {_EVENT_FORK: StopKind.NEW_PROCESS, _EVENT_VFORK: StopKind.VFORK, _EVENT_CLONE: StopKind.NEW_PROCESS,
           _EVENT_EXEC: StopKind.NEW_PROGRAM, _EVENT_EXIT: StopKind.ENDING}


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop of a thread. ``signal``: the signal about to be delivered (SIGNAL) or that stopped the group (GROUP),
    else 0."""

    kind: StopKind
    signal: int = 0


def decode(status: int) -> Stop:
    """Decode the wait status of a stopped thread under PTRACE_SEIZE and TRACESYSGOOD (ptrace(2))."""
    number, event = status >> 8 & 0xFF, status >> 16
    if event == _EVENT_STOP:
        return Stop(StopKind.INTERRUPT) if number == signal.SIGTRAP else Stop(StopKind.GROUP, number)
    if event in _EVENTS:
        return Stop(_EVENTS[event])
    if number == signal.SIGTRAP | 0x80:
        return Stop(StopKind.SYSCALL)
    return Stop(StopKind.SIGNAL, number)


def request(number: int, tid: int, address: int = 0, data: int | ctypes.Array[ctypes.c_char] | ctypes.Structure = 0
            ) -> int:
    """Make one ptrace request. Raises ``OSError``; ``ProcessLookupError`` if the thread is not stopped, or gone."""
    faults.point("ptrace." + _NAMES[number])
    argument = data if isinstance(data, int) else ctypes.addressof(data)
    result: int = _libc.ptrace(number, tid, address, argument)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"ptrace {_NAMES[number]}: {os.strerror(error)}")
    return result


def wait(tid: int, timeout_s: float) -> int:
    """The next wait status of ``tid``, which has stopped. Raises ``WaitTimeout``, or ``TargetEnded`` if it has ended.

    This polls, because a SIGCHLD handler would be one for all of memopt. The first tries only yield the processor,
    because most stops come within microseconds.
    """
    deadline = time.monotonic() + timeout_s
    tries = 0
    while True:
        try:
            waited, status = os.waitpid(tid, _WALL | os.WNOHANG)
        except ChildProcessError as error:
            raise TargetEnded(tid, None) from error
        if waited:
            if not os.WIFSTOPPED(status):
                raise TargetEnded(tid, status)
            return status
        if time.monotonic() >= deadline:
            raise WaitTimeout
        tries += 1
        if tries < 100:
            os.sched_yield()
        else:
            time.sleep(0.0001 if tries < 1000 else 0.0005)


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def _regset(number: int, tid: int, kind: int, buffer: ctypes.Array[ctypes.c_char]) -> int:
    """Get or set a register set; the result is the number of bytes transferred."""
    vector = _Vector(ctypes.addressof(buffer), len(buffer))
    request(number, tid, kind, vector)
    return int(vector.length)


def get_registers(tid: int) -> Registers:
    """The general and segment registers of a stopped thread."""
    buffer = ctypes.create_string_buffer(_REGISTERS.size)
    _regset(GETREGSET, tid, NT_PRSTATUS, buffer)
    return Registers(*_REGISTERS.unpack(buffer.raw))


def set_registers(tid: int, registers: Registers) -> None:
    """Set all registers in one request, so that the thread never runs with half of them."""
    _regset(SETREGSET, tid, NT_PRSTATUS, ctypes.create_string_buffer(_REGISTERS.pack(*_values(registers)),
                                                                     _REGISTERS.size))


def get_vector_state(tid: int) -> bytes:
    """The XSAVE area of a stopped thread in its standard form, as NT_X86_XSTATE has it."""
    buffer = ctypes.create_string_buffer(_XSTATE_BYTES)
    size = _regset(GETREGSET, tid, NT_X86_XSTATE, buffer)
    return buffer.raw[:size]


def set_vector_state(tid: int, state: bytes) -> None:
    """Set the XSAVE area of a stopped thread, all of it, in its standard form. Raises OSError for a state that the
    processor does not accept."""
    _regset(SETREGSET, tid, NT_X86_XSTATE, ctypes.create_string_buffer(state, len(state)))


def get_event_message(tid: int) -> int:
    """The message of a ptrace event (PTRACE_GETEVENTMSG): after a fork or clone, the id of the new process."""
    value = ctypes.create_string_buffer(8)
    request(GETEVENTMSG, tid, 0, value)
    return int.from_bytes(value.raw, "little")


def get_signal_information(tid: int) -> bytes:
    """The siginfo_t of the signal about to be delivered, 128 bytes."""
    information = ctypes.create_string_buffer(128)
    request(GETSIGINFO, tid, 0, information)
    return information.raw


def set_signal_information(tid: int, information: bytes) -> None:
    """Set the siginfo_t of the signal to be delivered; the thread is in a signal stop."""
    request(SETSIGINFO, tid, 0, ctypes.create_string_buffer(information, 128))


def send_signal(pid: int, tid: int, number: int) -> None:
    """Send signal ``number`` to one thread (tgkill(2))."""
    _libc.syscall(ctypes.c_long(_SYS_TGKILL), ctypes.c_long(pid), ctypes.c_long(tid), ctypes.c_long(number))


def get_fault_address(tid: int) -> int:
    """The address whose access failed: si_addr of the SIGSEGV or SIGBUS about to be delivered."""
    return int.from_bytes(get_signal_information(tid)[16:24], "little")


def get_signal_mask(tid: int) -> int:
    """The blocked signals of a stopped thread: bit n - 1 is signal n."""
    mask = ctypes.create_string_buffer(8)
    request(GETSIGMASK, tid, 8, mask)
    return int.from_bytes(mask.raw, "little")


def set_signal_mask(tid: int, mask: int) -> None:
    """Set the blocked signals of a stopped thread."""
    request(SETSIGMASK, tid, 8, ctypes.create_string_buffer(mask.to_bytes(8, "little"), 8))


def syscall_result(tid: int) -> tuple[int, int] | None:
    """``(instruction pointer, result)`` of a thread stopped at the exit of a system call; None at its entry."""
    information = ctypes.create_string_buffer(96)
    request(GET_SYSCALL_INFO, tid, 96, information)
    operation, pointer = information.raw[0], int.from_bytes(information.raw[8:16], "little")
    if operation != 2:
        return None
    return pointer, int.from_bytes(information.raw[24:32], "little", signed=True)


def rseq_area(tid: int) -> tuple[int, int]:
    """``(address, bytes)`` of the thread's restartable-sequence area (struct rseq); ``(0, 0)`` if it has none, or if
    the kernel cannot tell (before Linux 5.13)."""
    configuration = ctypes.create_string_buffer(24)
    try:
        request(GET_RSEQ_CONFIGURATION, tid, 24, configuration)
    except OSError:
        return 0, 0
    address, size = struct.unpack_from("<QI", configuration.raw)
    return address, size
