"""Inlining in the flow graph: each call in a loop gets a copy of the called function's blocks.

Example: for ``for (...) y[i] = f(x[i]);`` the call of f leads into a copy of f's blocks, and the copy's ``ret`` leads
to the block behind the call.

In: a flow graph, the blocks to look at, a function that finds callees. Out: the graph with the copies, and a
``CallLinkage`` that gives the operations of its blocks. Copies have addresses that no process can use: the original
address plus a multiple of ``COPY``.
Nothing is assumed about the function: the return address is still stored and loaded, and a copy goes on behind its call
only where the loaded address is proved to be that one. The C library's functions that copy or fill memory are
represented by models in place of their code (memopt.cfg.library_models).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from memopt.ir.frozen import dataclass
from memopt.ir.graph import BasicBlock, DecodedInstruction, FlowGraph, Kind
from memopt.ir.operations import Block, Compute, Exit, Jump, Literal, Operation, Temp

if TYPE_CHECKING:
    from memopt.cfg.library_models import LibraryFunction

    Callee = FlowGraph | LibraryFunction

COPY = 1 << 48  # no address of a process is that large
_MOST_CALLS = 64
_MOST_INSTRUCTIONS = 256  # in a called function


@dataclass(frozen=True, slots=True)
class CallLinkage:
    """How inlined calls and returns are connected, by the addresses of blocks."""

    calls: Mapping[int, int] = field(default_factory=dict)  # a block that calls -> the first block of the copy
    returns: Mapping[int, int] = field(default_factory=dict)  # a block that returns -> the block behind the call
    models: Mapping[int, Block] = field(default_factory=dict)  # a block that models library code -> its operations

    def block(self, address: int, lifted: Callable[[int], Block]) -> Block:
        """The operations of the block at ``address`` of the new graph; ``lifted`` gives those of original blocks."""
        model = self.models.get(address)
        if model is not None:
            return model
        origin = lifted(address % COPY)
        block = _moved(origin, address - origin.address)
        last = block.operations[-1]
        assert isinstance(last, Jump)
        if address in self.calls:
            entered = Jump(last.address, self.calls[address], "boring")
            return replace(block, operations=(*block.operations[:-1], entered))
        if address in self.returns and isinstance(last.target, Temp):
            behind, known = self.returns[address], Temp(block.temporaries)
            same = Compute(last.address, known.index, "eq", (last.target, Literal(behind % COPY, 64)), 1)
            operations = (*block.operations[:-1], same, Exit(last.address, known, behind), last)
            return replace(block, operations=operations, temporaries=block.temporaries + 1)
        return block


def _moved(block: Block, distance: int) -> Block:
    return replace(block, operations=tuple(_placed(o, distance) for o in block.operations)) if distance else block


def _placed(operation: Operation, distance: int) -> Operation:
    here = replace(operation, address=operation.address + distance)
    match here:
        case Exit(target=target) | Jump(target=int(target), kind="boring" | "fallthrough"):
            return replace(here, target=target + distance)
    return here


def inlined(graph: FlowGraph, blocks: frozenset[int], callee: Callable[[DecodedInstruction], Callee | None]) -> (
        tuple[FlowGraph, CallLinkage]):
    """``graph`` with copies of the functions that the calls in ``blocks`` and in these copies call.

    ``callee`` gives the function that a call instruction calls; where that is None the call stays. At most 64 calls.
    """
    found = dict(graph.blocks)
    calls: dict[int, int] = {}
    returns: dict[int, int] = {}
    models: dict[int, Block] = {}
    pending = [b for b in sorted(blocks) if found[b].kind is Kind.CALL]
    for number in range(1, _MOST_CALLS + 1):
        if not pending:
            break
        start = pending.pop(0)
        block = found[start]
        called = callee(block.instructions[-1])
        if called is None:
            continue
        if not isinstance(called, FlowGraph):
            from memopt.cfg.library_models import model

            copies = model(called, number * COPY, block.end)
            models |= copies
            found |= {a: _standing_for(called, a, b) for a, b in copies.items()}
            entry = min(copies)
        else:
            added = {a + number * COPY: _copied(b, number * COPY) for a, b in called.blocks.items()}
            for copy in (a for a, b in added.items() if b.kind is Kind.RETURN):
                added[copy] = added[copy]._replace(successors=(block.end,))
                returns[copy] = block.end
            pending += [a for a, b in added.items() if b.kind is Kind.CALL]
            found |= added
            entry = called.entry + number * COPY
        found[start] = block._replace(successors=(entry,))
        calls[start] = entry
    return replace(graph, blocks=dict(sorted(found.items()))), CallLinkage(calls, returns, models)


def _copied(block: BasicBlock, distance: int) -> BasicBlock:
    return block._replace(start=block.start + distance, end=block.end + distance,
                          successors=tuple(s + distance for s in block.successors))


def _standing_for(routine: LibraryFunction, address: int, block: Block) -> BasicBlock:
    targets = [o.target for o in block.operations if isinstance(o, Exit | Jump) and isinstance(o.target, int)]
    instruction = DecodedInstruction(address, 0, routine.name, "", Kind.JUMP, None, b"")
    return BasicBlock(address, address, (instruction,), tuple(dict.fromkeys(targets)))


def is_small(function: FlowGraph) -> bool:
    """Whether the function can be inlined: it has at most 256 instructions, all its code is known, and it returns."""
    blocks = function.blocks.values()
    return (sum(len(b.instructions) for b in blocks) <= _MOST_INSTRUCTIONS
            and all(b.kind not in (Kind.INDIRECT, Kind.TRAP) for b in blocks)
            and any(b.kind is Kind.RETURN for b in blocks)
            and all(s in function.blocks for b in blocks for s in b.successors))
