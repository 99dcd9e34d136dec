"""Unrolling of loops whose iterations exchange buffers, as ``swap(a, b)`` at the end of each sweep over two buffers.

Example: ``for (t...) { sweep(a, b); swap(a, b); }``. The register of ``a`` alternates between two values, so it is not
affine in t. In the loop unrolled by two it holds the same value at each header.

In: a flow graph, a loop, the period of the exchange. Out: the graph in which copies of the loop's blocks follow each
other. R then counts groups of ``period`` iterations. The guard's exact division lets a version run only if the trip
count is a multiple of the period.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from memopt.cfg.inlining import COPY
from memopt.cfg.natural_loops import find_loops
from memopt.ir.graph import BasicBlock, FlowGraph, Loop, LoopForest
from memopt.ir.operations import Block, Exit, Jump, Operation

COPY_DISTANCE = COPY << 8  # between copies: larger than any distance of an inlined function (memopt.cfg.inlining)


def unrolled(graph: FlowGraph, lift: Callable[[int], Block], loop: Loop, times: int) -> (
        tuple[FlowGraph, LoopForest, Callable[[int], Block], Loop] | None):
    """``graph`` with ``loop`` unrolled ``times`` times: the graph, its loops, the operations of its blocks, the loop.

    None where the unrolled loop is no natural loop.
    """
    def target(number: int, address: int) -> int:
        """Where a jump to ``address`` leads in copy ``number``: in the same copy, at the header to the next one."""
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
