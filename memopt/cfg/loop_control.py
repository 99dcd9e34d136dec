"""The branches that control a loop: its exit tests, the jumps back to its header, and the test in front of it.

Example: of ``for (i = 0; i < n; i++) for (j = 0; j < m; j++) ...`` the branch on ``i < n`` belongs to the outer loop.
The debug information of these branches names the source line of the loop (memopt.elf.lines); that of the header may
name anything that the compiler has moved there.

In: a loop and the graph it is in. Out: addresses of branches.
"""

from __future__ import annotations

from collections.abc import Sequence

from memopt.ir.graph import Control, FlowGraph, Kind, Loop

_JUMPS = (Kind.JUMP, Kind.CONDITIONAL, Kind.INDIRECT)


def loop_control(graph: FlowGraph, loops: Sequence[Loop], loop: Loop) -> Control:
    """The branches that control ``loop``, one of ``loops`` of ``graph``.

    Those in an inner loop belong to that one; they count only where the loop has no others."""
    blocks = graph.blocks
    inside = {block for child in loop.children for block in loops[child].blocks}
    sources = [block for block, _ in (*loop.back_edges, *loop.exits) if block in blocks]
    sources = [b for b in sources if blocks[b].kind in _JUMPS or blocks[b].repeats] or sources
    own = [block for block in sources if block not in inside]
    out = {target for _, target in loop.exits}
    before = [b for b in graph.predecessors[loop.header] if b not in loop.blocks]
    while len(before) == 1 and blocks[before[0]].kind is not Kind.CONDITIONAL:
        before = list(graph.predecessors[before[0]])
    guards = [b for b in before if blocks[b].kind is Kind.CONDITIONAL and not out.isdisjoint(blocks[b].successors)]
    return Control(*(tuple(dict.fromkeys(blocks[b].instructions[-1].address for b in found))
                     for found in (own or sources, guards)))
