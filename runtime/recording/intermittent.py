"""Intermittent recording: a thread runs as copies for a window of time, then in its original code until the next
window.

In: a quota, counted in whatever the watcher counts (paths), and an interval or the share of time that recording may
take. Out: the trace of each window, for the watcher, with a weight: how much of the thread's time the window stands
for.

Quota and interval are the unhook threshold and the rehook interval of intermittent profiling
(memopt.session.profiling.path_rows names the source); the interval runs from the beginning of one window to that of the
next.

Copies have the program's state at every instruction, so a thread can be taken up anywhere between two instructions of
its own while it runs. One that waits in a system call is left alone.

Between windows nobody sees the system calls of a process's only thread. So code and confinement are looked at when it
is taken up. A thread of several stops at its system calls: they may concern another one that is in a window.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from memopt.ir.reasons import Rejected
from runtime.launch.jobcontrol import Event, Supervisor
from runtime.recording.copies import Region
from runtime.recording.escapes import LOOK_SECONDS
from runtime.recording.placed import Placed
from runtime.recording.process import Process, check_place
from runtime.recording.recorder import Recorder, Watcher
from runtime.recording.space import Space
from runtime.recording.translation.layout import (
    CALL_BYTES,
    DESTINATION,
    NODE,
    NODE_STRAY,
    RECORD,
    TARGET,
    TRACE,
    TRACE_ALIGNMENT,
    TRACE_START,
)
from runtime.recording.translation.trace_probes import Recording, Told
from runtime.recording.trees import Thread
from runtime.target import ptrace
from runtime.target.memory import PAGE
from runtime.target.proc import running_seconds
from runtime.target.ptrace import Registers, StopKind, TargetEnded, WaitTimeout
from runtime.target.tracee import status_field

_PATIENCE_S = 1.0  # for a thread to stop
_FIRST_S = 0.002  # the pause after the first window is computed as if the window had taken no longer
_WORDS = 20.0  # words of the trace for each counted item, until the ratio is known
_LEAST_WORDS = 64
_MOST_WORDS = (TRACE_ALIGNMENT - TRACE_START) // 8


class CountingWatcher(Watcher, Protocol):
    """A watcher that also counts the items (paths) in the traces it gets."""

    def counted(self, tid: int) -> int:
        """The number of items counted in the trace of a thread."""

    def end_window(self, tid: int, weight: float) -> None:
        """Ends a window: the items since the end of the last one count ``weight`` times."""


@dataclass(slots=True)
class _Window:
    """The window of a thread."""

    began: float  # on the monotonic clock
    processor: float  # processor seconds of the thread when it began
    last: float  # processor seconds of the thread when the window before ended


class Intermittent(Recorder):
    """A recorder with windows. ``windows``: how many there were; ``inside_seconds``: how long they were in all."""

    def __init__(self, supervisor: Supervisor, watcher: CountingWatcher, quota: int, interval: float | None,
                 overhead: float) -> None:
        """``quota``: how many items a window has; 0 for a window without end. ``interval``: seconds; None: long enough
        that windows take at most the share ``overhead`` of the time.
        """
        super().__init__(supervisor, Recording(Told.BLOCKS), watcher)
        self._counter, self._quota, self._interval, self._overhead = watcher, quota, interval, overhead
        self._windows: dict[int, _Window] = {}  # by the number of a thread
        self._outside: set[int] = set()  # threads that run as they are
        self._ended_windows: list[tuple[Thread, float, float]] = []
        self._due = 0.0
        self._copies: dict[tuple[int, int, int], dict[int, int]] = {}  # copies of the instructions of a unit
        self._nodes: dict[tuple[int, int], int] = {}  # by the numbers of thread and unit
        self._words = 0
        self._counted = 0
        self.windows = 0
        self.inside_seconds = 0.0

    def run(self) -> None:
        """Records until the program has ended."""
        looked = time.monotonic()
        while self.supervisor.outcome is None:
            wait = max(0.0, self._due - time.monotonic()) if self._outside else LOOK_SECONDS
            self._handle(self.supervisor.poll(wait))
            with self._going_on():
                if time.monotonic() >= looked + LOOK_SECONDS:
                    looked = time.monotonic()
                    self._ask_back()  # threads that could not be answered the first time
                if self._outside and time.monotonic() >= self._due:
                    self._take_up()
        self._close()

    def _forget(self, process: Process) -> None:
        gone = set(process.threads)
        self._outside = {tid for tid in self._outside if self._of.get(tid) is not process}
        self._windows = {number: window for number, window in self._windows.items() if number not in gone}
        self._nodes = {key: node for key, node in self._nodes.items() if key[0] not in gone}
        self._ended_windows = [ended for ended in self._ended_windows if ended[0].number not in gone]
        super()._forget(process)
        if not self.processes:
            self._copies.clear()

    # -- windows -------------------------------------------------------------------------------------------------------

    def _enter(self, space: Space, thread: Thread, registers: Registers) -> None:
        self._begin_window(space, thread, time.monotonic())
        super()._enter(space, thread, registers)

    def _begin_forked(self, space: Space, thread: Thread, copy: int) -> None:
        if space.in_copies(copy):
            self._begin_window(space, thread, time.monotonic())
            super()._begin_forked(space, thread, copy)
        else:
            self._outside.add(thread.tid)

    def _begin_window(self, space: Space, thread: Thread, now: float) -> _Window:
        before = self._windows.get(thread.number)
        used = running_seconds(thread.tid)
        window = self._windows[thread.number] = _Window(now, used, used if before is None else before.last)
        self._limit(space, thread, self._quota)
        return window

    def _limit(self, space: Space, thread: Thread, count: int) -> None:
        """Moves the start of the trace, so that it is full when about ``count`` were counted; 0: as late as possible.
        """
        each = self._words / self._counted if self._counted else _WORDS
        words = min(_MOST_WORDS, max(_LEAST_WORDS, int(count * each) + 2)) if count else _MOST_WORDS
        end = (thread.trace | TRACE_ALIGNMENT - 1) + 1
        thread.trace = end - 8 * words
        space.memory.write(thread.state + TRACE, thread.trace.to_bytes(8, "little"))

    def _drain(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        if not self._quota:
            self._tell(space, thread)
            self._limit(space, thread, 0)
            return replace(registers, rip=space.memory.word(thread.state + RECORD))
        self._leave(thread)
        return replace(registers, rip=space.memory.word(thread.state + DESTINATION))

    def _leave(self, thread: Thread) -> None:
        """Lets a thread run as it is from here on. Handlers that run will return to original code, too."""
        self._ended_windows.append((thread, time.monotonic(), running_seconds(thread.tid)))
        self._outside.add(thread.tid)
        thread.signals.clear()

    def _elsewhere(self, space: Space, thread: Thread, registers: Registers, rip: int) -> None:
        """The handler, or the code it interrupted, was not recorded from its beginning: the thread leaves its copies.
        """
        self._leave(thread)

    def _goes_outside(self, tid: int) -> None:
        """The only thread of a process does not stop at system calls between two windows: what it did is looked at when
        it is taken up.
        """
        if tid not in self._outside or len(self._threads(self._of[tid])) > 1:
            super()._goes_outside(tid)

    def _take_back(self, tid: int) -> None:
        if tid not in self._outside:  # else that is done when its next window begins
            super()._take_back(tid)

    def _new_process(self, tid: int, made: int, waits: bool) -> None:
        super()._new_process(tid, made, waits)
        if made in self._new and tid in self._outside:  # it is not the only thread any more
            super()._goes_outside(tid)

    def _handle(self, events: Sequence[Event]) -> None:
        """Handles events. Reads the traces of windows only when the threads run again."""
        super()._handle(events)
        for thread, *_ in tuple(self._ended_windows):
            with self._going_on():
                self._read_windows(thread)

    def _read_windows(self, thread: Thread) -> None:
        """Reads the windows of a thread that have ended."""
        space = self._space(thread.tid)
        ended = [window for window in self._ended_windows if window[0] is thread]
        self._ended_windows = [window for window in self._ended_windows if window[0] is not thread]
        with suppress(Rejected):  # its memory may belong to another program by now
            for window in ended:
                if space is not None:
                    self._end_window(space, *window)

    def _end_window(self, space: Space, thread: Thread, now: float, used: float) -> None:
        window = self._windows.setdefault(thread.number, _Window(now, used, used))  # none if it began in copies
        before = self._counter.counted(thread.number)
        self._words += self._tell(space, thread)
        self._counted += self._counter.counted(thread.number) - before
        seconds = max(now - window.began, 1e-9)
        self.windows += 1
        self.inside_seconds += seconds
        weight = max(0.0, used - window.last) / max(used - window.processor, 1e-9) if self._quota else 1.0
        self._counter.end_window(thread.number, weight)
        window.last = used
        if self._interval is not None:
            self._due = window.began + self._interval
        else:  # the first window mostly has work that is done once, such as translation
            self._due = now + min(seconds, _FIRST_S if self.windows == 1 else seconds) / self._overhead

    def _take_up(self) -> None:
        now = time.monotonic()
        if self._interval is not None:
            self._due = now + self._interval
        for tid in self._outside - {thread.tid for thread, *_ in self._ended_windows}:  # these are to be read first
            try:
                if status_field(tid, "State")[:1] == "R":
                    ptrace.request(ptrace.INTERRUPT, tid)
                    status = ptrace.wait(tid, _PATIENCE_S)
                    if ptrace.decode(status).kind is StopKind.INTERRUPT:
                        self._resume(tid, now)
                    else:
                        self._met(tid, status)
            except (WaitTimeout, ProcessLookupError):
                continue  # a later event tells what became of it
            except TargetEnded as ended:
                self._outside.discard(tid)
                self._ended(tid, ended)
            except Exception:
                self._go(tid)
                raise

    def _resume(self, tid: int, now: float) -> None:
        """Takes up a thread that stands still: it goes on as a copy if it is in code that can be copied."""
        space, registers = self._space(tid), ptrace.get_registers(tid)
        thread = None if space is None else space.threads.get(tid)
        if space is not None and thread is not None and registers.orig_rax >> 63:
            try:
                check_place(tid)  # nobody has looked what it did outside
            except Rejected as error:
                self._note(f"a process was not recorded to its end: {error}")
                self._of[tid].leaves = True
                self._leaves(tid, ptrace.Stop(StopKind.INTERRUPT))
                return
            with suppress(Rejected):
                space.retire_changed()
                place = self._place(space, registers.rip, tid)
                if place is not None:
                    unit, copy = place
                    node = self._nodes.get((thread.number, unit.number))
                    if node is None:
                        node = self._nodes[thread.number, unit.number] = space.trees.child(thread, thread.root, unit)
                    state = (node, thread.state + PAGE + CALL_BYTES, node + NODE_STRAY)
                    space.memory.write(thread.state + NODE, b"".join(w.to_bytes(8, "little") for w in state))
                    self._begin_window(space, thread, now)
                    space.resume_trace(thread, copy, node)
                    ptrace.set_registers(tid, replace(registers, rip=copy, gs_base=thread.state))
                    self._outside.discard(tid)
                    self._outside_of_copies.pop(tid, None)
        self._go(tid)

    def _place(self, space: Space, address: int, tid: int) -> tuple[Placed, int] | None:
        """The unit that holds an original instruction, and the address of its copy; None if it has no copy."""
        unit = self._whole(space, address, tid)
        where = unit.number, unit.copy, unit.text
        copies = self._copies.get(where)
        if copies is None:
            copies = self._copies[where] = unit.copies()
        copy = copies.get(address)
        return None if copy is None else (unit, copy)

    def _whole(self, space: Space, address: int, tid: int) -> Placed:
        """The unit of the whole function around ``address``. Raises ``Rejected``."""
        return space.unit(space.function_around(address), self._region_for(space, address, tid))

    # -- while a thread runs as it is ----------------------------------------------------------------------------------

    def _missing(self, space: Space, thread: Thread, region: Region, registers: Registers) -> Registers:
        """Copies the whole function first if it is entered in its middle, behind a call: paths keep their numbers."""
        with suppress(Rejected):
            self._whole(space, space.memory.word(thread.state + TARGET), thread.tid)
        return super()._missing(space, thread, region, registers)

    def _signal(self, tid: int, number: int) -> None:
        space = self._space(tid)
        if tid in self._outside and (space is None or not space.in_copies(ptrace.get_registers(tid).rip)):
            self._go(tid, number)
        else:
            super()._signal(tid, number)

    def _begin_thread(self, tid: int) -> None:
        """Begins a thread. If code that is not recorded has made it, it is not recorded, either, until it is taken up.
        """
        super()._begin_thread(tid)
        process = self._by_pid.get(int(status_field(tid, "Tgid") or 0))
        if process is not None and process.space is not None and tid not in self._of:
            with suppress(Rejected):
                self._add_thread(process, process.space.new_thread(tid, self._new_number(tid)))
                self._outside.add(tid)

    def _collect(self, tid: int) -> None:
        inside, space = tid not in self._outside, self._space(tid)
        self._outside.discard(tid)
        if space is None:
            return
        thread = space.threads[tid]
        self._read_windows(thread)
        if inside:
            self._end_window(space, thread, time.monotonic(), running_seconds(tid))
        self._drop(tid)
