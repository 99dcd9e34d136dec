"""A launched program, recorded from its first instruction to its end.

memopt is its tracer. It is only asked when something is met for the first time: a function, a callee of a call, a
target of a jump; and by signals and new threads. What cannot be copied (code that is written while it runs, or in no
file) runs as it is, and so does everything after it until control comes back by a way that is recorded.

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
from runtime.memory import Mapping, mappings
from runtime.ptrace import Registers, StopKind, TargetEnded, WaitTimeout
from runtime.recording.code import Text
from runtime.recording.escapes import LOOK_SECONDS, Escapes
from runtime.recording.routines import ASKING, Question
from runtime.recording.space import Region, Space, Thread
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


@dataclass(frozen=True, slots=True)
class Counted:
    """A node of ``unit``, in ``text``, by its address and its caller's (the root's for what nothing called), and its
    counters. ``site``: the live address of the call, None for none; ``loop``: index of the innermost loop of the
    caller's unit around it."""

    tid: int
    address: int
    unit: Unit
    text: Text
    caller: int
    site: int | None
    loop: int | None
    counts: Counts



class Watcher(Protocol):
    """Is told what memory is accessed."""

    def begin(self) -> None:
        """A program begins: what was told before was of another one."""

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
        self.space: Space | None = None
        self.notes: dict[str, int] = {}
        self.counted: list[Counted] = []
        self.answers = 0
        self.program = ""
        self.escapes: Escapes | None = None
        self.progress: Callable[[str], None] | None = None
        self.words = 0  # of traces
        self.mapped: dict[int, Mapping] = {}  # memory that the program had, by its start; what came later counts
        self.stacks: list[int] = []  # an address in each
        self._answers: dict[Question, _Answer] = {
            Question.MISSING: self._missing, Question.LINK: self._link, Question.ROOM_FOR_SITE: self._room_for_site,
            Question.ROOM_FOR_WAY: self._room_for_way, Question.SIGNAL_RETURN: self._signal_return,
            Question.UNMAP: self._unmap, Question.DRAIN: self._drain}
        self._told = 0  # how many units the watcher knows
        self._new: set[int] = set()  # threads that have not stopped for the first time

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
        with self._going_on():
            self._look()
        if self.escapes is not None:
            self.escapes.close()

    def _look(self) -> None:
        if self.escapes is not None:
            self.escapes.look(self.space)
        if self._watcher is not None:
            with suppress(Rejected):
                self.mapped |= {mapping.start: mapping for mapping in mappings(self.pid)}
        if self.progress is not None and self.space is not None:
            self.progress(f"{len(self.space.units):,} functions met"
                          + (f", {self.words / 1e6:,.0f} million words of their traces read" if self.words else ""))

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
        if self.space is not None:
            self.space.threads.pop(tid, None)

    def _stopped(self, tid: int, stop: ptrace.Stop) -> None:
        match stop.kind:
            case StopKind.NEW_PROGRAM:
                self._begin(tid)
            case StopKind.NEW_PROCESS:
                self._new_process(ptrace.get_event_message(tid))
                self._go(tid)
            case StopKind.ENDING:
                self._collect(tid)
                self._go(tid)
            case StopKind.INTERRUPT:
                if tid in self._new:
                    self._new.discard(tid)
                    self._begin_thread(tid)
                else:
                    self._answer(tid)
                    self._go(tid)
            case StopKind.GROUP:
                ptrace.request(ptrace.LISTEN, tid)
                if tid == self.pid:
                    self.supervisor.stop_likewise(stop.signal)
            case StopKind.SIGNAL:
                self._answer(tid)
                self._signal(tid, stop.signal)
            case _:
                self._go(tid)

    def _go(self, tid: int, number: int = 0) -> None:
        ptrace.request(ptrace.CONT, tid, 0, number)

    def _begin(self, tid: int) -> None:
        """A program has taken the process over and stands at its first instruction."""
        if self.space is not None:
            self._note("a program was replaced by another; only the last one is recorded")
            self.counted.clear()
        self._told = 0
        self.mapped.clear()
        self.stacks.clear()
        if self.escapes is not None:
            self.escapes.begin()
        if self._watcher is not None:
            self._watcher.begin()
        tracee = Tracee(self.pid)
        try:
            tracee.take_over(ptrace.Stop(StopKind.INTERRUPT))
            tracee.go(ptrace.SYSCALL, self.pid)
            tracee.wait(self.pid, 10.0)  # the end of execve
            self.space = None
            space = Space(tracee, os.getpid(), self._recording)
            registers = tracee.registers()
            if registers.gs_base:
                raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, "gs is in use")
            thread = space.new_thread(tid)
            self.space = space
            self.program = os.readlink(f"/proc/{self.pid}/exe")
            self._enter(space, thread, registers)
        except Rejected as error:
            self._note(f"not recorded: {error}")
            self._go(tid)
        finally:
            tracee.memory.close()

    def _enter(self, space: Space, thread: Thread, registers: Registers) -> None:
        """Let a thread go on at the copy of what it was about to execute, as a call from nowhere."""
        region = space.region_near(registers.rip)
        rip = registers.rip
        if region is not None:
            rip = space.way(registers.rip, region)
        space.memory.write(thread.state + TARGET, registers.rip.to_bytes(8, "little"))
        ptrace.set_registers(thread.tid, replace(registers.outside_call(), rip=rip, gs_base=thread.state))
        self._go(thread.tid)

    def _new_process(self, pid: int) -> None:
        self._new.add(pid)
        self.supervisor.threads.add(pid)

    def _begin_thread(self, tid: int) -> None:
        """A thread or a child at its first instruction, behind the system call that made it."""
        space = self.space
        registers = ptrace.get_registers(tid)
        same = status_field(tid, "Tgid") == str(self.pid)
        original = None if space is None else self._original(space, registers.rip)
        if space is None or original is None:
            self._release(tid, same)
            return
        if same:
            try:
                thread = space.new_thread(tid)
                self.stacks.append(registers.rsp)
                unit = space.unit_of_copy(registers.rip)
                assert unit is not None
                node = space.child(thread, thread.root, unit)
                space.memory.write(thread.state + NODE, node.to_bytes(8, "little"))
                ptrace.set_registers(tid, replace(registers, gs_base=thread.state))
                self._go(tid)
                return
            except Rejected as error:
                self._note(f"a thread was not recorded: {error}")
        else:
            self._note("a child process was not recorded")
        ptrace.set_registers(tid, replace(registers, rip=original, gs_base=0))
        self._release(tid, same)

    def _release(self, tid: int, same: bool) -> None:
        """It runs as it is from now on; a thread of the program itself stays traced."""
        if same:
            self._go(tid)
        else:
            self.supervisor.threads.discard(tid)
            ptrace.request(ptrace.DETACH, tid)

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
        for tid, thread in () if self.space is None else tuple(self.space.threads.items()):
            try:
                if self.space is not None and self.space.memory.word(thread.state + ASKED):
                    ptrace.request(ptrace.INTERRUPT, tid)
                    self._met(tid, ptrace.wait(tid, _PATIENCE_S))
            except (WaitTimeout, ProcessLookupError, Rejected):
                continue  # what becomes of it is told later
            except TargetEnded as ended:
                self._ended(tid, ended)

    def _answer(self, tid: int) -> None:
        """Where a thread that stands still waits for memopt, take it to where the program goes on."""
        space = self.space
        thread = None if space is None else space.threads.get(tid)
        if space is None or thread is None:
            return
        state = struct.unpack("<16Q", space.memory.read(thread.state, 128))
        if not state[ASKED // 8]:
            return
        faults.point("record.answer")
        self.answers += 1
        names = ("rax", "rcx", "rdx", "r11", "rdi", "rsi")
        values = (state[offset // 8] for offset in (*SAVED, *KEPT))
        registers = replace(ptrace.get_registers(tid).outside_call(), **dict(zip(names, values, strict=True)))
        region = next(r for r in space.regions if r.start <= registers.rip < r.start + len(r.shared.code))
        try:
            registers = self._answers[Question(state[ASKED // 8])](space, thread, region, registers)
        except Exception as error:  # noqa: BLE001 - the program goes on, whatever is wrong with memopt
            self._note(f"ran unrecorded: {error}" if isinstance(error, Rejected)
                       else f"ran unrecorded: memopt failed, please report it ({error!r})")
            registers = replace(registers, rip=state[DESTINATION // 8])
        space.memory.write(thread.state + ASKED, bytes(8))
        if self._recording.told is Told.VALUES:
            space.memory.write(thread.state + GO_ON, registers.rip.to_bytes(8, "little"))
            registers = replace(registers, rip=region.shared.answered)
        try:
            ptrace.set_registers(tid, registers)
        except Exception:  # it is answered later
            space.memory.write(thread.state + ASKED, state[ASKED // 8].to_bytes(8, "little"))
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

    def _tell(self, space: Space, thread: Thread) -> int:
        """How many words there were."""
        if self._watcher is None:
            return 0
        words = space.take_trace(thread)
        self.words += len(words)
        new, self._told = space.units[self._told:], len(space.units)
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
        space = self.space
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
            ptrace.send_signal(self.pid, tid, other)
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
        space = self.space
        thread = None if space is None else space.threads.pop(tid, None)
        if space is None or thread is None:
            return
        self._look()
        self._tell(space, thread)
        found = list(space.collect(thread))
        units = {address: unit for address, unit, *_ in found}
        for address, unit, caller, where, counts in found:
            site, loop = self._site(space, units.get(caller), caller, where)
            self.counted.append(Counted(tid, address, unit, space.texts[unit.number], caller, site, loop, counts))

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
        return [] if self.space is None else self.space.code.all
