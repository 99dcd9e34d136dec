"""Control-flow graphs of machine code, and the natural loops in them.

A block is named by its start address. Invariant: the instructions of a block are contiguous, and only the last one may
transfer control. A call ends a block, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from memopt.ir.frozen import dataclass


class Kind(Enum):
    """How an instruction transfers control. ``INDIRECT``: a jump to an address that is computed at run time."""

    PLAIN = "plain"
    JUMP = "jump"
    CONDITIONAL = "conditional"
    CALL = "call"
    RETURN = "return"
    INDIRECT = "indirect"
    TRAP = "trap"

    def __init__(self, name: str) -> None:
        self.ends_block = name != "plain"
        self.falls_through = name in ("plain", "conditional", "call")


class DecodedInstruction(NamedTuple):  # there are millions: a frozen dataclass takes three times as long to make
    """One machine instruction. ``target``: the absolute address that a direct jump or call names, else None."""

    address: int
    size: int
    mnemonic: str
    operands_text: str
    kind: Kind
    target: int | None
    bytes: bytes

    @property
    def end(self) -> int:
        """The address behind the instruction."""
        return self.address + self.size

    @property
    def repeats(self) -> bool:
        """Whether it is ``rep movs`` or ``rep stos``, which copy or fill memory until rcx is zero: a loop in one
        instruction."""
        return self.mnemonic.startswith(("rep movs", "rep stos")) and "[rdi]" in self.operands_text

    def __str__(self) -> str:
        return f"{self.address:#x} {self.mnemonic} {self.operands_text}".rstrip()


class BasicBlock(NamedTuple):
    """A basic block. ``successors``: the fall-through first, then the target of a direct jump, or all known targets of
    an indirect jump, or the landing pads of a call that throws. Some may lie outside the graph."""

    start: int
    end: int
    instructions: tuple[DecodedInstruction, ...]
    successors: tuple[int, ...]

    @property
    def code(self) -> bytes:
        """The bytes of the instructions."""
        return b"".join(i.bytes for i in self.instructions)

    @property
    def repeats(self) -> bool:
        """Whether the block is one repeated string instruction. Its successors are the next instruction and itself."""
        return self.instructions[0].repeats

    @property
    def kind(self) -> Kind:
        """How control leaves the block: the kind of its last instruction."""
        return self.instructions[-1].kind

    @property
    def led(self) -> tuple[int, ...]:
        """Successors that no direct jump names: targets of an indirect jump, and landing pads of exceptions."""
        if self.kind is Kind.INDIRECT:
            return self.successors
        return tuple(s for s in self.successors if s != self.end) if self.kind is Kind.CALL else ()

    def __str__(self) -> str:
        leads = ", ".join(f"{s:#x}" for s in self.successors) or "-"
        lines = [f"block {self.start:#x}..{self.end:#x} {self.kind.value} -> {leads}"]
        return "\n".join((*lines, *(f"  {i}" for i in self.instructions)))


@dataclass(frozen=True)
class FlowGraph:
    """The blocks that are reached from ``entry``. ``blocks`` is sorted by address and must not be changed.

    An edge to an address without a block leaves the graph: to another function, or to bytes that do not decode.
    """

    entry: int
    blocks: Mapping[int, BasicBlock]

    @cached_property
    def _successors(self) -> Mapping[int, tuple[int, ...]]:
        return {start: tuple([s for s in block.successors if s in self.blocks]) for start, block in self.blocks.items()}

    def successors(self, start: int) -> tuple[int, ...]:
        """The successors of the block ``start`` that are blocks of the graph."""
        return self._successors[start]

    @cached_property
    def predecessors(self) -> Mapping[int, tuple[int, ...]]:
        """The predecessors of each block."""
        found: dict[int, list[int]] = {start: [] for start in self.blocks}
        for start in self.blocks:
            for successor in self.successors(start):
                found[successor].append(start)
        return {start: tuple(dict.fromkeys(sources)) for start, sources in found.items()}

    @cached_property
    def led(self) -> frozenset[int]:
        """Blocks that may be entered although no direct jump names them: see ``BasicBlock.led``."""
        return frozenset(s for b in self.blocks.values() for s in b.led if s in self.blocks)

    def block_at(self, address: int) -> BasicBlock | None:
        """The block with an instruction that begins at ``address``, or None."""
        for block in self.blocks.values():
            if block.start <= address < block.end and any(i.address == address for i in block.instructions):
                return block
        return None

    def __str__(self) -> str:
        return "\n".join((f"graph {self.entry:#x}", *map(str, self.blocks.values())))


@dataclass(frozen=True, slots=True)
class Loop:
    """A natural loop."""

    header: int
    blocks: frozenset[int]
    back_edges: tuple[tuple[int, int], ...]  # (block, header)
    exits: tuple[tuple[int, int], ...]  # (block in the loop, address outside it, perhaps outside the graph)
    parent: int | None  # an index into ``LoopForest.loops``, as are the children
    children: tuple[int, ...]
    depth: int  # 1: an outermost loop

    def __str__(self) -> str:
        blocks = ", ".join(f"{b:#x}" for b in sorted(self.blocks))
        exits = ", ".join(f"{a:#x}->{b:#x}" for a, b in self.exits) or "-"
        back = ", ".join(f"{a:#x}" for a, _ in self.back_edges)
        return f"{'  ' * self.depth}loop {self.header:#x} blocks {blocks}; back from {back}; exits {exits}"


class Control(NamedTuple):
    """Addresses of the branches that control a loop. ``branches`` leave it or go back to its header. ``guards`` pass it
    by: if the loop has no iteration, they go where it leads in the end."""

    branches: tuple[int, ...]
    guards: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopForest:
    """All natural loops, one for each header: each after its parent, siblings by address.

    ``irreducible``: the edges that close a cycle and do not lead to a dominator. Such cycles are no natural loops.
    """

    graph: FlowGraph
    loops: tuple[Loop, ...]
    irreducible: tuple[tuple[int, int], ...]

    def chain(self, loop: Loop) -> Iterator[Loop]:
        """``loop`` and the loops around it, from inside to outside."""
        current: Loop | None = loop
        while current is not None:
            yield current
            current = None if current.parent is None else self.loops[current.parent]

    def __str__(self) -> str:
        return "\n".join((f"loops of {self.graph.entry:#x}", *map(str, self.loops)))
