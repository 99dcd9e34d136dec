"""Cold calls: a loop without the calls that it makes only in exceptional iterations.

Example: compilers turn ``y[i] = sqrt(x[i])`` into ``if (0 > x) call sqrt; else sqrtsd``, since a negative x sets errno.
The block with the call is left out of the flow graph, so that the branch to it looks like a loop exit.

In: a flow graph and one of its loops. Out: the loops of the graph without the blocks that call.
Symbolic execution accepts such an exit only when the hardware tells that the branch would have been taken
(memopt.lifting.execution.iteration). The version then rolls everything back, and the original runs.

By then the version has loaded and stored in later iterations, too. So such an exit must be none: the original calls a
mathematical function, comes back into the loop, and stores as often as the other way (``root_exits``). If a negative
number ends the loop, later cells may be somebody else's, or not be mapped at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from memopt.cfg.library_models import FUNCTIONS
from memopt.cfg.natural_loops import find_loops
from memopt.ir.graph import BasicBlock, DecodedInstruction, FlowGraph, Kind, Loop, LoopForest
from memopt.ir.operations import Block, Compute, Get, Store, Temp
from memopt.ir.reasons import Rejected

RETURNING = frozenset(("sqrt", "sqrtf", "fmax", "fmaxf", "fmin", "fminf", *FUNCTIONS))
"""Functions that a cold call may be to: they return, and change nothing but errno and exception flags."""


def calls_out(block: BasicBlock) -> bool:
    """Whether the block ends with a call of code that is not in the graph."""
    return block.kind is Kind.CALL and block.successors == (block.end,)


def without_cold_calls(graph: FlowGraph, loop: Loop) -> tuple[LoopForest, Loop] | None:
    """The loops of ``graph`` without the blocks of ``loop`` that call out, and the remaining loop with the same header.

    None when no such loop remains, or when the entry of the graph is one of these blocks.
    """
    calling = {b for b in loop.blocks if calls_out(graph.blocks[b])}
    kept = replace(graph, blocks={b: block for b, block in graph.blocks.items() if b not in calling})
    if graph.entry not in kept.blocks:
        return None
    reachable = _reachable(kept)
    forest = find_loops(replace(kept, blocks={b: block for b, block in kept.blocks.items() if b in reachable}))
    found = next((x for x in forest.loops if x.header == loop.header), None)
    return None if found is None else (forest, found)


def _reachable(graph: FlowGraph) -> set[int]:
    found, pending = {graph.entry}, [graph.entry]
    while pending:
        following = set(graph.successors(pending.pop())) - found
        found |= following
        pending += following
    return found


def root_exits(graph: FlowGraph, loop: Loop, operations: Callable[[int], Block],
               returns: Callable[[DecodedInstruction], bool]) -> frozenset[int]:
    """The addresses outside ``loop`` at which the program goes on for a number without a square root, and from which it
    comes back into the loop to finish the iteration.

    ``loop``: without its cold calls. ``operations``: the semantics of a block. ``returns``: whether a call is one of a
    function in ``RETURNING``. On the way there are no other calls. Compilers copy the end of the iteration behind the
    call, or jump back to it. Either way must store as often as the iteration that stays in the loop.
    """
    targets = {target for _, target in loop.exits}
    return frozenset(t for t in targets if all(
        _finishes(graph, loop, block, t, operations, returns) for block, target in loop.exits if target == t))


def _finishes(graph: FlowGraph, loop: Loop, block: int, target: int, operations: Callable[[int], Block],
              returns: Callable[[DecodedInstruction], bool]) -> bool:
    others = {t for _, t in loop.exits if t != target}
    aside, back = _until(graph, [target], loop.blocks | others)
    calls = [graph.blocks[b].instructions[-1] for b in aside if calls_out(graph.blocks[b])]
    if not calls or not back & loop.blocks or not all(map(returns, calls)):
        return False
    stay, _ = _until(graph, [s for s in graph.successors(block) if s in loop.blocks], back | aside | others)
    try:
        return _stores(map(operations, aside)) == _stores(map(operations, stay & loop.blocks))
    except Rejected:
        return False


def _until(graph: FlowGraph, starts: list[int], ends: Iterable[int]) -> tuple[set[int], set[int]]:
    """The blocks on the ways from ``starts`` up to ``ends``, and those of the ends that are reached."""
    found, reached, pending = set[int](), set[int](), list(starts)
    while pending:
        here = pending.pop()
        if here in ends:
            reached.add(here)
        elif here in graph.blocks and here not in found:
            found.add(here)
            pending += graph.successors(here)
    return found, reached


def _stores(blocks: Iterable[Block]) -> int:
    """The stores that are not to the stack at a known distance from rsp."""
    count = 0
    for block in blocks:
        stack = set[int]()
        for operation in block.operations:
            match operation:
                case Get(result=result, location="rsp"):
                    stack.add(result)
                case Compute(result=result, operator="add" | "sub", operands=(Temp(index), _)) if index in stack:
                    stack.add(result)
                case Store(pointer=pointer):
                    count += not (isinstance(pointer, Temp) and pointer.index in stack)
    return count
