"""Records a launched program from its first instruction to its end, with the processes that it forks and starts.

Example: a thread calls ``f`` for the first time. It asks, is stopped where it waits, memopt translates ``f``, and the
thread goes on in the copy.

In: the tracer's stops. Out: ``Counted`` for each calling context of each thread; traces for the watcher; notes.

memopt is asked only when something is met for the first time (a function, the callee of a call, the target of a jump),
and at signals, new threads and new processes. Code that cannot be copied (written while the program runs, or in no
file) runs as it is. So does all that follows, until control comes back by a way that is recorded.

Invariant: the program's memory, registers and signals are its own at every instruction of its own.
"""

from __future__ import annotations

import bisect
import signal
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Protocol

import numpy
from numpy.typing import NDArray

from memopt.instrumentation.edge_counters import Counts
from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected
from runtime import faults
from runtime.launch.jobcontrol import Asked, Event, Supervisor, TraceStop
from runtime.patching.code_cache import TOP
from runtime.recording.call_stops import CallStops
from runtime.recording.copies import Region
from runtime.recording.escapes import LOOK_SECONDS, Escapes
from runtime.recording.process import Process
from runtime.recording.space import Space
from runtime.recording.tracer import MOST_STEPS, PATIENCE_S, reach_instruction, standing, step
from runtime.recording.translation.code_map import Text
from runtime.recording.translation.layout import (
    ASKED,
    GO_ON,
    NODE,
    NODE_STRAY,
    RECORD,
    SITE_TARGET,
    SLOT,
    TARGET,
)
from runtime.recording.translation.probe_routines import Question
from runtime.recording.translation.trace_probes import Recording, Told
from runtime.recording.translation.unit import Linkage, Unit
from runtime.recording.trees import Thread
from runtime.target import ptrace
from runtime.target.memory import mappings
from runtime.target.ptrace import Registers, StopKind, TargetEnded, WaitTimeout
from runtime.target.tracee import status_field

_CONTEXT_RIP, _CONTEXT_RSP = 168, 160  # in the ucontext_t on top of the stack when a handler returns (sigcontext.h)
# Signals that do not end a program that does not catch them.
_HARMLESS = frozenset((signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGTSTP, signal.SIGTTIN,
                       signal.SIGTTOU))


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts of one calling context of one thread: a node of ``unit``, whose original lies in ``text``.
    Addresses of nodes are those of one thread.
    """

    tid: int  # the number of the thread: Thread.number
    address: int  # of the node
    unit: Unit
    text: Text
    caller: int  # address of the caller's node; the root's if nothing called it
    site: int | None  # live address of the call; None if there was none
    loop: int | None  # index of the innermost loop of the caller's unit around the call
    counts: Counts
    # By block and instruction in it (or the address behind its last one): how much more often the thread began in front
    # of the instruction than it ended there.
    cut: Mapping[tuple[int, int], int] = field(default_factory=dict)
    resumed: bool = False  # not a call: it goes on in the middle of a function


class Watcher(Protocol):
    """Reads the traces of a recording."""

    def begin(self) -> None:
        """The program begins: earlier traces were those of another program."""

    def forget(self, tids: Sequence[int]) -> None:
        """These threads execute another program now; their traces so far are to be forgotten."""

    def take(self, tid: int, new: Sequence[Unit], nodes: NDArray[numpy.int64], words: NDArray[numpy.uint64]) -> None:
        """Takes ``words`` of the trace of a thread (memopt.traces.core.format), which are overwritten once this
        returns.

        ``new`` are the units, and ``nodes`` the nodes of this thread with their callers (``Trees.new_nodes``), that the
        words may mention for the first time.
        """


_Answer = Callable[[Space, Thread, Region, Registers], Registers]
"""Answers a question: from the program's registers, returns those with which the thread goes on. If it raises
``Rejected``, the thread goes on in the original code."""


class Recorder(CallStops):
    """Records a program. ``counted``: of threads that have ended. ``answers``: how many questions were answered.
    ``words``: how many words of traces were read. ``escapes``, if set, samples how much was not recorded. ``progress``,
    if set, is called now and then with a text on how far the program has come.
    """

    def __init__(self, supervisor: Supervisor, recording: Recording, watcher: Watcher | None = None) -> None:
        """``watcher``: reads the traces."""
        super().__init__(supervisor, recording)
        self._watcher = watcher
        self.counted: list[Counted] = []
        self.answers = 0
        self.escapes: Escapes | None = None
        self.progress: Callable[[str], None] | None = None
        self.words = 0  # words of traces read
        self._answers: dict[Question, _Answer] = {
            Question.MISSING: self._missing, Question.LINK: self._link, Question.ROOM_FOR_SITE: self._room_for_site,
            Question.ROOM_FOR_WAY: self._room_for_way, Question.SIGNAL_RETURN: self._signal_return,
            Question.CHANGE: self._change, Question.DRAIN: self._drain, Question.SYSTEM_CALL: self._system_call}
        self._told = 0  # the watcher knows so many units

    def run(self) -> None:
        """Records until the program has ended."""
        looked = time.monotonic()
        while self.supervisor.outcome is None:
            self._handle(self.supervisor.poll(LOOK_SECONDS))
            if time.monotonic() >= looked + LOOK_SECONDS:
                with self._going_on():
                    faults.point("record.look")
                    self._ask_back()  # threads that could not be answered the first time
                    self._look()
                looked = time.monotonic()
        self._close()

    def _close(self) -> None:
        """Lets go of what the program has left behind when it has ended; that goes on without memopt."""
        with self._going_on():
            self._look()
        left = {self._of[tid].pid: self._of[tid] for tid in self.supervisor.threads if tid in self._of}
        for process in left.values():
            with self._going_on():
                self._note("a process went on when the program had ended; it was recorded until then")
                self._let_go(process)
        if self.escapes is not None:
            self.escapes.close()

    def _look_outside(self) -> None:
        if self.escapes is not None:
            self.escapes.look({process.pid: process.space for process in self._of.values() if process.space})

    def _look(self) -> None:
        self._look_outside()
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

    # -- answers -------------------------------------------------------------------------------------------------------

    def _ask_back(self) -> None:
        """Some thread waits for an answer: stops each one where it waits, and answers."""
        for tid, process in tuple(self._of.items()):
            space = process.space
            thread = None if space is None else space.threads.get(tid)
            try:
                if space is not None and thread is not None and space.memory.word(thread.state + ASKED):
                    ptrace.request(ptrace.INTERRUPT, tid)
                    self._met(tid, ptrace.wait(tid, PATIENCE_S))
            except (WaitTimeout, ProcessLookupError, Rejected):
                continue  # a later event tells what became of it
            except TargetEnded as ended:
                self._ended(tid, ended)

    def _answer(self, tid: int, stop: ptrace.Stop) -> ptrace.Stop:
        """If a thread that stands still at ``stop`` waits for memopt, answers and takes it to where the program goes
        on. Returns the stop that it is in then.
        """
        space = self._space(tid)
        thread = None if space is None else space.threads.get(tid)
        if space is not None and thread is not None:
            asking = space.asking(thread, ptrace.get_registers(tid))
            if asking is not None:
                self._answered[tid] = stop
                try:
                    self._answer_as(space, thread, asking)
                finally:
                    stop = self._answered.pop(tid)
        return stop

    def _answer_as(self, space: Space, thread: Thread, asking: Registers) -> None:
        """Answers a thread. ``asking``: the program's registers."""
        tid = thread.tid
        faults.point("record.answer")
        self.answers += 1
        question, at = Question(space.memory.word(thread.state + ASKED)), ptrace.get_registers(tid).rip
        region = next(r for r in space.regions if r.start <= at < r.start + len(r.shared.code))
        try:
            registers = self._answers[question](space, thread, region, asking)
        except Exception as error:  # noqa: BLE001 - the program goes on, whatever is wrong with memopt
            self._unrecorded(error)
            registers = asking
        if not space.in_copies(registers.rip):
            self._goes_outside(tid)
        space.memory.write(thread.state + ASKED, bytes(8))
        if self._recording.told is Told.VALUES:
            space.memory.write(thread.state + GO_ON, registers.rip.to_bytes(8, "little"))
            registers = replace(registers, rip=region.shared.answered)
        try:
            ptrace.set_registers(tid, registers)
        except Exception:  # the question is open again, and answered later
            space.memory.write(thread.state + ASKED, question.value.to_bytes(8, "little"))
            raise

    def _goes_outside(self, tid: int) -> None:
        """Notes that a thread runs outside of copies from here on."""
        self._outside_of_copies[tid] = self._of[tid]

    def _unrecorded(self, error: Exception) -> None:
        why = f"memopt failed, please report it ({error!r})"
        if isinstance(error, Rejected):
            why = error.detail or str(error)
        self._note(f"ran unrecorded: {why}")

    def _missing(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        target = space.memory.word(thread.state + TARGET)
        return replace(registers, rip=space.way(target, self._region_for(space, target, thread.tid)))

    def _link(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        """Answers the first call by a site."""
        record = space.memory.word(thread.state + RECORD)
        target = space.memory.word(record + SITE_TARGET)
        called = space.unit(target, self._region_for(space, target, thread.tid))
        if called.unit.linkage.continues:  # its node would lie in no slot
            raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"a call into the middle of a stub, at {target:#x}")
        space.link(record, called)
        return replace(registers, rip=region.shared.call)

    def _room_for_site(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        space.trees.more_room(thread)
        return replace(registers, rip=region.shared.call)

    def _room_for_way(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        space.trees.more_room(thread)
        record = space.memory.word(thread.state + RECORD)
        if not space.has_way(record):
            return self._missing(space, thread, region, registers)
        return replace(registers, rip=region.shared.enter, rax=record)

    def _change(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        """Answers in front of a system call that may change code."""
        return self._make_change(space, thread, replace(registers, rip=space.memory.word(thread.state + RECORD)))

    def _drain(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        self._tell(space, thread)
        behind = space.memory.word(thread.state + RECORD)
        return registers if space.units.is_retired(behind) else replace(registers, rip=behind)

    def _system_call(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        """Answers in front of a system call after which memopt may have to leave the process alone."""
        process = self._of[thread.tid]
        registers = replace(registers, rip=space.memory.word(thread.state + RECORD))
        why = self._why_left_alone(thread.tid, registers)
        process.leaves = bool(why)
        if why:
            self._note(f"a process was not recorded to its end: {why}")
            return registers
        return self._make_change(space, thread, registers)

    def _tell(self, space: Space, thread: Thread) -> int:
        """Hands the trace of a thread to the watcher. Returns the number of words."""
        if self._watcher is None:
            return 0
        words = space.take_trace(thread)
        nodes = space.trees.new_nodes(thread)  # if that fails, the new units are told with another thread
        self.words += len(words)
        new, self._told = self.made.units[self._told:], len(self.made.units)
        self._watcher.take(thread.number, new, nodes, words)
        return len(words)

    def _region_for(self, space: Space, address: int, tid: int) -> Region:
        """A region for copies near ``address``. ``tid`` waits for an answer, or stands in front of an instruction of
        the program. Raises ``Rejected``.
        """
        if address >= TOP:
            raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"code that is not the program's own, at {address:#x}")
        found = space.region_near(address)
        if found is None:
            with standing(tid) as tracee:
                found = space.new_region(address, tracee)
        return found

    # -- signals -------------------------------------------------------------------------------------------------------

    def _signal(self, tid: int, number: int) -> None:
        """Delivers a signal. The thread first reaches the next instruction of the program, so that the handler finds
        the program between two instructions. The handler runs as a copy.
        """
        space = self._space(tid)
        thread = None if space is None else space.threads.get(tid)
        caught, ignored = (int(status_field(tid, name) or "0", 16) >> number - 1 & 1 for name in ("SigCgt", "SigIgn"))
        if space is None or thread is None or (not caught and (ignored or number in _HARMLESS)):
            self._go(tid, number)
            return
        information = ptrace.get_signal_information(tid)
        stop, late = reach_instruction(space, tid, ptrace.Stop(StopKind.SIGNAL, number))
        if stop.kind is not StopKind.SIGNAL:  # no signal can be delivered from this stop
            late.append(number)
        for other in late:
            ptrace.send_signal(space.pid, tid, other)
        if stop.kind is not StopKind.SIGNAL:
            self._go(tid)
            return
        ptrace.set_signal_information(tid, information)
        if not caught:
            self._go(tid, number)
            return
        space.settle(thread, ptrace.get_registers(tid))
        step(tid, number)
        after = ptrace.get_registers(tid)
        if not space.in_copies(after.rip):
            node, top = struct.unpack("<2Q", space.memory.read(thread.state + NODE, 16))
            saved = after.rsp + 8
            stack, copy = struct.unpack("<2Q", space.memory.read(saved + _CONTEXT_RSP, 16))
            rip = space.original(copy) or copy
            thread.signals.append((rip, stack, copy, node, top))
            space.memory.write(saved + _CONTEXT_RIP, rip.to_bytes(8, "little"))
            space.memory.write(thread.state + SLOT, (node + NODE_STRAY).to_bytes(8, "little"))
            space.memory.write(thread.state + TARGET, after.rip.to_bytes(8, "little"))
            try:
                way = space.way(after.rip, self._region_for(space, after.rip, tid))
                ptrace.set_registers(tid, replace(after, rip=way))
                self._outside_of_copies.pop(tid, None)
            except Rejected as error:
                self._unrecorded(error)
                self._outside_of_copies[tid] = self._of[tid]
        self._go(tid)

    def _signal_return(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        stack, rip = struct.unpack("<2Q", space.memory.read(registers.rsp + _CONTEXT_RSP, 16))
        go_on = space.memory.word(thread.state + RECORD)
        interrupted = next((s for s in reversed(thread.signals) if s[:2] == (rip, stack)), None)
        if interrupted is not None and not space.units.is_retired(interrupted[2]):
            index = thread.signals.index(interrupted)
            thread.give_up(index + 1)
            _, _, copy, node, top = interrupted
            del thread.signals[index]
            space.memory.write(registers.rsp + _CONTEXT_RIP, copy.to_bytes(8, "little"))
            space.memory.write(thread.state + NODE, struct.pack("<2Q", node, top))
            space.resume_trace(thread, copy, node)
            if not space.in_copies(copy):
                self._outside_of_copies[thread.tid] = self._of[thread.tid]
        else:
            self._elsewhere(space, thread, registers, rip)
        return replace(registers, rip=go_on)

    def _elsewhere(self, space: Space, thread: Thread, registers: Registers, rip: int) -> None:
        """A handler returns to ``rip``, but did not interrupt the program there while that was recorded."""
        thread.give_up(0)
        try:
            way = space.way(rip, self._region_for(space, rip, thread.tid))
            space.memory.write(registers.rsp + _CONTEXT_RIP, way.to_bytes(8, "little"))
        except Rejected as error:
            self._unrecorded(error)
            self._outside_of_copies[thread.tid] = self._of[thread.tid]

    # -- the end -------------------------------------------------------------------------------------------------------

    def _forgotten(self, process: Process) -> None:
        self.counted = [item for item in self.counted if item.tid not in process.threads]
        if self.processes:
            if self._watcher is not None:
                self._watcher.forget(process.threads)
            return
        self._told = 0
        if self.escapes is not None:
            self.escapes.begin()
        if self._watcher is not None:
            self._watcher.begin()

    def _collect(self, tid: int) -> None:
        process, space = self._of.get(tid), self._space(tid)
        if process is None or space is None:
            return
        self._look_outside()
        self._look_at(process)
        thread = space.threads[tid]
        registers = self._behind_probe(space, ptrace.get_registers(tid))
        self._tell(space, thread)
        thread.give_up(0)
        ends = space.settle(thread, registers)
        if ends is not None:
            thread.cut[ends] -= 1
        found = {node: (node, unit, caller, where, counts.copy())
                 for node, unit, caller, where, counts in space.trees.collect(thread)}
        cut = self._cut(space, thread, found)
        kept: set[int] = set()
        for address, _, caller, _, counts in found.values():
            if counts.any():
                kept.add(address)
                while caller in found and caller not in kept:
                    kept.add(caller)
                    caller = found[caller][2]
        calls: dict[tuple[int, int], tuple[int | None, int | None]] = {}  # by number of the caller, and place in it
        nodes = sorted(found)
        for address in (a for a in found if a in kept):
            _, unit, caller, where, counts = found[address]
            of = found[caller][1] if caller in found else None
            _, holder, of_holder, reached, _ = found[nodes[bisect.bisect_right(nodes, where) - 1]]
            if where not in space.units.sites and holder.linkage is Linkage.STUB and of_holder == caller:
                where = reached  # a stub has passed the call on
            place = (0, where) if of is None else (of.number, where if where in space.units.sites else where - caller)
            if place not in calls:
                calls[place] = self._site(space, of, caller, where)
            site, loop = calls[place]
            self.counted.append(Counted(thread.number, address, unit, self.made.texts[unit.number], caller, site, loop,
                                        counts, cut.get(address, {})))
        self._drop(tid)

    @staticmethod
    def _behind_probe(space: Space, registers: Registers) -> Registers:
        """The registers of a thread that ends where it stands, as they would be at the next instruction of the program:
        if it stands in a probe, the probe is completed by emulation.
        """
        if not space.in_copies(registers.rip) or space.original(registers.rip) is not None:
            return registers
        from runtime.recording.emulator import emulate

        done = emulate(registers, space.memory, lambda rip: space.original(rip) is not None, MOST_STEPS)
        return registers if done is None else done

    def _cut(self, space: Space, thread: Thread, found: Mapping[int, tuple[int, Unit, int, int, Counts]]
             ) -> dict[int, dict[tuple[int, int], int]]:
        """By node, then by block and instruction: how much more often the thread began in front of the instruction than
        it ended there. Adds to the counters of ``found`` what stepped counters of such blocks do not include.
        """
        cut: dict[int, dict[tuple[int, int], int]] = {}
        for (node, copy), times in thread.cut.items():
            unit = space.unit_of_copy(copy)
            place = None if unit is None else unit.place_of_copy(copy)
            if unit is not None and place is not None and node in found:
                of_node = cut.setdefault(node, {})
                of_node[place] = of_node.get(place, 0) + times
                for index, steps in unit.unit.not_stepped(*place).items():
                    found[node][4][index] -= times * steps
        return cut

    def _site(self, space: Space, caller: Unit | None, address: int, where: int) -> tuple[int | None, int | None]:
        """The call by which a node was made, and the loop around it. ``where``: the record of the site, or its slot in
        the caller's node, whose address is ``address``.
        """
        found = None
        if where in space.units.sites:
            found = space.units.sites[where][1]
        elif caller is not None:
            found = next((s for s in caller.sites if address + s.slot == where), None)
        if found is None or caller is None:
            return None, None
        return found.address, caller.loop_around(found.address)

    @property
    def texts(self) -> list[Text]:
        """The mappings of code of all processes, each once."""
        return list({id(text): text for process in self.processes.values() for text in process.texts}.values())

    @property
    def program(self) -> str:
        """The path of the program's file."""
        return next((process.program for process in self.processes.values() if process.pid == self.pid), "")
