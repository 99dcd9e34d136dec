"""Making room for a patch: the instructions at a loop header move, or the whole loop does.

Example: the patch, a five-byte jump, covers ``header: inc rax; body: mov ...``, and the loop branches back to ``body``.
That branch would land inside the patch.

In: the flow graph, a loop, the bounds of its mapping. Out: a ``Displacement``: which code moves. Usually the
instructions under the patch move, and the code behind them stays. If something branches to an instruction under the
patch, the whole loop moves, and its old bytes are never executed again; a thread that stands in them is moved along.
That requires that all such branches come from the loop itself and that the loop is entered at its header only.

An indirect jump might lead to an instruction under the patch as well (a switch into a loop, a computed goto), and the
function that jumps may not be known: a stripped program has no bounds of functions. If the patch covers one whole
instruction, none can. Else all text and data of the file are searched for tables and words that name an instruction
under the patch (memopt/x86/code_pointers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from memopt.ir.frozen import dataclass
from memopt.ir.graph import BasicBlock, DecodedInstruction, FlowGraph, Kind, Loop
from memopt.ir.reasons import Reason, Rejected
from memopt.x86.code_pointers import Part, Surroundings, named
from memopt.x86.relocate import (
    JUMP_SIZE,
    branches_into,
    displace,
    indirect_jumps,
    jump_targets_inside,
    relocate,
    relocate_blocks,
)

LARGEST_LOOP = 8192  # bytes of a loop that may be moved as a whole
ALONE = Surroundings()


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


def displacement(read: Callable[[int, int], bytes], graph: FlowGraph, loop: Loop, text: tuple[int, int],
                 around: Surroundings = ALONE) -> Displacement:
    """How to make room for a patch at the header of ``loop``.

    ``text``: the bounds of the mapping, which may hold branches to the header. Raises Rejected(NO_ROOM) with the branch
    or the address in the way, Rejected(INDIRECT_JUMP) for a jump that might lead there.
    """
    header = loop.header
    try:
        instructions = displace(read, header)
        size = sum(i.size for i in instructions)
        jump_targets_inside(graph, header, size)
    except Rejected as rejected:
        if rejected.reason is not Reason.NO_ROOM:
            raise
        return _whole_loop(read, graph, loop, text, around, rejected)
    inside = branches_into(read, text, header, size)
    if inside:
        raise Rejected(Reason.NO_ROOM, f"a branch at {inside[0]:#x} leads into the patch")
    _check_indirect(read, graph, text, around, {i.address for i in instructions[1:]})
    return Displacement(header, b"".join(i.bytes for i in instructions), instructions)


def _check_indirect(read: Callable[[int, int], bytes], graph: FlowGraph, text: tuple[int, int], around: Surroundings,
                    targets: Collection[int]) -> None:
    """Raise Rejected if an indirect jump might lead to one of ``targets``: INDIRECT_JUMP or NO_ROOM.

    Where the patch covers one whole instruction there are none, and any jumps will do.
    """
    if not targets:
        return
    indirect_jumps(graph, around.tables)
    for pad in around.pads.intersection(targets):
        raise Rejected(Reason.NO_ROOM, f"exceptions lead to {pad:#x}, under the patch")
    found = named(targets, Part(text[0], read(text[0], text[1] - text[0])), around.data(),
                  closed=around.closed, extent=around.extent)
    if found is not None:
        raise Rejected(Reason.NO_ROOM, f"{found:#x} holds the address of an instruction under the patch")


def _whole_loop(read: Callable[[int, int], bytes], graph: FlowGraph, loop: Loop, text: tuple[int, int],
                around: Surroundings, why: Rejected) -> Displacement:
    header = loop.header
    if any(graph.blocks[b].kind is Kind.CALL for b in loop.blocks):  # calls return to the old code
        raise why
    indirect_jumps(graph, ())
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
    _check_indirect(read, graph, text, around, own - {header})
    return Displacement(header, read(header, JUMP_SIZE), blocks=blocks)
