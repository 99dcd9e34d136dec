"""An ELF file: header, program headers, sections, and bounds-checked reads.

In: a path, or bytes. Out: an ``Image``, through which all other modules of this room read the file. Every offset and
count from the file is checked before use, so a hostile file gives ``ElfError`` and nothing else. It is used while the
target runs, so it is light: ``struct`` over a memory map, no LIEF. Layouts are those of the System V ABI, chapters 4
and 5, and its AMD64 supplement.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import struct
from functools import cached_property
from types import TracebackType

from memopt.ir.frozen import dataclass

PT_LOAD = 1
PT_DYNAMIC = 2
PT_GNU_EH_FRAME = 0x6474E550
PF_X = 1
PF_W = 2
PF_R = 4
SHT_SYMTAB = 2
SHT_NOBITS = 8
SHT_DYNSYM = 11
ET_EXEC = 2
ET_DYN = 3
EM_X86_64 = 62
PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")  # an entry of a symbol table: name, info, other, section, value, size

_MAX_PROGRAM_HEADERS = 256
_MAX_SECTIONS = 65536
_MAX_SECTION_NAME = 256
_MOST_HASHED = 64 << 20  # bytes of a file
_HEADER = struct.Struct("<HHIQQQIHHHHHH")  # e_type .. e_shstrndx
_DYNAMIC = struct.Struct("<qQ")
_MAX_DYNAMIC = 4096  # entries of the dynamic section


class ElfError(Exception):
    """The file is not what the caller asked for. The message is for the user and names no internals."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A program header. ``address`` is a link-time virtual address, ``offset`` a file offset, sizes are in bytes."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    file_size: int
    memory_size: int
    alignment: int

    @property
    def end(self) -> int:
        """The first address behind the segment in memory."""
        return self.address + self.memory_size

    @property
    def file_end(self) -> int:
        """The first file offset behind the segment's bytes."""
        return self.offset + self.file_size

    def packed(self) -> bytes:
        """The program header as in a file."""
        return PROGRAM_HEADER.pack(self.kind, self.flags, self.offset, self.address, self.physical, self.file_size,
                                   self.memory_size, self.alignment)


@dataclass(frozen=True, slots=True)
class Section:
    """A section header. ``name`` is "" where the names are stripped or malformed."""

    name: str
    name_at: int  # where the name begins in the section of names
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int

    @property
    def file_size(self) -> int:
        """How many bytes of the file it takes."""
        return 0 if self.kind == SHT_NOBITS else self.size

    def packed(self) -> bytes:
        """The section header as in a file."""
        return SECTION_HEADER.pack(self.name_at, self.kind, self.flags, self.address, self.offset, self.size, self.link,
                                   self.info, self.alignment, self.entry_size)


class Image:
    """A 64-bit little-endian x86-64 ELF file, mapped read-only. Use as a context manager.

    Raises ``ElfError`` when the file is not a regular file, not ELF, truncated, or for another machine; ``OSError``
    when it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ElfError("not a regular file")
            if status.st_size < 64:
                raise ElfError("too short for an ELF header")
            self._bytes: mmap.mmap | bytes = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        try:
            self._read_headers()
        except ElfError:
            self.close()
            raise

    @classmethod
    def of(cls, content: bytes) -> Image:
        """The file whose bytes are ``content``. Raises ``ElfError`` as above."""
        image = cls.__new__(cls)
        image._bytes = content
        if len(content) < 64:
            raise ElfError("too short for an ELF header")
        image._read_headers()
        return image

    def digest(self) -> str:
        """A hash of the file's content; "" for a file so large that it would take long."""
        return hashlib.sha256(self._bytes).hexdigest() if self.size <= _MOST_HASHED else ""

    def _read_headers(self) -> None:
        self.size = len(self._bytes)
        identity = self._bytes[:6]
        if identity[:4] != b"\x7fELF":
            raise ElfError("not an ELF file")
        if identity[4] != 2:
            raise ElfError("a 32-bit program")
        if identity[5] != 1:
            raise ElfError("for another architecture")
        fields = _HEADER.unpack_from(self._bytes, 16)
        self.kind, machine, _, self.entry, self.segments_at, self.sections_at = fields[:6]
        self._segment_size, self._segment_count, self._section_size, self._section_count, self.names_index = fields[8:]
        if machine != EM_X86_64:
            raise ElfError("for another architecture")
        if self.kind not in (ET_EXEC, ET_DYN):
            raise ElfError("neither an executable nor a shared object")
        self.segments = self._read_segments()

    def _read_segments(self) -> tuple[Segment, ...]:
        if self._segment_count > _MAX_PROGRAM_HEADERS or self._segment_size != PROGRAM_HEADER.size:
            raise ElfError("its program headers are malformed")
        table = self.read(self.segments_at, self._segment_count * self._segment_size)
        return tuple(Segment(*fields) for fields in PROGRAM_HEADER.iter_unpack(table))

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The section headers; empty where the file has none (stripping may remove them) or they are malformed."""
        count = self._section_count
        if not 0 < count <= _MAX_SECTIONS or self._section_size != SECTION_HEADER.size:
            return ()
        try:
            table = self.read(self.sections_at, count * self._section_size)
        except ElfError:
            return ()
        headers = list(SECTION_HEADER.iter_unpack(table))
        names_at = headers[self.names_index][4] if self.names_index < count else self.size
        return tuple(Section(self._section_name(names_at + fields[0]), *fields) for fields in headers)

    @cached_property
    def dynamic(self) -> tuple[tuple[int, int, int], ...]:
        """The entries of the dynamic section: tag, value, file offset of the entry. Empty for a static program.

        Raises ``ElfError`` where they lie outside the file.
        """
        found: list[tuple[int, int, int]] = []
        segment = next((s for s in self.segments if s.kind == PT_DYNAMIC), None)
        if segment is not None:
            count = min(segment.file_size // _DYNAMIC.size, _MAX_DYNAMIC)
            for number, (tag, value) in enumerate(_DYNAMIC.iter_unpack(
                    self.read(segment.offset, count * _DYNAMIC.size))):
                if tag == 0:
                    break
                found.append((tag, value, segment.offset + number * _DYNAMIC.size))
        return tuple(found)

    def _section_name(self, offset: int) -> str:
        return self.string(offset, _MAX_SECTION_NAME) if offset < self.size else ""

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes at file offset ``offset``; ``ElfError`` unless all of them lie in the file."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ElfError("truncated")
        return self._bytes[offset : offset + size]

    def string(self, offset: int, limit: int) -> str:
        """The NUL-terminated string at file offset ``offset``, cut at ``limit`` bytes and at the end of the file.

        Raises ``ElfError`` where ``offset`` is outside the file.
        """
        if not 0 <= offset < self.size:
            raise ElfError("truncated")
        end = self._bytes.find(b"\0", offset, min(offset + limit, self.size))
        return self._bytes[offset : end if end >= 0 else min(offset + limit, self.size)].decode("utf-8", "replace")

    def offset_of(self, address: int) -> int:
        """The file offset that holds link-time ``address``; ``ElfError`` when no loaded file byte does."""
        for segment in self.segments:
            if segment.kind == PT_LOAD and 0 <= address - segment.address < segment.file_size:
                return segment.offset + address - segment.address
        raise ElfError(f"no file byte is loaded at {address:#x}")

    def load_bias(self, mapping_start: int, mapping_offset: int) -> int:
        """The load bias: live address minus link-time address. 0 for a program at a fixed address.

        ``mapping_start``, ``mapping_offset``: the start and the file offset of one executable line of the memory map.
        It must be executable: a page on the border of two other segments is mapped twice, for either of them, and its
        offset does not tell which. Raises ``ElfError`` where the offset is in no executable segment.
        """
        for segment in self.segments:
            first = segment.offset & ~0xFFF
            executable = segment.kind == PT_LOAD and segment.flags & PF_X
            if executable and first <= mapping_offset < segment.offset + max(segment.file_size, 1):
                return mapping_start - (segment.address - segment.offset + mapping_offset)
        raise ElfError(f"file offset {mapping_offset:#x} belongs to no executable segment")

    def close(self) -> None:
        """Unmap the file."""
        if isinstance(self._bytes, mmap.mmap):
            self._bytes.close()

    def __enter__(self) -> Image:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        self.close()
