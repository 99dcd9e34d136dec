"""The data type of a translated function: its counters, its sites, and where its instructions lie now."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from memopt.cfg.loop_nesting import Nesting
from memopt.instrumentation.edge_counters import Counting
from memopt.instrumentation.induction_registers import Stepping
from memopt.instrumentation.memory_operands import Access
from memopt.instrumentation.value_probes import Point
from memopt.ir.frozen import dataclass
from memopt.ir.graph import FlowGraph, Loop
from runtime.recording.translation.layout import NODE_COUNTERS
from runtime.recording.translation.relocations import Of

SYSCALL_BYTES = 2


@dataclass(frozen=True, slots=True)
class Site:
    """A call, or a jump that may leave the function."""

    address: int
    target: int | None  # None if it is not in the instruction
    end: int  # of a call: its return address
    returns: bool  # whether it is a call
    slot: int  # offset in the node of its callee
    record: int  # address of what its probes know (layout.py)
    copy_return: int  # where the copy goes on behind the call


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Offsets in the nodes of a unit, in bytes, in this order: counters, the registers of stepped loops at entry, trip
    counts, and for each site its callee's node.
    """

    counters: int  # how many
    stepped: tuple[int, ...]  # indices of the stepped counters
    trips: tuple[int | None, ...]  # the loops whose trips are counted

    def start_of(self, index: int) -> int:
        """The register's value at the entry of the loop of a stepped counter."""
        return NODE_COUNTERS + 8 * (self.counters + self.stepped.index(index))

    def trips_of(self, loop: int | None) -> int:
        """The trip count of a loop."""
        return NODE_COUNTERS + 8 * (self.counters + len(self.stepped) + self.trips.index(loop))

    def slot_of(self, site: int) -> int:
        """The callee's node of the site of this number. For the number of sites: the end of the node."""
        return NODE_COUNTERS + 8 * (self.counters + len(self.stepped) + len(self.trips) + site)


@dataclass(frozen=True, slots=True)
class Watched:
    """A hyperblock whose runs are written to the trace one by one."""

    number: int  # by which the trace knows it
    start: int
    accesses: tuple[tuple[int, Access], ...]  # in order: address of the instruction, access
    registers: tuple[int, ...] = ()  # numbers of the registers whose values the trace has at its start
    blocks: tuple[int, ...] = ()  # its basic blocks


class Linkage(Enum):
    """What code has to do with calls between files. A call of ``f`` in another file goes to a stub (``f@plt``), which
    jumps to ``f``. The first time, with lazy binding, it jumps to the rest of the stub, which jumps to the resolver of
    the dynamic linker (``_dl_runtime_resolve``), which jumps to ``f`` when it has found that. In all of these jumps,
    ``f`` is called by whoever has called the stub (System V ABI, AMD64 supplement, 5.2).
    """

    NONE = "none"
    STUB = "stub"
    REST = "rest of a stub"
    RESOLVER = "resolver"

    @property
    def belongs_to_call(self) -> bool:
        """Whether it is part of the calls that go by it, and no function of its own."""
        return self in (Linkage.STUB, Linkage.REST)

    @property
    def continues(self) -> bool:
        """Whether it is entered by a jump from a stub, so that its node lies in the slot from which that jumped."""
        return self in (Linkage.REST, Linkage.RESOLVER)


@dataclass(frozen=True, slots=True)
class Unit:
    """A translated function.

    A stepped counter belongs to a loop whose iterations a register tells (an induction variable): nothing is counted
    inside the loop, and what the register has gone is added where the loop is left. ``in_stepped_loop`` and
    ``not_stepped`` deal with threads that leave it elsewhere.
    """

    number: int  # above 0, by which nodes know it
    graph: FlowGraph
    nesting: Nesting
    counting: Counting
    node: NodeLayout  # what its nodes hold
    stepped: dict[int, tuple[Loop, Stepping]]  # stepped counters, by the index of their places in ``counting``
    repeated: tuple[int, ...]  # repeated string instructions; each has a counter, after those of ``counting``
    sites: tuple[Site, ...]
    start: int
    code: bytes  # belongs at ``start``
    entry: int  # the copy of the graph's entry
    blocks: dict[int, int]  # by original address of a block: where to enter its copy from anywhere
    # Copies of instructions, and their originals, in the order of the copies. There a signal finds the program's state.
    copies: tuple[int, ...]
    originals: tuple[int, ...]
    watched: tuple[Watched, ...] = ()
    told_by: Mapping[int, Watched] = field(default_factory=dict)  # by block: the hyperblock that tells it
    untold: tuple[int, ...] = ()  # instructions whose accesses the trace lacks, although it has others
    points: tuple[Point, ...] = ()  # where values are written to the trace
    name: str = ""  # of the function; "" if it has none
    marks: tuple[tuple[int, Of], ...] = ()  # words of the code that depend on where things lie
    linkage: Linkage = Linkage.NONE

    @property
    def counters(self) -> int:
        """How many counters a node has."""
        return self.node.counters

    @property
    def node_bytes(self) -> int:
        """The size of a node."""
        return self.node.slot_of(len(self.sites))

    @property
    def end(self) -> int:
        """The address behind the code."""
        return self.start + len(self.code)

    def in_stepped_loop(self, block: int) -> bool:
        """Whether the block lies in a loop with a stepped counter."""
        return any(block in loop.blocks for loop, _ in self.stepped.values())

    def block_around(self, address: int) -> int | None:
        """The start of the block with the instruction at ``address``, or None."""
        return next((b.start for b in self.graph.blocks.values() if b.start <= address < b.end), None)

    def is_system_call(self, address: int) -> bool:
        """Whether the instruction at ``address`` makes a system call."""
        block = self.block_around(address)
        return block is not None and any(i.address == address and i.mnemonic == "syscall"
                                         for i in self.graph.blocks[block].instructions)

    def place_of_copy(self, copy: int) -> tuple[int, int] | None:
        """The block that a thread is in and the original address of its next instruction, if the thread is about to
        execute the instruction at ``copy``, or stands behind a system call there. None if it is in a probe.
        """
        for behind in (0, SYSCALL_BYTES):
            address = self.original(copy - behind)
            block = None if address is None else self.block_around(address)
            if address is not None and block is not None:
                return block, address + behind
        return None

    def not_stepped(self, block: int, address: int) -> dict[int, int]:
        """For a thread whose next instruction is at ``address`` of ``block``: by index of each stepped counter, the
        step that it has not done yet although the block has begun.
        """
        return {index: abs(stepping.step) for index, (_, stepping) in self.stepped.items()
                if stepping.block == block and address <= stepping.address}

    def loop_around(self, address: int) -> int | None:
        """The index of the innermost loop around the instruction at ``address``, or None."""
        block = self.block_around(address)
        return None if block is None else self.nesting.innermost.get(block)

    def watched_around(self, address: int) -> Watched | None:
        """The hyperblock with the instruction at ``address``, if its runs are in the trace."""
        starts = list(self.graph.blocks)
        return self.told_by.get(starts[bisect.bisect_right(starts, address) - 1])

    def copy_of(self, address: int) -> int | None:
        """The address of the copy of the instruction at ``address``, or None."""
        return self.copies[self.originals.index(address)] if address in self.originals else None

    def original(self, copy: int) -> int | None:
        """The address of the instruction whose copy is at ``copy``, or None."""
        index = bisect.bisect_left(self.copies, copy)
        return self.originals[index] if index < len(self.copies) and self.copies[index] == copy else None
