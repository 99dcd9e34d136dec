"""A unit as it lies in one process: units are translated once, and moved to the places of other processes.

Example: two processes have libc at different addresses. ``memcpy`` is translated for the first one. The second one gets
the same unit, with other addresses in its code.

In: a unit, with the addresses of the process that it was made for, and how far copy and original are moved. Out:
answers with the addresses of the process that it is placed in (live), unless they say "of the unit".
"""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.frozen import dataclass
from runtime.recording.translation.unit import SYSCALL_BYTES, NodeLayout, Site, Unit, Watched


@dataclass(frozen=True, slots=True)
class Placed:
    """``unit``, whose copy lies ``copy`` bytes, and whose original lies ``text`` bytes behind where they lay first."""

    unit: Unit
    copy: int = 0
    text: int = 0

    @property
    def number(self) -> int:
        """The number of the unit."""
        return self.unit.number

    @property
    def node(self) -> NodeLayout:
        """What its nodes hold."""
        return self.unit.node

    @property
    def node_bytes(self) -> int:
        """The size of a node."""
        return self.unit.node_bytes

    @property
    def start(self) -> int:
        """The address of the code."""
        return self.unit.start + self.copy

    @property
    def end(self) -> int:
        """The address behind the code."""
        return self.unit.end + self.copy

    @property
    def entry(self) -> int:
        """The copy of the entry."""
        return self.unit.entry + self.copy

    @property
    def original_entry(self) -> int:
        """The entry of the original."""
        return self.unit.graph.entry + self.text

    def site(self, site: Site) -> Site:
        """A site of the unit, with live addresses."""
        if not self.copy and not self.text:
            return site
        return replace(site, address=site.address + self.text, end=site.end + self.text, record=site.record + self.copy,
                       target=None if site.target is None else site.target + self.text,
                       copy_return=site.copy_return and site.copy_return + self.copy)

    def copy_of_block(self, address: int) -> int | None:
        """Where to enter the copy of the block at the original ``address``; None if there is none, or if a loop around
        it is counted by a register.
        """
        found = self.unit.blocks.get(address - self.text)
        return None if found is None or self.unit.in_stepped_loop(address - self.text) else found + self.copy

    def place_of_copy(self, copy: int) -> tuple[int, int] | None:
        """As ``Unit.place_of_copy``; block and instruction are addresses of the unit."""
        return self.unit.place_of_copy(copy - self.copy)

    def watched_around(self, address: int) -> Watched | None:
        """The hyperblock with the instruction at the original ``address``, if its runs are in the trace."""
        return self.unit.watched_around(address - self.text)

    def copy_of(self, address: int) -> int | None:
        """The address of the copy of the instruction at ``address``, or None."""
        found = self.unit.copy_of(address - self.text)
        return None if found is None else found + self.copy

    def original(self, copy: int) -> int | None:
        """The original address of a thread at ``copy``, between two instructions or behind a system call; else None."""
        unit, copy = self.unit, copy - self.copy
        found = unit.original(copy)
        if found is None:
            before = unit.original(copy - SYSCALL_BYTES)
            if before is not None and unit.is_system_call(before):
                found = before + SYSCALL_BYTES
        return None if found is None else found + self.text

    def copies(self) -> dict[int, int]:
        """The copies of instructions, by original address."""
        return {original + self.text: copy + self.copy
                for original, copy in zip(self.unit.originals, self.unit.copies, strict=True)}
