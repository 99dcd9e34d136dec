"""Writes a rewritten ELF file: new code in a segment at the end, zeroed memory behind .bss, patches in the old code.

All addresses and nearly all bytes of the original stay. The program header table grows where it is (``growth``): it is
what kernels and loaders look at, and tools write it back to where it was. One PT_LOAD, readable and executable, is
added behind the others. In it lie the record, the code and what had to leave its place. Every byte of it belongs to a
section with a header, because ``strip`` and ``objcopy`` drop other bytes without a word. New section headers come last,
so that no index in symbols and links changes.

In: an image and an ``Addition``. Out: the bytes of the new file, the same for the same input. Nothing is written here.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from memopt import __version__
from memopt.elf.frame_rows import UnwindRows
from memopt.elf.image import (
    PF_R,
    PF_W,
    PF_X,
    PROGRAM_HEADER,
    PT_GNU_EH_FRAME,
    PT_LOAD,
    SECTION_HEADER,
    SHT_NOBITS,
    ElfError,
    Image,
    Section,
    Segment,
)
from memopt.elf.rewriting.frames import debug_frame, eh_frame, search_table
from memopt.elf.rewriting.growth import PAGE, PT_PHDR, TAGS, Block, Growth, growth
from memopt.elf.rewriting.original import symbol_name
from memopt.elf.rewriting.record import (
    HEADER_SIZE,
    SECTION,
    STATE_SECTION,
    Change,
    PatchRecord,
    Record,
    VersionRecord,
    changes_of,
    header_of,
    parsed,
    printable,
    text_of,
)
from memopt.elf.rewriting.refusals import NotRewritable
from memopt.elf.rewriting.room import ALIGNMENT, STATE_LIMIT, Room, room
from memopt.elf.rewriting.sections import NewSymbol, Place, Tail, tail
from memopt.elf.unwind import search_entries
from memopt.ir.reasons import Reason, VerifyError

_SHT_PROGBITS = 1
_EH_FRAME_SECTION = ".memopt.eh_frame"
_SHF_WRITE, _SHF_ALLOC, _SHF_EXECINSTR = 1, 2, 4
_MOST_SECTIONS = 0xFF00 - 8  # SHN_LORESERVE: larger indices have other forms
_SECTIONS_AT, _COUNTS_AT = 40, 56  # in the ELF header: e_shoff; e_phnum, e_shentsize, e_shnum
_BUILD_ID, _BUILD_ID_HEAD, _MOST_BUILD_ID = ".note.gnu.build-id", 16, 64


@dataclass(frozen=True, slots=True)
class Patch:
    """``new`` replaces the bytes at link address ``address``."""

    address: int
    new: bytes


@dataclass(frozen=True, slots=True)
class Addition:
    """What a file gets: ``code`` for the address ``room(image, state_limit).code``, ``state_bytes`` of zeroed memory at
    ``room(image, state_limit).state``, patches of the old code, and for debuggers and profilers the rows of the new
    code."""

    code: bytes
    state_bytes: int
    patches: tuple[Patch, ...]
    versions: tuple[VersionRecord, ...] = ()
    state_limit: int = STATE_LIMIT
    unwind: tuple[UnwindRows, ...] = ()


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes of the new segment at file offset ``offset`` and link address ``address``."""

    offset: int
    address: int
    content: bytes

    @property
    def end(self) -> int:
        """The file offset behind it."""
        return self.offset + len(self.content)


@dataclass(frozen=True, slots=True)
class _Unwinding:
    """Unwind tables in the new segment: ``entries`` for the new code, ``search`` for all code. ``section``: the number
    of the section of the old search table, which the new one replaces."""

    entries: _Piece
    search: _Piece
    section: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where everything comes to lie.

    ``begin``: file offset of the new segment. ``own``: its first part, which the section ``.memopt`` describes.
    ``moved``: each block with its new place, in the new segment or slid. ``end``: file offset behind the segment.
    """

    place: Room
    grown: Growth
    begin: int
    own: _Piece
    moved: tuple[tuple[Block, _Piece], ...]
    unwinding: _Unwinding | None
    end: int
    tail: Tail

    @property
    def pieces(self) -> tuple[_Piece, ...]:
        """The contents of the new segment, in order."""
        unwinding = (self.unwinding.entries, self.unwinding.search) if self.unwinding else ()
        return (self.own, *(piece for _, piece in self.moved if piece.offset >= self.begin), *unwinding)


def written(image: Image, addition: Addition) -> bytes:
    """The rewritten file. ``check_file`` has been called for it.

    Raises ``NotRewritable(FILE_LAYOUT)`` where the file cannot be extended, ``ElfError`` where it is malformed or the
    addition does not fit, and ``VerifyError`` where the addition has words that a record may not hold.
    """
    place = room(image, addition.state_limit)
    _check(image, addition, place)
    grown = growth(image, 2 if place.own_segment and addition.state_bytes else 1)
    patches = _patches(image, addition.patches)
    # The places that change do not depend on the length of the record, which holds what was there.
    draft = _edits(image, addition, _layout(image, addition, place, grown, b""))
    changes = changes_of(image, ((at, len(new)) for at, new in draft))
    _check_apart(changes, patches)
    record = Record(
        memopt=__version__, length=image.size, sha256=hashlib.sha256(image.read(0, image.size)).hexdigest(),
        build_id=build_id(image), state=(place.state, addition.state_bytes),
        changes=changes,
        patches=tuple(PatchRecord(p.address, image.read(at, len(p.new)), p.new) for at, p in patches),
        versions=tuple(replace(v, function=printable(v.function)) for v in addition.versions))
    layout = _layout(image, addition, place, grown, _checked(record))
    edits = _edits(image, addition, layout)
    if [(at, len(new)) for at, new in edits] != [(at, len(new)) for at, new in draft]:
        raise VerifyError("the record of what is changed is not complete")
    content = bytearray(image.read(0, image.size)).ljust(layout.begin, b"\0")
    for at, new in (*edits, *((at, p.new) for at, p in patches)):
        content[at:at + len(new)] = new
    for piece in layout.pieces:
        content = content.ljust(piece.offset, b"\0") + piece.content
    return bytes(content + layout.tail.content)


def _checked(record: Record) -> bytes:
    """The record's text. Raises ``VerifyError`` where it could not be read back: then nothing could be undone."""
    try:
        text = text_of(record)
        read = parsed(text)
    except (ElfError, ValueError) as error:
        raise VerifyError("the record of what is changed cannot be read back") from error
    if read != record:
        raise VerifyError("the record of what is changed is read back differently")
    return text


def build_id(image: Image) -> str:
    """The build id of the file in hexadecimal; "" without one."""
    section = next((s for s in image.sections if s.name == _BUILD_ID), None)
    if section is None or not _BUILD_ID_HEAD < section.size <= _MOST_BUILD_ID:
        return ""
    return image.read(section.offset, section.size)[_BUILD_ID_HEAD:].hex()


def _check(image: Image, addition: Addition, place: Room) -> None:
    if not image.sections:
        raise NotRewritable(Reason.NO_SECTIONS)
    if len(image.sections) >= _MOST_SECTIONS or image.names_index >= len(image.sections):
        raise NotRewritable(Reason.FILE_LAYOUT, "its section headers have an unusual form")
    if not 0 <= addition.state_bytes <= addition.state_limit:
        raise ElfError(f"the new code needs {addition.state_bytes} bytes of memory, and {addition.state_limit} are "
                       "allowed")
    ranges = [*(v.code for v in addition.versions), *((rows.start, rows.end) for rows in addition.unwind)]
    if any(not place.code <= start <= end <= place.code + len(addition.code) for start, end in ranges):
        raise VerifyError("a version's code is not in what is added")


def _patches(image: Image, patches: Iterable[Patch]) -> list[tuple[int, Patch]]:
    """The patches with their file offsets, sorted. They lie apart, each in bytes of one executable segment."""
    found: list[tuple[int, Patch]] = []
    executable = [s for s in image.segments if s.kind == PT_LOAD and s.flags & PF_X]
    for patch in sorted(patches, key=lambda p: p.address):
        end = patch.address + len(patch.new)
        if not any(s.address <= patch.address and end <= s.address + s.file_size for s in executable):
            raise ElfError(f"no code of the file is at {patch.address:#x}")
        if found and patch.address < found[-1][1].address + len(found[-1][1].new):
            raise ElfError(f"two patches overlap at {patch.address:#x}")
        found.append((image.offset_of(patch.address), patch))
    return found


def _check_apart(changes: Iterable[Change], patches: Iterable[tuple[int, Patch]]) -> None:
    for change in changes:
        if any(change.offset < at + len(p.new) and at < change.offset + len(change.original) for at, p in patches):
            raise ElfError("a patch lies in the tables of the file")


def _layout(image: Image, addition: Addition, place: Room, grown: Growth, text: bytes) -> _Layout:
    begin, code = _aligned(image.size, PAGE), addition.code
    own = _Piece(begin, place.segment, header_of(text, HEADER_SIZE + len(code)) + code + text)
    at, up = own.end, place.segment - begin
    moved: list[tuple[Block, _Piece]] = []
    for block in grown.leaving:
        at = _aligned(at, max(block.alignment, 8))
        moved.append((block, _Piece(at, at + up, image.read(block.start, block.size))))
        at += block.size
    for block, to in grown.sliding:
        moved.append((block, _Piece(to, block.address + to - block.start, image.read(block.start, block.size))))
    unwinding = _unwinding(image, addition.unwind, _aligned(at, 8), up)
    end = unwinding.search.end if unwinding else at
    debug = partial(debug_frame, addition.unwind) if addition.unwind else None
    rest = tail(image, end, _places(image, moved, unwinding), _new_sections(image, addition, place, own, unwinding),
                _symbols(addition.versions), debug)
    return _Layout(place, grown, begin, own, tuple(moved), unwinding, end, rest)


def _unwinding(image: Image, code: Sequence[UnwindRows], at: int, up: int) -> _Unwinding | None:
    """Unwind tables from file offset ``at`` on, loaded ``up`` higher; None where the file has no search table.

    A static program without one registers its entries itself, and knows nothing of new ones."""
    old = search_entries(image) if code else None
    table = next((s for s in image.segments if s.kind == PT_GNU_EH_FRAME), None)
    section = next((n for n, s in enumerate(image.sections) if table and s.offset == table.offset and s.size), None)
    frames = next((s for s in image.sections if s.name == ".eh_frame"), None)
    if old is None or section is None or frames is None:
        return None
    content, places = eh_frame(code, at + up)
    entries = _Piece(at, at + up, content)
    search_at = _aligned(entries.end, 8)
    return _Unwinding(entries, _Piece(search_at, search_at + up, search_table((*old, *places), frames.address,
                                                                              search_at + up)), section)


def _edits(image: Image, addition: Addition, layout: _Layout) -> list[tuple[int, bytes]]:
    """What changes in the bytes of the original but for the patches: (file offset, new bytes)."""
    old, new = image.segments, _program_headers(image, addition, layout)
    table = [(image.segments_at + n * PROGRAM_HEADER.size, segment.packed()) for n, segment in enumerate(new)
             if n >= len(old) or segment != old[n]]
    head = [(_SECTIONS_AT, struct.pack("<Q", layout.tail.headers_at)),
            (_COUNTS_AT, struct.pack("<HHH", len(new), SECTION_HEADER.size, layout.tail.count))]
    slid = [(piece.offset, piece.content) for _, piece in layout.moved if piece.offset < layout.begin]
    return [*head, *table, *slid, *_dynamic_edits(image, layout)]


def _program_headers(image: Image, addition: Addition, layout: _Layout) -> list[Segment]:
    place, size = layout.place, layout.end - layout.begin
    segments = [_moved_segment(image, number, layout) for number in range(len(image.segments))]
    loaded = [n for n, s in enumerate(segments) if s.kind == PT_LOAD]
    added = [Segment(PT_LOAD, PF_R | PF_X, layout.begin, place.segment, place.segment, size, size, PAGE)]
    if addition.state_bytes and place.own_segment:
        added.insert(0, Segment(PT_LOAD, PF_R | PF_W, layout.begin, place.state, place.state, 0, addition.state_bytes,
                                PAGE))
    elif addition.state_bytes:
        last = segments[loaded[-1]]
        segments[loaded[-1]] = replace(last, memory_size=place.state + addition.state_bytes - last.address)
    segments[loaded[-1] + 1:loaded[-1] + 1] = added
    return segments


def _moved_segment(image: Image, number: int, layout: _Layout) -> Segment:
    """The program header of the original, as it is in the new file."""
    segment, grown = image.segments[number], layout.grown
    if segment.kind == PT_PHDR:
        size = grown.end - image.segments_at
        return replace(segment, file_size=size, memory_size=size)
    if number == grown.widened:
        size = grown.end - segment.offset
        return replace(segment, file_size=size, memory_size=size)
    if segment.kind == PT_GNU_EH_FRAME and layout.unwinding is not None:
        search, size = layout.unwinding.search, len(layout.unwinding.search.content)
        return replace(segment, offset=search.offset, address=search.address, physical=search.address, file_size=size,
                       memory_size=size)
    for block, piece in layout.moved:
        if segment.kind != PT_LOAD and segment.file_size and (
                block.start <= segment.offset and segment.file_end <= block.end):
            by, up = piece.offset - block.start, piece.address - block.address
            return replace(segment, offset=segment.offset + by, address=segment.address + up,
                           physical=(segment.physical + up) % (1 << 64))
    return segment


def _dynamic_edits(image: Image, layout: _Layout) -> Iterable[tuple[int, bytes]]:
    for block, piece in layout.moved:
        for number in block.sections:
            tag = TAGS.get(image.sections[number].kind)
            for at in (at for found, _, at in image.dynamic if found == tag):
                yield at + 8, struct.pack("<Q", piece.address)


def _new_sections(image: Image, addition: Addition, place: Room, own: _Piece, unwinding: _Unwinding | None
                  ) -> list[tuple[str, Section]]:
    """The headers of what is added to memory, with their names."""
    found = [(SECTION, Section(SECTION, 0, _SHT_PROGBITS, _SHF_ALLOC | _SHF_EXECINSTR, own.address, own.offset,
                               len(own.content), 0, 0, ALIGNMENT, 0))]
    if unwinding is not None:
        entries = unwinding.entries
        found.append((_EH_FRAME_SECTION, Section(_EH_FRAME_SECTION, 0, _SHT_PROGBITS, _SHF_ALLOC, entries.address,
                                                 entries.offset, len(entries.content), 0, 0, 8, 0)))
    if addition.state_bytes:
        last = [s for s in image.segments if s.kind == PT_LOAD][-1]
        offset = own.offset if place.own_segment else last.file_end
        found.append((STATE_SECTION, Section(STATE_SECTION, 0, SHT_NOBITS, _SHF_WRITE | _SHF_ALLOC, place.state,
                                             offset, addition.state_bytes, 0, 0, ALIGNMENT, 0)))
    return found


def _places(image: Image, moved: Sequence[tuple[Block, _Piece]], unwinding: _Unwinding | None) -> dict[int, Place]:
    """The new places of sections, by their numbers."""
    places = {}
    for block, piece in moved:
        for number in block.sections:
            section = image.sections[number]
            places[number] = Place(section.offset + piece.offset - block.start,
                                   section.address + piece.address - block.address, section.size)
    if unwinding is not None:
        search = unwinding.search
        places[unwinding.section] = Place(search.offset, search.address, len(search.content))
    return places


def _symbols(versions: Iterable[VersionRecord]) -> list[NewSymbol]:
    return [NewSymbol(symbol_name(v), v.code[0], v.code[1] - v.code[0]) for v in versions]


def _aligned(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment
