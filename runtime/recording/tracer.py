"""Traces the processes of a program by ptrace: how they and their threads begin, stop, end, and are let go of.

In: stops of threads. Out: a ``Process`` with its ``Space`` for each process that is recorded.

- A forked child goes on in the copies that it has inherited.
- A child that shares its parent's memory (vfork) runs as it is until it executes a program of its own.
- A process that another one wants to trace is let go of, and so is one whose next system call memopt must not see made
  (``system_calls``).
- A thread that runs outside of copies stops at each system call, so that none is made unseen.

Invariant: a thread that stops goes on, whatever fails here; one that is let go of goes on in the program's own code.
"""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from memopt.ir.reasons import Reason, Rejected
from runtime import faults
from runtime.launch.jobcontrol import Supervisor
from runtime.recording.copies import Made
from runtime.recording.process import Process, check_place, is_64_bit, witness
from runtime.recording.space import Space
from runtime.recording.translation.layout import ASKED, NODE, TARGET
from runtime.recording.translation.probe_routines import ASKING
from runtime.recording.translation.trace_probes import Recording
from runtime.recording.translation.unit import SYSCALL_BYTES
from runtime.recording.trees import Thread
from runtime.target import ptrace
from runtime.target.ptrace import Registers, StopKind, TargetEnded, WaitTimeout
from runtime.target.tracee import Tracee, status_field

PATIENCE_S = 1.0
_OPTIONS = (ptrace.OPTION_SYSGOOD | ptrace.OPTION_FORK | ptrace.OPTION_VFORK | ptrace.OPTION_CLONE | ptrace.OPTION_EXEC
            | ptrace.OPTION_EXIT)
MOST_STEPS = 300  # more than from anywhere in a probe to the program's next instruction
_STEPS_TO_RETURN = 40  # from a system call, of which most functions of the C library return at once
_SYSCALL = b"\x0f\x05"
_MOST_PROCESSES = 1000  # that live at once
_ALL_NUMBERS = 1 << 22  # the system gives threads numbers below this (PID_MAX_LIMIT in include/linux/threads.h)


class Tracer(ABC):
    """Traces the processes of a program. ``notes``: reasons why something was not recorded, each with how often.
    ``processes``: by ``Process.number``, also those that have ended. ``made``: their copies.
    """

    def __init__(self, supervisor: Supervisor, recording: Recording) -> None:
        self.pid, self._recording = supervisor.pid, recording
        self.supervisor = supervisor
        self.notes: dict[str, int] = {}
        # Numbers in traces are those of this run. Where a fault is to be injected, nothing may be left out.
        self._keeps = not recording.traces and not faults.armed()
        self.made = Made(keeps=self._keeps, elided=self._recording.elided)
        self.processes: dict[int, Process] = {}
        self._by_pid: dict[int, Process] = {}  # the last one that had this number
        self._numbers: Counter[int] = Counter()  # how many threads of recorded processes have had this number
        self._memopt = os.getpid(), witness()
        self._of: dict[int, Process] = {}  # by the number of a thread that is recorded
        self._new: set[int] = set()  # threads that have not stopped for the first time
        # Processes that run as they are until they execute a program, with those whose memory they share.
        self._until_program: dict[int, Process] = {}
        self._outside_of_copies: dict[int, Process] = {}  # threads of recorded processes that run as they are for good
        self._answered: dict[int, ptrace.Stop] = {}  # threads that are being answered, and the stops that they are in

    @abstractmethod
    def _answer(self, tid: int, stop: ptrace.Stop) -> ptrace.Stop:
        """If a thread that stands still at ``stop`` waits for memopt, answers and takes it to where the program goes
        on. Returns the stop that it is in then.
        """

    @abstractmethod
    def _call_outside(self, tid: int) -> None:
        """Handles a stop at a system call of a thread that runs outside of copies."""

    @abstractmethod
    def _signal(self, tid: int, number: int) -> None:
        """Delivers a signal to a thread that stands still, and lets it go on."""

    @abstractmethod
    def _collect(self, tid: int) -> None:
        """Collects the results of a thread that stands still, and ends or goes on without memopt."""

    @abstractmethod
    def _forgotten(self, process: Process) -> None:
        """The records of the process are those of a program that has been replaced. If there are no other processes,
        that was the last one.
        """

    def seize(self) -> None:
        """Begins to trace. To be called before the program is executed."""
        ptrace.request(ptrace.SEIZE, self.pid, 0, _OPTIONS)
        self.supervisor.traced = True
        self.supervisor.asking = ASKING

    def _space(self, tid: int) -> Space | None:
        process = self._of.get(tid)
        return None if process is None else process.space

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Notes a failure instead of raising it: memopt must go on looking after the program."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self._note(f"memopt failed, please report it ({error!r})")

    def _note(self, text: str) -> None:
        self.notes[text] = self.notes.get(text, 0) + 1

    # -- stops ---------------------------------------------------------------------------------------------------------

    def _met(self, tid: int, status: int) -> None:
        """Handles a stop. Whatever fails, the thread goes on."""
        stop = ptrace.decode(status)
        try:
            self._stopped(tid, stop)
        except ProcessLookupError:
            return  # SIGKILL took it away; its end is reported next
        except TargetEnded as ended:
            self._ended(tid, ended)
        except Exception as error:  # noqa: BLE001
            self._note(f"memopt failed, please report it ({error!r})")
            with suppress(OSError, TargetEnded):
                self._go(tid, stop.signal if stop.kind is StopKind.SIGNAL else 0)

    def _ended(self, tid: int, ended: TargetEnded) -> None:
        if tid == self.pid:
            self.supervisor.note_exit(ended.status)
        self._until_program.pop(tid, None)
        self._drop(tid)

    def _drop(self, tid: int) -> None:
        """Ends the recording of a thread; of its process, if it was the last one."""
        process = self._of.pop(tid, None)
        self._outside_of_copies.pop(tid, None)
        if process is not None and process.space is not None:
            process.space.end_thread(tid)
            if not process.space.threads:
                process.end()

    def _stopped(self, tid: int, stop: ptrace.Stop) -> None:
        match stop.kind:
            case StopKind.NEW_PROGRAM:
                self._begin(tid)
            case StopKind.NEW_PROCESS | StopKind.VFORK:
                self._new_process(tid, ptrace.get_event_message(tid), stop.kind is StopKind.VFORK)
                self._go(tid)
            case StopKind.ENDING:
                self._until_program.pop(tid, None)
                self._collect(tid)
                self._go(tid)
            case StopKind.SYSCALL if tid in self._until_program or tid in self._outside_of_copies:
                self._call_outside(tid)
            case StopKind.INTERRUPT:
                if tid in self._new:
                    self._new.discard(tid)
                    self._begin_thread(tid)
                else:
                    self._go_on(tid, stop)
            case StopKind.GROUP:
                ptrace.request(ptrace.LISTEN, tid)
                if tid == self.pid:
                    self.supervisor.stop_likewise(stop.signal)
            case StopKind.SIGNAL:
                self._go_on(tid, stop)
            case _:
                self._go(tid)

    def _go_on(self, tid: int, stop: ptrace.Stop) -> None:
        """Answers a thread that may wait for memopt, and lets it go on."""
        stop = self._answer(tid, stop)
        if self._leaves(tid, stop):
            return
        if stop.kind is StopKind.SIGNAL:
            self._signal(tid, stop.signal)
        else:
            self._go(tid)

    def _go(self, tid: int, number: int = 0) -> None:
        stops = tid in self._until_program or tid in self._outside_of_copies
        ptrace.request(ptrace.SYSCALL if stops else ptrace.CONT, tid, 0, number)

    def _begin(self, tid: int) -> None:
        """Begins a process whose new program stands at its first instruction."""
        before = self._by_pid.get(tid)
        if before is not None and before.space is None:  # it has ended, or the system has given its number away again
            before = None
        if before is not None:
            self._forget(before)
        self._until_program.pop(tid, None)
        tracee = Tracee(tid)
        try:
            if not is_64_bit(tid):
                raise Rejected(Reason.THIRTY_TWO_BIT)
            check_place(tid)
            if before is None:
                self._check_new()
            tracee.take_over(ptrace.Stop(StopKind.INTERRUPT))
            tracee.go(ptrace.SYSCALL, tid)
            tracee.wait(tid, 10.0)  # the end of execve
            space = Space(tracee, self._memopt, self._recording, self.made)
            registers = tracee.registers()
            if registers.gs_base:
                raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, "the program uses gs")
            thread = space.new_thread(tid, self._new_number(tid) if before is None else before.number)
            parent = self._parent(tid) if before is None else before.parent
            self._add(Process(tid, thread.number, parent, space, os.readlink(f"/proc/{tid}/exe")), thread)
            self._enter(space, thread, registers)
        except Rejected as error:
            self._note(f"not recorded: {error}" if tid == self.pid else f"a child process was not recorded: {error}")
            self._release(tid, False)
            if tid == self.pid:
                self.supervisor.traced = False
        finally:
            tracee.memory.close()

    def _check_new(self) -> None:
        """Raises ``Rejected`` if there is no room for one more process."""
        if sum(process.space is not None for process in self._by_pid.values()) >= _MOST_PROCESSES:
            raise Rejected(Reason.NO_MEMORY, f"more than {_MOST_PROCESSES:,} processes at once")

    def _new_number(self, tid: int) -> int:
        """The number by which results name a new thread: ``tid``, with ``_ALL_NUMBERS`` added for each thread that has
        had it before. The system gives numbers away again when a thread has ended.
        """
        self._numbers[tid] += 1
        return tid + (self._numbers[tid] - 1) * _ALL_NUMBERS

    def _parent(self, pid: int) -> int:
        """The number of the process that has made ``pid``; 0 for the program itself."""
        if pid == self.pid:
            return 0
        parent = int(status_field(pid, "PPid") or 0)
        return self._by_pid[parent].number if parent in self._by_pid else parent

    def _add(self, process: Process, thread: Thread) -> None:
        self.processes[process.number] = self._by_pid[process.pid] = process
        self.supervisor.asked_by.add(process.pid)
        self._add_thread(process, thread)

    def _add_thread(self, process: Process, thread: Thread) -> None:
        process.threads.append(thread.number)
        self._of[thread.tid] = process

    def _forget(self, process: Process) -> None:
        """Forgets a process, which now executes another program."""
        if process.pid == self.pid:
            self._note("a program was replaced by another; only the last one is recorded")
        process.end()
        del self.processes[process.number], self._by_pid[process.pid]
        self._of = {tid: other for tid, other in self._of.items() if other is not process}
        if not self.processes:
            self.made = Made(keeps=self._keeps, elided=self._recording.elided)
        self._forgotten(process)

    def _enter(self, space: Space, thread: Thread, registers: Registers) -> None:
        """Makes a thread go on in the copy of what it was about to execute, as a call from no caller."""
        region = space.region_near(registers.rip)
        rip = registers.rip
        if region is not None:
            rip = space.way(registers.rip, region)
        space.memory.write(thread.state + TARGET, registers.rip.to_bytes(8, "little"))
        ptrace.set_registers(thread.tid, replace(registers.outside_call(), rip=rip, gs_base=thread.state))
        self._go(thread.tid)

    # -- new ones ------------------------------------------------------------------------------------------------------

    def _new_process(self, tid: int, made: int, waits: bool) -> None:
        """Handles a new thread or process ``made`` of the thread ``tid``, which stands behind the system call.
        ``waits``: it waits for the new process (vfork).
        """
        self.supervisor.threads.add(made)
        if status_field(made, "Tgid") != str(made):
            self._new.add(made)
            return
        try:
            ptrace.wait(made, PATIENCE_S)
            self._begin_child(tid, made, waits)
        except WaitTimeout:
            self._new.add(made)  # it will not be recorded
        except (TargetEnded, ProcessLookupError):
            self.supervisor.threads.discard(made)
            self._until_program.pop(made, None)
            self._drop(made)

    def _begin_child(self, tid: int, pid: int, waits: bool) -> None:
        """Begins a process that the thread ``tid`` has made. Both stand behind the system call."""
        process, space, registers = self._of.get(tid), self._space(tid), ptrace.get_registers(pid)
        if process is None or space is None:
            self._release(pid, False)
            return
        shares = waits
        try:
            faults.point("record.child")
            shares = waits or space.shares(pid)
            if shares:
                self._until_program[pid] = process
                if not waits:
                    raise Rejected(Reason.SHARED_MAPPING, "it shares the memory of its parent")
            else:
                check_place(pid)
                self._check_new()
                with standing(pid) as tracee:
                    own = space.forked(tracee, tid, self._new_number(pid))
                thread = own.threads[pid]
                self._add(Process(pid, thread.number, process.number, own, process.program,
                                  mapped=dict(process.mapped), stacks=[*process.stacks, registers.rsp]), thread)
                self._begin_forked(own, thread, registers.rip)
                self._go(pid)
                return
        except (TargetEnded, ProcessLookupError):
            raise
        except Exception as error:  # noqa: BLE001 - parent and child go on, whatever is wrong with memopt
            self._note(f"a child process was not recorded: {error}" if isinstance(error, Rejected)
                       else f"memopt failed, please report it ({error!r})")
            self._drop(pid)
        original = space.original(registers.rip)
        if original is not None:
            ptrace.set_registers(pid, replace(registers, rip=original, gs_base=0))
        if shares:
            self._go(pid)
        else:
            self._release(pid, False)

    def _begin_forked(self, space: Space, thread: Thread, copy: int) -> None:
        """Makes a child go on at ``copy``, behind a system call."""
        original, unit = space.original(copy), space.unit_of_copy(copy)
        if original is not None and unit is not None:
            space.begin_behind(thread, unit, original - SYSCALL_BYTES)

    def _begin_thread(self, tid: int) -> None:
        """Begins a thread that stands at its first instruction, behind the system call that made it."""
        process = self._by_pid.get(int(status_field(tid, "Tgid") or 0))
        registers, space = ptrace.get_registers(tid), None if process is None else process.space
        original = None if space is None else space.original(registers.rip)
        if process is None or space is None or original is None:
            if process is not None and space is not None:
                self._outside_of_copies[tid] = process
            self._release(tid, process is not None)
            return
        try:
            thread = space.new_thread(tid, self._new_number(tid))
            self._add_thread(process, thread)
            process.stacks.append(registers.rsp)
            unit = space.unit_of_copy(registers.rip)
            assert unit is not None
            node = space.trees.child(thread, thread.root, unit)
            space.memory.write(thread.state + NODE, node.to_bytes(8, "little"))
            space.begin_behind(thread, unit, original - SYSCALL_BYTES)
            ptrace.set_registers(tid, replace(registers, gs_base=thread.state))
        except Rejected as error:
            self._note(f"a thread was not recorded: {error}")
            self._outside_of_copies[tid] = process
            ptrace.set_registers(tid, replace(registers, rip=original, gs_base=0))
        self._go(tid)

    # -- letting go ----------------------------------------------------------------------------------------------------

    def _release(self, tid: int, same: bool, number: int = 0) -> None:
        """Lets a thread run as it is from now on. ``same``: its process is recorded, so it stays traced."""
        if same:
            self._go(tid, number)
        else:
            self.supervisor.threads.discard(tid)
            self._outside_of_copies.pop(tid, None)
            ptrace.request(ptrace.DETACH, tid, 0, number)

    def _let_go(self, process: Process, but: int = 0) -> None:
        """Lets all threads of a process go on as they are, without memopt; not the thread ``but``."""
        met = {but}
        while (tid := next((tid for tid in self._threads(process) if tid not in met), None)) is not None:
            met.add(tid)
            with suppress(WaitTimeout, ProcessLookupError):
                try:
                    if tid in self._new:
                        self._met(tid, ptrace.wait(tid, PATIENCE_S))
                    ptrace.request(ptrace.INTERRUPT, tid)
                    stop = ptrace.decode(ptrace.wait(tid, PATIENCE_S))
                    if stop.kind in (StopKind.NEW_PROCESS, StopKind.VFORK):
                        self._new_process(tid, ptrace.get_event_message(tid), stop.kind is StopKind.VFORK)
                    self._let_thread_go(tid, stop)
                except TargetEnded as ended:
                    self._ended(tid, ended)

    def _threads(self, process: Process) -> list[int]:
        """The threads of a process, also those that have not stopped for the first time."""
        new = [tid for tid in self._new if status_field(tid, "Tgid") == str(process.pid)]
        return [*new, *(tid for tid, other in (self._outside_of_copies | self._of).items() if other is process)]

    def _leaves(self, tid: int, stop: ptrace.Stop) -> bool:
        """Whether the process of a thread that stands still is to be let go of; then lets go of it. The thread itself
        comes last: its system call may concern all others.
        """
        process = self._of.get(tid) or self._outside_of_copies.get(tid)
        if process is None or not process.leaves:
            return False
        self._let_go(process, but=tid)
        self._let_thread_go(tid, stop)
        return True

    def _let_thread_go(self, tid: int, stop: ptrace.Stop) -> None:
        """Lets a thread that stands still go on in the program's own code, without memopt."""
        space, late, goes_on = self._space(tid), list[int](), None
        number = stop.signal if stop.kind is StopKind.SIGNAL else 0
        thread = None if space is None else space.threads.get(tid)
        if space is not None and thread is not None and stop.kind is not StopKind.ENDING:
            registers = space.asking(thread, ptrace.get_registers(tid))
            if registers is None:
                _, late = reach_instruction(space, tid, stop)
                registers = ptrace.get_registers(tid)
            space.memory.write(thread.state + ASKED, bytes(8))
            original = space.original(registers.rip)
            goes_on = replace(registers, gs_base=0, rip=registers.rip if original is None else original)
        self._collect(tid)
        if goes_on is not None:
            ptrace.set_registers(tid, goes_on)
        for other in late:
            ptrace.send_signal(int(status_field(tid, "Tgid") or tid), tid, other)
        self._release(tid, False, number)
        if tid == self.pid:
            self.supervisor.traced = False


@contextmanager
def standing(tid: int) -> Iterator[Tracee]:
    """A thread that stands still where it may make system calls."""
    tracee = Tracee(tid)
    tracee.take_over(ptrace.Stop(StopKind.INTERRUPT))
    try:
        yield tracee
    finally:
        tracee.memory.close()


def step(tid: int, number: int = 0) -> ptrace.Stop:
    """Executes one instruction of a thread, or delivers the signal ``number``. Returns the stop behind it."""
    ptrace.request(ptrace.SINGLESTEP, tid, 0, number)
    return ptrace.decode(ptrace.wait(tid, PATIENCE_S))


def _has_stepped(tid: int) -> bool:
    """Whether the SIGTRAP that ends a step is pending. The thread would die of it if memopt let go of it now."""
    return bool(int(status_field(tid, "SigPnd") or "0", 16) >> signal.SIGTRAP - 1 & 1)


def reach_instruction(space: Space, tid: int, stop: ptrace.Stop) -> tuple[ptrace.Stop, list[int]]:
    """Steps a thread from ``stop`` on until it is between two instructions of the program.

    Returns the stop there, of another kind than SIGNAL if that is not reached, and the signals that came meanwhile.
    """
    late: list[int] = []
    for _ in range(MOST_STEPS):
        rip = ptrace.get_registers(tid).rip
        if not space.in_copies(rip) or space.original(rip) is not None:
            return stop, late
        stop = _step_alone(tid, late)
    return ptrace.Stop(StopKind.INTERRUPT), late


def reach_return(space: Space, tid: int) -> tuple[int | None, list[int]]:
    """Steps a thread that stands in the program's own code until a call has returned that copies know.

    Returns the address there, None if that is not reached soon or a system call comes first, and the signals that came
    meanwhile.
    """
    late: list[int] = []
    for _ in range(_STEPS_TO_RETURN):
        rip = ptrace.get_registers(tid).rip
        if space.units.returning_to(rip) is not None:
            return rip, late
        if space.memory.read_some(rip, SYSCALL_BYTES) == _SYSCALL:
            break
        _step_alone(tid, late)
    return None, late


def _step_alone(tid: int, late: list[int]) -> ptrace.Stop:
    """Executes one instruction of a thread. Returns the stop behind it. Signals that come meanwhile go to ``late``."""
    stop = step(tid)
    while stop.kind is not StopKind.SIGNAL and _has_stepped(tid):  # another stop came first
        ptrace.request(ptrace.CONT, tid)
        stop = ptrace.decode(ptrace.wait(tid, PATIENCE_S))
    if stop.kind is StopKind.SIGNAL and stop.signal != signal.SIGTRAP:
        late.append(stop.signal)
    return stop
