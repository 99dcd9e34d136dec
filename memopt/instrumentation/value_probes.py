"""Value probes: which values of a function and its loops are recorded, and at which points.

Arguments, loop-invariant registers and trip counts are recorded. An argument is a register by which the ABI passes
integers and pointers (System V AMD64 ABI 3.2.3) and that is live at the entry of the function (backward liveness). An
argument that the function only passes on is not seen. A loop-invariant register is one that the loop reads and never
changes.

In: a flow graph, its loops, their induction registers. Out: the ``Point``s of the function. Reads may be overstated
where an instruction is not known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from memopt.cfg.loop_nesting import Nesting
from memopt.instrumentation.induction_registers import Stepping, written
from memopt.instrumentation.scratch_registers import FAMILIES
from memopt.ir.frozen import dataclass
from memopt.ir.graph import DecodedInstruction, FlowGraph, Kind, Loop

ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_CALL_CLOBBERED = frozenset(("rax", "r10", "r11", *ARGUMENTS))
_WORD = re.compile(r"[a-z]+\w*")
_SETS_FIRST = re.compile(  # these overwrite their first operand without reading it
    r"mov|movabs|movzx|movsx|movsxd|lea|pop|popcnt|[tl]zcnt|bs[fr]|rorx|s[ah][lr]x|andn|bextr|bzhi|pdep|pext|movbe|bls\w+"
    r"|v?mov(d|q|mskp[sd])|v?pmovmskb|v?cvtt?s[sd]2si|v?pextr\w+")
_WIDE = frozenset(FAMILIES.values()) | {"eax", "ebx", "ecx", "edx", "esi", "edi", "ebp"} | {
    f"r{n}d" for n in range(8, 16)}


class Moment(Enum):
    """When values are recorded."""

    ENTRY = 0
    BACK = 1  # behind a call
    LOOP_ENTRY = 2
    LOOP_EXIT = 3


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a function where values are recorded."""

    number: int  # its name in the trace
    moment: Moment
    loop: int | None = None  # index among the loops of the function
    registers: tuple[str, ...] = ()  # recorded beside those that every point of this moment records
    trips: Stepping | None = None  # the register that counts the runs of the loop's header; None: a counter does

    @property
    def counts_trips(self) -> bool:
        """Whether the point has a counter of its own, which the header of the loop increments."""
        return self.moment is Moment.LOOP_ENTRY and self.trips is None


def points(graph: FlowGraph, nesting: Nesting, steppings: Mapping[int, Stepping], first: int) -> tuple[Point, ...]:
    """The points of a function, numbered from ``first`` on: its entry, one for the code behind its calls, then entry
    and exit of each loop. Irreducible loops have none, nor do loops that an indirect jump or an exception enters or
    leaves."""
    live = _live_at_entry(graph)
    made = [Point(first, Moment.ENTRY, None, tuple(r for r in ARGUMENTS if r in live)), Point(first + 1, Moment.BACK)]
    for index, loop in enumerate(nesting.loops):
        if loop.header not in nesting.irreducible and not _crossed_by_unknown(graph, loop):
            found = steppings.get(index)
            trips = found if found is not None and found.block == loop.header else None
            number = first + len(made)
            made += [Point(number, Moment.LOOP_ENTRY, index, _unchanged(graph, loop), trips),
                     Point(number + 1, Moment.LOOP_EXIT, index, (), trips)]
    return tuple(made)


def _crossed_by_unknown(graph: FlowGraph, loop: Loop) -> bool:
    """Whether an indirect jump, or an exception, leads into the loop or out of it."""
    return any((block.start in loop.blocks) != (s in loop.blocks)
               for block in graph.blocks.values() for s in block.led)


def _live_at_entry(graph: FlowGraph) -> set[str]:
    reads: dict[int, set[str]] = {}
    sets: dict[int, set[str]] = {}
    for start, block in graph.blocks.items():
        reads[start], sets[start] = set(), set()
        for instruction in block.instructions:
            read, changed = read_and_set(instruction)
            reads[start] |= read - sets[start]
            sets[start] |= changed
    live = {start: set(found) for start, found in reads.items()}
    before, pending = graph.predecessors, list(graph.blocks)
    while pending:
        start = pending.pop()
        for source in before[start]:
            more = live[start] - sets[source] - live[source]
            if more:
                live[source] |= more
                pending.append(source)
    return live[graph.entry]


def read_and_set(instruction: DecodedInstruction) -> tuple[set[str], set[str]]:
    """The 64-bit registers that the instruction reads (rather too many than too few), and those that it certainly sets.
    """
    name, text = instruction.mnemonic, instruction.operands_text
    named = {FAMILIES[word] for word in _WORD.findall(text) if word in FAMILIES}
    if instruction.kind is Kind.CALL:
        return named, set(_CALL_CLOBBERED)
    if name.startswith(("nop", "endbr")):
        return set(), set()
    first, _, others = text.partition(", ")
    if first in _WIDE:
        rest = {FAMILIES[word] for word in _WORD.findall(others) if word in FAMILIES}
        if name in ("xor", "sub") and first == others:
            return set(), {FAMILIES[first]}
        if _SETS_FIRST.fullmatch(name) or (name == "imul" and others.count(",")):
            return rest, {FAMILIES[first]}
    return named, set()


def _unchanged(graph: FlowGraph, loop: Loop) -> tuple[str, ...]:
    """The registers that the loop reads and never changes; none if an instruction in it may change any register."""
    read: set[str] = set()
    changed = {"rsp"}
    for block in loop.blocks:
        for instruction in graph.blocks[block].instructions:
            found = _CALL_CLOBBERED if instruction.kind is Kind.CALL else written(instruction)
            if found is None:
                return ()
            read |= read_and_set(instruction)[0]
            changed |= found
    return tuple(sorted(read - changed))
