"""Relocations of the global offset table: the symbol whose address the dynamic linker puts into a slot.

Example: ``call [rip + 0x2fe2]`` calls through the slot of ``memcpy``; the slot's relocation names it, even in a
stripped program.

In: the file, the link-time address of a slot, or a name. Out: the symbol's name; whether the file defines a function or
variable of a name, and which it takes from others. Relocations of the types R_X86_64_GLOB_DAT and R_X86_64_JUMP_SLOT
are read (AMD64 supplement to the System V ABI, 4.4).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from memopt.elf.image import SHT_DYNSYM, SHT_SYMTAB, SYMBOL, Image, Section

_SHT_RELA = 4
_RELOCATION = struct.Struct("<QQq")
_FILLS_A_SLOT = (6, 7)  # R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT
_FUNCTION_KINDS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_OBJECT_KINDS = (1,)  # STT_OBJECT
_MAX_ENTRIES = 1 << 20
_MAX_NAME = 256


def symbol_of_slot(image: Image, slot: int) -> str:
    """The symbol whose address the dynamic linker puts at link-time address ``slot``; "" where it puts none."""
    return next((_name(image, table, index) for at, table, index in _slots(image) if at == slot), "")


def slots(image: Image) -> dict[int, str]:
    """Every slot of the file: link-time address -> symbol."""
    return {at: _name(image, table, index) for at, table, index in _slots(image)}


def imports(image: Image) -> frozenset[str]:
    """The names of the symbols that the file takes from others (dynamic symbol table); none of a static program."""
    return frozenset(image.string(strings + at, _MAX_NAME) for strings, (at, _, _, section, _, _)
                     in _entries(image, SHT_DYNSYM) if at and not section)


def _slots(image: Image) -> Iterator[tuple[int, Section, int]]:
    """(address, symbol table, number of the symbol in it) of each slot."""
    for section in image.sections:
        if section.kind == _SHT_RELA and section.link < len(image.sections):
            count = min(section.size // _RELOCATION.size, _MAX_ENTRIES)
            for offset, info, _ in _RELOCATION.iter_unpack(image.read(section.offset, count * _RELOCATION.size)):
                if info & 0xFFFFFFFF in _FILLS_A_SLOT:
                    yield offset, image.sections[section.link], info >> 32


def _name(image: Image, table: Section, index: int) -> str:
    if table.kind != SHT_DYNSYM or not 0 <= index < table.size // SYMBOL.size or table.link >= len(image.sections):
        return ""
    name, *_ = SYMBOL.unpack(image.read(table.offset + index * SYMBOL.size, SYMBOL.size))
    return image.string(image.sections[table.link].offset + name, _MAX_NAME)


def exports(image: Image, name: str) -> bool:
    """Whether the file exports a function ``name`` (dynamic symbol table)."""
    return _defined(image, SHT_DYNSYM, name, _FUNCTION_KINDS) is not None


def defines(image: Image, name: str) -> bool:
    """Whether the file has a function ``name``, exported or not."""
    return any(_defined(image, table, name, _FUNCTION_KINDS) is not None for table in (SHT_DYNSYM, SHT_SYMTAB))


def variable(image: Image, name: str) -> int | None:
    """The link-time address of the variable ``name`` that the file defines; None where it defines none."""
    places = (_defined(image, table, name, _OBJECT_KINDS) for table in (SHT_DYNSYM, SHT_SYMTAB))
    return next((p for p in places if p is not None), None)


def _defined(image: Image, tables: int, name: str, kinds: tuple[int, ...]) -> int | None:
    return next((value for strings, (at, info, _, section, value, _) in _entries(image, tables)
                 if info & 0xF in kinds and section and image.string(strings + at, _MAX_NAME) == name), None)


def _entries(image: Image, tables: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each entry of the symbol tables of this kind, with the file offset of the names."""
    for table in image.sections:
        if table.kind == tables and table.link < len(image.sections):
            count, strings = min(table.size // SYMBOL.size, _MAX_ENTRIES), image.sections[table.link].offset
            for entry in SYMBOL.iter_unpack(image.read(table.offset, count * SYMBOL.size)):
                yield strings, entry
