"""Static structure of the functions of a file: basic blocks, edges, dominator tree, loop nesting. Nothing is run.

Edges include those through jump tables (switches), to landing pads (exceptions that are caught) and to cold parts that
compilers place elsewhere (``f.cold``). There is no edge behind a call that does not return.

In: an ELF image, its function symbols. Out: a ``FunctionStructure`` for each function. Addresses are link-time.
Invariant: a function that cannot be described is left out, and the others are not affected, whatever the file holds.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from memopt.cfg.dominators import immediate_dominators
from memopt.cfg.flowgraph import NOWHERE, Decoded, discover
from memopt.cfg.jump_tables import switches
from memopt.cfg.loop_nesting import Nesting, find_nesting
from memopt.cfg.noreturn import NoReturn, does_not_return, slot_of
from memopt.elf.image import ElfError, Image
from memopt.elf.landing import LandingPad, landing_pads
from memopt.elf.relocations import slots
from memopt.elf.symbols import Function, Symbols, function_among
from memopt.ir.frozen import dataclass
from memopt.ir.graph import FlowGraph, Kind
from memopt.ir.reasons import Rejected

_FAR_JUMP = re.compile(rb"\xe9|\x0f[\x80-\x8f]")  # jmp and jcc with a displacement of 32 bits
_ROUNDS = 8  # of discovery: code behind a switch may hold further switches


@dataclass(frozen=True, slots=True)
class FunctionStructure:
    """Control-flow graph, dominator tree and loops of one function."""

    function: Function
    graph: FlowGraph
    # by block: an interval; a block dominates the blocks whose intervals lie in its own
    dominance: Mapping[int, tuple[int, int]]
    nesting: Nesting
    # by the address of a call: the name of the function of another file that it calls
    symbols: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The code around a function: other functions, landing pads, calls that do not return."""

    functions: Sequence[Function]  # sorted by address
    pads: Callable[[int], Sequence[LandingPad]]  # the landing pads of the function that starts at an address
    endings: NoReturn


def structures(image: Image, functions: Iterable[Function]) -> Iterator[FunctionStructure]:
    """The structure of each of ``functions`` of ``image`` whose first bytes decode.

    Ends early where the image cannot be read (ElfError).
    """

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
    """The structure of ``function``; None where its first bytes do not decode or it is too large (``discover``).

    ``names``: the symbol that the dynamic linker resolves each slot to, by the address of the slot.
    """
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
    """The control-flow graph of the function from ``start``, through its switches where their tables are found.

    With ``around``: also through landing pads and into cold parts that lie elsewhere, and without the code that only
    seems to follow a call that does not return. Each can uncover more of the others, so discovery is repeated until
    nothing changes. Raises as ``discover``.
    """
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
    """The landing pads of calls that may throw, by the address of the call."""
    calls = [b.instructions[-1].address for b in graph.blocks.values() if b.kind is Kind.CALL] if pads else []
    found = {call: tuple(pad.start for pad in pads if call in pad.calls) for call in calls}
    return {call: to for call, to in found.items() if to}


def _parts(graph: FlowGraph, read: Callable[[int, int], bytes], bounds: tuple[int, int], functions: Sequence[Function],
           known: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """New parts of the function that lie elsewhere: jump targets outside the graph that belong to it.

    A part has ".cold" in its name (GCC, LLVM), or it has no name and jumps back into the middle of the function from
    where the function has jumped to.
    """
    outside = {s for b in graph.blocks.values() for s in b.successors if s not in graph.blocks}
    reached: dict[tuple[int, int], list[int]] = {}  # by part: where the function jumps to
    named: set[tuple[int, int]] = set()
    for target in sorted(outside):
        found = function_among(functions, target)
        if found is None or (found.name and ".cold" not in found.name):
            continue
        part = found.start, found.end
        if part not in known and found.start not in range(*bounds):
            reached.setdefault(part, []).append(target)
            named |= {part} if found.name else set()
    for part, targets in reached.items():
        if part in named or (_may_jump(read, part, bounds) and any(_jumps(read, t, part, bounds) for t in targets)):
            yield part


def _jumps(read: Callable[[int, int], bytes], start: int, part: tuple[int, int], bounds: tuple[int, int]) -> bool:
    """Whether the code of ``part`` that is reachable from ``start`` jumps into the middle of ``bounds``."""
    with suppress(Rejected):
        blocks = discover(read, start, part).blocks.values()
        return any(bounds[0] < s < bounds[1] for b in blocks for s in b.successors)
    return False


def _may_jump(read: Callable[[int, int], bytes], part: tuple[int, int], bounds: tuple[int, int]) -> bool:
    """Whether any bytes of ``part`` read as a jump into the middle of ``bounds``: a quick test before ``_jumps``."""
    code = read(part[0], part[1] - part[0])
    distances = ((m.end(), int.from_bytes(code[m.end():m.end() + 4], "little", signed=True))
                 for m in _FAR_JUMP.finditer(code))
    return any(bounds[0] < part[0] + at + 4 + distance < bounds[1] for at, distance in distances)


def intervals(graph: FlowGraph) -> dict[int, tuple[int, int]]:
    """For each block (its preorder number in the dominator tree, the highest number in its subtree)."""
    dominators = immediate_dominators(graph)
    below: dict[int, list[int]] = {block: [] for block in dominators}
    for block, above in dominators.items():
        if block != above:
            below[above].append(block)
    sizes = dict.fromkeys(dominators, 1)
    for block in reversed(dominators):  # each block before its immediate dominator
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
