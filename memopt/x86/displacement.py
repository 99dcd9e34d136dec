"""Where the code under a patch goes: the instructions at a loop header, or the whole loop.

The patch is a five-byte jump at the header. Usually the instructions it covers move, and what follows them stays.
Where something branches to an instruction under the patch, all such branches must come from the loop itself, which must
be entered at its header only; then the whole loop moves, and its old bytes are never executed again (whoever stands in
them is moved along).
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

LARGEST_LOOP = 8192  # bytes of code that are moved


@dataclass(frozen=True, slots=True)
class Displacement:
    """``original``: the bytes at ``header`` that the patch covers, at least five. Of ``instructions`` and ``blocks``
    one is empty: what moves."""

    header: int
    original: bytes
    instructions: tuple[DecodedInstruction, ...] = ()
    blocks: tuple[BasicBlock, ...] = ()

    def code(self, address: int) -> bytes:
        """The moved code for ``address``, where it is entered; it falls through behind ``instructions``."""
        return relocate_blocks(self.blocks, address)[0] if self.blocks else relocate(self.instructions, address)

    def places(self, address: int) -> Mapping[int, int]:
        """Old to new address of every instruction, where whoever stands in the old ones has to move along."""
        return relocate_blocks(self.blocks, address)[1] if self.blocks else {}


def displacement(read: Callable[[int, int], bytes], graph: FlowGraph, loop: Loop,
                 text: tuple[int, int]) -> Displacement:
    """How to make room at the header of ``loop``; ``text`` bounds the mapping that may hold branches to it.

    Raises Rejected(NO_ROOM) with the branch in the way, INDIRECT_JUMP for a jump that might lead there.
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
    if any(graph.blocks[b].kind is Kind.CALL for b in loop.blocks):  # whoever is in there comes back to the old place
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
    for start, block in graph.blocks.items():  # a call that was left out of the loop comes back to its old place
        if start not in loop.blocks and any(s in loop.blocks and s != header for s in block.successors):
            raise why
    return Displacement(header, read(header, JUMP_SIZE), blocks=blocks)
