"""Translates one function into its copy with probes, which runs in place of the function while it is recorded.

Example: the copy of ``call f`` pushes the original return address, makes the callee's node the current one, pushes the
call on the thread's own stack of calls, and jumps to the copy of ``f``.

In: flow graph, loops, address of the copy. Out: a ``Unit``.

The copy leaves on the stack what the original would have left there, return addresses included. So unwinding,
backtraces and code that looks at its caller find what they expect. Calls and returns go from copy to copy by the
thread's stack of calls. Every other jump whose target is in a register or in memory goes by the table of targets.

Invariant: between two copied instructions every register and flag is the program's, and memory below the stack pointer
is as it was wherever the program may still read it (System V AMD64 ABI 3.2.2: 128 bytes; a call gives them up).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from memopt.cfg.loop_nesting import Nesting
from memopt.instrumentation.edge_counters import Counting, Place, plan_counters
from memopt.instrumentation.induction_registers import Stepping, steppings
from memopt.instrumentation.memory_operands import Access
from memopt.instrumentation.scratch_registers import idle
from memopt.instrumentation.value_probes import Moment, Point, points
from memopt.ir.graph import BasicBlock, DecodedInstruction, FlowGraph, Kind, Loop
from memopt.ir.reasons import Reason, Rejected
from runtime.recording.translation import encode
from runtime.recording.translation.asked_calls import ASKED_CALLS, Before
from runtime.recording.translation.call_sites import CallSites
from runtime.recording.translation.encode import (
    JUMP_RELATIVE,
    NAMES,
    PUSH_RELATIVE,
    RAX,
    RCX,
    RDX,
    RSP,
    increment,
    invert,
    jump_by_state,
    lea,
    lea_relative,
    lea_sum,
    load,
    load_state,
    move,
    store,
    store_state,
)
from runtime.recording.translation.layout import (
    CALL_BYTES,
    CALL_NODE,
    CALL_SITE,
    DESTINATION,
    NODE,
    NODE_COUNTERS,
    NODE_STRAY,
    RECORD,
    SAVED,
    SITE_COPY_RETURN,
    SLOT,
    TARGET,
    TOP,
    TRACE,
)
from runtime.recording.translation.probe_routines import Routines, restore, save
from runtime.recording.translation.relocated import load_target, moved, opcode_of, repeats, target_of
from runtime.recording.translation.trace_probes import Recording, Told, ask_to_drain, tell_block, tell_point, watching
from runtime.recording.translation.unit import Linkage, NodeLayout, Unit, Watched
from runtime.recording.translation.writer import Writer

_ENTRY: Place = (-1, -1)  # the edge by which a function is entered
_INSIDE = "inside"
_NUMBER = re.compile(r"[er]ax, (0x[0-9a-f]+|\d+)")


def translate(number: int, graph: FlowGraph, nesting: Nesting, start: int, shared: Routines, table: int,
              recording: Recording, first: int = 0, name: str = "", linkage: Linkage = Linkage.NONE) -> Unit:
    """The copy of ``graph`` at ``start``, within reach of all it refers to.

    ``first``: the number of its first hyperblock, or of its first point of values, in the trace. ``name``:
    of the function. Raises Rejected(UNSUPPORTED_INSTRUCTION) for what cannot be copied.
    """
    for block in graph.blocks.values():
        for instruction in block.instructions:
            if "gs:" in instruction.operands_text or instruction.mnemonic.endswith(("gsbase", "swapgs")):
                raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"{instruction} uses gs")
    elided = steppings(graph, nesting) if recording.elided and recording.told is not Told.BLOCKS else {}
    found = {nesting.loops[index]: stepping for index, stepping in elided.items()
             if not graph.led & nesting.loops[index].blocks}
    counting = plan_counters(graph, nesting.loops, frozenset(s.block for s in found.values()))
    stepped = {counting.places.index((stepping.block, None)): (loop, stepping)
               for loop, stepping in found.items() if (stepping.block, None) in counting.places}
    watched: tuple[Watched, ...] = ()
    told: tuple[Point, ...] = ()
    untold: tuple[int, ...] = ()
    match recording.told:
        case Told.BLOCKS:
            watched = tuple(Watched(number, block, (), (), (block,))
                            for number, block in enumerate(graph.blocks, first))
        case Told.ACCESSES:
            watched, untold = watching(graph, nesting, first, name, recording.allocations)
        case Told.VALUES if not linkage.belongs_to_call:
            told = points(graph, nesting, elided, first)
    made = _Translation(number, graph, nesting, counting, stepped, watched, told, start, shared, table, name, linkage)
    if recording.told is Told.BLOCKS:
        made.counter.clear()
        made.begins_anywhere = True
    return made.unit(untold)


class _Translation:
    """The translation of one function: it writes the copy once, from front to back."""

    def __init__(self, number: int, graph: FlowGraph, nesting: Nesting, counting: Counting,
                 stepped: dict[int, tuple[Loop, Stepping]], watched: tuple[Watched, ...], points: tuple[Point, ...],
                 start: int, shared: Routines, table: int, name: str, linkage: Linkage) -> None:
        self.number, self.graph, self.nesting, self.counting, self.points = number, graph, nesting, counting, points
        self.stepped, self.watched = stepped, watched
        self.told_by = {start: found for found in watched for start in found.blocks}
        self.start, self.shared, self.table = start, shared, table
        self.write, self.name, self.linkage = Writer(start), name, linkage
        self.begins_anywhere = False  # then a return from the frame that recording began in leads to no callee of it
        self.counter: dict[Place, int] = {
            place: index for index, place in enumerate(counting.places) if index not in stepped}
        self.left: dict[Place, list[int]] = {}  # by edge: stepped counters whose loop is left on it
        self.entered: dict[Place, list[int]] = {}  # by edge: stepped counters whose loop is entered on it
        self.repeated: list[int] = []
        self.later: list[tuple[object, Place | None, int]] = []  # code out of line: label, edge to count, where to go
        self.full: dict[object, int] = {}  # by probe that may find the trace full: where the program is
        self.told: dict[Place, list[Point]] = {}
        self.copies: list[int] = []
        self.originals: list[int] = []
        strings = sum(repeats(i) for b in graph.blocks.values() for i in b.instructions)
        counted = tuple(p.loop for p in points if p.counts_trips)
        self.node = NodeLayout(len(counting.places) + strings, tuple(stepped), counted)
        self.calls = CallSites(self.write, self.node, shared, table, linkage)
        self.headers = {nesting.loops[loop].header: loop for loop in counted if loop is not None}
        for index, (loop, _) in stepped.items():
            for edge in loop.exits:
                self.left.setdefault(edge, []).append(index)
            for place in self._into(loop):
                self.entered.setdefault(place, []).append(index)
        self._place_points()

    def _into(self, loop: Loop) -> Iterator[Place]:
        """The edges by which a loop is entered."""
        for block in self.graph.blocks:
            if block not in loop.blocks and loop.header in self.graph.successors(block):
                yield block, loop.header
        if loop.header == self.graph.entry:
            yield _ENTRY

    def _place_points(self) -> None:
        """Assigns the points to edges. Loops are left from the innermost one outwards, and entered from the outermost
        one inwards.
        """
        exits = [p for p in reversed(self.points) if p.moment is Moment.LOOP_EXIT]
        others = [p for p in self.points if p.moment in (Moment.ENTRY, Moment.LOOP_ENTRY)]
        for point in (*exits, *others):
            places: Iterable[Place] = (_ENTRY,)
            if point.loop is not None:
                loop = self.nesting.loops[point.loop]
                places = loop.exits if point.moment is Moment.LOOP_EXIT else self._into(loop)
            for place in places:
                self.told.setdefault(place, []).append(point)

    def unit(self, untold: tuple[int, ...]) -> Unit:
        """Writes the copy."""
        blocks = list(self.graph.blocks.values())
        for block, following in zip(blocks, (*blocks[1:], None), strict=True):
            self._block(block, None if following is None else following.start)
        pending = self.later
        while pending:
            self.later = []
            for label, place, target in pending:
                self.write.place(label)
                self._go(place, target, None)
            pending = self.later
        entry: object = self.graph.entry
        if _ENTRY in self.entered or _ENTRY in self.told:
            self.write.place(_ENTRY)
            self._go(_ENTRY, self.graph.entry, None)
            entry = _ENTRY
        within = [(b, watched) for watched in self.watched for b in watched.blocks if b != watched.start]
        for start, watched in within:
            self._tell_inside(start, watched)
        for key, original in self.full.items():
            ask_to_drain(self.write, key, original, self.shared)
        sites = self.calls.records()
        code = self.write.finish()
        labels = self.write.labels
        ways = {b.start: labels[b.start] for b in blocks} | {start: labels[_INSIDE, start] for start, _ in within}
        return Unit(self.number, self.graph, self.nesting, self.counting, self.node, self.stepped, tuple(self.repeated),
                    sites, self.start, code, labels[entry], ways, tuple(self.copies), tuple(self.originals),
                    self.watched, self.told_by, untold, self.points, self.name, tuple(self.write.marks), self.linkage)

    # -- blocks --------------------------------------------------------------------------------------------------------

    def _block(self, block: BasicBlock, following: int | None) -> None:
        self.write.place(block.start)
        self._count((block.start, None), block.instructions)
        if block.start in self.headers:
            self._increment(self.node.trips_of(self.headers[block.start]), block.instructions)
        last, told = block.instructions[-1], self._watch(block)
        for previous, instruction in zip((None, *block.instructions), block.instructions, strict=False):
            if not instruction.kind.ends_block:
                self._tell(told.get(instruction.address, ()), instruction)
                self._copy(instruction, previous)
        match last.kind:
            case Kind.PLAIN:
                self._go((block.start, block.end), block.end, following)
            case Kind.JUMP:
                self._mark(last)
                self._go((block.start, target_of(last)), target_of(last), following)
            case Kind.CONDITIONAL:
                self._conditional(block, last, following)
            case Kind.CALL:
                self._call(block, last, following)
            case Kind.RETURN:
                self._return(block, last)
            case Kind.INDIRECT:
                self._indirect_jump(last)
            case Kind.TRAP:
                self._mark(last)
                self.write(last.bytes)

    def _mark(self, instruction: DecodedInstruction) -> None:
        """Notes that the copy of the instruction is here."""
        self.copies.append(self.write.here)
        self.originals.append(instruction.address)

    def _copy(self, instruction: DecodedInstruction, previous: DecodedInstruction | None) -> None:
        w = self.write
        if repeats(instruction):
            self._repeated(instruction)
            return
        if instruction.mnemonic == "syscall":
            self._ask_before(previous, instruction.address)
        self._mark(instruction)
        w.moved(moved(instruction, w.here))

    def _ask_before(self, previous: DecodedInstruction | None, original: int) -> None:
        """Writes a question to memopt in front of a system call that may matter to it. ``previous``: the instruction in
        front of the call, which may tell its number. ``original``: the address of the call.
        """
        w, shared, number = self.write, self.shared, None
        if previous is not None and previous.mnemonic == "mov":
            number = _NUMBER.fullmatch(previous.operands_text)
        routine = shared.ask_any
        if number is not None:
            before = ASKED_CALLS.get(int(number[1], 0))
            if before is None:
                return
            routine = {Before.RETURN: shared.ask_return, Before.CHANGE: shared.ask_change,
                       Before.CALL: shared.ask_call}[before]
        call = "system call", w.here
        save(w)
        w.to_original(lea_relative(RDX), original)
        w(store_state(DESTINATION, RDX))
        w.to_label(lea_relative(RDX), call)
        w(store_state(RECORD, RDX))
        w.to(encode.JUMP, routine)
        w.place(call)

    def _repeated(self, instruction: DecodedInstruction) -> None:
        """Copies a repeated string instruction, and counts by how much it decreases rcx."""
        w = self.write
        offset = NODE_COUNTERS + 8 * (len(self.counting.places) + len(self.repeated))
        self.repeated.append(instruction.address)
        w(store_state(SAVED[0], RAX), store_state(SAVED[2], RDX), load_state(RAX, NODE), load(RDX, RAX, offset))
        w(lea_sum(RDX, RDX, RCX), store(RAX, offset, RDX), load_state(RAX, SAVED[0]), load_state(RDX, SAVED[2]))
        self._mark(instruction)
        w(instruction.bytes)
        w(store_state(SAVED[0], RAX), store_state(SAVED[2], RDX), load_state(RAX, NODE), load(RDX, RAX, offset))
        w(invert(RCX), lea_sum(RDX, RDX, RCX), lea(RDX, RDX, 1), invert(RCX))
        w(store(RAX, offset, RDX), load_state(RAX, SAVED[0]), load_state(RDX, SAVED[2]))

    @contextmanager
    def _scratch(self, unused: frozenset[str], number: int, kept: frozenset[int] = frozenset()
                 ) -> Iterator[tuple[int, ...]]:
        """Registers for a probe: ``unused`` ones first, others are saved around it; none of ``kept``."""
        free = [r for r in (NAMES.index(name) for name in sorted(unused)) if r not in kept]
        others = (r for r in range(len(NAMES)) if r not in free and r not in kept and r != RSP)
        saved = tuple(itertools.islice(others, max(0, number - len(free))))
        for slot, register in zip(SAVED, saved, strict=False):
            self.write(store_state(slot, register))
        yield (*free, *saved)[:number]
        for slot, register in zip(SAVED, saved, strict=False):
            self.write(load_state(register, slot))

    def _count(self, place: Place, following: Sequence[DecodedInstruction], kept: frozenset[int] = frozenset()
               ) -> None:
        """Counts ``place``, if it has a counter."""
        index = self.counter.get(place)
        if index is None:
            return
        self._increment(NODE_COUNTERS + 8 * index, following, kept)

    def _increment(self, offset: int, following: Sequence[DecodedInstruction], kept: frozenset[int] = frozenset()
                   ) -> None:
        """Increments the word of the node at this offset."""
        w, (unused, flags_unused) = self.write, idle(following)
        if flags_unused:
            with self._scratch(unused, 1, kept) as (node,):
                w(load_state(node, NODE), increment(node, offset))
        else:
            with self._scratch(unused, 2, kept) as (node, count):
                w(load_state(node, NODE), load(count, node, offset), lea(count, count, 1), store(node, offset, count))

    def _enter_stepped(self, index: int, following: Sequence[DecodedInstruction], kept: frozenset[int]) -> None:
        """Notes the register of a stepped loop at its entry."""
        register = NAMES.index(self.stepped[index][1].register)
        with self._scratch(idle(following)[0], 1, kept) as (node,):
            self.write(load_state(node, NODE), store(node, self.node.start_of(index), register))

    def _leave_stepped(self, index: int, following: Sequence[DecodedInstruction], kept: frozenset[int]) -> None:
        """Adds to a stepped counter how far the register has gone since the loop was entered, in the direction of its
        steps.
        """
        w, stepping = self.write, self.stepped[index][1]
        register, counter = NAMES.index(stepping.register), NODE_COUNTERS + 8 * index
        with self._scratch(idle(following)[0], 3, kept) as (node, way, other):
            w(load_state(node, NODE), load(way, node, self.node.start_of(index)))
            if stepping.step > 0:
                w(invert(way), lea_sum(way, way, register, 1, stepping.bits))
            else:
                w(move(other, register), invert(other), lea_sum(way, other, way, 1, stepping.bits))
            w(load(other, node, counter), lea_sum(other, other, way), store(node, counter, other))

    def _go(self, place: Place | None, target: int, following: int | None) -> None:
        """Counts the edge ``place`` and goes on at the original address ``target``. ``following``: what is written
        next.
        """
        inside = target in self.graph.blocks
        behind = self.graph.blocks[target].instructions if inside else ()
        if place is not None:
            self._tell_points(place, self.told.get(place, ()), target)
            left, entered = self.left.get(place, []), self.entered.get(place, [])
            kept = frozenset(NAMES.index(self.stepped[index][1].register) for index in (*left, *entered))
            for index in left:
                self._leave_stepped(index, behind, kept)
            self._count(place, behind, kept)
            for index in entered:
                self._enter_stepped(index, behind, kept)
        if not inside and self.linkage is not Linkage.NONE:
            self.write(store_state(SAVED[1], RCX))
            self.write.to_original(lea_relative(RCX), target)
            self._by_table(self.calls.add(None, target, target, False))
        elif not inside:
            self.calls.leave(self.calls.add(None, target, target, False))
        elif target != following:
            self.write.jump(target)

    def _conditional(self, block: BasicBlock, last: DecodedInstruction, following: int | None) -> None:
        w, target = self.write, target_of(last)
        place = (block.start, target)
        if last.mnemonic == "xbegin":
            raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"{last} cannot be copied")
        if target == block.end:
            self._mark(last)
            self._go(place, target, following)
            return
        label: object = target
        if (place in self.counter or place in self.left or place in self.entered or place in self.told
                or target not in self.graph.blocks):
            label = place
            self.later.append((label, place, target))
        self._mark(last)
        opcode = opcode_of(last)
        if len(opcode) == 2:
            w.to_label(opcode, label)
        else:  # jrcxz, loop: they have no form with a 32-bit distance
            near, on = ("near", block.start), ("on", block.start)
            w(*(bytes((p,)) for p in last.bytes[:-2]))
            w.if_zero(near, last.bytes[-2])
            w.jump(on)
            w.place(near)
            w.jump(label)
            w.place(on)
        self._go((block.start, block.end), block.end, following)

    # -- what is told --------------------------------------------------------------------------------------------------

    def _watch(self, block: BasicBlock) -> dict[int, list[tuple[int, Access]]]:
        """Tells a run of the hyperblock that begins with ``block``, if one does. Returns, by instruction, the accesses
        of the block with their indices.
        """
        watched = self.told_by.get(block.start)
        told: dict[int, list[tuple[int, Access]]] = {}
        if watched is None:
            return told
        if watched.start == block.start:
            tell_block(self.write, watched, block.start)
            self.full[block.start] = block.start
        for index, (address, access) in enumerate(watched.accesses):
            told.setdefault(address, []).append((index, access))
        return told

    def _tell_inside(self, start: int, watched: Watched) -> None:
        """Writes the entry to the block at ``start`` from anywhere but the other blocks of ``watched``."""
        key = _INSIDE, start
        self.write.place(key)
        tell_block(self.write, watched, key, inside=True)
        self.full[key] = start
        self.write.jump(start)

    def _tell_points(self, place: object, points: Sequence[Point], original: int) -> None:
        """Tells the values of ``points``. ``place``: names where the program is, at ``original``."""
        for point in points:
            key = (place, point.number)
            trips = self.node.trips_of(point.loop) if point.loop in self.node.trips else 0
            tell_point(self.write, point, trips, key)
            self.full[key] = original

    def _tell(self, told: Sequence[tuple[int, Access]], instruction: DecodedInstruction) -> None:
        """Tells the addresses that ``instruction`` is about to access."""
        w = self.write
        for index, access in told:
            kept = frozenset((RCX,) if access.repeated else ())
            with self._scratch(idle((instruction,))[0], 2, kept) as (address, place):
                if access.absolute is not None:
                    w.to_original(lea_relative(address), access.absolute)
                else:
                    base, other = (None if r is None else NAMES.index(r) for r in (access.base, access.index))
                    w(encode.lea_address(address, base, other, access.scale, access.displacement))
                w(load_state(place, TRACE), store(place, 0, address), encode.store_16_bits(place, 6, index))
                if access.repeated:
                    w(store(place, 8, RCX))
                w(lea(place, place, 16 if access.repeated else 8), store_state(TRACE, place))

    # -- what may leave the function -----------------------------------------------------------------------------------

    def _call(self, block: BasicBlock, last: DecodedInstruction, following: int | None) -> None:
        w = self.write
        site = self.calls.add(last, last.address, last.target, True)
        self._mark(last)
        if last.target is not None:
            w.to_label(PUSH_RELATIVE, ("return address", site))
            save(w)
            w(load_state(RDX, NODE), load(RCX, RDX, self.node.slot_of(site)))
            w.if_zero(("new", site))
            w.place(("go on", site))
            w(store_state(NODE, RCX))
            self.calls.push(site)
            restore(w)
            w.to_label(JUMP_RELATIVE, ("link", site))
            self.calls.no_callee_yet(site)
        else:
            w(store_state(SAVED[1], RCX))
            w.moved(load_target(last, w.here))
            w.to_label(PUSH_RELATIVE, ("return address", site))
            w(store_state(SAVED[0], RAX), store_state(SAVED[2], RDX), load_state(RDX, NODE))
            self.calls.push(site)
            self.calls.by_table(site)
        w.place(("return", site))
        self._tell_points(("return", site), [p for p in self.points if p.moment is Moment.BACK], block.end)
        self._go((block.start, block.end), block.end, following)

    def _indirect_jump(self, last: DecodedInstruction) -> None:
        w = self.write
        site = self.calls.add(last, last.address, None, False)
        self._mark(last)
        w(store_state(SAVED[1], RCX))
        w.moved(load_target(last, w.here))
        self._by_table(site)

    def _by_table(self, site: int) -> None:
        """Goes to the original address in rcx, whose value is saved."""
        self.write(store_state(SAVED[0], RAX), store_state(SAVED[2], RDX))
        self.calls.by_table(site)

    def _return(self, block: BasicBlock, last: DecodedInstruction) -> None:
        w, found = self.write, ("return found", block.start)
        if last.mnemonic.rsplit(" ", 1)[-1] != "ret":
            raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"{last} cannot be copied")
        popped = 8 + (int(last.operands_text, 0) if last.operands_text else 0)
        self._mark(last)
        save(w)
        w(load_state(RAX, TOP), load(RDX, RAX, CALL_SITE - CALL_BYTES), load(RCX, RSP), load(RDX, RDX))
        w(store_state(TARGET, RCX), lea_sum(RCX, RCX, RDX))
        w.if_zero(found)
        if self.begins_anywhere:
            w(load(RDX, RAX, CALL_NODE - CALL_BYTES), store_state(NODE, RDX))
        w(load_state(RDX, NODE), lea(RDX, RDX, NODE_STRAY), store_state(SLOT, RDX), lea(RSP, RSP, popped))
        w.to(encode.JUMP, self.shared.lookup)
        w.place(found)
        w(load(RDX, RAX, CALL_NODE - CALL_BYTES), store_state(NODE, RDX), load(RDX, RAX, CALL_SITE - CALL_BYTES))
        w(load(RDX, RDX, SITE_COPY_RETURN), store_state(DESTINATION, RDX), lea(RAX, RAX, -CALL_BYTES))
        w(store_state(TOP, RAX), lea(RSP, RSP, popped))
        restore(w)
        w(jump_by_state(DESTINATION))
