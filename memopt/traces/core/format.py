"""The format of a trace of memory accesses: words of 64 bits.

A block here is a hyperblock: it is entered only at its first basic block, each of its basic blocks runs at most once,
and all of them lie in one iteration of all loops. The trace has for each run of a block

- a word with BLOCK in the upper 16 bits and the number of the block;
- the node (the calling context), plus RESUMED if an interrupted run goes on here, or INSIDE if the run begins behind
  the first basic block, from anywhere;
- words with EXTRA in the upper 16 bits, if the block has any: rax where a call returns; the first two arguments at the
  entry of a function that allocates memory;
- a word for each access: its index in the block in the upper 16 bits, the address below. If the access is repeated
  (``rep movsb``), another word behind it is the number of repetitions.

Nodes are numbers that grow from callers to callees. In a function without loops, only the blocks that access memory or
have EXTRA words are in the trace.
"""

from __future__ import annotations

import numpy
import numpy.typing

from memopt.ir.frozen import dataclass

Words = numpy.typing.NDArray[numpy.uint64]

BLOCK, EXTRA = 0xFFFF, 0xFFFE
RESUMED, INSIDE = 1, 2
FLAGS = RESUMED | INSIDE
LINE, PAGE = 64, 4096  # bytes of a cache line and of a page


@dataclass(frozen=True, slots=True)
class AccessShape:
    """An access of a block."""

    size: int  # bytes
    reads: bool
    writes: bool
    repeated: bool = False  # whether a word behind the address is the number of repetitions


@dataclass(frozen=True, slots=True)
class BlockShape:
    """A block: where it lies, and what it accesses."""

    loop: int | None  # the innermost loop around it, by its number among all loops; None if there is none
    header: bool  # whether it is the header of that loop
    entry: bool  # whether it is the entry of its function, and the function has loops
    accesses: tuple[AccessShape, ...]
    allocates: int = 0  # if it is the entry of an allocating function: see ``memopt.traces.allocators.allocates``


@dataclass(frozen=True, slots=True)
class Access:
    """An access in its calling context."""

    node: int
    block: int
    index: int  # among the accesses of the block
