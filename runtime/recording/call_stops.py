"""Handles the system calls of recorded processes that matter to their recording (``system_calls``).

Example: a program makes its text writable by ``mprotect``. Its copies are retired before the call is made, and what is
at these addresses is copied anew when it is met again, if it cannot be written any more.

In: threads that ask in front of a call, or stop there. Out: the call is made, or memopt has let go of the process.

Invariant: when code changes, no thread of its process is in a copy of it, and none gets there before the call is made:
memopt makes the call in the stop, and answers nobody meanwhile.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace

from memopt.ir.reasons import Rejected
from runtime.launch.jobcontrol import Supervisor
from runtime.recording.process import Process
from runtime.recording.space import Space
from runtime.recording.system_calls import TRACED, changed, number_of, traced_by_it, why_left_alone
from runtime.recording.tracer import PATIENCE_S, Tracer, reach_instruction, reach_return
from runtime.recording.translation.asked_calls import SYS_MUNMAP
from runtime.recording.translation.layout import ASKED
from runtime.recording.translation.trace_probes import Recording
from runtime.recording.trees import Thread
from runtime.target import ptrace
from runtime.target.ptrace import Registers, StopKind, TargetEnded, WaitTimeout

_TRIES = 8  # to take back a thread whose system calls do not return to code with copies


class CallStops(Tracer):
    """A tracer that knows which system calls matter."""

    def __init__(self, supervisor: Supervisor, recording: Recording) -> None:
        super().__init__(supervisor, recording)
        self._strayed: Counter[int] = Counter()  # by thread: how often in a row it could not be taken back

    def _call_outside(self, tid: int) -> None:
        """Handles a stop at a system call of a thread that runs outside of copies."""
        if ptrace.syscall_result(tid) is not None:
            self._take_back(tid)
            self._go(tid)
            return
        registers, child = ptrace.get_registers(tid), self._until_program.get(tid)
        why = self._why_left_alone(tid, registers)
        if why and child is not None:
            self._note(f"a child process was not recorded: {why}")
            del self._until_program[tid]
            self._release(tid, False)
        elif why:
            process = self._outside_of_copies[tid]
            process.leaves = True
            self._note(f"a process was not recorded to its end: {why}")
            self._leaves(tid, ptrace.Stop(StopKind.SYSCALL))
        else:
            process = child or self._outside_of_copies[tid]
            if process.space is not None and self._retire(process, tid, registers):
                ptrace.request(ptrace.SYSCALL, tid)  # nobody is answered until the call is made
                stop = ptrace.decode(ptrace.wait(tid, PATIENCE_S))
                if stop.kind is not StopKind.SYSCALL:
                    self._stopped(tid, stop)
                    return
            self._go(tid)

    def _take_back(self, tid: int) -> None:
        """Takes a thread that stands behind a system call back to copies, if it soon returns to code that has some."""
        process = self._outside_of_copies.get(tid)
        if process is None or process is not self._of.get(tid) or process.space is None or self._strayed[tid] == _TRIES:
            return
        registers = self._returned(process.space, tid)
        if process.space.in_copies(registers.rip):
            ptrace.set_registers(tid, registers)
            del self._outside_of_copies[tid]

    def _returned(self, space: Space, tid: int) -> Registers:
        """The registers of a thread that stands in the program's own code when the functions that it is in have
        returned to code that has copies: it goes on there. If they do not return soon, those that it has then.
        """
        back, late = reach_return(space, tid)
        for number in late:
            ptrace.send_signal(space.pid, tid, number)
        registers = ptrace.get_registers(tid)
        region = None if back is None else space.region_near(back)
        self._strayed[tid] = self._strayed[tid] + 1 if back is None else 0
        with suppress(Rejected):
            if back is not None and region is not None:
                return replace(registers, rip=space.way(back, region), gs_base=space.threads[tid].state)
        return registers

    def _why_left_alone(self, tid: int, registers: Registers) -> str:
        """Why memopt must let go of the process of a thread that stands in front of a system call; "" if it need not.
        A process has one tracer, so memopt lets go of a process that this one is to trace.
        """
        traced = traced_by_it(registers)
        found = None if traced is None else self._of.get(traced) or self._outside_of_copies.get(traced)
        if found is None:
            return why_left_alone(tid, registers)
        self._note(f"a process was not recorded to its end: {TRACED}")
        if found is self._of.get(tid):
            return TRACED
        self._let_go(found)
        return ""

    def _retire(self, process: Process, tid: int, registers: Registers) -> list[tuple[int, int]]:
        """Retires the copies of code that the system call of the thread ``tid`` changes, and takes other threads out of
        them. Returns where that code is.
        """
        space = process.space
        assert space is not None
        found = [(start, end) for start, end in changed(tid, registers) if space.forget(start, end)]
        if found and number_of(registers) != SYS_MUNMAP:  # nobody runs code that is unmapped
            for other in [other for other, of in self._of.items() if of is process and other != tid]:
                if other not in self._answered and other not in self._outside_of_copies:
                    self._take_out(space, other)
        return found

    def _take_out(self, space: Space, tid: int) -> None:
        """Takes a thread that runs, or waits, in a retired copy to the program's own code."""
        with suppress(WaitTimeout, ProcessLookupError):
            try:
                while _may_stand_in_retired(space, tid):
                    ptrace.request(ptrace.INTERRUPT, tid)
                    status = ptrace.wait(tid, PATIENCE_S)
                    stop = ptrace.decode(status)
                    if stop.kind is not StopKind.INTERRUPT or tid in self._new:
                        self._met(tid, status)
                        continue
                    thread = space.threads.get(tid)
                    if thread is not None and not space.memory.word(thread.state + ASKED):
                        _, late = reach_instruction(space, tid, stop)
                        registers = ptrace.get_registers(tid)
                        ptrace.set_registers(tid, self._out_of_retired(space, thread, registers))
                        for number in late:
                            ptrace.send_signal(space.pid, tid, number)
                    self._go(tid)
                    return
            except TargetEnded as ended:
                self._ended(tid, ended)

    def _out_of_retired(self, space: Space, thread: Thread, registers: Registers) -> Registers:
        """The registers of a thread that stands still at an instruction of the program: if that is in a retired copy,
        the thread goes on in the program's own code.
        """
        if not space.units.is_retired(registers.rip):
            return registers
        ends = space.settle(thread, registers)
        if ends is not None:
            thread.cut[ends] -= 1
        self._outside_of_copies[thread.tid] = self._of[thread.tid]
        original = space.original(registers.rip)
        return registers if original is None else replace(registers, rip=original)

    def _make_change(self, space: Space, thread: Thread, registers: Registers) -> Registers:
        """Makes the system call of a thread that is being answered and stands in front of it, if code changes by it.
        Returns the registers behind it. Nobody else is answered in between, so no code is copied while it changes.
        """
        tid = thread.tid
        found = self._retire(self._of[tid], tid, registers)
        if not found:
            return registers
        if self._answered[tid].kind is StopKind.SIGNAL:  # a handler comes first, and the call then
            space.code.unsure += found
            return registers
        ptrace.set_registers(tid, registers)
        for _ in range(2):
            ptrace.request(ptrace.SYSCALL, tid)
            self._answered[tid] = ptrace.decode(ptrace.wait(tid, PATIENCE_S))
            if self._answered[tid].kind is not StopKind.SYSCALL:
                space.code.unsure += found
                return ptrace.get_registers(tid)
        registers = self._out_of_retired(space, thread, ptrace.get_registers(tid))
        if space.in_copies(registers.rip):
            return registers
        ptrace.set_registers(tid, registers)
        return self._returned(space, tid)


def _may_stand_in_retired(space: Space, tid: int) -> bool:
    """Whether a thread may run in a retired copy, or will when the system call returns that it waits in."""
    try:
        with open(f"/proc/{tid}/syscall", encoding="ascii") as file:
            words = file.read().split()
    except OSError:
        return False  # it is gone
    return len(words) < 2 or space.units.is_retired(int(words[-1], 16))
