"""Source lines of addresses, with the functions that were inlined there, from DWARF by symbolic, which only this module
imports.

Example: an addition comes from ``std::accumulate``, which is called in line 27 of ``covar.cpp``. The chain of its
address is ``stl_numeric.h:140``, ``covar.cpp:27``. It is shown as ``covar.cpp:27 (inlined from stl_numeric.h:140)``.

In: the path of a file, link-time addresses. Out: ``SourceLine``, or None without usable debug information. Everything
that memopt says about source lines comes from here. Files of any content are allowed: symbolic checks what it reads.
Source: DWARF 5, sections 3.3.8 (inlined subroutines) and 6.2 (line tables).
"""

from __future__ import annotations

import functools
import math
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from memopt.elf.image import PT_LOAD, ElfError, Image
from memopt.ir.frozen import dataclass

if TYPE_CHECKING:
    from symbolic.symcache import SymCache

    from memopt.ir.graph import Control

_MAX_DEBUG_BYTES, _MAX_SOURCE_BYTES = 256 << 20, 4 << 20


class Place(NamedTuple):
    """A line of a source file."""

    file: str  # path, as the compiler knew it
    line: int

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


@dataclass(frozen=True, slots=True)
class SourceLine:
    """The line of an instruction or a loop in the file of its function. ``inlined``: where the code itself stands, if
    it was inlined from another file."""

    file: str
    line: int
    inlined: Place | None = None

    def __str__(self) -> str:
        return str(Place(self.file, self.line)) + (f" (inlined from {self.inlined})" if self.inlined else "")


@functools.lru_cache(maxsize=64)
def source_text(file: str) -> tuple[str, ...]:
    """The lines of a source file; none if it cannot be read. To open a pipe would wait: only a regular file is read."""
    if os.path.isfile(file):
        with suppress(OSError), open(file, encoding="utf-8", errors="replace") as source:
            return tuple(source.read(_MAX_SOURCE_BYTES).splitlines())
    return ()


class SourceLines:
    """The source lines of one file.

    Its debug information is read when a line is first asked for; a file with too much of it counts as one without."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._base = 0  # addresses in the table are relative to it

    def at(self, address: int) -> SourceLine | None:
        """The line of the instruction at the link-time ``address``."""
        return _shown(self.chain(address))

    def of_loop(self, control: Control, bias: int = 0) -> SourceLine | None:
        """The line of the loop with this ``control``: that of its ``for`` or ``while``. ``bias``: of the addresses.

        A loop begins in the source before everything in it. So its line is the first one of its branches, compared from
        the outermost function inwards. Where a compiler has merged several jumps back, the merged one has no line."""
        chains = [self.chain(branch - bias) for branch in control.branches]
        if not all(chains):
            chains += [self.chain(branch - bias) for branch in control.guards]
        return _shown(min(filter(None, chains), key=_order, default=()))

    def chain(self, address: int) -> tuple[Place, ...]:
        """The place of the code at ``address``, then that of the call by which it was inlined, and so on up to the
        function's own code. Empty if it is not known; a compiler's own code has no line."""
        table = self._table
        if table is None or address < self._base:
            return ()
        from symbolic.exceptions import SymbolicError

        try:
            found = table.lookup(address - self._base)  # type: ignore[no-untyped-call]
        except (SymbolicError, UnicodeError, ValueError, OverflowError):
            return ()
        places = [Place(x.full_path or "", x.line) for x in found]
        while places and not (places[0].line and places[0].file):
            del places[0]
        return tuple(places) if all(p.file and p.line for p in places) else ()

    @functools.cached_property
    def _table(self) -> SymCache | None:
        if not self._has_lines():
            return None
        from symbolic.debuginfo import Archive
        from symbolic.exceptions import SymbolicError

        try:
            return Archive.open(self._path).get_object(arch="x86_64").make_symcache()
        except (SymbolicError, OSError, LookupError, ValueError):
            return None

    def _has_lines(self) -> bool:
        """Whether the file has line tables: most have none, and the import of a large library is saved."""
        try:
            with Image(self._path) as image:
                self._base = next((s.address for s in image.segments if s.kind == PT_LOAD), 0)
                debug = [s for s in image.sections if s.name.startswith((".debug_", ".zdebug_"))]
                return (any(s.name.endswith("debug_line") for s in debug)
                        and sum(s.size for s in debug) <= _MAX_DEBUG_BYTES)
        except (ElfError, OSError):
            return False


def _order(chain: tuple[Place, ...]) -> tuple[float, ...]:
    """Orders chains by lines, from the outermost inwards. A chain that tells no more than the call goes last."""
    return (*(place.line for place in reversed(chain)), math.inf)


def _shown(chain: tuple[Place, ...]) -> SourceLine | None:
    """The innermost place of ``chain`` in the file of the function itself."""
    if not chain:
        return None
    own = next(place for place in chain if place.file == chain[-1].file)
    return SourceLine(own.file, own.line, None if own == chain[0] else chain[0])
