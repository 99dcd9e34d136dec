"""Dereferenceability (as in LLVM): at every entry, the original itself reads the cell that a guard reads.

Example: a guard that compares ``*n`` reads through the pointer n before anything of the nest runs. If the original
reads ``*n`` only in an inner loop, and that loop runs zero times, n may be no pointer at all.

In: the reads of the original, each with the conditions under which it happens. Out: for a cell, the conditions that
make the original read it in its first or in its last iteration; guards check these conditions first. Sound because a
read that the original performs cannot fault. Only conditions that hold at the captured values are returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.scop import TRIPS
from memopt.lifting.values.loop_tree import Read


@dataclass(frozen=True, slots=True)
class Dereferenceable:
    """The reads of the loop with ``counter``. Addresses are compared under the ``known`` equations; ``sample`` has the
    captured values."""

    reads: tuple[Read, ...]
    counter: str
    known: Mapping[str, Linear]
    sample: Mapping[str, int]

    def of(self, address: Linear, size: int) -> Iterator[tuple[Linear, ...]]:
        """Sets of conditions: where all of one set are >= 0, the original reads ``size`` bytes at ``address``. They are
        >= 0 at the captured values."""
        for last in (Linear(), Linear.symbol(TRIPS) - 1):
            for read in self.reads:
                if self._contains(read, address, size):
                    conditions = {c.substitute({self.counter: last}): None for c in read.conditions}
                    if not any(c.quotients or c.evaluate(self.sample) < 0 for c in conditions):
                        yield tuple(c for c in conditions if c.terms)

    def order(self, address: Linear, size: int) -> int:
        """How many reads of the original come before its first read of the bytes, in the order of the code."""
        return next((n for n, read in enumerate(self.reads) if self._contains(read, address, size)), len(self.reads))

    def _contains(self, read: Read, address: Linear, size: int) -> bool:
        distance = (address - read.pointer).substitute(self.known)
        return distance.is_constant and 0 <= distance.constant <= read.width // 8 - size

    def always(self, address: Linear, size: int) -> bool:
        """Whether the original reads the bytes at every entry, without any condition."""
        return any(not conditions for conditions in self.of(address, size))
