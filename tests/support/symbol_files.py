"""Files of symbols for stripped programs: the functions that memopt finds by unwind tables get a symbol each.

Example: ``/usr/bin/python3`` has a symbol for ``PyObject_Call``, but none for a static function at 0x545910, which
valgrind then takes for a part of what jumped to it. A file with a symbol ``function_0x545910`` makes both see the same
functions.

In: an executable or library with the name of a debug file in it (``.gnu_debuglink``), and that file's checksum. Out: a
file of that name and checksum, in a folder for valgrind's option ``--extra-debuginfo-path``: a copy with a table of
symbols (System V ABI, chapter 4).
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

from memopt.elf.image import Image
from memopt.elf.symbols import Function, Symbols

_SECTION = struct.Struct("<2I4Q2I2Q")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _STRTAB = 2, 3
_HEADERS_AT, _COUNT_AT = 0x28, 0x3C  # in the header of the file: e_shoff; e_shnum, followed by e_shstrndx


def write_symbols(path: str, folder: Path) -> None:
    """Writes the file of symbols for ``path``. Does nothing for a file that has symbols, or names no debug file."""
    with Image(path) as image:
        sections = {s.name: s for s in image.sections}
        link = sections.get(".gnu_debuglink")
        if ".symtab" in sections or link is None or ".text" not in sections:
            return
        name = image.string(link.offset, 256)
        checksum = int.from_bytes(image.read(link.offset + link.size - 4, 4), "little")
        found = [f for f in Symbols(image).everything if not f.name]
    content = _with_checksum(_with_symbols(Path(path).read_bytes(), found), checksum)
    for place in {os.path.dirname(path), os.path.dirname(os.path.realpath(path))}:
        to = folder / place.lstrip("/") / name
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(content)


def _with_symbols(content: bytes, functions: Iterable[Function]) -> bytes:
    """A file of 64 bits with a symbol for each function, of its section."""
    (headers_at,) = struct.unpack_from("<Q", content, _HEADERS_AT)
    count, names = struct.unpack_from("<2H", content, _COUNT_AT)
    headers = [list(_SECTION.unpack_from(content, headers_at + _SECTION.size * n)) for n in range(count)]
    strings, symbols = bytearray(b"\0"), bytearray(_SYMBOL.size)
    for function in functions:
        index = next((n for n, (_, _, _, at, _, size, *_) in enumerate(headers)
                      if at and at <= function.start < at + size), 0)
        symbols += _SYMBOL.pack(len(strings), 2, 0, index, function.start, function.end - function.start)
        strings += f"function_{function.start:#x}".encode() + b"\0"
    (_, _, _, _, names_at, names_bytes, *_) = headers[names]
    shown = content[names_at:names_at + names_bytes] + b".symtab\0.strtab\0"
    end = len(content) + -len(content) % 8
    symbols_at = end + len(shown) + -len(shown) % 8
    strings_at = symbols_at + len(symbols)
    headers[names][4:6] = end, len(shown)
    every = len(symbols) // _SYMBOL.size
    headers.append([names_bytes, _SYMTAB, 0, 0, symbols_at, len(symbols), count + 1, every, 8, _SYMBOL.size])
    headers.append([names_bytes + 8, _STRTAB, 0, 0, strings_at, len(strings), 0, 0, 1, 0])
    made = bytearray(content).ljust(end, b"\0") + shown.ljust(symbols_at - end, b"\0") + symbols + strings
    made += bytes(-len(made) % 8)
    struct.pack_into("<Q", made, _HEADERS_AT, len(made))
    struct.pack_into("<H", made, _COUNT_AT, count + 2)
    return bytes(made + b"".join(_SECTION.pack(*header) for header in headers))


def _with_checksum(content: bytes, wanted: int) -> bytes:
    """``content`` with four bytes behind it, such that its CRC-32 is ``wanted``: the steps of the last four bytes are
    undone one by one."""
    table = {zlib.crc32(bytes((n,))) ^ zlib.crc32(b"\0"): n for n in range(256)}
    by_top = {word >> 24: (word, n) for word, n in table.items()}
    state = wanted ^ 0xFFFFFFFF
    for _ in range(4):
        word, n = by_top[state >> 24]
        state = ((state ^ word) << 8 | n) & 0xFFFFFFFF
    return content + (state ^ zlib.crc32(content) ^ 0xFFFFFFFF).to_bytes(4, "little")
