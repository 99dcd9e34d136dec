"""Registers and flags that are dead at a loop header: every path from there writes them before it reads them.

Example: in ``header: mov rbx, rcx; add rax, rbx; jne header`` the register rbx is dead at the header, rax is not.
The value of a dead register at the header does not matter: a version need not restore it, and a guard may use dead
flags before it has saved anything.

In: the flow graph, the operations of its blocks, the header. Out: the dead ones among the locations asked for. A path
that is not known (a call, a jump out of the function, code that is not understood) counts as one that reads everything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from memopt.cfg.cold_calls import calls_out
from memopt.ir.graph import BasicBlock, DecodedInstruction, FlowGraph, Kind
from memopt.ir.operations import Block, Get, Put
from memopt.ir.reasons import Rejected
from memopt.x86.semantics import lift_block

_FLAGS = frozenset({"cc_op", "cc_dep1", "cc_dep2", "cc_ndep"})


def dead_registers(graph: FlowGraph, operations: Callable[[int], Block], header: int,
                   locations: Iterable[str]) -> frozenset[str]:
    """Those of ``locations`` (registers, and lanes of vector registers) that are dead at ``header``."""
    first_uses = functools.cache(lambda start: _first_uses(operations, start))

    def dead(location: str) -> bool:
        return _dead(graph, header, lambda start: first_uses(start).get(location), stop=calls_out)

    try:
        return frozenset(filter(dead, locations))
    except Rejected:
        return frozenset()


def flags_dead(graph: FlowGraph, header: int) -> bool:
    """Whether the arithmetic flags are dead at ``header``.

    The carry flag is asked for apart from the other five: ``inc`` and ``dec`` leave it as it is, and neither read nor
    write it. The direction flag and the system flags do not count: no guard changes them. No calling convention passes
    flags, so a path goes on behind a call.
    """
    return all(_dead(graph, header, functools.partial(_first_flag_use, graph, flag))
               for flag in (_CARRY, _OTHERS))


_CARRY, _OTHERS = "carry", "the other five"
_CARRY_CONDITIONS = frozenset(("b", "c", "nae", "ae", "nb", "nc", "be", "na", "a", "nbe"))
_OTHER_CONDITIONS = frozenset((
    "e", "z", "ne", "nz", "s", "ns", "p", "pe", "np", "po", "o", "no", "l", "nge", "ge", "nl", "le", "ng", "g", "nle"))


def _first_flag_use(graph: FlowGraph, flag: str, start: int) -> bool | None:
    """Whether the block writes ``flag`` before it reads it (``_dead``)."""
    for instruction in graph.blocks[start].instructions:
        reads, writes = _flag_use(instruction)
        if flag in reads:
            return False
        if flag in writes:
            return True
    return None


def _flag_use(instruction: DecodedInstruction) -> tuple[frozenset[str], frozenset[str]]:
    """The flags that ``instruction`` reads, and those that it writes whatever its operands are."""
    none, both = frozenset[str](), frozenset((_CARRY, _OTHERS))
    name = instruction.mnemonic
    if name in ("inc", "dec"):
        return none, frozenset((_OTHERS,))
    if instruction.kind in (Kind.CALL, Kind.RETURN, Kind.JUMP, Kind.INDIRECT):
        return none, none
    condition = next((name.removeprefix(p) for p in ("cmov", "set", "j") if name.startswith(p)), "")
    if condition in _OTHER_CONDITIONS:
        return frozenset((_OTHERS,)), none
    if condition in _CARRY_CONDITIONS:
        return both, none
    try:
        accesses = [o for o in lift_block(instruction.bytes, instruction.address).operations
                    if isinstance(o, Get | Put) and o.location in _FLAGS]
    except Rejected:
        return both, none
    return (both if any(isinstance(o, Get) for o in accesses) else none,
            both if any(isinstance(o, Put) for o in accesses) else none)


def _dead(graph: FlowGraph, header: int, writes: Callable[[int], bool | None],
          stop: Callable[[BasicBlock], bool] | None = None) -> bool:
    """Whether every path from ``header`` comes to a block that writes before any block that reads.

    ``writes(start)`` says of the block at ``start``: True, it writes before it reads; False, it reads first; None, it
    does neither. A path that reaches a block with ``stop(block)`` undecided counts as one that reads.
    """
    pending, seen = [header], {header}
    while pending:
        start = pending.pop()
        if start not in graph.blocks:
            return False
        first = writes(start)
        if first:
            continue
        successors = graph.blocks[start].successors
        if first is not None or not successors or (stop and stop(graph.blocks[start])):
            return False
        pending += [s for s in successors if s not in seen]
        seen.update(successors)
    return True


def _first_uses(operations: Callable[[int], Block], start: int) -> dict[str, bool]:
    """For each location that the block at ``start`` accesses: True if its first access is a write."""
    found: dict[str, bool] = {}
    for operation in operations(start).operations:
        if isinstance(operation, Get | Put):
            found.setdefault(operation.location, isinstance(operation, Put))
    return found
