"""The form of a trace of memory accesses, as words of 64 bits.

A run of a block begins with two words: its number with BLOCK in the upper 16 bits, and the node, plus RESUMED where the
run goes on that was interrupted. Then comes a word for each access: its index in the block in the upper 16 bits, the
address below. Behind an access that is repeated another word says how often.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import numpy.typing

Words = numpy.typing.NDArray[numpy.uint64]

BLOCK = 0xFFFF
RESUMED = 1
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
    loop's; ``entry``: whether the function begins here."""

    loop: int | None
    header: bool
    entry: bool
    accesses: tuple[AccessShape, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """In which node, and which of the accesses of which block."""

    node: int
    block: int
    index: int
