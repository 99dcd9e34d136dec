"""The memory that recording adds to a process: copies of code, the table of targets; page, nodes and trace per thread.

In: a stopped process; original addresses. Out: units in its memory, ways in to them, threads, words of traces.

Invariant: the program's own memory is never written. All memory of memopt's is private, so that a forked child has its
own. Traces are shared with memopt if possible; a child gets other memory for them before it goes on.
"""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from copy import copy as shallow_copy
from dataclasses import replace

import numpy
from numpy.typing import NDArray

from memopt.ir.reasons import Reason, Rejected
from memopt.traces.core.format import BLOCK, RESUMED
from runtime.patching.code_cache import choose_address
from runtime.recording.copies import LOWEST, REGION_BYTES, Made, Region, free_address, translated
from runtime.recording.kits import Kit, Known, lay_out
from runtime.recording.placed import Placed
from runtime.recording.slots import SLOTS_BYTES, Slot, Slots
from runtime.recording.targets import Targets
from runtime.recording.trace_memory import TraceMemory
from runtime.recording.translation.code_map import CodeMap, Text
from runtime.recording.translation.layout import (
    ASKED,
    CALL_BYTES,
    CALL_NODE,
    CALL_SITE,
    CALL_STACK,
    DESTINATION,
    KEPT,
    LAST_CELL,
    NEXT_NODE,
    NODE,
    NODE_COUNTERS,
    NODE_STRAY,
    SAVED,
    SITE_LINK,
    SITE_MINUS_RETURN,
    SITE_UNIT,
    SLOT,
    TABLE_BYTES,
    TEXTS,
    TOP,
    TRACE,
    TRACE_ALIGNMENT,
    TRACE_START,
    WAY_BYTES,
)
from runtime.recording.translation.probe_routines import WAY_CODE_BYTES, routines, way_around, way_in
from runtime.recording.translation.relocations import Place
from runtime.recording.translation.trace_probes import Recording
from runtime.recording.translation.unit import SYSCALL_BYTES
from runtime.recording.trees import Thread, Trees
from runtime.recording.units import Units
from runtime.target import remote_calls
from runtime.target.memory import PAGE, Memory, mappings
from runtime.target.ptrace import Registers
from runtime.target.remote_calls import SYS_MMAP, Call, UnusedBytes
from runtime.target.tracee import Tracee

_NODES_BYTES = 1 << 30
_READ, _WRITE, _EXECUTE = 1, 2, 4
_PRIVATE, _ANONYMOUS, _NORESERVE, _FIXED_NOREPLACE = 2, 0x20, 0x4000, 0x100000
_MOST_FRAMES = 4000  # calls told at the beginning of a trace
_WORD = struct.Struct("<Q").pack
_ALL = (1 << 64) - 1


class Space:
    """The memory of memopt's in a recorded process. Precondition of all methods: the process stands still."""

    def __init__(self, tracee: Tracee, memopt: tuple[int, int], recording: Recording, made: Made) -> None:
        """``tracee`` is stopped where it may make a system call. ``memopt``: see ``routines``. Raises ``Rejected`` if
        there is no room.
        """
        self.pid, self._memopt, self._recording = tracee.pid, memopt, recording
        self.memory = Memory(tracee.pid)
        self.code = CodeMap(tracee.pid, made.files)
        self.made = made
        self.units = Units()
        self.threads: dict[int, Thread] = {}
        self.regions: list[Region] = []
        self._ways: dict[int, int] = {}  # copies in the table, by original address
        self._kits: dict[int, Kit] = {}  # by where texts are mapped
        maps = mappings(tracee.pid)
        text = next((m for m in maps if m.executable and tracee.registers().rip in m), maps[0])
        self.table = choose_address(maps, 1 << 30, TABLE_BYTES, LOWEST)
        if self.table + TABLE_BYTES > 1 << 31:
            raise Rejected(Reason.NO_ROOM, "no free addresses below 2 GiB")
        self.targets = Targets(self.memory, self.table)
        region = free_address(maps, text.start)
        data = PAGE + _NODES_BYTES + SLOTS_BYTES
        flags = _PRIVATE | _ANONYMOUS | _NORESERVE
        results = remote_calls.run(tracee, (
            Call(SYS_MMAP, (self.table, TABLE_BYTES, _READ | _WRITE, flags | _FIXED_NOREPLACE, -1, 0)),
            Call(SYS_MMAP, (region, REGION_BYTES, _READ | _EXECUTE, flags | _FIXED_NOREPLACE, -1, 0)),
            Call(SYS_MMAP, (0, data, _READ | _WRITE, flags, -1, 0)),
        ))
        for result in results:
            remote_calls.check(result, "memory for recording")
        self._version, self._version_at = 0, results[2]
        nodes = results[2] + PAGE
        self.trees = Trees(self.memory, made.units, nodes, nodes + _NODES_BYTES)
        self._traces = TraceMemory(tracee) if recording.traces else None
        self._slots = Slots(nodes + _NODES_BYTES, self._traces.start if self._traces else 0)
        self.add_region(region)

    # -- memory --------------------------------------------------------------------------------------------------------

    def add_region(self, start: int) -> None:
        """Makes mapped memory at ``start`` a region, with the shared routines."""
        shared = routines(start, self.table, self._memopt)
        self.memory.write(start, shared.code)
        self.regions.append(Region(start, start + REGION_BYTES, start + -(-len(shared.code) // 16) * 16, shared))
        self._changed()

    def new_region(self, address: int, tracee: Tracee) -> Region:
        """A new region near ``address``, mapped by ``tracee``, a thread that stands still. Raises ``Rejected``."""
        start = free_address(mappings(self.pid), address)
        last = self.regions[-1]
        (result,) = remote_calls.run(tracee, (Call(SYS_MMAP, (
            start, REGION_BYTES, _READ | _EXECUTE, _PRIVATE | _ANONYMOUS | _NORESERVE | _FIXED_NOREPLACE, -1, 0)),),
            place=UnusedBytes(last.next, last.end))
        remote_calls.check(result, "memory for copies")
        self.add_region(start)
        return self.regions[-1]

    def region_near(self, address: int) -> Region | None:
        """A region with room within reach of ``address``, or None."""
        for region in self.regions:
            if region.serves(address):
                return region
        return None

    def in_copies(self, address: int) -> bool:
        """Whether an address lies in a region."""
        return any(region.start <= address < region.end for region in self.regions)

    def original(self, copy: int) -> int | None:
        """The original address of a thread that stands in a copy, between two instructions of the program or behind a
        system call; else None.
        """
        unit = self.unit_of_copy(copy)
        return None if unit is None else unit.original(copy)

    def settle(self, thread: Thread, registers: Registers) -> tuple[int, int] | None:
        """Adds up, for a thread that stands still in front of an instruction with these ``registers``, what stepped
        counters of the loops around have not counted yet: the thread may leave the loops on no edge that is counted.

        Returns the node and where the thread stands; None if that is not recorded.
        """
        unit = self.unit_of_copy(registers.rip)
        place = None if unit is None else unit.place_of_copy(registers.rip)
        if unit is None or place is None:
            return None
        node = self.memory.word(thread.state + NODE)
        for index, (loop, stepping) in unit.unit.stepped.items():
            if place[0] in loop.blocks:
                now, start = getattr(registers, stepping.register), node + unit.node.start_of(index)
                gone = now - self.memory.word(start)
                gone = (gone if stepping.step > 0 else -gone) % (1 << stepping.bits)
                counter = node + NODE_COUNTERS + 8 * index
                self.memory.write(counter, _WORD((self.memory.word(counter) + gone) % (1 << 64)))
                self.memory.write(start, _WORD(now))
        return node, registers.rip

    def asking(self, thread: Thread, registers: Registers) -> Registers | None:
        """The program's registers of a thread that stands still at ``registers`` and waits for memopt; None if it does
        not wait. With them the thread goes on in the program's own code with what it asked for, or with the system call
        in question.
        """
        state = struct.unpack("<16Q", self.memory.read(thread.state, 128))
        if not state[ASKED // 8]:
            return None
        names = ("rax", "rcx", "rdx", "r11", "rdi", "rsi")
        values = (state[offset // 8] for offset in (*SAVED, *KEPT))
        return replace(registers.outside_call(), rip=state[DESTINATION // 8], **dict(zip(names, values, strict=True)))

    def unit_of_copy(self, copy: int) -> Placed | None:
        """The unit that an address of a copy lies in, or None."""
        return self.units.of_copy(copy)

    # -- copies --------------------------------------------------------------------------------------------------------

    def unit(self, address: int, region: Region) -> Placed:
        """The unit of the function that begins at the original ``address``; made if needed. Raises ``Rejected`` for
        what cannot be copied.
        """
        found = self.units.by_entry.get(address)
        if found is None:
            text = self._text(address)
            kit = self._kit(text, region)
            found = self.units.by_entry.get(address)
            if found is None:
                known = kit.known.get(address - text.bias)
                if known is None:
                    kit.known[address - text.bias] = known = translated(
                        self.code, address, text, self.made, region, self.targets.start, self._recording)
                    self.memory.write(region.next, known.unit.code)
                    region.next += -(-len(known.unit.code) // 16) * 16
                    self._add(((known, Placed(known.unit)),), text)
                else:
                    self._place((known,), text, region)
                found = self.units.by_entry[address]
            self._changed()
        return found

    def _kit(self, text: Text, region: Region) -> Kit:
        """The kit of a text. When the text is met for the first time, all units that other processes have met are
        placed here.
        """
        kit = self._kits.get(text.mapping.start)
        if kit is None:
            kit = self._kits[text.mapping.start] = self.made.kit(text, self.targets.start)
            units = tuple(kit.known.values())
            if 2 * sum(len(known.unit.code) for known in units) < region.end - region.next:
                self._place(units, text, region)
                for address in sorted(kit.ways):
                    self.way(address + text.bias, region)
        return kit

    def _place(self, units: Sequence[Known], text: Text, region: Region) -> None:
        """Places units that were made for other processes."""
        laid = lay_out(units, Place(region.next, text.bias, region.shared.start))
        self.memory.write(region.next, bytes(laid.code))
        region.next += len(laid.code)
        self._add(laid.units, text)
        for record, called in laid.links:
            self.units.link(record, called)

    def _add(self, units: Sequence[tuple[Known, Placed]], text: Text) -> None:
        self.units.add(placed for _, placed in units)
        for known, _ in units:
            self.units.parts.update(part + text.bias for part in known.parts)

    def way(self, address: int, region: Region) -> int:
        """The way in: where a jump from anywhere to the original ``address`` goes on. Enters it in the table of
        targets.
        """
        found = self._ways.get(address)
        if found is not None:
            return found
        text = self._text(address)
        begins = text.begins(address) and address not in self.units.parts
        behind = None if begins else self.units.returning_to(address)  # a function may lie behind a noreturn call
        if behind is not None:
            unit, copy, routine = self.units.numbered_at(address), behind, region.shared.resume
        else:
            inside = (text.bounds(address)[0] != address or address in self.units.parts) and not text.has_stub(address)
            holder = self.units.holding(address) if inside else None
            unit = self.unit(address, region) if holder is None else holder[0]
            copy = unit.entry if holder is None else holder[1]
            if not inside:
                self._kit(text, region).ways.add(address - text.bias)
            found = self._ways.get(address)
            if found is not None:  # it came with a kit
                return found
            routine = region.shared.resume if inside else region.shared.enter
        record = region.next
        start = record + WAY_BYTES
        words = _WORD(unit.number) + _WORD(copy) + _WORD(unit.node_bytes)
        self.memory.write(record, words + way_in(start, record, routine))
        region.next += -(-(WAY_BYTES + WAY_CODE_BYTES) // 16) * 16
        self._ways[address] = start
        self.targets.enter(address, start)
        self._changed()
        return start

    def function_around(self, address: int) -> int:
        """The start of the function around an original address. Raises ``Rejected``."""
        return self._text(address).bounds(address)[0]

    def _text(self, address: int) -> Text:
        known = len(self.code.all)
        text = self.code.text(address)
        if len(self.code.all) > known:
            for thread in self.threads.values():
                self._tell_texts(thread)
        return text

    def _tell_texts(self, thread: Thread) -> None:
        """Writes to the thread's page between which addresses code lies that has been copied: on both sides of the
        widest gap, which has the heap and what is mapped for it.
        """
        texts = sorted((t.mapping.start, t.mapping.end) for t in self.code.texts)
        gaps = [after[0] - before[1] for before, after in itertools.pairwise(texts)]
        split = gaps.index(max(gaps)) + 1 if gaps else 0
        for (low, _), part in zip(TEXTS, (texts[split:], texts[:split]), strict=True):
            bounds = (part[0][0], part[-1][1]) if part else (0, 0)
            self.memory.write(thread.state + low, _WORD(bounds[0]) + _WORD(bounds[1]))

    def forget(self, start: int, end: int) -> bool:
        """Retires the copies of the code around ``[start, end)``, which is about to change: no thread enters them any
        more, or returns to them. Returns whether there are any.
        """
        gone = self.code.forget(start, end)
        if not gone:
            return False
        for unit, links in self.units.retire([(t.mapping.start, t.mapping.end) for t in gone]):
            self._leave_out(unit, links)
        self._kits = {a: kit for a, kit in self._kits.items() if not any(a == t.mapping.start for t in gone)}
        for address in [a for a in self._ways if any(a in t.mapping for t in gone)]:
            del self._ways[address]
            self.targets.remove(address)
        self._changed()
        return True

    def retire_changed(self) -> None:
        """Retires the copies of code that has changed while no thread ran in copies, or may change now."""
        for text in self.code.changed():
            self.forget(text.mapping.start, text.mapping.end)

    def _leave_out(self, unit: Placed, links: Sequence[int]) -> None:
        """Lets no thread return to a unit, nor call it by ``links``."""
        for site in unit.unit.sites:  # no address is this return address
            self.memory.write(site.record + unit.copy + SITE_MINUS_RETURN, _WORD(1))
        if links:
            region = self.region_near(unit.start) or self.regions[-1]
            around = region.next
            code = way_around(around, unit.original_entry, region.shared.lookup)
            self.memory.write(around, code)
            region.next += -(-len(code) // 16) * 16
            for record in links:
                self.memory.write(record + SITE_LINK, _WORD(around))

    def has_way(self, record: int) -> bool:
        """Whether the way in with this record still leads to what is there."""
        return record + WAY_BYTES in self._ways.values()

    def link(self, record: int, unit: Placed) -> None:
        """Makes the site with this record call a unit directly."""
        self.memory.write(record + SITE_LINK, _WORD(unit.entry))
        self.memory.write(record + SITE_UNIT, _WORD(unit.number) + _WORD(unit.node_bytes))
        self.units.link(record, unit)

    # -- threads -------------------------------------------------------------------------------------------------------

    def new_thread(self, tid: int, number: int) -> Thread:
        """Gives a thread its page, stack of calls, nodes and trace. ``number``: by which results name it. Raises
        Rejected(NO_MEMORY) if there are too many threads.
        """
        slot = self._slots.take()
        state, trace = slot.state, slot.trace
        self.memory.write(state, bytes(PAGE))
        calls = state + PAGE
        root, end = self.trees.chunk()
        # The bottom of the stack of calls: no address is its return address, and no stack pointer lies above it.
        nothing = state + PAGE - 64
        self.memory.write(nothing + SITE_MINUS_RETURN, _WORD(1))
        bottom = {CALL_NODE: root, CALL_SITE: nothing, CALL_STACK: _ALL}
        for offset, value in bottom.items():
            self.memory.write(calls + offset, _WORD(value))
        self.memory.write(state + NODE, _WORD(root) + _WORD(calls + CALL_BYTES) + _WORD(root + NODE_STRAY))
        self.memory.write(state + NEXT_NODE, _WORD(root + NODE_COUNTERS) + _WORD(end))
        assert (TOP, SLOT, LAST_CELL) == (NODE + 8, NODE + 16, NEXT_NODE + 8)
        assert all(end == low + 8 for low, end in TEXTS)
        if trace:
            self.memory.write(state + TRACE, _WORD(trace))
        thread = self.threads[tid] = Thread(tid, number, state, root, trace, [(root, end)])
        self._tell_texts(thread)
        self._changed()
        return thread

    def end_thread(self, tid: int) -> None:
        """Frees what a thread had that has ended or goes on without memopt."""
        thread = self.threads.pop(tid, None)
        if thread is not None and self.threads:
            self._free(thread)

    def _free(self, thread: Thread) -> None:
        with suppress(Rejected):  # the memory is gone, or another program's
            self.trees.free(thread)
            trace = thread.trace and thread.trace // TRACE_ALIGNMENT * TRACE_ALIGNMENT + TRACE_START
            self._slots.give_back(Slot(thread.state, trace))

    def take_trace(self, thread: Thread) -> NDArray[numpy.uint64]:
        """The words of a thread's trace since the last call. They are overwritten when it is called again and the
        thread has gone on.
        """
        if self._traces is None:
            return numpy.zeros(0, numpy.uint64)
        start, end = thread.trace, self.memory.word(thread.state + TRACE)
        thread.trace ^= TRACE_ALIGNMENT  # the other half
        self.memory.write(thread.state + TRACE, _WORD(thread.trace))
        return self._traces.words(self.memory, start, end)

    def resume_trace(self, thread: Thread, copy: int, node: int) -> None:
        """Writes to the trace that an interrupted run of the block around the instruction at ``copy`` goes on."""
        unit = self.unit_of_copy(copy)
        original = None if unit is None else unit.original(copy)
        if unit is not None and original is not None:
            self._resume_block(thread, unit, original, node)

    def _resume_block(self, thread: Thread, unit: Placed, original: int, node: int) -> None:
        found = unit.watched_around(original)
        if thread.trace and found is not None:
            place = self.memory.word(thread.state + TRACE)
            self.memory.write(place, _WORD(BLOCK << 48 | found.number) + _WORD(node | RESUMED))
            self.memory.write(thread.state + TRACE, _WORD(place + 16))

    # -- children ------------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Notes, here and in the process, that memopt has changed its memory there. A child that was forked before the
        change is recognised by it.
        """
        self._version += 1
        self.memory.write(self._version_at, _WORD(self._version))

    def shares(self, pid: int) -> bool:
        """Whether the process ``pid``, which stands still, shares its memory with this one."""
        with closing(Memory(pid)) as other:
            before = self.memory.word(self._version_at + 8)
            other.write(self._version_at + 8, _WORD(before + 1))
            return self.memory.word(self._version_at + 8) != before

    def forked(self, tracee: Tracee, tid: int, number: int) -> Space:
        """The space of a child that stands behind the system call by which the thread ``tid`` has made it. It has the
        nodes of that thread, and counts from 0. ``number``: by which results name its thread. Raises ``Rejected``.
        """
        child = shallow_copy(self)
        child.pid, child.memory = tracee.pid, Memory(tracee.pid)
        child.code, child.trees = self.code.forked(tracee.pid), self.trees.forked(child.memory)
        child._slots, child.targets = self._slots.forked(), self.targets.forked(child.memory)
        try:
            child._become(tracee, number, self.threads[tid], self.memory)
        except BaseException:
            child.close()
            raise
        return child

    def _become(self, tracee: Tracee, number: int, parent: Thread, source: Memory) -> None:
        news = self.memory.word(self._version_at) != self._version
        self.units, self._kits = self.units.forked(), dict(self._kits)
        self._ways, self.regions = dict(self._ways), [replace(region) for region in self.regions]
        thread = replace(parent, tid=tracee.pid, number=number, chunks=list(parent.chunks),
                         signals=list(parent.signals), known=0,
                         cut=Counter((node, copy) for _, _, copy, node, _ in parent.signals))
        others = [other for other in self.threads.values() if other is not parent]
        self.threads = {tracee.pid: thread}
        for other in others:
            self._free(other)
        if news:
            self._copy_code(source)
            self._tell_texts(thread)
        self.trees.forget_counts(thread)
        if self._traces is not None:
            last = self.regions[-1]
            self._traces = TraceMemory(tracee, self._traces.start, UnusedBytes(last.next, last.end))
            self.memory.write(thread.state + TRACE, _WORD(thread.trace))

    def _copy_code(self, source: Memory) -> None:
        """Copies into a child what another thread of the parent has met while the child was being forked. Writes only
        where memopt's own memory is. Raises ``Rejected`` if there is a new region.
        """
        for start, end in (*((region.start, region.next) for region in self.regions),
                           (self.table, self.table + TABLE_BYTES)):
            self.memory.write(start, source.read(start, end - start))

    def begin_behind(self, thread: Thread, unit: Placed, call: int) -> None:
        """Begins a thread, whose page has its node, behind the system call at ``call`` of ``unit``."""
        node, copy = self.memory.word(thread.state + NODE), unit.copy_of(call)
        if copy is not None:
            thread.cut[node, copy + SYSCALL_BYTES] += 1
            self._resume_calls(thread)
            self._resume_block(thread, unit, call, node)

    def _resume_calls(self, thread: Thread) -> None:
        """Writes the calls that have not returned to the trace, so that later words have their callers."""
        calls = thread.state + PAGE
        size = self.memory.word(thread.state + TOP) - calls - CALL_BYTES
        words = numpy.frombuffer(self.memory.read(calls + CALL_BYTES, size), numpy.uint64)
        for node, record in words.reshape(-1, CALL_BYTES // 8)[-_MOST_FRAMES:, :2].tolist():
            unit, site = self.units.sites[record]
            self._resume_block(thread, unit, unit.site(site).address, node)

    def close(self) -> None:
        """Ends the use of the process: it is gone, or goes on without memopt."""
        self.memory.close()
        self.code.close()
        if self._traces is not None:
            self._traces.close()
