"""A traced process: attached for a critical moment, stopped at a safe point, detached again.

Invariant: whatever becomes of memopt, and after every request, the process would run on rightly if memopt were
killed. Signals that come meanwhile are delivered as they are; a stop by job control is respected; EXITKILL is never
set. A process that sleeps in a system call is not interrupted at all, because some calls (epoll_wait, semop, ...)
return EINTR after a mere interruption (signal(7)): it is waited for, for a bounded time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TypeVar

from memopt.ir.reasons import Reason, Rejected, VerifyError
from runtime.target import ptrace
from runtime.target.memory import PAGE, Memory
from runtime.target.ptrace import Registers, Stop, StopKind, TargetEnded, WaitTimeout

_RSEQ_CRITICAL_SECTION = 8  # offset of rseq_cs in struct rseq (include/uapi/linux/rseq.h)
_USER_CODE_64 = 0x33

# How a stub of runtime/target/remote_calls.py begins; nothing but stubs follows it on its page.
STUB_MAGIC = b"memopt\0\x01"
_SLOWEST_PAUSE_S = 0.05

_Answer = TypeVar("_Answer")


def attach(pid: int) -> Tracee:
    """Seize every thread of ``pid`` that runs, and the main one, without stopping them.

    Raises ``Rejected(PTRACE_FORBIDDEN)`` with what to do about it, or ``TargetEnded``.
    """
    if thread_state(pid, pid) in "ZX":
        raise TargetEnded(pid, None)
    tracee = Tracee(pid)
    try:
        tracee.seize_new_threads()
    except BaseException:
        tracee.memory.close()
        raise
    return tracee


def threads(pid: int) -> tuple[int, ...]:
    """The thread numbers of ``pid``; raises ``TargetEnded`` when there is no such process."""
    try:
        return tuple(sorted(int(name) for name in os.listdir(f"/proc/{pid}/task")))
    except (FileNotFoundError, ProcessLookupError) as error:
        raise TargetEnded(pid, None) from error


def thread_state(pid: int, tid: int) -> str:
    """The letter in /proc/PID/task/TID/stat: R S D T t Z X; "X" when it is gone."""
    try:
        with open(f"/proc/{pid}/task/{tid}/stat", "rb") as file:
            return chr(file.read().rpartition(b") ")[2][0])
    except (FileNotFoundError, ProcessLookupError):
        return "X"


class Tracee:
    """All threads of one process under PTRACE_SEIZE. A context manager: leaving it detaches.

    ``None`` in ``_stops`` marks a running thread, anything else the stop it is in. ``_interrupted``: threads that
    were asked to stop and have not yet; a second request then would stop them a second time.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.memory = Memory(pid)
        self._stops: dict[int, Stop | None] = {}
        self._interrupted: set[int] = set()
        self.options = 0

    def __enter__(self) -> Tracee:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if isinstance(error, TargetEnded):
            self.memory.close()
        else:
            self.detach()

    @property
    def threads(self) -> tuple[int, ...]:
        return tuple(self._stops)

    @property
    def stopped(self) -> bool:
        return all(stop is not None for stop in self._stops.values())

    def seize_new_threads(self) -> bool:
        """Seize the threads that are not ours yet; was there any?

        A thread that sleeps in a system call is left alone, the main one excepted: it runs no code meanwhile, and an
        interruption might make its call fail.
        """
        found = False
        for tid in threads(self.pid):
            if tid not in self._stops and not self._sleeps(tid) and self._seize(tid):
                self._stops[tid] = None
                found = True
        return found

    def adopt(self) -> None:
        """Take over the process the kernel attached to us at a fork, when it reports its first stop."""
        self._stops[self.pid] = None
        while (stop := self.wait(self.pid, 10.0)).kind is not StopKind.INTERRUPT:
            self.go(ptrace.CONT, self.pid, stop.signal)

    def take_over(self, stop: Stop) -> None:
        """Go on from a stop of the main thread that another part has waited for."""
        self._stops[self.pid] = stop

    def stop(self, timeout_s: float = 1.0) -> None:
        """Stop all threads at points where registers may be changed and code replaced.

        Raises ``Rejected(BLOCKED)`` when none was found in time (the process then runs), ``TargetEnded``.
        """
        deadline = time.monotonic() + timeout_s
        pause = 0.0005
        while True:
            self._wait_for_running(deadline)
            self._stop_all(deadline)
            if not self.seize_new_threads() and all(self._safe(tid) for tid in self._stops):
                return
            if time.monotonic() >= deadline:
                self.resume()
                raise Rejected(Reason.BLOCKED, "no safe point found: interrupted in system calls all the time")
            self.run_for(pause)
            pause = min(2 * pause, _SLOWEST_PAUSE_S)

    def run_for(self, seconds: float) -> None:
        """Let it run for a while. A traced process stands still at every signal until that is passed on: done here."""
        deadline = time.monotonic() + seconds
        self.resume()
        while time.monotonic() < deadline:
            for tid in self.threads:
                try:
                    stop = self.wait(tid, 0.0 if len(self._stops) > 1 else max(0.0, deadline - time.monotonic()))
                except WaitTimeout:
                    continue
                except TargetEnded:
                    if tid == self.pid:
                        raise
                    del self._stops[tid]
                    continue
                self._interrupted.discard(tid)
                self.go(ptrace.LISTEN if stop.kind is StopKind.GROUP else ptrace.CONT, tid, _pending(stop))
            if len(self._stops) > 1:
                time.sleep(0.0002)

    def resume(self) -> None:
        """Let the stopped threads run on, with the signals they were about to get; then call ``run_for`` or detach."""
        for tid, stop in self._stops.items():
            if stop is not None:
                self.go(ptrace.CONT, tid, _pending(stop))

    def detach(self) -> None:
        """Let go of the process, which runs on (or stays stopped by job control). Never raises ``Rejected``.

        Raises ``TargetEnded`` when the process is found to be over, so that its status is not lost.
        """
        try:
            for tid in tuple(self._stops):
                try:
                    self._detach(tid)
                except (OSError, VerifyError):
                    self._detach(tid)  # a thread that stayed seized would lose its next signal
                    raise
        finally:
            self.memory.close()
            self._stops.clear()

    def registers(self, tid: int = 0) -> Registers:
        return self._ask(tid or self.pid, ptrace.get_registers)

    def set_registers(self, registers: Registers, tid: int = 0) -> None:
        self._ask(tid or self.pid, lambda thread: ptrace.set_registers(thread, registers))

    def vector_state(self, tid: int = 0) -> bytes:
        return self._ask(tid or self.pid, ptrace.get_vector_state)

    def signal_mask(self) -> int:
        return self._ask(self.pid, ptrace.get_signal_mask)

    def set_signal_mask(self, mask: int) -> None:
        self._ask(self.pid, lambda thread: ptrace.set_signal_mask(thread, mask))

    def set_options(self, options: int) -> None:
        """PTRACE_SETOPTIONS for the main thread; TRACESYSGOOD is always on."""
        flags = options | ptrace.OPTION_SYSGOOD
        self._ask(self.pid, lambda thread: ptrace.request(ptrace.SETOPTIONS, thread, 0, flags))
        self.options = options

    def go(self, how: int, tid: int, number: int = 0) -> None:
        """Resume one stopped thread by CONT, SYSCALL, SYSEMU, SINGLESTEP..., delivering signal ``number``."""
        self._ask(tid, lambda thread: ptrace.request(how, thread, 0, number))
        self._stops[tid] = None

    def wait(self, tid: int, timeout_s: float) -> Stop:
        """The next stop of a running thread; raises ``WaitTimeout``, ``TargetEnded``."""
        status = ptrace.wait(tid, timeout_s)
        stop = ptrace.decode(status)
        self._stops[tid] = stop
        return stop

    def _ask(self, tid: int, request: Callable[[int], _Answer]) -> _Answer:
        """A request to a stopped thread; ``TargetEnded`` when SIGKILL took it away."""
        if self._stops.get(tid) is None:
            raise VerifyError(f"thread {tid} is asked something while it runs")
        try:
            return request(tid)
        except ProcessLookupError as error:
            raise self._ended(tid) from error

    def _sleeps(self, tid: int) -> bool:
        return tid != self.pid and thread_state(self.pid, tid) in "SD"

    def _seize(self, tid: int) -> bool:
        try:
            ptrace.request(ptrace.SEIZE, tid, 0, ptrace.OPTION_SYSGOOD)
        except ProcessLookupError as error:
            if tid == self.pid:
                raise TargetEnded(self.pid, None) from error
            return False  # a thread that has just ended
        except PermissionError as error:
            if thread_state(self.pid, tid) in "ZX":
                if tid == self.pid:
                    raise TargetEnded(self.pid, None) from error
                return False
            raise Rejected(Reason.PTRACE_FORBIDDEN, _how_to_permit(self.pid)) from error
        return True

    def _wait_for_running(self, deadline: float) -> None:
        """Do not interrupt a single-threaded process that sleeps or is stopped; wait until it runs."""
        if self._stops[self.pid] is not None or len(self._stops) > 1:
            return
        pause = 0.0002
        while (state := thread_state(self.pid, self.pid)) in "SDT":
            if time.monotonic() >= deadline:
                why = "stopped by job control" if state == "T" else "waiting in a system call"
                raise Rejected(Reason.BLOCKED, why)
            time.sleep(pause)
            pause = min(2 * pause, _SLOWEST_PAUSE_S / 10)

    def _stop_all(self, deadline: float) -> None:
        running = [tid for tid, stop in self._stops.items() if stop is None]
        for tid in running:
            if tid not in self._interrupted:
                self._interrupt(tid)
        for tid in running:
            try:
                self._await_interruption(tid, deadline)
            except TargetEnded:
                if tid == self.pid:
                    raise
                del self._stops[tid]

    def _await_interruption(self, tid: int, deadline: float) -> None:
        while True:
            try:
                stop = self.wait(tid, max(0.0, deadline - time.monotonic()))
            except WaitTimeout as error:
                raise Rejected(Reason.BLOCKED, "it does not come to a stop") from error
            match stop.kind:
                case StopKind.INTERRUPT:
                    self._interrupted.discard(tid)
                    return
                case StopKind.GROUP:
                    self._interrupted.discard(tid)
                    self.go(ptrace.LISTEN, tid)
                case _:
                    # This stop may have swallowed the interruption. Ask again before the thread goes on, not after:
                    # else the first one, if still pending, stops it, and the second stops it again when resumed.
                    self._interrupt(tid)
                    self.go(ptrace.CONT, tid, _pending(stop))

    def _interrupt(self, tid: int) -> None:
        try:
            ptrace.request(ptrace.INTERRUPT, tid)
        except ProcessLookupError as error:
            if tid == self.pid:
                raise self._ended(tid) from error
        self._interrupted.add(tid)

    def _safe(self, tid: int) -> bool:
        """No system call is being restarted, no stub of a killed memopt is unfinished (its way back may lead through
        another stub, so neither may be written over), and no restartable sequence is cut in two."""
        registers = self.registers(tid)
        if registers.cs != _USER_CODE_64:
            raise Rejected(Reason.THIRTY_TWO_BIT, "it runs 32-bit code")
        if registers.restarting and tid == self.pid:
            return False  # the others never make remote calls, and may sleep for good
        offset = registers.rip % PAGE
        if STUB_MAGIC in self.memory.read_some(registers.rip - offset, offset):
            return False
        area, size = ptrace.rseq_area(tid)
        if size < _RSEQ_CRITICAL_SECTION + 8:
            return True
        section = self.memory.word(area + _RSEQ_CRITICAL_SECTION)
        if not section:
            return True
        start, length = self.memory.word(section + 8), self.memory.word(section + 16)
        return not start <= registers.rip < start + length

    def _detach(self, tid: int) -> None:
        try:
            stop = self._stops[tid]
            if stop is None:
                self._interrupt(tid)
                stop = self.wait(tid, 10.0)
            ptrace.request(ptrace.DETACH, tid, 0, _pending(stop))
        except WaitTimeout:
            return  # in an uninterruptible sleep; the kernel detaches when memopt ends, with the same effect
        except ProcessLookupError as error:
            if tid == self.pid:
                raise self._ended(tid) from error
        except TargetEnded:
            if tid == self.pid:
                raise

    def _ended(self, tid: int) -> TargetEnded:
        """Why a stopped thread no longer answers: SIGKILL. Waits for the status."""
        try:
            while True:
                ptrace.wait(tid, 1.0)
        except TargetEnded as ended:
            return ended
        except WaitTimeout:
            return TargetEnded(tid, None)


def _pending(stop: Stop) -> int:
    return stop.signal if stop.kind is StopKind.SIGNAL else 0


def _how_to_permit(pid: int) -> str:
    tracer = status_field(pid, "TracerPid")
    if tracer not in ("", "0"):
        return f"process {pid} is already traced by process {tracer}: end that debugger first"
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            scope = file.read().strip()
    except OSError:
        scope = "0"
    if scope != "0":
        return (f"/proc/sys/kernel/yama/ptrace_scope is {scope}: use `memopt exec`, or let root set it to 0"
                if scope == "1" else f"/proc/sys/kernel/yama/ptrace_scope is {scope}: ask root to allow tracing")
    return f"process {pid} may not be traced: run memopt as its user, or with CAP_SYS_PTRACE"


def status_field(pid: int, name: str) -> str:
    """The value of a line of /proc/PID/status; "" when there is no such line or process."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return field_of(file, name)
    except (FileNotFoundError, ProcessLookupError):
        return ""


def field_of(lines: Iterable[str], name: str) -> str:
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name + ":")), "")


