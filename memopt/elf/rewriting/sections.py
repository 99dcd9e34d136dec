"""The end of a rewritten file, which is not loaded: gdb's unwind table, symbols, section headers and their names.

New sections come last in the table, so that no index in symbols and links changes. Symbols ``memopt:FUNCTION`` name the
new code for debuggers and profilers. They are local ones in copies of ``.symtab`` and ``.strtab``, where the file has
these, they are not large, and nothing counts symbols by number.

In: an image, the new places of sections, the new sections and symbols. Out: a ``Tail``. Its size does not depend on
the places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from memopt.elf.image import SECTION_HEADER, SHT_SYMTAB, SYMBOL, Image, Section

_SHT_PROGBITS, _SHT_STRTAB, _SHT_RELA, _SHT_REL, _SHT_GROUP, _SHT_SYMTAB_SHNDX = 1, 3, 4, 9, 17, 18
_SHF_COMPRESSED = 0x800
_STT_FUNC = 2
_DEBUG_FRAME = ".debug_frame"
_MOST_COPIED = 48 << 10  # bytes of symbols and their names: the file grows by as much


@dataclass(frozen=True, slots=True)
class Place:
    """Where a section of the original lies in the new file."""

    offset: int
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class NewSymbol:
    """A function of new code at ``address``."""

    name: str
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Tail:
    """``content`` follows the last loaded byte. ``headers_at``: file offset of the ``count`` section headers."""

    content: bytes
    headers_at: int
    count: int


def tail(image: Image, end: int, places: Mapping[int, Place], added: Sequence[tuple[str, Section]],
         symbols: Sequence[NewSymbol], debug_frame: Callable[[int], bytes] | None) -> Tail:
    """What follows file offset ``end``.

    ``places``: by the number of a section. ``added``: new sections with their names; new code is in the first.
    ``debug_frame``: makes the entries for the new code, for the given number of bytes before them in their section.
    """
    writing = _Writing(image, end, places, list(added))
    if debug_frame is not None:
        writing.add_debug_frame(debug_frame)
    if symbols:
        writing.add_symbols(symbols)
    return writing.finished()


class _Writing:
    """The sections so far, and the bytes behind ``end``."""

    def __init__(self, image: Image, end: int, places: Mapping[int, Place], added: list[tuple[str, Section]]) -> None:
        self._image, self._end, self._places, self._added = image, end, places, added
        self._content = b""
        self._sections = [s if n not in places else
                          replace(s, offset=places[n].offset, address=places[n].address, size=places[n].size)
                          for n, s in enumerate(image.sections)]
        self._names = b""  # more of them, behind those of the original

    def _put(self, content: bytes) -> int:
        """Appends ``content``; returns its file offset."""
        self._content += bytes(-(self._end + len(self._content)) % 8)
        at = self._end + len(self._content)
        self._content += content
        return at

    def add_debug_frame(self, make: Callable[[int], bytes]) -> None:
        number = next((n for n, s in enumerate(self._sections) if s.name == _DEBUG_FRAME), None)
        if number is None:
            content = make(0)
            self._added.append((_DEBUG_FRAME, Section(_DEBUG_FRAME, 0, _SHT_PROGBITS, 0, 0, self._put(content),
                                                      len(content), 0, 0, 8, 0)))
        elif not self._sections[number].flags & _SHF_COMPRESSED:
            old = self._sections[number]
            content = self._image.read(old.offset, old.size)
            content += make(len(content))
            self._sections[number] = replace(old, offset=self._put(content), size=len(content))

    def add_symbols(self, symbols: Sequence[NewSymbol]) -> None:
        found = _symbol_table(self._image)
        if found is None:
            return
        number, table, strings = found
        names, entries = self._image.read(strings.offset, strings.size), b""
        for symbol in symbols:
            entries += SYMBOL.pack(len(names), _STT_FUNC, 0, len(self._image.sections), symbol.address, symbol.size)
            names += symbol.name.encode() + b"\0"
        at = table.info * SYMBOL.size
        old = self._with_moved_symbols(self._image.read(table.offset, table.size))
        content = old[:at] + entries + old[at:]
        self._sections[number] = replace(table, offset=self._put(content), size=len(content),
                                         info=table.info + len(symbols))
        if table.link == self._image.names_index:
            self._names = names[strings.size:]
        else:
            self._sections[table.link] = replace(strings, offset=self._put(names), size=len(names))

    def _with_moved_symbols(self, table: bytes) -> bytes:
        """The symbols that name places in sections that moved follow them."""
        moved = bytearray(table)
        for at in range(0, len(table), SYMBOL.size):
            name, info, other, number, value, size = SYMBOL.unpack_from(table, at)
            if number in self._places:
                section = self._image.sections[number]
                if section.address <= value < section.address + section.size:
                    value += self._places[number].address - section.address
                    SYMBOL.pack_into(moved, at, name, info, other, number, value, size)
        return bytes(moved)

    def finished(self) -> Tail:
        index = self._image.names_index
        names = self._image.sections[index]
        text = self._image.read(names.offset, names.size) + self._names
        headers: list[Section] = []
        for name, section in self._added:
            headers.append(replace(section, name_at=len(text)))
            text += name.encode() + b"\0"
        self._sections[index] = replace(names, offset=self._put(text), size=len(text))
        packed = b"".join(s.packed() for s in (*self._sections, *headers))
        at = self._put(packed)
        return Tail(self._content, at, len(packed) // SECTION_HEADER.size)


def _symbol_table(image: Image) -> tuple[int, Section, Section] | None:
    """The number of the symbol table, the table, and its names; None where it must not or need not grow."""
    number = next((n for n, s in enumerate(image.sections) if s.kind == SHT_SYMTAB), None)
    if number is None:
        return None
    table = image.sections[number]
    counted = any(s.size and s.link == number and s.kind in (_SHT_RELA, _SHT_REL, _SHT_GROUP, _SHT_SYMTAB_SHNDX)
                  for s in image.sections)
    if counted or table.link >= len(image.sections):
        return None
    if table.size % SYMBOL.size or table.info * SYMBOL.size > table.size:
        return None
    strings = image.sections[table.link]
    if strings.kind != _SHT_STRTAB or table.size + strings.size > _MOST_COPIED:
        return None
    return number, table, strings
