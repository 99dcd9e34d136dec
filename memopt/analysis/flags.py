"""Are the flags dead at a loop header, so that a guard may use them before it has saved anything?"""

from __future__ import annotations

from collections.abc import Callable

from memopt.ir.graph import FlowGraph
from memopt.ir.operations import Block, Get, Put

_FLAGS = frozenset({"cc_op", "cc_dep1", "cc_dep2", "cc_ndep"})


def flags_dead(graph: FlowGraph, operations: Callable[[int], Block], header: int) -> bool:
    """Whether every path from ``header`` sets the flags before it reads one; a path that is not known reads them.

    The direction flag and the system flags do not count: no guard changes them.
    """
    pending, seen = [header], {header}
    while pending:
        start = pending.pop()
        if start not in graph.blocks:
            return False
        first = next((o for o in operations(start).operations
                      if isinstance(o, Get | Put) and o.location in _FLAGS), None)
        if isinstance(first, Get):
            return False
        if first is None:
            successors = graph.blocks[start].successors
            if not successors:
                return False
            pending += [s for s in successors if s not in seen]
            seen.update(successors)
    return True
