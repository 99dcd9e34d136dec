"""Notes what memopt reads of a process and of its files, so that a snapshot has it: the next reader has neither.

Example: lifting reads the slot of ``exp`` and the first bytes behind ``call exp@plt``; the file says that the slot is
that of ``exp``. The snapshot keeps both pages, and the answer.

In: a shadow, a reader of memory, a ``Linkage``. Out: the same, which note; the intervals and answers noted.
``Recorded`` gives the answers again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from memopt.session.replacing.callees import Linkage
from memopt.snapshots.form import Symbols
from runtime.target.memory import Memory
from runtime.trial.shadow import Shadow


@dataclass
class Notes:
    """What was read: intervals ``[start, end)``, and answers of files."""

    read: list[tuple[int, int]] = field(default_factory=list)
    slots: dict[int, str] = field(default_factory=dict)
    functions: dict[int, str] = field(default_factory=dict)
    exports: set[str] = field(default_factory=set)

    def noting(self, read: Callable[[int, int], bytes]) -> Callable[[int, int], bytes]:
        """``read``, and a note of what it gave."""
        def noted(address: int, size: int) -> bytes:
            found = read(address, size)
            self.read.append((address, address + len(found)))
            return found

        return noted

    @property
    def symbols(self) -> Symbols:
        """The answers of files."""
        return Symbols({a: n for a, n in self.slots.items() if n}, {a: n for a, n in self.functions.items() if n},
                       tuple(sorted(self.exports)))


class NotingMemory(Memory):
    """The memory of a process; what is read is noted."""

    def __init__(self, pid: int, notes: Notes) -> None:
        super().__init__(pid)
        self._notes = notes

    def read_some(self, address: int, size: int) -> bytes:
        return self._notes.noting(super().read_some)(address, size)


class NotingShadow(Shadow):
    """The same process as another ``Shadow``, only to look at; what is read of its memory is noted."""

    def __init__(self, shadow: Shadow, notes: Notes) -> None:
        super().__init__(shadow.tracee, shadow.zombie, shadow.origin)
        self._notes = notes

    def read(self, address: int, size: int) -> bytes:
        return self._notes.noting(super().read)(address, size)


@dataclass(frozen=True)
class NotingLinkage:
    """A linkage; its answers are noted."""

    linkage: Linkage
    notes: Notes

    def symbol(self, slot: int) -> str:
        return self.notes.slots.setdefault(slot, self.linkage.symbol(slot))

    def function(self, start: int) -> str:
        return self.notes.functions.setdefault(start, self.linkage.function(start))

    def exports(self, library: str, name: str) -> bool:
        found = self.linkage.exports(library, name)
        if found:
            self.notes.exports.add(_export(library, name))
        return found


@dataclass(frozen=True)
class Recorded:
    """The linkage that a snapshot has."""

    symbols: Symbols

    def symbol(self, slot: int) -> str:
        return self.symbols.slots.get(slot, "")

    def function(self, start: int) -> str:
        return self.symbols.functions.get(start, "")

    def exports(self, library: str, name: str) -> bool:
        return _export(library, name) in self.symbols.exports


def _export(library: str, name: str) -> str:
    return f"{os.path.basename(library)}:{name}"
