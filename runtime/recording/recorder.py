"""A launched program, recorded from its first instruction to its end, with the processes that it forks and starts.

memopt is its tracer. It is only asked when something is met for the first time: a function, a callee of a call, a
target of a jump; and by signals, new threads and new processes. What cannot be copied (code that is written while it
runs, or in no file) runs as it is, and so does everything after it until control comes back by a way that is recorded.
A child that is forked goes on in the copies that it has of its parent's; one that shares its parent's memory (vfork)
runs as it is until it executes a program of its own.

Invariant: the program's memory, registers and signals are its own at every instruction of its own.
"""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

import numpy
from numpy.typing import NDArray

from memopt.analysis.counting import Counts
from memopt.ir.reasons import Reason, Rejected
from runtime import faults, ptrace
from runtime.jobcontrol import Asked, Event, Supervisor, TraceStop
from runtime.memory import mappings
from runtime.ptrace import Registers, StopKind, TargetEnded, WaitTimeout
from runtime.recording.code import Text
from runtime.recording.escapes import LOOK_SECONDS, Escapes
from runtime.recording.process import SYS_PTRACE, TRACED, Process, is_64_bit, why_left_alone, witness
from runtime.recording.routines import ASKING, Question
from runtime.recording.space import Made, Region, Space, Thread
from runtime.recording.state import (
    ASKED,
    DESTINATION,
    GO_ON,
    KEPT,
    NODE,
    NODE_STRAY,
    RECORD,
    SAVED,
    SLOT,
    TARGET,
)
from runtime.recording.telling import Recording, Told
from runtime.recording.unit import Unit
from runtime.tracee import Tracee, status_field

_OPTIONS = (ptrace.OPTION_SYSGOOD | ptrace.OPTION_FORK | ptrace.OPTION_VFORK | ptrace.OPTION_CLONE | ptrace.OPTION_EXEC
            | ptrace.OPTION_EXIT)
_SYSCALL_BYTES = 2
_MOST_STEPS = 300  # from anywhere in a probe to the program's next instruction
_CONTEXT_RIP, _CONTEXT_RSP = 168, 160  # in the ucontext_t on top of the stack when a handler returns (sigcontext.h)
_PATIENCE_S = 1.0
_MOST_PROCESSES = 1000
_TRACE_ATTACH = 16


@dataclass(frozen=True, slots=True)
class Counted:
    """A node of ``unit``, in ``text``, by its address and its caller's (the root's for what nothing called), and its
    counters; addresses are those of one thread. ``site``: the live address of the call, None for none; ``loop``: index
    of the innermost loop of the caller's unit around it. ``begun``, ``ended``: the blocks in whose middle its
    thread did."""

    tid: int
    address: int
    unit: Unit
    text: Text
    caller: int
    site: int | None
    loop: int | None
    counts: Counts
    begun: int | None = None
    ended: int | None = None


class Watcher(Protocol):
    """Is told what memory is accessed."""

    def begin(self) -> None:
        """The program begins: what was told before was of another one."""

    def forget(self, tids: Sequence[int]) -> None:
        """What was told of these threads was of another program."""

    def take(self, tid: int, new: Sequence[Unit], words: NDArray[numpy.uint64]) -> None:
        """The words of the trace of a thread (memopt.traces.trace); ``new``: units that may be met in it first.
        Those of the piece before are overwritten when this returns."""


_Answer = Callable[[Space, Thread, Region, Registers], Registers]
"""What a thread of the program goes on with; its registers are those the program has. Raises ``Rejected``: it goes on
in the original code."""


class Recorder:
    """``notes``: what was not recorded, and why; ``escapes``: is asked, where it is set, how much that was;
    ``progress``: is told now and then how far the program has come."""

    def __init__(self, supervisor: Supervisor, recording: Recording,
                 watcher: Watcher | None = None) -> None:
        """``watcher``: is told what there is in traces."""
        self.pid, self._recording, self._watcher = supervisor.pid, recording, watcher
        self.supervisor = supervisor
        self._memopt = os.getpid(), witness()
        self.made = Made()
        self.processes: dict[int, Process] = {}  # by number, those that have ended too
        self._of: dict[int, Process] = {}  # by the number of a thread that is recorded
        self.notes: dict[str, int] = {}
        self.counted: list[Counted] = []
        self.answers = 0
        self.escapes: Escapes | None = None
        self.progress: Callable[[str], None] | None = None
        self.words = 0  # of traces
        self._answers: dict[Question, _Answer] = {
            Question.MISSING: self._missing, Question.LINK: self._link, Question.ROOM_FOR_SITE: self._room_for_site,
            Question.ROOM_FOR_WAY: self._room_for_way, Question.SIGNAL_RETURN: self._signal_return,
            Question.UNMAP: self._unmap, Question.DRAIN: self._drain, Question.SYSTEM_CALL: self._system_call}
        self._told = 0  # how many units the watcher knows
        self._new: set[int] = set()  # threads that have not stopped for the first time
        self._until_program: set[int] = set()  # processes that run as they are until they execute a program

    def seize(self) -> None:
        """Before the program is executed."""
        ptrace.request(ptrace.SEIZE, self.pid, 0, _OPTIONS)
        self.supervisor.traced = True
        self.supervisor.asking = ASKING

    def run(self) -> None:
        """Until the program has ended."""
        looked = time.monotonic()
        while self.supervisor.outcome is None:
            self._handle(self.supervisor.poll(LOOK_SECONDS))
            if time.monotonic() >= looked + LOOK_SECONDS:
                with self._going_on():
                    faults.point("record.look")
                    self._ask_back()  # what could not be answered the first time
                    self._look()
                looked = time.monotonic()
        self._close()

    def _close(self) -> None:
        """The program has ended; what it has left behind goes on without memopt."""
        with self._going_on():
            self._look()
        left = {self._of[tid].pid: self._of[tid] for tid in self.supervisor.threads if tid in self._of}
        for process in left.values():
            with self._going_on():
                self._note("a process went on when the program had ended; it was recorded until then")
                self._let_go(process)
        if self.escapes is not None:
            self.escapes.close()

    def _space(self, tid: int) -> Space | None:
        process = self._of.get(tid)
        return None if process is None else process.space

    def _look(self) -> None:
        if self.escapes is not None:
            self.escapes.look({process.pid: process.space for process in self._of.values() if process.space})
        for process in {process.pid: process for process in self._of.values()}.values():
            self._look_at(process)
        if self.progress is not None and self.processes:
            self.progress(f"{len(self.made.units):,} functions met"
                          + (f" in {len(self.processes):,} processes" if len(self.processes) > 1 else "")
                          + (f", {self.words / 1e6:,.0f} million words of their traces read" if self.words else ""))

    def _look_at(self, process: Process) -> None:
        if self._watcher is not None:
            with suppress(Rejected):
                process.mapped |= {mapping.start: mapping for mapping in mappings(process.pid)}

    def _handle(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, TraceStop):
                self._met(event.tid, event.status)
            elif isinstance(event, Asked):
                with self._going_on():
                    self._ask_back()

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Whatever fails here, memopt looks after the program."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self._note(f"memopt failed, please report it ({error!r})")

    def _note(self, text: str) -> None:
        self.notes[text] = self.notes.get(text, 0) + 1

    # -- stops ---------------------------------------------------------------------------------------------------------

    def _met(self, tid: int, status: int) -> None:
        """Do what a stop asks for; whatever fails, the thread goes on."""
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
        self._until_program.discard(tid)
        self._drop(tid)

    def _drop(self, tid: int) -> None:
        """A thread is not recorded any more."""
        process = self._of.pop(tid, None)
        if process is not None and process.space is not None:
            process.space.threads.pop(tid, None)
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
                self._until_program.discard(tid)
                self._collect(tid)
                self._go(tid)
            case StopKind.SYSCALL if tid in self._until_program:
                if not self._is_left_alone(tid):
                    self._go(tid)
            case StopKind.INTERRUPT:
                if tid in self._new:
                    self._new.discard(tid)
                    self._begin_thread(tid)
                else:
                    self._answer(tid)
                    if not self._leaves(tid, stop):
                        self._go(tid)
            case StopKind.GROUP:
                ptrace.request(ptrace.LISTEN, tid)
                if tid == self.pid:
                    self.supervisor.stop_likewise(stop.signal)
            case StopKind.SIGNAL:
                self._answer(tid)
                if not self._leaves(tid, stop):
                    self._signal(tid, stop.signal)
            case _:
                self._go(tid)

    def _go(self, tid: int, number: int = 0) -> None:
        ptrace.request(ptrace.SYSCALL if tid in self._until_program else ptrace.CONT, tid, 0, number)

    def _begin(self, tid: int) -> None:
        """A program has taken a process over and stands at its first instruction."""
        before = self.processes.get(tid)
        if before is not None:
            self._forget(before)
        self._until_program.discard(tid)
        tracee = Tracee(tid)
        try:
            if not is_64_bit(tid):
                raise Rejected(Reason.THIRTY_TWO_BIT)
            if before is None:
                self._check_new(tid)
            tracee.take_over(ptrace.Stop(StopKind.INTERRUPT))
            tracee.go(ptrace.SYSCALL, tid)
            tracee.wait(tid, 10.0)  # the end of execve
            space = Space(tracee, self._memopt, self._recording, self.made)
            registers = tracee.registers()
            if registers.gs_base:
                raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, "gs is in use")
            thread = space.new_thread(tid)
            parent = int(status_field(tid, "PPid")) if before is None else before.parent
            self._add(Process(tid, parent if tid != self.pid else 0, space, os.readlink(f"/proc/{tid}/exe")), tid)
            self._enter(space, thread, registers)
        except Rejected as error:
            self._note(f"not recorded: {error}" if tid == self.pid else f"a child process was not recorded: {error}")
            self._release(tid, tid == self.pid)
        finally:
            tracee.memory.close()

    def _check_new(self, pid: int) -> None:
        """Whether there is room for one more process. Raises ``Rejected``."""
        if len(self.processes) >= _MOST_PROCESSES:
            raise Rejected(Reason.NO_MEMORY, f"more than {_MOST_PROCESSES:,} processes")
        self._check_number(None, pid)

    def _check_number(self, process: Process | None, tid: int) -> None:
        """Whether the number of a thread tells it from those of other processes, ended or not. Raises ``Rejected``."""
        if any(tid in other.threads for other in self.processes.values() if other is not process):
            raise Rejected(Reason.BLOCKED, "the system has used its number before")

    def _add(self, process: Process, tid: int) -> None:
        self.processes[process.pid] = process
        self.supervisor.asked_by.add(process.pid)
        self._add_thread(process, tid)

    def _add_thread(self, process: Process, tid: int) -> None:
        process.threads.append(tid)
        self._of[tid] = process

    def _forget(self, process: Process) -> None:
        """What was recorded of a process that executes another program now."""
        if process.pid == self.pid:
            self._note("a program was replaced by another; only the last one is recorded")
        process.end()
        del self.processes[process.pid]
        self._of = {tid: other for tid, other in self._of.items() if other is not process}
        self.counted = [item for item in self.counted if item.tid not in process.threads]
        if self.processes:
            if self._watcher is not None:
                self._watcher.forget(process.threads)
            return
        self._told, self.made = 0, Made()
        if self.escapes is not None:
            self.escapes.begin()
        if self._watcher is not None:
            self._watcher.begin()

    def _enter(self, space: Space, thread: Thread, registers: Registers) -> None:
        """Let a thread go on at the copy of what it was about to execute, as a call from nowhere."""
        region = space.region_near(registers.rip)
        rip = registers.rip
        if region is not None:
            rip = space.way(registers.rip, region)
        space.memory.write(thread.state + TARGET, registers.rip.to_bytes(8, "little"))
        ptrace.set_registers(thread.tid, replace(registers.outside_call(), rip=rip, gs_base=thread.state))
        self._go(thread.tid)

    def _new_process(self, tid: int, made: int, waits: bool) -> None:
        """A thread stands behind the system call by which it has made another, or a process, for which it ``waits``."""
        self.supervisor.threads.add(made)
        if status_field(made, "Tgid") != str(made):
            self._new.add(made)
            return
        try:
            ptrace.wait(made, _PATIENCE_S)
        except WaitTimeout:
            self._new.add(made)  # and not recorded then
        except TargetEnded:
            self.supervisor.threads.discard(made)
        else:
            self._begin_child(tid, made, waits)

    def _begin_child(self, tid: int, pid: int, waits: bool) -> None:
        """A process that the thread ``tid`` has made; both stand behind the system call."""
        process, space, registers = self._of.get(tid), self._space(tid), ptrace.get_registers(pid)
        if process is None or space is None:
            self._release(pid, False)
            return
        try:
            if waits:
                self._until_program.add(pid)
            elif space.shares(pid):
                raise Rejected(Reason.SHARED_MAPPING, "it shares the memory of its parent")
            else:
                self._check_new(pid)
                tracee = Tracee(pid)
                tracee.take_over(ptrace.Stop(StopKind.INTERRUPT))
                try:
                    own = space.forked(tracee, tid)
                finally:
                    tracee.memory.close()
                self._add(Process(pid, process.pid, own, process.program, mapped=dict(process.mapped),
                                  stacks=[*process.stacks, registers.rsp]), pid)
                self._begin_forked(own, own.threads[pid], registers.rip)
                self._go(pid)
                return
        except Rejected as error:
            self._note(f"a child process was not recorded: {error}")
            self._drop(pid)
        original = self._original(space, registers.rip)
        if original is not None:
            ptrace.set_registers(pid, replace(registers, rip=original, gs_base=0))
        if waits:
            self._go(pid)
        else:
            self._release(pid, False)

    def _begin_forked(self, space: Space, thread: Thread, copy: int) -> None:
        """A child goes on at ``copy``, behind a system call."""
        original, unit = self._original(space, copy), space.unit_of_copy(copy)
        if original is not None and unit is not None:
            space.begin_behind(thread, unit, original - _SYSCALL_BYTES)

    def _is_left_alone(self, pid: int) -> bool:
        """At a system call of a process that runs as it is: whether memopt has let go of it for that."""
        why = why_left_alone(pid, ptrace.get_registers(pid))
        if why:
            self._note(f"a child process was not recorded: {why}")
            self._until_program.discard(pid)
            self._release(pid, False)
        return bool(why)

    def _begin_thread(self, tid: int) -> None:
        """A thread at its first instruction, behind the system call that made it."""
        process = self.processes.get(int(status_field(tid, "Tgid") or 0))
        registers, space = ptrace.get_registers(tid), None if process is None else process.space
        original = None if space is None else self._original(space, registers.rip)
        if process is None or space is None or original is None:
            self._release(tid, process is not None)
            return
        try:
            self._check_number(process, tid)
            thread = space.new_thread(tid)
            self._add_thread(process, tid)
            process.stacks.append(registers.rsp)
            unit = space.unit_of_copy(registers.rip)
            assert unit is not None
            node = space.child(thread, thread.root, unit)
            space.memory.write(thread.state + NODE, node.to_bytes(8, "little"))
            space.begin_behind(thread, unit, original - _SYSCALL_BYTES)
            ptrace.set_registers(tid, replace(registers, gs_base=thread.state))
        except Rejected as error:
            self._note(f"a thread was not recorded: {error}")
            ptrace.set_registers(tid, replace(registers, rip=original, gs_base=0))
        self._go(tid)

    def _release(self, tid: int, same: bool, number: int = 0) -> None:
        """It runs as it is from now on; a thread of a process that is recorded stays traced."""
        if same:
            self._go(tid, number)
        else:
            self.supervisor.threads.discard(tid)
            ptrace.request(ptrace.DETACH, tid, 0, number)

    def _let_go(self, process: Process) -> None:
        """All of a process goes on as it is, without memopt."""
        for tid in [tid for tid, other in self._of.items() if other is process]:
            with suppress(WaitTimeout, ProcessLookupError):
                try:
                    ptrace.request(ptrace.INTERRUPT, tid)
                    self._let_thread_go(tid, ptrace.decode(ptrace.wait(tid, _PATIENCE_S)))
                except TargetEnded as ended:
                    self._ended(tid, ended)

    def _leaves(self, tid: int, stop: ptrace.Stop) -> bool:
        """Whether the process of a thread that stands still is let go of, and has been."""
        process = self._of.get(tid)
        if process is None or not process.leaves:
            return False
        self._let_thread_go(tid, stop)
        self._let_go(process)
        return True

    def _let_thread_go(self, tid: int, stop: ptrace.Stop) -> None:
        """Of a thread that stands still."""
        space, late = self._space(tid), list[int]()
        thread = None if space is None else space.threads.get(tid)
        if space is not None and thread is not None and stop.kind is not StopKind.ENDING:
            registers = self._asking(space, thread)
            if registers is None:
                stop, late = self._reach_instruction(space, tid, stop)
                registers = ptrace.get_registers(tid)
            space.memory.write(thread.state + ASKED, bytes(8))
            original = self._original(space, registers.rip)
            ptrace.set_registers(tid, replace(registers, gs_base=0,
                                              rip=registers.rip if original is None else original))
        self._collect(tid)
        for number in late:
            ptrace.send_signal(int(status_field(tid, "Tgid") or tid), tid, number)
        self._release(tid, False, stop.signal if stop.kind is StopKind.SIGNAL else 0)
        if tid == self.pid:
            self.supervisor.traced = False

    def _original(self, space: Space, copy: int) -> int | None:
        """The original address for a thread between two instructions of the program, or behind a system call."""
        unit = space.unit_of_copy(copy)
        if unit is None:
            return None
        found = unit.original(copy)
        if found is None and (before := unit.original(copy - _SYSCALL_BYTES)) is not None and space.code.read(
                before, _SYSCALL_BYTES) == b"\x0f\x05":
            found = before + _SYSCALL_BYTES
        return found

    # -- answers -------------------------------------------------------------------------------------------------------

    def _ask_back(self) -> None:
        """Some thread waits for an answer: stop it where it waits."""
        for tid, process in tuple(self._of.items()):
            space = process.space
            thread = None if space is None else space.threads.get(tid)
            try:
                if space is not None and thread is not None and space.memory.word(thread.state + ASKED):
                    ptrace.request(ptrace.INTERRUPT, tid)
                    self._met(tid, ptrace.wait(tid, _PATIENCE_S))
            except (WaitTimeout, ProcessLookupError, Rejected):
                continue  # what becomes of it is told later
            except TargetEnded as ended:
                self._ended(tid, ended)

    def _asking(self, space: Space, thread: Thread) -> Registers | None:
        """The registers that the program has where a thread that stands still waits for memopt, None where it does
        not; they go on with what it asked for in the program's own code, or with the system call that is the matter."""
        state = struct.unpack("<16Q", space.memory.read(thread.state, 128))
        if not state[ASKED // 8]:
            return None
        names = ("rax", "rcx", "rdx", "r11", "rdi", "rsi")
        values = (state[offset // 8] for offset in (*SAVED, *KEPT))
        return replace(ptrace.get_registers(thread.tid).outside_call(), rip=state[DESTINATION // 8],
                       **dict(zip(names, values, strict=True)))

    def _answer(self, tid: int) -> None:
        """Where a thread that stands still waits for memopt, take it to where the program goes on."""
        space = self._space(tid)
        thread = None if space is None else space.threads.get(tid)
        if space is None or thread is None:
            return
        asking = self._asking(space, thread)
        if asking is None:
            return
        faults.point("record.answer")
        self.answers += 1
        question, at = Question(space.memory.word(thread.state + ASKED)), ptrace.get_registers(tid).rip
        region = next(r for r in space.regions if r.start <= at < r.start + len(r.shared.code))
        try:
            registers = self._answers[question](space, thread, region, asking)
        except Exception as error:  # noqa: BLE001 - the program goes on, whatever is wrong with memopt
            self._note(f"ran unrecorded: {error}" if isinstance(error, Rejected)
                       else f"ran unrecorded: memopt failed, please report it ({error!r})")
            registers = asking
        space.memory.write(thread.state + ASKED, bytes(8))
        if self._recording.told is Told.VALUES:
            space.memory.write(thread.state + GO_ON, registers.rip.to_bytes(8, "little"))
            registers = replace(registers, rip=region.shared.answered)
        try:
            ptrace.set_registers(tid, registers)
        except Exception:  # it is answered later
            space.memory.write(thread.state + ASKED, question.value.to_bytes(8, "little"))
            raise

    def _missing(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        target = space.memory.word(thread.state + TARGET)
        return replace(registers, rip=space.way(target, self._region_for(space, target, thread.tid)))

    def _link(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        """The first call by a site."""
        _, site = space.sites[space.memory.word(thread.state + RECORD)]
        assert site.target is not None
        space.link(site, space.unit(site.target, self._region_for(space, site.target, thread.tid)))
        return replace(registers, rip=region.shared.call)

    def _room_for_site(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        space.more_room(thread)
        return replace(registers, rip=region.shared.call)

    def _room_for_way(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        space.more_room(thread)
        return replace(registers, rip=region.shared.enter, rax=space.memory.word(thread.state + RECORD))

    def _unmap(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        space.forget(registers.rdi, registers.rdi + registers.rsi)
        return replace(registers, rip=space.memory.word(thread.state + DESTINATION))

    def _drain(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        self._tell(space, thread)
        return replace(registers, rip=space.memory.word(thread.state + RECORD))

    def _system_call(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        """What is executed may have to be left alone; and a process has one tracer: memopt makes room for another."""
        process, why = self._of[thread.tid], ""
        if registers.rax == SYS_PTRACE and registers.rdi in (_TRACE_ATTACH, ptrace.SEIZE) and registers.rsi in self._of:
            why = TRACED
            self._let_go(self._of[registers.rsi])
        elif registers.rax != SYS_PTRACE or process.pid != self.pid:  # whose parent is memopt: it would trace it again
            why = why_left_alone(process.pid, registers)
            process.leaves = bool(why)
        if why:
            self._note(f"a process was not recorded to its end: {why}")
        return registers

    def _tell(self, space: Space, thread: Thread) -> int:
        """How many words there were."""
        if self._watcher is None:
            return 0
        words = space.take_trace(thread)
        self.words += len(words)
        new, self._told = self.made.units[self._told:], len(self.made.units)
        self._watcher.take(thread.tid, new, words)
        return len(words)

    def _region_for(self, space: Space, address: int, tid: int) -> Region:
        """Memory for copies near ``address``. ``tid`` stands at a trap, or at an instruction of the program."""
        found = space.region_near(address)
        if found is None:
            tracee = Tracee(tid)
            tracee.take_over(ptrace.Stop(StopKind.INTERRUPT))
            try:
                found = space.new_region(address, tracee)
            finally:
                tracee.memory.close()
        return found

    # -- signals -------------------------------------------------------------------------------------------------------

    def _signal(self, tid: int, number: int) -> None:
        """Deliver a signal; a handler runs as a copy, and finds the program between two of its instructions."""
        space = self._space(tid)
        thread = None if space is None else space.threads.get(tid)
        caught = int(status_field(tid, "SigCgt") or "0", 16) >> number - 1 & 1
        if space is None or thread is None or not caught:
            self._go(tid, number)
            return
        information = ptrace.get_signal_information(tid)
        stop, late = self._reach_instruction(space, tid, ptrace.Stop(StopKind.SIGNAL, number))
        if stop.kind is StopKind.SIGNAL:
            ptrace.set_signal_information(tid, information)
            self._step(tid, number)
        else:  # no signal can be delivered from here
            late.append(number)
        for other in late:
            ptrace.send_signal(space.pid, tid, other)
        if stop.kind is not StopKind.SIGNAL:
            self._go(tid)
            return
        after = ptrace.get_registers(tid)
        if not space.in_copies(after.rip):
            node, top = struct.unpack("<2Q", space.memory.read(thread.state + NODE, 16))
            saved = after.rsp + 8
            stack, copy = struct.unpack("<2Q", space.memory.read(saved + _CONTEXT_RSP, 16))
            rip = self._original(space, copy) or copy
            thread.signals.append((rip, stack, copy, node, top))
            space.memory.write(saved + _CONTEXT_RIP, rip.to_bytes(8, "little"))
            space.memory.write(thread.state + SLOT, (node + NODE_STRAY).to_bytes(8, "little"))
            space.memory.write(thread.state + TARGET, after.rip.to_bytes(8, "little"))
            try:
                way = space.way(after.rip, self._region_for(space, after.rip, tid))
                ptrace.set_registers(tid, replace(after, rip=way))
            except Rejected as error:
                self._note(f"ran unrecorded: {error}")
        self._go(tid)

    def _step(self, tid: int, number: int = 0) -> ptrace.Stop:
        """One instruction, or the delivery of a signal."""
        ptrace.request(ptrace.SINGLESTEP, tid, 0, number)
        return ptrace.decode(ptrace.wait(tid, _PATIENCE_S))

    def _reach_instruction(self, space: Space, tid: int, stop: ptrace.Stop) -> tuple[ptrace.Stop, list[int]]:
        """From ``stop`` on to where the program is between two instructions of its own: the stop there, of another kind
        than SIGNAL if that is not reached, and the signals that came meanwhile."""
        late: list[int] = []
        for _ in range(_MOST_STEPS):
            rip = ptrace.get_registers(tid).rip
            if not space.in_copies(rip) or self._original(space, rip) is not None:
                return stop, late
            stop = self._step(tid)
            if stop.kind is StopKind.SIGNAL and stop.signal != signal.SIGTRAP:
                late.append(stop.signal)
        return ptrace.Stop(StopKind.INTERRUPT), late

    def _signal_return(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        stack, rip = struct.unpack("<2Q", space.memory.read(registers.rsp + _CONTEXT_RSP, 16))
        go_on = space.memory.word(thread.state + DESTINATION)
        interrupted = next((s for s in reversed(thread.signals) if s[:2] == (rip, stack)), None)
        if interrupted is not None:
            del thread.signals[thread.signals.index(interrupted):]
            _, _, copy, node, top = interrupted
            space.memory.write(registers.rsp + _CONTEXT_RIP, copy.to_bytes(8, "little"))
            space.memory.write(thread.state + NODE, struct.pack("<2Q", node, top))
            space.resume_trace(thread, copy, node)
        else:
            self._elsewhere(space, thread, registers, rip)
        return replace(registers, rip=go_on)

    def _elsewhere(self, space: Space, thread: Thread, registers: Registers, rip: int) -> None:
        """A handler returns to ``rip``, which is not where it interrupted the program while that was recorded."""
        thread.signals.clear()
        try:
            way = space.way(rip, self._region_for(space, rip, thread.tid))
            space.memory.write(registers.rsp + _CONTEXT_RIP, way.to_bytes(8, "little"))
        except Rejected as error:
            self._note(f"ran unrecorded: {error}")

    # -- the end -------------------------------------------------------------------------------------------------------

    def _collect(self, tid: int) -> None:
        process, space = self._of.get(tid), self._space(tid)
        if process is None or space is None:
            return
        if self.escapes is not None:
            self._look()
        self._look_at(process)
        thread = space.threads[tid]
        self._tell(space, thread)
        found = {node[0]: node for node in space.collect(thread)}
        ends = self._where(space, thread)
        kept: set[int] = set()
        for address, _, caller, _, counts in found.values():
            if counts.any():
                kept.add(address)
                while caller in found and caller not in kept:
                    kept.add(caller)
                    caller = found[caller][2]
        for address in (a for a in found if a in kept):
            _, unit, caller, where, counts = found[address]
            site, loop = self._site(space, found[caller][1] if caller in found else None, caller, where)
            begun, ended = (place[1] if place is not None and place[0] == address else None
                            for place in (thread.begun, ends))
            self.counted.append(Counted(tid, address, unit, self.made.texts[unit.number], caller, site, loop, counts,
                                        begun, ended))
        self._drop(tid)

    def _where(self, space: Space, thread: Thread) -> tuple[int, int] | None:
        """The node and the block in which a thread is that stands still, None where that is not recorded."""
        rip = ptrace.get_registers(thread.tid).rip
        unit = space.unit_of_copy(rip)
        place = None if unit is None else unit.original(rip)
        if unit is not None and place is None:
            place = unit.original(rip - _SYSCALL_BYTES)  # behind a system call
        block = None if unit is None or place is None else unit.block_around(place)
        return None if block is None else (space.memory.word(thread.state + NODE), block)

    def _site(self, space: Space, caller: Unit | None, address: int, where: int) -> tuple[int | None, int | None]:
        """The call by which a node was made, and the loop around it; ``where``: the site's record, or its slot."""
        found = None
        if where in space.sites:
            found = space.sites[where][1]
        elif caller is not None:
            found = next((s for s in caller.sites if address + s.slot == where), None)
        if found is None or caller is None:
            return None, None
        return found.address, caller.loop_around(found.address)

    @property
    def texts(self) -> list[Text]:
        """Of all processes, each once."""
        return list({id(text): text for process in self.processes.values() for text in process.texts}.values())

    @property
    def program(self) -> str:
        """Path of the file."""
        return self.processes[self.pid].program if self.pid in self.processes else ""
