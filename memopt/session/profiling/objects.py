"""Data objects by address: variables of the program's files, allocated blocks, stacks, mappings.

Example: 0x404060 is byte 0 of the variable ``table``; 0x1c2a0 is byte 32 of a block that ``read_input`` has allocated.
In: symbols, allocations, mappings of a process that has ended. Out: an ``ObjectPlace`` for a range of addresses.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from contextlib import suppress

from memopt.elf.image import ElfError, Image
from memopt.elf.symbols import Symbols, demangle
from memopt.ir.frozen import dataclass
from memopt.traces.allocations import Allocation
from runtime.recording.translation.code_map import Text
from runtime.target.memory import Mapping


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A row of the table ``object`` (memopt.store.schema). ``context``: of the function that allocated the block."""

    kind: str
    name: str | None
    offset: int
    context: int | None = None


class Objects:
    """The objects of one process that has ended."""

    def __init__(self, texts: Iterable[Text], mapped: Iterable[Mapping], stacks: Sequence[int]) -> None:
        """``stacks``: an address in each stack that the system does not name."""
        self._mapped = sorted(mapped, key=lambda m: m.start)
        self._stacks = stacks
        self._blocks: list[tuple[Allocation, int | None]] = []
        self._variables: list[tuple[int, int, str]] = []
        for path, bias in {(text.mapping.path, text.bias) for text in texts}:
            with suppress(ElfError, OSError), Image(path) as image:
                self._variables += ((start + bias, end + bias, name) for start, end, name in Symbols(image).objects)
        self._variables.sort()

    def know(self, blocks: Iterable[tuple[Allocation, int | None]]) -> None:
        """Set the allocated blocks, each with the context in which it was allocated, where that is known."""
        self._blocks = sorted(blocks, key=lambda b: b[0].address)

    def of(self, lowest: int, highest: int) -> ObjectPlace | None:
        """The object that holds all of ``[lowest, highest)``; None where there is no such object."""
        index = bisect.bisect_right(self._variables, lowest, key=lambda v: v[0]) - 1
        if index >= 0 and highest <= self._variables[index][1]:
            start, _, name = self._variables[index]
            return ObjectPlace("variable", demangle(name), lowest - start)
        index = bisect.bisect_right(self._blocks, lowest, key=lambda b: b[0].address) - 1
        if index >= 0:
            block, context = self._blocks[index]
            if highest <= block.address + block.size:
                return ObjectPlace("block", None, lowest - block.address, context)
        index = bisect.bisect_right(self._mapped, lowest, key=lambda m: m.start) - 1
        if index < 0 or highest > self._mapped[index].end:
            return None
        found = self._mapped[index]
        kind = {"[heap]": "heap", "[stack]": "stack", "": "mapped"}.get(found.path, "file")
        if any(address in found for address in self._stacks):
            kind = "stack"
        return ObjectPlace(kind, found.path if kind == "file" else None, lowest - found.start)
