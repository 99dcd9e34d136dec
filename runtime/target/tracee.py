"""A traced process: memopt attaches to it for a moment, stops it at a safe point, and detaches again.

Example: ``with attach(pid) as tracee: tracee.stop(); ...`` leaves the process running when the block ends.

In: a process id. Out: ``Tracee``: all threads of the process that run, their registers, the process's memory. At a safe
point no system call is about to be restarted, no thread executes a stub of remote_calls, and none stands in a
restartable sequence (rseq). There registers may be changed and code replaced. Raises ``Rejected`` (BLOCKED,
PTRACE_FORBIDDEN), ``TargetEnded``.

Invariant: after every request the process would run on rightly if memopt were killed. Signals that arrive meanwhile are
delivered unchanged, a stop by job control is respected, and EXITKILL is never set. A process that sleeps in a system
call is not interrupted, because some calls (epoll_wait, semop, ...) fail with EINTR after any interruption (signal(7)).
memopt waits a limited time until it runs.
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

# The first bytes of a stub of runtime/target/remote_calls.py. Behind them its page holds nothing but stubs.
STUB_MAGIC = b"memopt\0\x01"
_SLOWEST_PAUSE_S = 0.05

_Answer = TypeVar("_Answer")


def attach(pid: int) -> Tracee:
    """Seize the main thread of ``pid`` and every other one that runs, without stopping them.

    Raises ``Rejected(PTRACE_FORBIDDEN)``, whose detail tells the user what to do, or ``TargetEnded``.
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
    """The thread ids of ``pid``, ascending. Raises ``TargetEnded`` if there is no such process."""
    try:
        return tuple(sorted(int(name) for name in os.listdir(f"/proc/{pid}/task")))
    except (FileNotFoundError, ProcessLookupError) as error:
        raise TargetEnded(pid, None) from error


def thread_state(pid: int, tid: int) -> str:
    """The state of a thread, a letter of R S D T t Z X as in /proc/PID/task/TID/stat; "X" if the thread is gone."""
    try:
        with open(f"/proc/{pid}/task/{tid}/stat", "rb") as file:
            return chr(file.read().rpartition(b") ")[2][0])
    except (FileNotFoundError, ProcessLookupError):
        return "X"


class Tracee:
    """The seized threads of one process (PTRACE_SEIZE). A context manager: leaving it detaches.

    ``_stops``: for each thread the stop it is in, None while it runs. ``_interrupted``: threads that have been asked to
    stop and have not done so yet; another request would stop them once more, later.
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
        """The ids of the seized threads."""
        return tuple(self._stops)

    @property
    def stopped(self) -> bool:
        """Whether every seized thread is in a stop."""
        return all(stop is not None for stop in self._stops.values())

    def seize_new_threads(self) -> bool:
        """Seize the threads that are not seized yet; whether there were any.

        A thread that sleeps in a system call is left alone: it runs no code meanwhile, and an interruption might make
        its call fail. Only the main thread is seized in any case.
        """
        found = False
        for tid in threads(self.pid):
            if tid not in self._stops and not self._sleeps(tid) and self._seize(tid):
                self._stops[tid] = None
                found = True
        return found

    def adopt(self) -> None:
        """Begin with a child that the kernel has attached to memopt at a fork: wait for its first stop."""
        self._stops[self.pid] = None
        while (stop := self.wait(self.pid, 10.0)).kind is not StopKind.INTERRUPT:
            self.go(ptrace.CONT, self.pid, stop.signal)

    def take_over(self, stop: Stop) -> None:
        """Record a stop of the main thread that another part of memopt has waited for."""
        self._stops[self.pid] = stop

    def stop(self, timeout_s: float = 1.0) -> None:
        """Stop all threads at safe points, where registers may be changed and code replaced.

        Raises ``Rejected(BLOCKED)`` if no such moment was found in time (the process then runs), ``TargetEnded``.
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
                raise Rejected(Reason.BLOCKED, "no safe point found: it was in a system call at every attempt")
            self.run_for(pause)
            pause = min(2 * pause, _SLOWEST_PAUSE_S)

    def run_for(self, seconds: float) -> None:
        """Let the process run for ``seconds``. At a signal, a traced thread stops until this has delivered it."""
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
        """Resume the stopped threads and deliver the signals they were about to get. Call ``run_for`` or ``detach``
        next, which handle the threads' further stops."""
        for tid, stop in self._stops.items():
            if stop is not None:
                self.go(ptrace.CONT, tid, _pending(stop))

    def detach(self) -> None:
        """Detach from all threads; the process runs on, or stays stopped by job control. Never raises ``Rejected``.

        Raises ``TargetEnded`` if the process turns out to have ended, so that its wait status is not lost.
        """
        try:
            for tid in tuple(self._stops):
                try:
                    self._detach(tid)
                except (OSError, VerifyError):
                    self._detach(tid)  # once more: a thread that stays seized would stop at its next signal
                    raise
        finally:
            self.memory.close()
            self._stops.clear()

    def registers(self, tid: int = 0) -> Registers:
        """The registers of a stopped thread, by default of the main one."""
        return self._ask(tid or self.pid, ptrace.get_registers)

    def set_registers(self, registers: Registers, tid: int = 0) -> None:
        """Set all registers of a stopped thread, by default of the main one."""
        self._ask(tid or self.pid, lambda thread: ptrace.set_registers(thread, registers))

    def vector_state(self, tid: int = 0) -> bytes:
        """The XSAVE area of a stopped thread, by default of the main one."""
        return self._ask(tid or self.pid, ptrace.get_vector_state)

    def set_vector_state(self, state: bytes) -> None:
        """Set the XSAVE area of the stopped main thread. Raises OSError where the processor does not accept it."""
        self._ask(self.pid, lambda thread: ptrace.set_vector_state(thread, state))

    def signal_mask(self) -> int:
        """The blocked signals of the main thread: bit n - 1 is signal n."""
        return self._ask(self.pid, ptrace.get_signal_mask)

    def set_signal_mask(self, mask: int) -> None:
        """Set the blocked signals of the main thread."""
        self._ask(self.pid, lambda thread: ptrace.set_signal_mask(thread, mask))

    def set_options(self, options: int) -> None:
        """Set the ptrace options of the main thread (PTRACE_SETOPTIONS). TRACESYSGOOD is always added."""
        flags = options | ptrace.OPTION_SYSGOOD
        self._ask(self.pid, lambda thread: ptrace.request(ptrace.SETOPTIONS, thread, 0, flags))
        self.options = options

    def go(self, how: int, tid: int, number: int = 0) -> None:
        """Resume one stopped thread by request ``how`` (CONT, SYSCALL, SYSEMU, SINGLESTEP, ...) and deliver signal
        ``number``, 0 for none."""
        self._ask(tid, lambda thread: ptrace.request(how, thread, 0, number))
        self._stops[tid] = None

    def wait(self, tid: int, timeout_s: float) -> Stop:
        """Wait for the next stop of a running thread. Raises ``WaitTimeout``, ``TargetEnded``."""
        status = ptrace.wait(tid, timeout_s)
        stop = ptrace.decode(status)
        self._stops[tid] = stop
        return stop

    def _ask(self, tid: int, request: Callable[[int], _Answer]) -> _Answer:
        """Make a request of a stopped thread. Raises ``TargetEnded`` if SIGKILL has ended it meanwhile."""
        if self._stops.get(tid) is None:
            raise VerifyError(f"a ptrace request was made of thread {tid} while it runs")
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
        """Wait until a single-threaded process runs: one that sleeps or is stopped must not be interrupted."""
        if self._stops[self.pid] is not None or len(self._stops) > 1:
            return
        pause = 0.0002
        while (state := thread_state(self.pid, self.pid)) in "SDT":
            if time.monotonic() >= deadline:
                why = "it is stopped by job control" if state == "T" else "it waits in a system call"
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
                raise Rejected(Reason.BLOCKED, "a thread did not stop in time") from error
            match stop.kind:
                case StopKind.INTERRUPT:
                    self._interrupted.discard(tid)
                    return
                case StopKind.GROUP:
                    self._interrupted.discard(tid)
                    self.go(ptrace.LISTEN, tid)
                case _:
                    # This stop may have consumed the interruption. Ask again before the thread is resumed. If that were
                    # done after it, a first interruption that is still pending would stop the thread, and the second
                    # one would stop it again when it is resumed.
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
        """Whether the thread is at a safe point.

        No system call is about to be restarted. No stub of a killed memopt is unfinished: its jump back may lead into
        another stub, so neither may be overwritten. The thread is not inside a restartable sequence.
        """
        registers = self.registers(tid)
        if registers.cs != _USER_CODE_64:
            raise Rejected(Reason.THIRTY_TWO_BIT, "it runs 32-bit code")
        if registers.restarting and tid == self.pid:
            return False  # other threads never make remote calls, and may sleep for ever
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
        """The error for a stopped thread that no longer answers, because SIGKILL ended it; waits for its status."""
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
    """The value of field ``name`` in /proc/PID/status; "" if there is no such field or process."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return field_of(file, name)
    except (FileNotFoundError, ProcessLookupError):
        return ""


def field_of(lines: Iterable[str], name: str) -> str:
    """The value of the first line ``name: value``; "" if there is none."""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name + ":")), "")


def is_own_thread(tracer: str) -> bool:
    """Whether ``tracer``, the field TracerPid of a process, is a thread of memopt's."""
    return tracer.isdigit() and os.path.exists(f"/proc/self/task/{tracer}")
