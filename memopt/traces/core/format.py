"""The form of a trace of memory accesses, as words of 64 bits.

What is called a block here is a hyperblock: its blocks are entered only at the first one, and run once at most each, in
one iteration of all loops. A run of it begins with two words: its number with BLOCK in the upper 16 bits, and the node,
plus RESUMED where the run goes on that was interrupted, or INSIDE where it begins behind the first block, from
anywhere. Then comes a word for each access: its index in the block in the upper 16 bits, the address below. Behind an
access that is repeated another word says how often. Before the accesses there may be words with EXTRA in the upper 16
bits: where a call comes back, what rax holds; where a function begins that allocates memory, its first two arguments.
Nodes are numbers that grow from callers to what they call; of a function without loops only the hyperblocks are told
that access memory or have such words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import numpy.typing

Words = numpy.typing.NDArray[numpy.uint64]

BLOCK, EXTRA = 0xFFFF, 0xFFFE
RESUMED, INSIDE = 1, 2
FLAGS = RESUMED | INSIDE
LINE, PAGE = 64, 4096  # bytes that caches and mappings are made of


@dataclass(frozen=True, slots=True)
class AccessShape:
    """``size`` bytes; ``repeated``: a word with the number of times follows the address."""

    size: int
    reads: bool
    writes: bool
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class BlockShape:
    """``loop``: the innermost loop around, by its number among all, None for none; ``header``: whether it is that
    loop's; ``entry``: whether its function, which has loops, begins here; ``allocates``: 0, or what
    memopt.traces.allocators has for the function that begins here."""

    loop: int | None
    header: bool
    entry: bool
    accesses: tuple[AccessShape, ...]
    allocates: int = 0


@dataclass(frozen=True, slots=True)
class Access:
    """In which node, and which of the accesses of which block."""

    node: int
    block: int
    index: int
