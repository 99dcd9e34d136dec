"""Control-flow graphs of machine code and the loops in them.

Blocks are known by their start addresses. Invariant: a block's instructions are contiguous and only the last may
transfer control; a call ends a block too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple


class Kind(Enum):
    """What an instruction does to control flow; ``INDIRECT`` is a jump whose target is not in its bytes."""

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
    """``target`` is the absolute address of a direct jump, conditional jump or call, else None."""

    address: int
    size: int
    mnemonic: str
    operands_text: str
    kind: Kind
    target: int | None
    bytes: bytes

    @property
    def end(self) -> int:
        return self.address + self.size

    @property
    def repeats(self) -> bool:
        """A copy or a filling of memory that goes on as long as rcx is not zero: a loop in one instruction."""
        return self.mnemonic.startswith(("rep movs", "rep stos")) and "[rdi]" in self.operands_text

    def __str__(self) -> str:
        return f"{self.address:#x} {self.mnemonic} {self.operands_text}".rstrip()


class BasicBlock(NamedTuple):
    """``successors``: fall-through first, then the direct one, or all that are known of an indirect jump, or where a
    call that ends with an exception goes on; some may lie outside the graph."""

    start: int
    end: int
    instructions: tuple[DecodedInstruction, ...]
    successors: tuple[int, ...]

    @property
    def code(self) -> bytes:
        return b"".join(i.bytes for i in self.instructions)

    @property
    def repeats(self) -> bool:
        """One repeated string instruction, which is a loop of its own: it leads to what follows and to itself."""
        return self.instructions[0].repeats

    @property
    def kind(self) -> Kind:
        """How control leaves the block."""
        return self.instructions[-1].kind

    @property
    def led(self) -> tuple[int, ...]:
        """Successors on ways that no jump shows: of an indirect jump, and where exceptions go on."""
        if self.kind is Kind.INDIRECT:
            return self.successors
        return tuple(s for s in self.successors if s != self.end) if self.kind is Kind.CALL else ()

    def __str__(self) -> str:
        leads = ", ".join(f"{s:#x}" for s in self.successors) or "-"
        lines = [f"block {self.start:#x}..{self.end:#x} {self.kind.value} -> {leads}"]
        return "\n".join((*lines, *(f"  {i}" for i in self.instructions)))


@dataclass(frozen=True)
class FlowGraph:
    """The blocks found from ``entry``; ``blocks`` is sorted by address and not to be changed.

    An edge to an address without a block leaves what was looked at (another function, bytes that do not decode).
    """

    entry: int
    blocks: Mapping[int, BasicBlock]

    @cached_property
    def _successors(self) -> Mapping[int, tuple[int, ...]]:
        return {start: tuple([s for s in block.successors if s in self.blocks]) for start, block in self.blocks.items()}

    def successors(self, start: int) -> tuple[int, ...]:
        """Successors that are blocks of the graph."""
        return self._successors[start]

    @cached_property
    def predecessors(self) -> Mapping[int, tuple[int, ...]]:
        found: dict[int, list[int]] = {start: [] for start in self.blocks}
        for start in self.blocks:
            for successor in self.successors(start):
                found[successor].append(start)
        return {start: tuple(dict.fromkeys(sources)) for start, sources in found.items()}

    @cached_property
    def led(self) -> frozenset[int]:
        """Blocks that are entered on ways that no jump to them shows: see ``BasicBlock.led``."""
        return frozenset(s for b in self.blocks.values() for s in b.led if s in self.blocks)

    def block_at(self, address: int) -> BasicBlock | None:
        """The block that has an instruction starting at ``address``."""
        for block in self.blocks.values():
            if block.start <= address < block.end and any(i.address == address for i in block.instructions):
                return block
        return None

    def __str__(self) -> str:
        return "\n".join((f"graph {self.entry:#x}", *map(str, self.blocks.values())))


@dataclass(frozen=True, slots=True)
class Loop:
    """A natural loop; ``parent`` and ``children`` are indices into ``LoopForest.loops``, ``depth`` is 1 outermost.

    ``exits`` are (block in the loop, address outside it) pairs; the address may lie outside the graph.
    """

    header: int
    blocks: frozenset[int]
    back_edges: tuple[tuple[int, int], ...]
    exits: tuple[tuple[int, int], ...]
    parent: int | None
    children: tuple[int, ...]
    depth: int

    def __str__(self) -> str:
        blocks = ", ".join(f"{b:#x}" for b in sorted(self.blocks))
        exits = ", ".join(f"{a:#x}->{b:#x}" for a, b in self.exits) or "-"
        back = ", ".join(f"{a:#x}" for a, _ in self.back_edges)
        return f"{'  ' * self.depth}loop {self.header:#x} blocks {blocks}; back from {back}; exits {exits}"


@dataclass(frozen=True, slots=True)
class LoopForest:
    """All natural loops, each after its parent, siblings by address; one loop per header.

    ``irreducible`` holds the edges that close a cycle without going to a dominator: such cycles are no natural loops.
    """

    graph: FlowGraph
    loops: tuple[Loop, ...]
    irreducible: tuple[tuple[int, int], ...]

    def chain(self, loop: Loop) -> Iterator[Loop]:
        """``loop``, the loop around it, and so on outwards."""
        current: Loop | None = loop
        while current is not None:
            yield current
            current = None if current.parent is None else self.loops[current.parent]

    def __str__(self) -> str:
        return "\n".join((f"loops of {self.graph.entry:#x}", *map(str, self.loops)))
