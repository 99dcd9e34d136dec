"""The static structure of the functions of a file: blocks, edges, dominance, loops. Nothing is run.

Invariant: whatever a file holds, a function is described or left out, and the rest goes on. Addresses are link-time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from memopt.cfg.dominators import immediate_dominators
from memopt.cfg.flowgraph import NOWHERE, Decoded, discover
from memopt.cfg.jump_tables import switches
from memopt.cfg.loop_nesting import Nesting, find_nesting
from memopt.cfg.noreturn import NoReturn, does_not_return, slot_of
from memopt.elf.image import ElfError, Image
from memopt.elf.landing import LandingPad, landing_pads
from memopt.elf.relocations import slots
from memopt.elf.symbols import Function, Symbols, function_among
from memopt.ir.graph import FlowGraph, Kind
from memopt.ir.reasons import Rejected

_FAR_JUMP = re.compile(rb"\xe9|\x0f[\x80-\x8f]")  # with a distance of 32 bits
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


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known of the text around a function. ``functions``: by address; ``pads``: of the one that starts at an
    address; ``endings``: which calls do not return."""

    functions: Sequence[Function]
    pads: Callable[[int], Sequence[LandingPad]]
    endings: NoReturn


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
        everything = Symbols(image).everything
        around = Surroundings(everything, functools.partial(landing_pads, image),
                              NoReturn(read, everything, {at for at, name in names.items() if does_not_return(name)}))
        for function in functions:
            found = structure(function, read, names, around)
            if found is not None:
                yield found


def structure(function: Function, read: Callable[[int, int], bytes], names: Mapping[int, str],
              around: Surroundings | None = None) -> FunctionStructure | None:
    """``names``: of what the dynamic linker puts into slots, by their addresses. None where there is no
    instruction at the function's start, or where it is too large to be one."""
    try:
        graph = flow(read, function.start, (function.start, function.end), around)
    except Rejected:
        return None
    calls = (i for block in graph.blocks.values() for i in block.instructions[-1:] if i.kind is Kind.CALL)
    ways = ((call.address, slot_of(call, read)) for call in calls)
    symbols = {call: names[slot] for call, slot in ways if slot is not None and slot in names}
    return FunctionStructure(function, graph, intervals(graph), find_nesting(graph), symbols)


def flow(read: Callable[[int, int], bytes], start: int, bounds: tuple[int, int],
         around: Surroundings | None = None) -> FlowGraph:
    """All code of a function that is reached from ``start``, by the switches whose tables are found, too; with
    ``around`` by exceptions that are caught, and what compilers have put elsewhere because it seldom runs, and not what
    only seems to follow a call that does not return. Raises as ``discover``."""
    decoded = Decoded()
    parts: tuple[tuple[int, int], ...] = ()
    pads = () if around is None else tuple(around.pads(start))
    leads, last, graph = NOWHERE, frozenset[int](), discover(read, start, bounds, NOWHERE, decoded)
    for _ in range(_ROUNDS):
        indirect = any(block.kind is Kind.INDIRECT for block in graph.blocks.values())
        found, more, final = switches(graph, read, bounds) if indirect else {}, parts, last
        if around is not None:
            new = tuple(_parts(graph, read, bounds, around.functions, parts))
            more = (*parts, *new)
            pads += tuple(pad for low, _ in new for pad in around.pads(low))
            found |= _caught(graph, pads)
            final = last | around.endings.of(graph)
        if found == leads and more == parts and final == last:
            break
        leads, parts, last = found, more, final
        graph = discover(read, start, bounds, leads, decoded, parts, last)
    return graph


def _caught(graph: FlowGraph, pads: Sequence[LandingPad]) -> dict[int, tuple[int, ...]]:
    """Where calls that end with an exception go on, by their addresses."""
    calls = [b.instructions[-1].address for b in graph.blocks.values() if b.kind is Kind.CALL] if pads else []
    found = {call: tuple(pad.start for pad in pads if call in pad.calls) for call in calls}
    return {call: to for call, to in found.items() if to}


def _parts(graph: FlowGraph, read: Callable[[int, int], bytes], bounds: tuple[int, int], functions: Sequence[Function],
           known: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What the function jumps to as to others, but what is a part of it: by its name, which ends with ".cold" (GCC,
    LLVM), or without a name because it jumps back into the function's middle."""
    seen = set(known)
    for target in sorted({s for b in graph.blocks.values() for s in b.successors if s not in graph.blocks}):
        found = function_among(functions, target)
        if found is None or (found.name and ".cold" not in found.name):
            continue
        part = found.start, found.end
        if part not in seen and found.start not in range(*bounds):
            seen.add(part)
            if found.name or (_may_jump(read, part, bounds) and _jumps(read, target, part, bounds)):
                yield part


def _jumps(read: Callable[[int, int], bytes], start: int, part: tuple[int, int], bounds: tuple[int, int]) -> bool:
    """Whether code of ``part`` that is reached from ``start`` jumps into the middle of ``bounds``."""
    with suppress(Rejected):
        blocks = discover(read, start, part).blocks.values()
        return any(bounds[0] < s < bounds[1] for b in blocks for s in b.successors)
    return False


def _may_jump(read: Callable[[int, int], bytes], part: tuple[int, int], bounds: tuple[int, int]) -> bool:
    """Whether bytes of ``part`` could be a jump into the middle of ``bounds``."""
    code = read(part[0], part[1] - part[0])
    distances = ((m.end(), int.from_bytes(code[m.end():m.end() + 4], "little", signed=True))
                 for m in _FAR_JUMP.finditer(code))
    return any(bounds[0] < part[0] + at + 4 + distance < bounds[1] for at, distance in distances)


def intervals(graph: FlowGraph) -> dict[int, tuple[int, int]]:
    """Nested intervals of the dominator tree: (number, highest number below)."""
    dominators = immediate_dominators(graph)
    below: dict[int, list[int]] = {block: [] for block in dominators}
    for block, above in dominators.items():
        if block != above:
            below[above].append(block)
    sizes = dict.fromkeys(dominators, 1)
    for block in reversed(dominators):  # a dominator comes before what it dominates
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
