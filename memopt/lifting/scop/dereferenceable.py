"""That the original reads, at every entry, the cells behind pointers that guards look at.

A guard reads such a cell before anything of the nest runs. Where the original passes over the cell (a loop inside that
runs zero times), the pointer may be no pointer at all. So some read of the cell, in the first or in the last iteration,
is made the witness: guards on other values make sure that it happens, and come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memopt.ir.linear import Linear
from memopt.ir.scop import TRIPS
from memopt.lifting.values.loop_tree import Read


@dataclass(frozen=True, slots=True)
class Dereferenceable:
    """``reads`` of the loop with ``counter``; addresses by ``known`` equations, captured values in ``sample``."""

    reads: tuple[Read, ...]
    counter: str
    known: dict[str, Linear]
    sample: dict[str, int]

    def of(self, address: Linear, size: int) -> Iterator[tuple[Linear, ...]]:
        """What must be >= 0 so that ``size`` bytes at ``address`` are read, as it is at the captured values; each of
        the results is enough."""
        for last in (Linear(), Linear.symbol(TRIPS) - 1):
            for read in self.reads:
                distance = (address - read.pointer).substitute(self.known)
                if distance.is_constant and 0 <= distance.constant <= read.width // 8 - size:
                    conditions = {c.substitute({self.counter: last}): None for c in read.conditions}
                    if not any(c.quotients or c.evaluate(self.sample) < 0 for c in conditions):
                        yield tuple(c for c in conditions if c.terms)

    def always(self, address: Linear, size: int) -> bool:
        return any(not conditions for conditions in self.of(address, size))
