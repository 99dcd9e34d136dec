"""Standing between the shell and the program: waiting, stopping, ending and signals as if memopt were not there.

memopt is the program's parent and shares its process group. Signals of the terminal reach both by themselves, so
memopt only ignores its copy; a signal sent to memopt alone is passed on. When the program stops, memopt stops, so
that the shell sees the job stopped; memopt ends as the program ended.

Invariant: while a ``Supervisor`` lives, every signal that can be blocked is blocked and taken by ``poll`` only, so
none interrupts a half-done operation on the program, and nothing but SIGKILL and SIGSTOP ends or stops memopt
before the program. Limits: a signal sent by kill(2) to the whole process group reaches the program twice, directly
and passed on; memopt does not follow a SIGSTOP sent to the program alone unless the job has the terminal (what
continues the program then would not continue memopt).

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
from dataclasses import dataclass
from typing import NoReturn

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

# What the terminal sends, it sends to the whole process group: the program has it already.
_TIMERS = frozenset({signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF})
_JOB_STOPS = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})


@dataclass(frozen=True, slots=True)
class Exited:
    code: int


@dataclass(frozen=True, slots=True)
class Signaled:
    signal: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """Job control stopped the program by ``signal``. By the time it is reported memopt may have been stopped too."""

    signal: int


@dataclass(frozen=True, slots=True)
class Continued:
    pass


@dataclass(frozen=True, slots=True)
class TraceStop:
    """A ptrace stop of a thread, as waitpid reported it: it belongs to whoever traces the program."""

    status: int
    tid: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """The program, where it runs code of memopt's, sent the signal that was agreed on."""


Event = Asked | Exited | Signaled | Stopped | Continued | TraceStop


class Supervisor:
    """Waits for one child process and the signals of memopt, as one source of events.

    ``signals`` must be held. Single-threaded: ``poll`` must not run while another part waits for the same child;
    what such a part saw of its end is told by ``note_exit``. ``traced`` is set while a tracer of memopt's own is
    attached: stops then belong to it and come out as ``TraceStop``. ``stopped``: the last that ``poll`` heard of the
    program is that job control stopped it (the state in /proc is no help: it flickers when a tracer lets go).
    ``threads``: other traced threads and processes whose stops ``poll`` tells of. ``asking``: the signal by which the
    processes ``asked_by``, the program among them, ask memopt in its own matters, 0 for none. ``unanswered``: stops
    that ``poll`` told of when the tracer was not there yet; it tells of them again.
    """

    def __init__(self, pid: int, signals: SignalState) -> None:
        self.pid = pid
        self.traced = False
        self.outcome: Exited | Signaled | None = None
        self._signals = signals
        self.stopped = False
        self.threads: set[int] = set()
        self.asking = 0
        self.asked_by: set[int] = {pid}
        self.unanswered: list[Event] = []
        self._asked = False
        self._continue_asked = False

    def poll(self, timeout: float | None) -> list[Event]:
        """Events of the program, in order; waits up to ``timeout`` seconds (None: for ever) for the first.

        Returns an empty list after the timeout, and at once when the program has ended (see ``outcome``).
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
        """Another part of memopt met the end of the program; ``status`` None: it did not get the wait status, and
        ``poll`` will."""
        if status is not None:
            self.outcome = _ending(status)

    def close(self) -> None:
        """Give memopt its own signal state back; the program is no longer looked after."""
        self._signals.release()

    def _reap(self) -> list[Event]:
        events: list[Event] = []
        while self.outcome is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED | _WALL)
            except ChildProcessError:
                # Reaped by a part that did not say so: the status is lost, and success must not be claimed.
                self.outcome = Exited(255)
                events.append(self.outcome)
                break
            if not pid:
                break
            events.append(self._event(status))
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
        # memopt's own (a write to a closed pipe), or the program's word to its parent: natively not to itself.
        if code <= 0 and (sender in (os.getpid(), self.pid) or (number == self.asking and sender in self.asked_by)):
            self._asked |= number == self.asking
            return
        if number == signal.SIGCONT:
            self._continue_asked = True
        else:
            self._send(number, code, information)

    def _pass_on_continue(self, events: list[Event]) -> None:
        """Continue a stopped program when memopt was continued, but not when the shell continued the whole group.

        Whoever continues the group reaches the program too, so there is news of it: that it went on, or, when the
        next stop has overtaken that, that it stopped again. The state in /proc would not tell the two stops apart.
        """
        if self._continue_asked and self.stopped and not events:
            self._send(signal.SIGCONT, 0, b"")
        self._continue_asked = False
        for event in events:
            if isinstance(event, Stopped | Continued):
                self.stopped = isinstance(event, Stopped)

    def _send(self, number: int, code: int, information: bytes) -> None:
        queued = code < 0 and code != _SI_TKILL  # by sigqueue: keep its value and its sender
        if queued and _libc.syscall(_SYS_RT_SIGQUEUEINFO, self.pid, number, information) == 0:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, number)

    def stop_likewise(self, number: int) -> None:
        """Stop memopt by the signal that stopped the program; returns when the shell continues it."""
        if number not in _JOB_STOPS and not _in_foreground():
            return
        if number not in _JOB_STOPS:
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        before = signal.signal(number, signal.SIG_DFL)
        # Sent before it is let through: the terminal's own may have come meanwhile, and two would stop memopt twice,
        # the second time after the shell has continued the job.
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        signal.signal(number, signal.SIG_DFL if before is None else before)


def wait_to_end(supervisor: Supervisor) -> int:
    """Look after a program that memopt no longer touches, until it ends; the result is for ``leave``."""
    while supervisor.outcome is None:
        supervisor.poll(None)
    return exit_value(supervisor.outcome)


def exit_value(outcome: Exited | Signaled) -> int:
    """The exit code, or minus the number of the signal the program died by (as in subprocess)."""
    return outcome.code if isinstance(outcome, Exited) else -outcome.signal


def leave(value: int) -> NoReturn:
    """End memopt as the program ended: exit code ``value``, or by signal ``-value`` without a core of its own.

    Skips the interpreter's clean-up: freeing what big libraries hold would only make the program end later.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    if value < 0:
        _die_by(-value)
    os._exit(value if value >= 0 else 128 - value)


def _die_by(number: int) -> None:
    """Returns only when the signal does not end this process (memopt is the init of a container)."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # a core_pattern that is a pipe does not ask for the limit
    with contextlib.suppress(OSError, ValueError):
        if number not in UNBLOCKABLE:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)


def _is_for_program(number: int, code: int) -> bool:
    """Whether a signal of memopt's is meant for the program and did not reach it by itself."""
    if code == _SI_KERNEL:
        return number in _TIMERS  # set before execve of memopt: natively they ring in the program
    return code <= 0


def _ending(status: int) -> Exited | Signaled:
    return Signaled(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else Exited(os.WEXITSTATUS(status))


def _in_foreground() -> bool:
    """Whether memopt's process group has its controlling terminal."""
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
