"""Loops whose iterations exchange registers: ``swap(a, b)`` at the end of each sweep over two buffers.

What a register holds is then no number of the iteration, but it is one again after as many iterations as the exchange
takes to come round. So the loop is looked at with that many of its iterations as one: copies of its blocks follow each
other in the flow graph. A region counts those rounds; the guard's exact division lets in entries that whole rounds end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from memopt.cfg.inlining import COPY
from memopt.cfg.natural_loops import find_loops
from memopt.ir.graph import BasicBlock, FlowGraph, Loop, LoopForest
from memopt.ir.operations import Block, Exit, Jump, Operation

COPY_DISTANCE = COPY << 8  # between copies: further than those of called functions


def unrolled(graph: FlowGraph, lift: Callable[[int], Block], loop: Loop, times: int) -> (
        tuple[FlowGraph, LoopForest, Callable[[int], Block], Loop] | None):
    """The graph with ``times`` iterations of ``loop`` as one, its loops, the operations of its blocks, and the loop;
    None where that is no natural loop."""
    def target(number: int, address: int) -> int:
        if address == loop.header:
            number = (number + 1) % times
        return address + number * COPY_DISTANCE if address in loop.blocks else address

    def copied(address: int) -> Block:
        number, origin = divmod(address, COPY_DISTANCE)
        block = lift(origin)
        if origin not in loop.blocks:
            return block
        return replace(block, address=address, operations=tuple(
            led(number, replace(o, address=o.address + number * COPY_DISTANCE)) for o in block.operations))

    def led(number: int, operation: Operation) -> Operation:
        match operation:
            case Exit(target=address) | Jump(target=int(address)):
                return replace(operation, target=target(number, address))
        return operation

    blocks: dict[int, BasicBlock] = dict(graph.blocks)
    for number in range(times):
        for start in loop.blocks:
            block = graph.blocks[start]
            blocks[start + number * COPY_DISTANCE] = block._replace(
                start=block.start + number * COPY_DISTANCE, end=block.end + number * COPY_DISTANCE,
                successors=tuple(target(number, s) for s in block.successors))
    longer = replace(graph, blocks=dict(sorted(blocks.items())))
    forest = find_loops(longer)
    found = next((x for x in forest.loops if x.header == loop.header), None)
    return None if found is None else (longer, forest, copied, found)
