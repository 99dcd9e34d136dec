"""Function symbols of an executable, and which function an address belongs to.

Addresses here are link-time addresses; ``Image.load_bias`` gives the difference to live ones. A stripped program
still has ranges (``memopt.elf.unwind``), so a function without a name is named by its start: ``function 0x11a0``.
"""

from __future__ import annotations

import bisect
import struct
from dataclasses import dataclass

from memopt.elf.image import SHT_DYNSYM, SHT_SYMTAB, ElfError, Image, Section
from memopt.elf.unwind import function_range_at

_SYMBOL = struct.Struct("<IBBHQQ")
_MAX_SYMBOLS = 1 << 20
_MAX_NAME = 4096
_FUNCTION_KINDS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC


@dataclass(frozen=True, slots=True, order=True)
class Function:
    """``[start, end)``; ``name`` as in the symbol table (mangled), or "" when only the range is known."""

    start: int
    end: int
    name: str

    @property
    def shown(self) -> str:
        """The name for people, demangled."""
        if not self.name:
            return f"function {self.start:#x}"
        return demangle(self.name)


def demangle(name: str) -> str:
    """A C++ or Rust symbol in source form; any other name unchanged."""
    if not name.startswith("_Z"):
        return name
    import cxxfilt  # searches for libstdc++ when imported

    try:
        return str(cxxfilt.demangle(name))
    except (cxxfilt.Error, OSError):
        return name


class Symbols:
    """The functions of one file. ``function_at`` answers from the symbol table, then from the unwind tables."""

    def __init__(self, image: Image) -> None:
        """Reads the symbol tables at once; ``image`` must stay open for ``function_at``."""
        self._image = image
        self._functions = sorted(_read_functions(image))
        self._starts = [f.start for f in self._functions]

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(self._functions)

    def function_at(self, address: int) -> Function | None:
        """The function that contains link-time ``address``, or None."""
        index = bisect.bisect_right(self._starts, address) - 1
        if index >= 0 and address < self._functions[index].end:
            return self._functions[index]
        bounds = function_range_at(self._image, address)
        if bounds is None:
            return None
        start, end = bounds
        at = bisect.bisect_left(self._starts, start)
        named = at < len(self._starts) and self._starts[at] == start
        return Function(start, end, self._functions[at].name if named else "")


def _read_functions(image: Image) -> set[Function]:
    sections = image.sections
    tables = [s for s in sections if s.kind == SHT_SYMTAB] or [s for s in sections if s.kind == SHT_DYNSYM]
    functions: set[Function] = set()
    for table in tables:
        if table.link < len(sections):
            functions.update(_table_functions(image, table, sections[table.link]))
    return functions


def _table_functions(image: Image, table: Section, strings: Section) -> list[Function]:
    count = min(table.size // _SYMBOL.size, _MAX_SYMBOLS)
    try:
        entries = image.read(table.offset, count * _SYMBOL.size)
    except ElfError:
        return []
    functions = []
    for name_at, info, _, section, start, size in _SYMBOL.iter_unpack(entries):
        if info & 0xF not in _FUNCTION_KINDS or section == 0 or name_at >= strings.size:
            continue
        try:
            name = image.string(strings.offset + name_at, _MAX_NAME)
        except ElfError:
            continue
        functions.append(Function(start, start + size, name))
    return functions


def function_name(path: str, address: int) -> str:
    """What to call the function at link-time ``address`` of ``path``; "" when nothing is known about it."""
    try:
        with Image(path) as image:
            function = Symbols(image).function_at(address)
    except (ElfError, OSError):
        return ""
    return function.shown if function else ""
