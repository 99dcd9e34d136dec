"""The static structure of the functions of a file: blocks, edges, dominance, loops. Nothing is run.

Invariant: whatever a file holds, a function is described or left out, and the rest goes on. Addresses are link-time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from memopt.analysis.dominators import immediate_dominators, reverse_postorder
from memopt.analysis.flowgraph import NOWHERE, discover
from memopt.analysis.jumptables import switches
from memopt.analysis.nesting import Nesting, find_nesting
from memopt.elf.image import ElfError, Image
from memopt.elf.relocations import slots
from memopt.elf.symbols import Function
from memopt.ir.graph import DecodedInstruction, FlowGraph, Kind
from memopt.ir.reasons import Rejected
from memopt.x86.decoder import decode, rip_target

_STUB_BYTES = 24
_ROUNDS = 8  # of looking behind the switches that are found behind switches


@dataclass(frozen=True, slots=True)
class FunctionStructure:
    """``dominance``: for each block an interval; a block dominates those whose intervals lie in its own. ``symbols``:
    names of the functions of other files that calls lead to, by the address of the call."""

    function: Function
    graph: FlowGraph
    dominance: Mapping[int, tuple[int, int]]
    nesting: Nesting
    symbols: Mapping[int, str]


def structures(image: Image, functions: Iterable[Function]) -> Iterator[FunctionStructure]:
    """Of those ``functions`` of ``image`` whose first bytes are instructions."""

    def read(address: int, size: int) -> bytes:
        try:
            offset = image.offset_of(address)
            return image.read(offset, min(size, image.size - offset))
        except ElfError:
            return b""

    with suppress(ElfError):
        names = slots(image)
        for function in functions:
            found = structure(function, read, names)
            if found is not None:
                yield found


def structure(function: Function, read: Callable[[int, int], bytes], names: Mapping[int, str]
              ) -> FunctionStructure | None:
    """``names``: of what the dynamic linker puts into slots, by their addresses. None where there is no
    instruction at the function's start, or where it is too large to be one."""
    try:
        graph = flow(read, function.start, (function.start, function.end))
    except Rejected:
        return None
    calls = (i for block in graph.blocks.values() for i in block.instructions[-1:] if i.kind is Kind.CALL)
    symbols = {call.address: names[slot] for call in calls if (slot := _slot(call, read)) is not None and slot in names}
    return FunctionStructure(function, graph, intervals(graph), find_nesting(graph), symbols)


def flow(read: Callable[[int, int], bytes], start: int, bounds: tuple[int, int]) -> FlowGraph:
    """All code of a function that is reached from ``start``, by the switches whose tables are found too. Raises as
    ``discover``."""
    decoded: dict[int, DecodedInstruction] = {}
    leads, graph = NOWHERE, discover(read, start, bounds, NOWHERE, decoded)
    for _ in range(_ROUNDS):
        if not any(block.kind is Kind.INDIRECT for block in graph.blocks.values()):
            break
        found = switches(graph, read, bounds)
        if found == leads:
            break
        leads = found
        graph = discover(read, start, bounds, leads, decoded)
    return graph


def _slot(call: DecodedInstruction, read: Callable[[int, int], bytes]) -> int | None:
    """Where the address is kept that a call goes to, by itself or by a stub of the procedure linkage table."""
    way = (call,) if call.target is None else decode(read(call.target, _STUB_BYTES), call.target, 3)
    for instruction in way:
        if instruction.kind.ends_block:
            return rip_target(instruction)
    return None


def intervals(graph: FlowGraph) -> dict[int, tuple[int, int]]:
    """Nested intervals of the dominator tree: (number, highest number below)."""
    dominators = immediate_dominators(graph)
    below: dict[int, list[int]] = {block: [] for block in dominators}
    for block, above in dominators.items():
        if block != above:
            below[above].append(block)
    sizes = dict.fromkeys(dominators, 1)
    for block in reversed(reverse_postorder(graph)):  # a dominator comes before what it dominates
        if block != graph.entry:
            sizes[dominators[block]] += sizes[block]
    result: dict[int, tuple[int, int]] = {}
    pending = [(graph.entry, 0)]
    while pending:
        block, first = pending.pop()
        result[block] = first, first + sizes[block] - 1
        first += 1
        for inner in sorted(below[block]):
            pending.append((inner, first))
            first += sizes[inner]
    return result
