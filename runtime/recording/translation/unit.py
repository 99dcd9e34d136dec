"""What there is of a function that was copied: its counters, its sites, and where its instructions lie now."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field

from memopt.cfg.loop_nesting import Nesting
from memopt.instrumentation.edge_counters import Counting
from memopt.instrumentation.induction_registers import Stepping
from memopt.instrumentation.memory_operands import Access
from memopt.instrumentation.value_probes import Point
from memopt.ir.graph import FlowGraph, Loop
from runtime.recording.translation.layout import NODE_COUNTERS

SYSCALL_BYTES = 2


@dataclass(frozen=True, slots=True)
class Site:
    """A call, or a jump that may leave the function. ``target``: None where it is not in the instruction.
    ``record``: address of what its probes know."""

    address: int
    target: int | None
    end: int
    returns: bool
    slot: int
    record: int
    copy_return: int


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Offsets in the nodes of a unit, in bytes: so many ``counters``, what registers held when the loops of ``stepped``
    ones were entered, trip counts of the loops ``trips``, and for each site its callee's node."""

    counters: int
    stepped: tuple[int, ...]
    trips: tuple[int | None, ...]

    def start_of(self, index: int) -> int:
        """What the register held when the loop of a stepped counter was entered."""
        return NODE_COUNTERS + 8 * (self.counters + self.stepped.index(index))

    def trips_of(self, loop: int | None) -> int:
        return NODE_COUNTERS + 8 * (self.counters + len(self.stepped) + self.trips.index(loop))

    def slot_of(self, site: int) -> int:
        """The callee's node of the site of this number, and the end of the node for the number of sites."""
        return NODE_COUNTERS + 8 * (self.counters + len(self.stepped) + len(self.trips) + site)


@dataclass(frozen=True, slots=True)
class Watched:
    """A hyperblock whose runs are told one by one, with the accesses of its blocks in their order: (address of the
    instruction, access). ``number``: by which the trace knows it. ``registers``: numbers of those whose values are told
    as it begins."""

    number: int
    start: int
    accesses: tuple[tuple[int, Access], ...]
    registers: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """``number``: above 0, by which nodes know it; ``node``: what these hold. ``code`` belongs at ``start``; ``entry``
    is the copy of the graph's entry. ``stepped``: what is told by a register, by the index of its place in
    ``counting``; its counter grows by the step. ``repeated``: addresses of repeated string instructions, whose
    repetitions have a counter each, after those of ``counting``. ``blocks``: where to go on from anywhere, by original
    address. ``copies`` and ``originals``: addresses of instructions, in the order of the copies; there, a signal finds
    the program's own state. ``told_by``: for each block the hyperblock that is told. ``untold``: addresses of
    instructions that access memory unwatched though it is watched. ``points``: where values are told. ``name``: of the
    function, "" where it has none.
    """

    number: int
    graph: FlowGraph
    nesting: Nesting
    counting: Counting
    node: NodeLayout
    stepped: dict[int, tuple[Loop, Stepping]]
    repeated: tuple[int, ...]
    sites: tuple[Site, ...]
    start: int
    code: bytes
    entry: int
    blocks: dict[int, int]
    copies: tuple[int, ...]
    originals: tuple[int, ...]
    watched: tuple[Watched, ...] = ()
    told_by: Mapping[int, Watched] = field(default_factory=dict)
    untold: tuple[int, ...] = ()
    points: tuple[Point, ...] = ()
    name: str = ""

    @property
    def counters(self) -> int:
        return self.node.counters

    @property
    def node_bytes(self) -> int:
        return self.node.slot_of(len(self.sites))

    @property
    def end(self) -> int:
        return self.start + len(self.code)

    def in_stepped_loop(self, block: int) -> bool:
        return any(block in loop.blocks for loop, _ in self.stepped.values())

    def block_around(self, address: int) -> int | None:
        """Where the block with the instruction at ``address`` begins."""
        return next((b.start for b in self.graph.blocks.values() if b.start <= address < b.end), None)

    def place_of_copy(self, copy: int) -> tuple[int, int] | None:
        """Where the block begins that the thread is in, and the original address of what comes next, where it is about
        to execute the instruction at ``copy``, or is behind a system call there. None where it is in a probe."""
        for behind in (0, SYSCALL_BYTES):
            address = self.original(copy - behind)
            block = None if address is None else self.block_around(address)
            if address is not None and block is not None:
                return block, address + behind
        return None

    def not_stepped(self, block: int, address: int) -> dict[int, int]:
        """By their index, the steps of the stepped counters of a block that has begun, but not stepped where the
        instruction at ``address`` comes next."""
        return {index: abs(stepping.step) for index, (_, stepping) in self.stepped.items()
                if stepping.block == block and address <= stepping.address}

    def loop_around(self, address: int) -> int | None:
        """Index of the innermost loop around the instruction at ``address``."""
        block = self.block_around(address)
        return None if block is None else self.nesting.innermost.get(block)

    def watched_around(self, address: int) -> Watched | None:
        """The hyperblock with the instruction at ``address``, if it is told."""
        starts = list(self.graph.blocks)
        return self.told_by.get(starts[bisect.bisect_right(starts, address) - 1])

    def copy_of(self, address: int) -> int | None:
        """Where the instruction at ``address`` is copied to."""
        return self.copies[self.originals.index(address)] if address in self.originals else None

    def original(self, copy: int) -> int | None:
        """The address of the instruction whose copy is at ``copy``."""
        index = bisect.bisect_left(self.copies, copy)
        return self.originals[index] if index < len(self.copies) and self.copies[index] == copy else None
