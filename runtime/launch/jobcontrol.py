"""Job control: between shell and program, memopt waits, stops, ends and forwards signals as if it were not there.

Example: Ctrl-Z stops the program. memopt then stops, too, so that the shell reports the job as stopped; ``fg``
continues both.

memopt is the program's parent and shares its process group. The terminal sends its signals to the whole group, so they
reach the program without memopt, which ignores its own copy. A signal sent to memopt alone is passed on. memopt ends as
the program ended: by the same exit code, or by the same signal.

In: the child's process id and memopt's signal state. Out: events, from ``Supervisor.poll``.

Invariant: while a ``Supervisor`` lives, every signal that can be blocked is blocked, and only ``poll`` takes it. So no
signal interrupts a half-done operation on the program, and nothing but SIGKILL and SIGSTOP ends or stops memopt before
the program.

Limits: a signal that kill(2) sends to the whole process group reaches the program twice, directly and passed on. memopt
does not follow a SIGSTOP sent to the program alone, unless the job has the terminal: whoever continues the program then
would not continue memopt.

Sources: sigwaitinfo(2), sigaction(2) (si_code), waitpid(2), ptrace(2) ("Group-stop"), credentials(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys
import time
from typing import NoReturn

from memopt.ir.frozen import dataclass
from runtime.launch.signals import BLOCKED, UNBLOCKABLE, SignalState

_libc = ctypes.CDLL(None, use_errno=True)

_SYS_RT_SIGTIMEDWAIT = 128
_SYS_RT_SIGQUEUEINFO = 129
_PR_SET_DUMPABLE = 4
_WALL = 0x40000000
_SIGINFO_BYTES = 128
_SI_KERNEL = 0x80
_SI_TKILL = -6

_BLOCKED_WORD = sum(1 << (number - 1) for number in BLOCKED)

# The kernel sends memopt two kinds of signals: the terminal's, which the whole process group gets, so that the program
# has them already; and those of timers, which only memopt gets.
_TIMERS = frozenset({signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF})
_JOB_STOPS = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})


@dataclass(frozen=True, slots=True)
class Exited:
    """The program has exited with ``code``."""

    code: int


@dataclass(frozen=True, slots=True)
class Signaled:
    """A signal has ended the program."""

    signal: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """Job control has stopped the program by ``signal``. When ``poll`` reports it, memopt may have been stopped and
    continued as well."""

    signal: int


@dataclass(frozen=True, slots=True)
class Continued:
    """Job control has continued the program."""


@dataclass(frozen=True, slots=True)
class TraceStop:
    """A ptrace stop of thread ``tid``, with the ``status`` that waitpid reported; the tracer must answer it."""

    status: int
    tid: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """The program, in code that memopt has put there, has sent memopt the signal ``Supervisor.asking``."""


Event = Asked | Exited | Signaled | Stopped | Continued | TraceStop


class Supervisor:
    """One source of events: the wait statuses of one child process and memopt's own signals.

    ``signals`` must be held. Single-threaded: ``poll`` must not run while another part of memopt waits for the same
    child. If that part sees the child end, it calls ``note_exit``.

    ``outcome``: how the program ended; None while it lives.
    ``usage``: what the program and the children that it has waited for have used; None while it lives, or if another
    part of memopt has taken its status.
    ``traced``: set while a tracer of memopt's own is attached; stops then belong to it and are reported as
    ``TraceStop``.
    ``stopped``: job control has stopped the program and not continued it, as far as ``poll`` has heard. The state in
    /proc does not tell this: it flickers when a tracer detaches.
    ``threads``: other traced threads and processes whose stops ``poll`` reports.
    ``asking``: the signal by which code of memopt's in the processes ``asked_by``, the program included, calls for
    memopt; 0 for none.
    ``unanswered``: stops that ``poll`` has reported before the tracer was there; it reports them once more.
    """

    def __init__(self, pid: int, signals: SignalState) -> None:
        self.pid = pid
        self.traced = False
        self.outcome: Exited | Signaled | None = None
        self.usage: resource.struct_rusage | None = None
        self._signals = signals
        self.stopped = False
        self.threads: set[int] = set()
        self.asking = 0
        self.asked_by: set[int] = {pid}
        self.unanswered: list[Event] = []
        self._asked = False
        self._continue_asked = False

    def poll(self, timeout: float | None) -> list[Event]:
        """The program's events since the last call, in order; waits up to ``timeout`` seconds (None: for ever) for one.

        The list is empty after the timeout, and at once if the program had ended before the call (see ``outcome``).
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._pass_on_pending()
            events, self.unanswered = [*self.unanswered, *self._reap()], []
            if self._asked:
                self._asked = False
                events.append(Asked())
            self._pass_on_continue(events)
            stops = [event.signal for event in events if isinstance(event, Stopped)]
            if stops and self.stopped and self.outcome is None:
                self.stop_likewise(stops[-1])
            if events or self.outcome is not None:
                return events
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                return []
            self._take(remaining)

    def note_exit(self, status: int | None) -> None:
        """Tell that another part of memopt has seen the program end. ``status``: the wait status; None if that part did
        not take it, so that ``poll`` will."""
        if status is not None:
            self.outcome = _ending(status)

    def close(self) -> None:
        """Restore memopt's own signal state; the supervisor may not be used any more."""
        self._signals.release()

    def _reap(self) -> list[Event]:
        events: list[Event] = []
        while self.outcome is None:
            try:
                pid, status, usage = os.wait4(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED | _WALL)
            except ChildProcessError:
                # Another part has reaped it without note_exit. The status is lost; do not claim success.
                self.outcome = Exited(255)
                events.append(self.outcome)
                break
            if not pid:
                break
            events.append(self._event(status))
            if isinstance(events[-1], Exited | Signaled):
                self.usage = usage
        for tid in tuple(self.threads):
            try:
                found, status = os.waitpid(tid, os.WNOHANG | _WALL)
            except ChildProcessError:
                self.threads.discard(tid)
                continue
            if found and os.WIFSTOPPED(status):
                events.append(TraceStop(status, tid))
            elif found:
                self.threads.discard(tid)
        return events

    def _event(self, status: int) -> Event:
        if os.WIFCONTINUED(status):
            return Continued()
        if os.WIFSTOPPED(status):
            return TraceStop(status, self.pid) if self.traced or status >> 16 else Stopped(os.WSTOPSIG(status))
        self.outcome = _ending(status)
        return self.outcome

    def _pass_on_pending(self) -> None:
        while self._take(0):
            pass

    def _take(self, timeout: float | None) -> bool:
        """Take one pending signal, waiting up to ``timeout`` seconds, and act on it. False when there was none."""
        information = ctypes.create_string_buffer(_SIGINFO_BYTES)
        mask = ctypes.c_uint64(_BLOCKED_WORD)
        pause = None if timeout is None else _timespec(timeout)
        number = _libc.syscall(_SYS_RT_SIGTIMEDWAIT, ctypes.byref(mask), information, pause, ctypes.c_size_t(8))
        if number <= 0:
            return False
        self._pass_on(number, information.raw)
        return True

    def _pass_on(self, number: int, information: bytes) -> None:
        code, sender = struct.unpack_from("<i4xi", information, 8)
        if self.outcome is not None or number == signal.SIGCHLD or not _is_for_program(number, code):
            return
        # Not passed on: memopt's own signal (SIGPIPE), and one that the program sends to its parent, which natively
        # would be the shell.
        if code <= 0 and (sender in (os.getpid(), self.pid) or (number == self.asking and sender in self.asked_by)):
            self._asked |= number == self.asking
            return
        if number == signal.SIGCONT:
            self._continue_asked = True
        else:
            self._send(number, code, information)

    def _pass_on_continue(self, events: list[Event]) -> None:
        """Continue a stopped program if memopt alone was continued, not if the shell continued the whole group.

        A SIGCONT to the group reaches the program, too. Then ``events`` is not empty: the program was continued or, if
        the next stop came first, it was stopped again. The state in /proc would not tell the two stops apart.
        """
        if self._continue_asked and self.stopped and not events:
            self._send(signal.SIGCONT, 0, b"")
        self._continue_asked = False
        for event in events:
            if isinstance(event, Stopped | Continued):
                self.stopped = isinstance(event, Stopped)

    def _send(self, number: int, code: int, information: bytes) -> None:
        queued = code < 0 and code != _SI_TKILL  # sent by sigqueue: its value and its sender are kept
        if queued and _libc.syscall(_SYS_RT_SIGQUEUEINFO, self.pid, number, information) == 0:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, number)

    def stop_likewise(self, number: int) -> None:
        """Stop memopt by signal ``number``, which has stopped the program; returns when the shell continues memopt.

        Does nothing after a SIGSTOP in the background: see the limits above.
        """
        if number not in _JOB_STOPS and not _in_foreground():
            return
        if number not in _JOB_STOPS:
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        before = signal.signal(number, signal.SIG_DFL)
        # Sent while it is blocked: the terminal's own signal may be pending already. Blocked signals of one number are
        # merged; two would stop memopt twice, the second time after the shell has continued the job.
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        signal.signal(number, signal.SIG_DFL if before is None else before)


def wait_to_end(supervisor: Supervisor) -> int:
    """Supervise a program that memopt no longer changes until it ends; the result is an argument for ``leave``."""
    while supervisor.outcome is None:
        supervisor.poll(None)
    return exit_value(supervisor.outcome)


def exit_value(outcome: Exited | Signaled) -> int:
    """The exit code, or minus the number of the signal that ended the program (as in subprocess)."""
    return outcome.code if isinstance(outcome, Exited) else -outcome.signal


def leave(value: int) -> NoReturn:
    """End memopt as the program ended: with exit code ``value``, or by signal ``-value``, but without a core dump.

    The interpreter's clean-up is skipped: freeing the memory of large libraries would only delay the end.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    if value < 0:
        _die_by(-value)
    os._exit(value if value >= 0 else 128 - value)


def _die_by(number: int) -> None:
    """Send memopt the signal; returns only if that does not end it (memopt is the init process of a container)."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # a core_pattern that is a pipe ignores the limit
    with contextlib.suppress(OSError, ValueError):
        if number not in UNBLOCKABLE:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)


def _is_for_program(number: int, code: int) -> bool:
    """Whether a signal that memopt has received was meant for the program and has not reached it without memopt."""
    if code == _SI_KERNEL:
        return number in _TIMERS  # set before memopt's execve: natively they would expire in the program
    return code <= 0


def _ending(status: int) -> Exited | Signaled:
    return Signaled(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else Exited(os.WEXITSTATUS(status))


def _in_foreground() -> bool:
    """Whether memopt's process group is in the foreground of its terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _timespec(seconds: float) -> ctypes.Array[ctypes.c_char]:
    whole = int(seconds)
    return ctypes.create_string_buffer(struct.pack("<qq", whole, int((seconds - whole) * 1e9)))
