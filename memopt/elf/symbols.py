"""The symbol table: functions and variables of an executable, and the function that an address belongs to.

In: an open file, link-time addresses (``Image.load_bias`` gives the difference to live ones). Out: ``Function`` values.
A stripped program still has function ranges (``memopt.elf.unwind``); a function without a name is shown by its start,
as ``function 0x11a0``.
"""

from __future__ import annotations

import bisect
import contextlib
import re
import struct
from collections.abc import Iterator, Sequence
from functools import cached_property

from memopt.elf.image import SHT_DYNSYM, SHT_SYMTAB, SYMBOL, ElfError, Image, Section
from memopt.elf.rewriting.original import Original, original_of, symbol_name
from memopt.elf.unwind import all_ranges, function_range_at
from memopt.ir.frozen import dataclass

_VALUE_OFFSET = 8
_MAX_SYMBOLS = 1 << 20
_MAX_NAME = 4096
_HASH = re.compile(r"::h[0-9a-f]{16}$")
_FUNCTION_KINDS, _OBJECT_KINDS = (2, 10), (1,)  # STT_FUNC, STT_GNU_IFUNC; STT_OBJECT


@dataclass(frozen=True, slots=True)
class _Table:
    """The entries of a symbol table and the section that holds their names."""

    entries: bytes
    strings: Section


@dataclass(frozen=True, slots=True, order=True)
class Function:
    """A function at ``[start, end)``; ``name`` as in the symbol table (mangled), "" where only the range is known."""

    start: int
    end: int
    name: str

    @property
    def shown(self) -> str:
        """The demangled name, or ``function 0x11a0`` without a name."""
        if not self.name:
            return f"function {self.start:#x}"
        return demangle(self.name)


def demangle(name: str) -> str:
    """A C++ or Rust symbol as in the source, without the hash that Rust appends; any other name unchanged."""
    if not name.startswith("_Z"):
        return name
    import cxxfilt  # searches for libstdc++ when imported

    try:
        return _HASH.sub("", str(cxxfilt.demangle(name)))
    except (cxxfilt.Error, OSError):
        return name


def function_among(functions: Sequence[Function], address: int) -> Function | None:
    """The function that contains ``address``, or None; ``functions`` are sorted by address."""
    index = bisect.bisect_right(functions, address, key=lambda f: f.start)
    return functions[index - 1] if index and address < functions[index - 1].end else None


class Symbols:
    """The symbols of one file, which must stay open.

    Everything is read when first asked for, because large programs have a million symbols.
    """

    def __init__(self, image: Image) -> None:
        self._image = image

    def function_at(self, address: int) -> Function | None:
        """The function that contains link-time ``address``, or None. The code of a version in a rewritten file is the
        function ``memopt:NAME``, also after stripping.

        The unwind tables give its range; a search for its start in the symbol table gives its name. Where they have no
        entry (assembly), the whole symbol table is read.
        """
        version = self._original.version_at(address) if self._original else None
        if version is not None:
            return Function(*version.code, symbol_name(version))
        bounds = function_range_at(self._image, address)
        if bounds is not None:
            return Function(*bounds, self._name_of(bounds[0]))
        return function_among(self.functions, address)

    @cached_property
    def _original(self) -> Original | None:
        return original_of(self._image)

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """Every function of the symbol table, sorted by address."""
        return tuple(sorted({f for table in self._tables for f in self._decode(table, table.entries)}))

    @cached_property
    def objects(self) -> tuple[tuple[int, int, str], ...]:
        """(start, end, name) of every variable of the symbol table, sorted by address."""
        return tuple(sorted({(o.start, o.end, o.name) for table in self._tables
                             for o in self._decode(table, table.entries, _OBJECT_KINDS)}))

    @cached_property
    def everything(self) -> tuple[Function, ...]:
        """Every function, one for each start: of the symbol table, and of the unwind tables where it has none."""
        found = {start: Function(start, end, "") for start, end in all_ranges(self._image)}
        for function in reversed(self.functions):  # the first of several names of one start stays
            end = max(function.end, found.get(function.start, function).end)
            if end > function.start:
                found[function.start] = Function(function.start, end, function.name)
        return tuple(sorted(found.values()))

    @cached_property
    def _tables(self) -> tuple[_Table, ...]:
        sections = self._image.sections
        found = [s for s in sections if s.kind == SHT_SYMTAB] or [s for s in sections if s.kind == SHT_DYNSYM]
        tables = []
        for table in found:
            count = min(table.size // SYMBOL.size, _MAX_SYMBOLS)
            if table.link < len(sections):
                with contextlib.suppress(ElfError):
                    entries = self._image.read(table.offset, count * SYMBOL.size)
                    tables.append(_Table(entries, sections[table.link]))
        return tuple(tables)

    def _name_of(self, start: int) -> str:
        """The name of the first function symbol with value ``start``; "" without one."""
        wanted = struct.pack("<Q", start)
        for table in self._tables:
            at = table.entries.find(wanted)
            while at >= 0:
                if at % SYMBOL.size == _VALUE_OFFSET:
                    entry = table.entries[at - _VALUE_OFFSET : at - _VALUE_OFFSET + SYMBOL.size]
                    for function in self._decode(table, entry):
                        return function.name
                at = table.entries.find(wanted, at + 1)
        return ""

    def _decode(self, table: _Table, entries: bytes, kinds: tuple[int, ...] = _FUNCTION_KINDS) -> Iterator[Function]:
        for name_at, info, _, section, start, size in SYMBOL.iter_unpack(entries):
            if info & 0xF in kinds and section != 0 and name_at < table.strings.size:
                with contextlib.suppress(ElfError):
                    name = self._image.string(table.strings.offset + name_at, _MAX_NAME)
                    yield Function(start, start + size, name)
