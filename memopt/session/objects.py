"""What addresses of data lead to: variables of the program's files, its stacks, its heap, memory it has mapped."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from contextlib import suppress

from memopt.elf.image import ElfError, Image
from memopt.elf.symbols import Symbols, demangle
from runtime.memory import Mapping
from runtime.recording.code import Text


class Objects:
    """Of one process, now that it has ended."""

    def __init__(self, texts: Iterable[Text], mapped: Iterable[Mapping], stacks: Sequence[int]) -> None:
        """``stacks``: an address in each, where the system does not name it."""
        self._mapped = sorted(mapped, key=lambda m: m.start)
        self._stacks = stacks
        self._variables: list[tuple[int, int, str]] = []
        for path, bias in {(text.mapping.path, text.bias) for text in texts}:
            with suppress(ElfError, OSError), Image(path) as image:
                self._variables += ((start + bias, end + bias, name) for start, end, name in Symbols(image).objects)
        self._variables.sort()

    def of(self, lowest: int, highest: int) -> tuple[str, str | None, int] | None:
        """Kind, name and offset of ``lowest``, where all of both is in one (memopt.store.schema: object)."""
        index = bisect.bisect_right(self._variables, lowest, key=lambda v: v[0]) - 1
        if index >= 0 and highest <= self._variables[index][1]:
            start, _, name = self._variables[index]
            return "variable", demangle(name), lowest - start
        index = bisect.bisect_right(self._mapped, lowest, key=lambda m: m.start) - 1
        if index < 0 or highest > self._mapped[index].end:
            return None
        found = self._mapped[index]
        name = found.path
        kind = {"[heap]": "heap", "[stack]": "stack", "": "mapped"}.get(name, "file")
        if any(address in found for address in self._stacks):
            kind = "stack"
        return kind, name if kind == "file" else None, lowest - found.start
