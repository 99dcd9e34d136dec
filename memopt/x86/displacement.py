"""Making room for a patch: the instructions at a loop header move, or the whole loop does.

Example: the patch, a five-byte jump, covers ``header: inc rax; body: mov ...``, and the loop branches back to ``body``.
That branch would land inside the patch.

In: the flow graph, a loop, the bounds of its mapping. Out: a ``Displacement``: which code moves. Usually the
instructions under the patch move, and the code behind them stays. If something branches to an instruction under the
patch, the whole loop moves, and its old bytes are never executed again; a thread that stands in them is moved along.
That requires that all such branches come from the loop itself and that the loop is entered at its header only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from memopt.ir.graph import BasicBlock, DecodedInstruction, FlowGraph, Kind, Loop
from memopt.ir.reasons import Reason, Rejected
from memopt.x86.relocate import (
    JUMP_SIZE,
    branches_into,
    displace,
    jump_targets_inside,
    relocate,
    relocate_blocks,
)

LARGEST_LOOP = 8192  # bytes of a loop that may be moved as a whole


@dataclass(frozen=True, slots=True)
class Displacement:
    """The code that moves to make room for a patch: either ``instructions`` or ``blocks``, the other is empty."""

    header: int
    original: bytes  # at the header, under the patch: at least five bytes
    instructions: tuple[DecodedInstruction, ...] = ()  # those under the patch
    blocks: tuple[BasicBlock, ...] = ()  # of the whole loop, the header first

    def code(self, address: int) -> bytes:
        """The moved code, for ``address``, where it is entered. Moved ``instructions`` fall through at their end."""
        return relocate_blocks(self.blocks, address)[0] if self.blocks else relocate(self.instructions, address)

    def places(self, address: int) -> Mapping[int, int]:
        """The new address of each moved instruction of a whole loop; a thread that stands in the loop must move along.

        Empty where only the instructions under the patch move.
        """
        return relocate_blocks(self.blocks, address)[1] if self.blocks else {}


def displacement(read: Callable[[int, int], bytes], graph: FlowGraph, loop: Loop,
                 text: tuple[int, int]) -> Displacement:
    """How to make room for a patch at the header of ``loop``.

    ``text``: the bounds of the mapping, which may hold branches to the header. Raises Rejected(NO_ROOM) with the branch
    in the way, Rejected(INDIRECT_JUMP) for a jump that might lead there.
    """
    header = loop.header
    try:
        instructions = displace(read, header)
        size = sum(i.size for i in instructions)
        jump_targets_inside(graph, header, size)
    except Rejected as rejected:
        if rejected.reason is not Reason.NO_ROOM:
            raise
        return _whole_loop(read, graph, loop, text, rejected)
    inside = branches_into(read, text, header, size)
    if inside:
        raise Rejected(Reason.NO_ROOM, f"a branch at {inside[0]:#x} leads into the patch")
    return Displacement(header, b"".join(i.bytes for i in instructions), instructions)


def _whole_loop(read: Callable[[int, int], bytes], graph: FlowGraph, loop: Loop, text: tuple[int, int],
                why: Rejected) -> Displacement:
    header = loop.header
    if any(graph.blocks[b].kind is Kind.CALL for b in loop.blocks):  # calls return to the old code
        raise why
    jump_targets_inside(graph, header, 1)  # no indirect jumps
    blocks = (graph.blocks[header], *(graph.blocks[b] for b in sorted(loop.blocks - {header})))
    if sum(b.end - b.start for b in blocks) > LARGEST_LOOP:
        raise why
    if not all(any(b.start <= at < b.end for b in blocks) for at in range(header, header + JUMP_SIZE)):
        raise why
    own = {i.address for b in blocks for i in b.instructions}
    outside = [a for a in branches_into(read, text, header, JUMP_SIZE) if a not in own]
    if outside:
        raise Rejected(Reason.NO_ROOM, f"a branch at {outside[0]:#x} leads into the patch")
    for start, block in graph.blocks.items():  # a cold call, no block of the loop, returns to the old code
        if start not in loop.blocks and any(s in loop.blocks and s != header for s in block.successors):
            raise why
    return Displacement(header, read(header, JUMP_SIZE), blocks=blocks)
