"""The registers that a called function reads as its arguments, and those that it may write.

Example: ``static void row(int r)`` reads edi, and no xmm register. GCC keeps values in any register that it sees a
called function leave alone (-fipa-ra), so the calling convention alone does not tell.

In: the flow graphs of functions and which of them each call has called. Out: a ``Callee`` for each call. Nothing is
known of a function that is not among them: it reads and writes what the System V ABI allows (AMD64 supplement, 3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from memopt.ir.frozen import dataclass
from memopt.ir.graph import FlowGraph, Kind
from memopt.ir.operations import Block, Get, Put


def _lanes(*registers: int) -> frozenset[str]:
    return frozenset(f"xmm{number}.{lane}" for number in registers for lane in range(4))


ARGUMENTS = frozenset(("rdi", "rsi", "rdx", "rcx", "r8", "r9")) | _lanes(*range(8))
RESULTS = frozenset(("rax", "rdx")) | _lanes(0, 1)
KEPT = frozenset(("rbx", "rbp", "rsp", "r12", "r13", "r14", "r15"))
CHANGED = ARGUMENTS | RESULTS | _lanes(*range(16)) | {"r10", "r11", "cc_op", "cc_dep1", "cc_dep2", "cc_ndep"}


@dataclass(frozen=True, slots=True)
class Callee:
    """The locations that a call reads and writes."""

    reads: frozenset[str] = ARGUMENTS
    writes: frozenset[str] = CHANGED


NOT_KNOWN = Callee()
Pieces = Mapping[int, tuple[Block | None, ...]]


@dataclass(frozen=True, slots=True)
class Code:
    """A function: its flow graph, the operations of its blocks, and what its calls have called (None: not known)."""

    graph: FlowGraph
    pieces: Pieces
    called: Callable[[int], Collection[int] | None]  # by the address of the call: the entries of functions


class Callees:
    """What functions read and write. ``code``: the function with this entry; None where it is not known."""

    def __init__(self, code: Callable[[int], Code | None]) -> None:
        self._code = code
        self._known: dict[int, Callee] = {}

    def of_call(self, code: Code, call: int) -> Callee:
        """What the call at ``call`` in ``code`` reads and writes: all that any function does that it has called."""
        entries = code.called(call)
        if entries is None:
            return NOT_KNOWN
        found = [self.of(entry) for entry in entries]
        return Callee(frozenset().union(*(f.reads for f in found)), frozenset().union(*(f.writes for f in found)))

    def of(self, entry: int) -> Callee:
        """What the function with this entry reads and writes, and those that it calls."""
        if entry not in self._known:
            self._known[entry] = NOT_KNOWN  # of a recursive call
            code = self._code(entry)
            if code is not None:
                self._known[entry] = self._of(code)
        return self._known[entry]

    def _of(self, code: Code) -> Callee:
        writes: set[str] = set()
        calls: dict[int, Callee] = {}
        for start, block in code.graph.blocks.items():
            last = block.instructions[-1]
            leaves = not block.successors or any(s not in code.graph.blocks for s in block.successors)
            if None in code.pieces[start] or (leaves and block.kind not in (Kind.RETURN, Kind.TRAP, Kind.CALL)):
                return NOT_KNOWN
            if block.kind is Kind.CALL:
                calls[start] = self.of_call(code, last.address)
                writes |= calls[start].writes
            writes.update(o.location for piece in code.pieces[start] if piece is not None
                          for o in piece.operations if isinstance(o, Put))
        reads = frozenset(name for name in ARGUMENTS if _reads(code, calls, name))
        return Callee(reads, frozenset(writes) & CHANGED)


def _reads(code: Code, calls: Mapping[int, Callee], location: str) -> bool:
    """Whether a path from the entry reads ``location`` before it writes it."""
    pending, seen = [code.graph.entry], {code.graph.entry}
    while pending:
        start = pending.pop()
        use = next((o for piece in code.pieces[start] if piece is not None for o in piece.operations
                    if isinstance(o, Get | Put) and o.location == location), None)
        if isinstance(use, Get):
            return True
        call = calls.get(start)
        if use is None and call is not None and location in call.reads:
            return True
        if use is not None or (call is not None and location in call.writes):
            continue
        new = [s for s in code.graph.successors(start) if s not in seen]
        seen.update(new)
        pending += new
    return False
