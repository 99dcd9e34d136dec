"""Control-flow graphs from the bytes of a running program, by recursive traversal from a hot address.

Recursive traversal decodes a basic block and then the blocks it jumps or falls through to. Example: ``test eax, eax;
jne A; B: ...`` ends a block with the successors B and A.

In: a function that reads code, a start address, the bounds of the function. Out: a ``FlowGraph``.
An indirect jump ends the traversal, unless the caller knows its targets. That is sound for a version that is entered
at a loop header: all code that can run from there on is in the graph or is reached by an edge that leaves the graph.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from memopt.cfg.natural_loops import find_loops
from memopt.ir.graph import BasicBlock, DecodedInstruction, FlowGraph, Kind
from memopt.ir.reasons import Reason, Rejected
from memopt.x86.decoder import decode

Read = Callable[[int, int], bytes]  # (address, size) -> at most size bytes, fewer where the mapping ends

NOWHERE: Mapping[int, tuple[int, ...]] = MappingProxyType({})

_MOST_INSTRUCTIONS = 50_000
_CHUNK = 256
_LOOK_BACK = 64


class Decoded:
    """Decoded instructions by address: a cache for several traversals of the same bytes."""

    def __init__(self) -> None:
        self.known: dict[int, DecodedInstruction] = {}
        self._starts: list[int] = []  # start addresses of the pieces decoded so far, sorted

    def at(self, address: int, end: int, read: Read) -> DecodedInstruction | None:
        """Decodes the instruction at ``address`` and those behind it, from the bytes below ``end``.

        Precondition: the one at ``address`` is not known yet. None where its bytes do not decode.
        """
        size = min(_CHUNK, end - address)
        index = bisect.bisect_right(self._starts, address)
        following = self._starts[index] if index < len(self._starts) else end
        self._starts.insert(index, address)
        for piece in (min(size, following - address), size):  # up to the next known piece; further if they overlap
            for instruction in decode(read(address, piece), address):
                self.known.setdefault(instruction.address, instruction)
            if address in self.known:
                break
        return self.known.get(address)


def discover(read: Read, start: int, bounds: tuple[int, int], leads: Mapping[int, tuple[int, ...]] = NOWHERE,
             decoded: Decoded | None = None, parts: Sequence[tuple[int, int]] = (),
             last: Collection[int] = ()) -> FlowGraph:
    """The graph of the code reachable from ``start`` by direct jumps and by falling through.

    Only code inside ``bounds`` and ``parts`` is followed; each is (first address, first address after it).
    ``leads``: known targets of indirect jumps, and the landing pads of calls that throw, by the address of the jump or
    call. ``last``: addresses of calls that do not return. ``decoded``: the cache of instructions of these bytes.
    Raises Rejected(UNSUPPORTED_INSTRUCTION) when the bytes at ``start`` do not decode, Rejected(NOT_A_NEST) when there
    are too many instructions for one function.
    """
    known: dict[int, DecodedInstruction] = {}
    decoded = Decoded() if decoded is None else decoded
    leaders, pending = {start}, [start]
    successors: dict[int, tuple[int, ...]] = {}  # by the address of the instruction that ends a block
    extents = (bounds, *parts)
    while pending:
        address = pending.pop()
        end = next((high for low, high in extents if low <= address < high), bounds[1])
        while address not in known:  # to the end of the basic block, or to code that another path has reached
            found = decoded.known.get(address) or decoded.at(address, end, read) if address < end else None
            if found is None:
                break
            known[address] = found
            if len(known) > _MOST_INSTRUCTIONS:
                raise Rejected(Reason.NOT_A_NEST, f"more than {_MOST_INSTRUCTIONS} instructions follow {start:#x}")
            address += found.size
            if found.kind.ends_block:
                successors[found.address] = _successors(found, leads, last)
                for target in successors[found.address]:
                    if target not in leaders and any(low <= target < high for low, high in extents):
                        leaders.add(target)
                        pending.append(target)
                break
            if found.repeats:
                leaders |= {found.address, address}
    blocks = {leader: _block(known, leader, leaders, successors) for leader in sorted(leaders) if leader in known}
    if start not in blocks:
        raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"the bytes at {start:#x} do not decode")
    return FlowGraph(start, blocks)


def _successors(last: DecodedInstruction, leads: Mapping[int, tuple[int, ...]], final: Collection[int]
                ) -> tuple[int, ...]:
    address, size, _, _, kind, target, _ = last
    if kind is Kind.INDIRECT:
        return leads.get(address, ())
    result: tuple[int, ...] = (address + size,) if kind.falls_through and address not in final else ()
    if kind is Kind.CALL:
        return result + tuple(pad for pad in leads.get(address, ()) if pad not in result)
    return result if target is None or target in result else (*result, target)


def _block(known: dict[int, DecodedInstruction], start: int, leaders: set[int],
           successors: Mapping[int, tuple[int, ...]]) -> BasicBlock:
    last = known[start]
    instructions, end = [last], start + last.size
    while not last.kind.ends_block and end not in leaders and end in known:
        last = known[end]
        instructions.append(last)
        end += last.size
    leads_to = successors.get(last.address, (end,))
    if last.repeats:
        leads_to = end, last.address
    return BasicBlock(start, end, tuple(instructions), leads_to)


def function_containing(address: int, ranges: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """The smallest of the half-open ranges (symbols, unwind entries) that holds ``address``; None if none does."""
    around = [r for r in ranges if r[0] <= address < r[1]]
    return min(around, key=lambda r: r[1] - r[0], default=None)


def flow_around(
    read: Read, address: int, bounds: tuple[int, int], ranges: Iterable[tuple[int, int]] = ()
) -> FlowGraph:
    """The control-flow graph with the loops around the hot ``address``.

    ``bounds``: the executable mapping. ``ranges``: the known extents of functions. The graph starts at the function's
    entry. If the function is not known, or reaches ``address`` only by an indirect jump, it starts at the best guess
    at the outermost loop's header (at ``address`` itself when that is in no cycle). Raises as ``discover``.
    """
    function = function_containing(address, ranges)
    if function is not None:
        graph = discover(read, function[0], function)
        if graph.block_at(address) is not None:
            return graph
    return _graph_of_cycle(read, address, function or bounds)


# -- the fallback --------------------------------------------------------------------------------------------------


def _graph_of_cycle(read: Read, address: int, bounds: tuple[int, int]) -> FlowGraph:
    """The graph from the guessed header of the outermost cycle around ``address``.

    The traversal starts at ``address``; the blocks from which it is reached again form the cycle. The header is the
    block where the cycle is entered, but the entering edge cannot be seen from inside. First guess: the target of a
    jump right in front of the cycle's first block (``jmp test; body: ...; test: ...``). Next: the first block, entered
    by falling through, and so on. A guess that makes the cycle irreducible is dropped. A wrong guess is safe: control
    comes back to every block of a cycle.
    """
    graph = discover(read, address, bounds)
    cycle = _component(graph, address)
    if not cycle:
        return graph
    guesses = sorted(cycle)
    entered = _jump_before(read, min(cycle), bounds)
    block = None if entered is None else graph.block_at(entered)
    if entered is not None and block is not None and block.start in cycle:
        guesses.insert(0, entered)
    fallback = None
    for guess in guesses:
        candidate = discover(read, guess, bounds)
        hot = candidate.block_at(address)
        if hot is None:
            continue
        fallback = fallback or candidate
        around = _component(candidate, hot.start)
        if not any({source, target} <= around for source, target in find_loops(candidate).irreducible):
            return candidate
    return fallback or graph


def _component(graph: FlowGraph, start: int) -> frozenset[int]:
    """Blocks on a cycle with ``start``; empty when there is none."""
    predecessors = graph.predecessors
    found: set[int] = set()
    pending = list(predecessors[start])
    while pending:
        block = pending.pop()
        if block not in found:
            found.add(block)
            pending += predecessors[block]
    return frozenset(found)


def _jump_before(read: Read, first: int, bounds: tuple[int, int]) -> int | None:
    """The target of an unconditional jump that ends at ``first``; nops between the two are skipped.

    It is not known where the instructions in front of ``first`` start. Every start is tried, and the majority decides:
    x86 code decoded from a wrong start falls into step after a few instructions.
    """
    low = max(bounds[0], first - _LOOK_BACK)
    code = read(low, first - low)
    votes: Counter[DecodedInstruction] = Counter()
    for offset in range(len(code)):
        instructions = list(decode(code[offset:], low + offset))
        if not instructions or instructions[-1].end != first:
            continue
        while instructions and instructions[-1].mnemonic == "nop":
            instructions.pop()
        votes.update(instructions[-1:])
    last = max(votes, key=lambda instruction: votes[instruction], default=None)
    return last.target if last and last.kind is Kind.JUMP else None
