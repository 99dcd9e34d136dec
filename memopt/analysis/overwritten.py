"""Registers that are dead at a loop header: every path from there overwrites them before it reads them.

What such a register holds at the header for iteration H is of no concern, whichever iterations the original runs itself
and by whichever exit it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from memopt.analysis.asides import calls_out
from memopt.ir.graph import FlowGraph
from memopt.ir.operations import Block, Get, Put
from memopt.ir.reasons import Rejected


def overwritten(graph: FlowGraph, operations: Callable[[int], Block], header: int,
                locations: Iterable[str]) -> frozenset[str]:
    """Those of ``locations`` (registers, and lanes of them) that are dead at ``header``. Paths that are not known read
    everything: those through calls, out of the function, and through what is not understood."""
    first: dict[int, dict[str, bool]] = {}

    def dead(location: str) -> bool:
        pending, seen = [header], {header}
        while pending:
            start = pending.pop()
            if start not in graph.blocks:
                return False
            if start not in first:
                first[start] = _first_uses(operations, start)
            writes = first[start].get(location)
            if writes:
                continue
            successors = graph.blocks[start].successors
            if writes is not None or not successors or calls_out(graph.blocks[start]):
                return False
            pending += [s for s in successors if s not in seen]
            seen.update(successors)
        return True

    try:
        return frozenset(location for location in locations if dead(location))
    except Rejected:
        return frozenset()


def _first_uses(operations: Callable[[int], Block], start: int) -> dict[str, bool]:
    """For each location that the block at ``start`` touches, whether it writes it first."""
    found: dict[str, bool] = {}
    for operation in operations(start).operations:
        if isinstance(operation, Get | Put):
            found.setdefault(operation.location, isinstance(operation, Put))
    return found
