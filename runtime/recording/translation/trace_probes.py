"""Selects the events that a copy writes to its trace (memopt.traces.core.format), and makes the probes for them.

Example: the probe of a block stores two words, its number and the node, and moves TRACE on by 16 bytes; the probe in
front of a load stores its address.

In: the flow graph and loops of a function. Out: its hyperblocks that are told (``Watched``), and probes.

Precondition of every probe: it stands between two instructions of the program. If the trace is full behind a probe, the
thread asks memopt to take it, and then goes on there.
"""

from __future__ import annotations

import itertools
from enum import Enum

from memopt.cfg.loop_nesting import Nesting
from memopt.instrumentation.hyperblocks import hyperblocks
from memopt.instrumentation.memory_operands import Access, accesses
from memopt.instrumentation.value_probes import Moment, Point
from memopt.ir.frozen import dataclass
from memopt.ir.graph import FlowGraph, Kind
from memopt.ir.reasons import Reason, Rejected
from memopt.traces.allocators import allocates
from memopt.traces.core.format import BLOCK, EXTRA, INSIDE
from runtime.recording.translation import encode
from runtime.recording.translation.encode import (
    NAMES,
    RAX,
    RCX,
    RDI,
    RDX,
    RSI,
    RSP,
    lea,
    lea_relative,
    load,
    load_state,
    store,
    store_32_bits,
    store_state,
)
from runtime.recording.translation.layout import (
    DESTINATION,
    MOST_ACCESSES,
    NODE,
    NODE_CALLER,
    RECORD,
    SAVED,
    TRACE,
    WAITED,
)
from runtime.recording.translation.probe_routines import Routines
from runtime.recording.translation.unit import Watched
from runtime.recording.translation.writer import Writer


class Told(Enum):
    """The kind of events in traces. ACCESSES: accesses to memory, and the runs of blocks around them. BLOCKS: the
    runs of all blocks; nothing is counted then. VALUES: values of functions and loops as they are entered and left.
    """

    NOTHING = "nothing"
    ACCESSES = "accesses"
    BLOCKS = "blocks"
    VALUES = "values"


@dataclass(frozen=True, slots=True)
class Recording:
    """The events that copies write to traces, and what they count."""

    told: Told = Told.NOTHING
    elided: bool = True  # loops whose iterations a register tells have no counter inside
    allocations: bool = True  # with ACCESSES: also arguments of functions that allocate, and what calls return

    @property
    def traces(self) -> bool:
        """Whether copies write traces at all."""
        return self.told is not Told.NOTHING


def watching(graph: FlowGraph, nesting: Nesting, first: int, name: str,
             allocations: bool) -> tuple[tuple[Watched, ...], tuple[int, ...]]:
    """The hyperblocks of a function whose runs are told (written to the trace), and the addresses of instructions whose
    accesses cannot be told.

    These hyperblocks access memory or, if the function has loops, show which iteration an access belongs to: the entry,
    headers, and blocks behind calls, since the callee may have called this function again.

    ``first``: the number of the first one. ``name``: of the function. With ``allocations``, the trace has the arguments
    of a function that allocates memory, and the results of calls in all functions. Raises
    Rejected(UNSUPPORTED_INSTRUCTION) for a block with too many accesses.
    """
    behind_calls = {b.end for b in graph.blocks.values() if b.kind is Kind.CALL}
    turns = {graph.entry, *(loop.header for loop in nesting.loops), *behind_calls} if nesting.loops else set()
    found: dict[int, list[tuple[int, Access]]] = {}
    untold: list[int] = []
    for start, block in graph.blocks.items():
        found[start] = []
        for instruction in block.instructions:
            made = accesses(instruction)
            if made is None:
                untold.append(instruction.address)
            elif not instruction.kind.ends_block:
                found[start] += ((instruction.address, access) for access in made)
        if len(found[start]) > MOST_ACCESSES:
            raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"a block with {len(found[start])} accesses to memory")
    sizes = {start: len(of_block) for start, of_block in found.items()}
    watched: list[Watched] = []
    for start, blocks in sorted(hyperblocks(graph, nesting, turns | behind_calls, sizes, MOST_ACCESSES).items()):
        registers: tuple[int, ...] = ()
        if allocations:
            registers = ((RDI, RSI) if start == graph.entry and allocates(name)
                         else (RAX,) if start in behind_calls else ())
        leaves = bool(nesting.loops) and any(_leaves(graph, b) for b in blocks)
        if start in turns or registers or leaves or any(found[b] for b in blocks):
            told = tuple(itertools.chain.from_iterable(found[b] for b in blocks))
            watched.append(Watched(first + len(watched), start, told, registers, blocks))
    return tuple(watched), tuple(untold)


def _leaves(graph: FlowGraph, start: int) -> bool:
    """Whether other code may run behind the block before its function goes on."""
    block = graph.blocks[start]
    return block.kind in (Kind.CALL, Kind.INDIRECT) or any(s not in graph.blocks for s in block.successors)


def tell_block(w: Writer, block: Watched, key: object, inside: bool = False) -> None:
    """Writes the probe that tells a run of ``block``. ``inside``: the run begins behind its first block. ``key`` names
    the probe.
    """
    w(store_state(SAVED[1], RCX), store_state(SAVED[2], RDX), load_state(RCX, TRACE))
    w(encode.move_64_bits(RDX, BLOCK << 48 | block.number), store(RCX, 0, RDX))
    w(load_state(RDX, NODE), lea(RDX, RDX, INSIDE) if inside else b"", store(RCX, 8, RDX))
    registers = () if inside else block.registers
    for at, register in enumerate(registers):
        w(store(RCX, 16 + 8 * at, register), encode.store_16_bits(RCX, 22 + 8 * at, EXTRA))
    _behind(w, 16 + 8 * len(registers), key)


def tell_point(w: Writer, point: Point, trips: int, key: object) -> None:
    """Writes the probe that tells the values of ``point``. ``trips``: where the node counts the loop's iterations."""
    w(store_state(SAVED[0], RAX), store_state(SAVED[1], RCX), store_state(SAVED[2], RDX))
    w(encode.READ_TIME_STAMP, load_state(RCX, TRACE), store_32_bits(RCX, 16, RAX), store_32_bits(RCX, 20, RDX))
    w(encode.move_64_bits(RAX, BLOCK << 48 | point.number), store(RCX, 0, RAX), load_state(RDX, NODE))
    w(store(RCX, 8, RDX), store(RCX, 24, RSP), load_state(RAX, WAITED), store(RCX, 32, RAX))
    registers = list(point.registers)
    at = 40
    if point.moment is Moment.ENTRY:
        w(load(RAX, RDX, NODE_CALLER), store(RCX, at, RAX))
        at += 8
    elif point.trips is not None:
        registers.insert(0, point.trips.register)
    elif point.loop is not None:
        w(load(RAX, RDX, trips), store(RCX, at, RAX))
        at += 8
    for register in map(NAMES.index, registers):
        if register in (RAX, RCX, RDX):
            w(load_state(RAX, SAVED[(RAX, RCX, RDX).index(register)]))
            register = RAX
        w(store(RCX, at, register))
        at += 8
    w(load_state(RAX, SAVED[0]))
    _behind(w, at, key)


def _behind(w: Writer, size: int, key: object) -> None:
    """Ends a probe: ``size`` bytes were written at rcx. Moves TRACE on, and goes to the question if the trace is full.
    Precondition: rcx and rdx are saved.
    """
    w(lea(RCX, RCX, size), store_state(TRACE, RCX), encode.load_state_byte(RCX, TRACE + 2))
    w.if_zero(("near full", key))
    w(encode.SKIP_JUMP)
    w.place(("near full", key))
    w.jump(("full", key))
    w(load_state(RCX, SAVED[1]), load_state(RDX, SAVED[2]))
    w.place(("drained", key))


def ask_to_drain(w: Writer, key: object, original: int, shared: Routines) -> None:
    """Writes what the probe named ``key`` goes to when the trace is full. ``original``: where the program is then."""
    w.place(("full", key))
    w(store_state(SAVED[0], RAX))
    w.to_label(lea_relative(RDX), ("drained", key))
    w(store_state(RECORD, RDX))
    w.to_original(lea_relative(RDX), original)
    w(store_state(DESTINATION, RDX))
    w.to(encode.JUMP, shared.drain)
