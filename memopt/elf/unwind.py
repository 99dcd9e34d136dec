"""Function ranges from the unwind tables, which even a stripped program has.

In: an open file, a link-time address. Out: the [start, end) of the function there; or all ranges; or the address of a
function's language-specific data.

``.eh_frame_hdr`` holds a table sorted by address for binary search (Linux Standard Base Core, "Exception Frames";
encodings: DW_EH_PE_*). One lookup reads some twenty entries from the file, however large it is. Static programs lack
that table; their ``.eh_frame`` is read from the start.

Tables that cannot be read count as "no range", never as an error, because ranges only help to find loops.
"""

from __future__ import annotations

import bisect
import contextlib
import struct
from collections.abc import Iterator

from memopt.elf.image import PT_GNU_EH_FRAME, ElfError, Image
from memopt.ir.frozen import dataclass

_MAX_FUNCTIONS = 1 << 16
_PCREL_SIGNED_4 = 0x1B
_UNSIGNED_4 = 0x03
_DATAREL_SIGNED_4 = 0x3B
_MAX_AUGMENTATION = 16


@dataclass(frozen=True, slots=True)
class _SearchTable:
    """The binary-search table of .eh_frame_hdr; entries are read from the file when asked for."""

    image: Image
    offset: int
    address: int  # of .eh_frame_hdr: entries are relative to it
    count: int

    def entry(self, index: int) -> tuple[int, int]:
        """(function start, address of its frame description entry)."""
        start, description = struct.unpack("<ii", self.image.read(self.offset + 8 * index, 8))
        return self.address + start, self.address + description


def _search_table(image: Image) -> _SearchTable | None:
    header = next((s for s in image.segments if s.kind == PT_GNU_EH_FRAME), None)
    if header is None:
        return None
    version, _, count_encoding, table_encoding, _, count = struct.unpack("<BBBBiI", image.read(header.offset, 12))
    if (version, count_encoding, table_encoding) != (1, _UNSIGNED_4, _DATAREL_SIGNED_4):
        return None
    room = (image.size - header.offset - 12) // 8
    return _SearchTable(image, header.offset + 12, header.address, min(count, room))


def search_entries(image: Image) -> list[tuple[int, int]] | None:
    """The table of .eh_frame_hdr: (function start, address of its frame description entry), in order.

    None where the file has no table, or an unusual one. Raises ``ElfError`` for a table that is cut off."""
    table = _search_table(image)
    if table is None:
        return None
    content = image.read(table.offset, 8 * table.count)
    return [(table.address + start, table.address + entry) for start, entry in struct.iter_unpack("<ii", content)]


def description_at(image: Image, address: int) -> int | None:
    """The address of the frame description entry that may cover link-time ``address``; None where the file has no
    search table, or one that begins behind it. Raises ``ElfError``."""
    table = _search_table(image)
    if table is None:
        return None
    index = bisect.bisect_right(range(table.count), address, key=lambda i: table.entry(i)[0]) - 1
    return table.entry(index)[1] if index >= 0 else None


def _range_length(image: Image, description: int, pointer_encodings: dict[int, int]) -> int:
    """The size in bytes of the function of the frame description entry at ``description``; 0 where its encoding is not
    the usual one (PC-relative, signed, 4 bytes)."""
    at = image.offset_of(description)
    length, common_distance = struct.unpack("<Ii", image.read(at, 8))
    if length in (0, 0xFFFFFFFF):
        return 0
    common = at + 4 - common_distance
    if common not in pointer_encodings:
        pointer_encodings[common] = _pointer_encoding(image, common)
    if pointer_encodings[common] != _PCREL_SIGNED_4:
        return 0
    size: int = struct.unpack("<I", image.read(at + 12, 4))[0]
    return size


def _pointer_encoding(image: Image, common: int, wanted: str = "R") -> int:
    """The DW_EH_PE encoding of code pointers ('R') or of pointers to language-specific data ('L').

    It is read from the common information entry at file offset ``common``; 0 where that has none.
    """
    augmentation = image.string(common + 9, _MAX_AUGMENTATION)
    if not augmentation.startswith("z"):
        return 0
    at = common + 9 + len(augmentation) + 1
    for _ in range(3):  # code alignment, data alignment, return register: LEB128 numbers
        at = _after_leb128(image, at)
    at = _after_leb128(image, at)  # length of the augmentation data
    for letter in augmentation[1:]:
        match letter:
            case "R" | "L":
                if letter == wanted:
                    return image.read(at, 1)[0]
                at += 1
            case "P":
                encoding = image.read(at, 1)[0]
                at += 1 + {2: 2, 3: 4, 4: 8}.get(encoding & 7, 8)
            case _:
                return 0
    return 0


def _after_leb128(image: Image, at: int) -> int:
    for length in range(10):
        if not image.read(at + length, 1)[0] & 0x80:
            return at + length + 1
    raise ElfError("a number in its unwind tables is malformed")


def data_of_function(image: Image, start: int) -> int | None:
    """The link-time address of the language-specific data of the function that starts at ``start``.

    None where the function has none, or their encoding is not the usual one. Raises ``ElfError`` for malformed tables.
    """
    table = _search_table(image)
    if table is None:
        return None
    index = bisect.bisect_right(range(table.count), start, key=lambda i: table.entry(i)[0]) - 1
    if index < 0 or table.entry(index)[0] != start:
        return None
    at = image.offset_of(table.entry(index)[1])
    common = at + 4 - struct.unpack("<i", image.read(at + 4, 4))[0]
    if (_pointer_encoding(image, common), _pointer_encoding(image, common, "L")) != (_PCREL_SIGNED_4, _PCREL_SIGNED_4):
        return None
    field = _after_leb128(image, at + 16)
    distance: int = struct.unpack("<i", image.read(field, 4))[0]
    return table.entry(index)[1] + field - at + distance if distance else None


def function_ranges(path: str) -> list[tuple[int, int]]:
    """Sorted (start, end) of the functions that the unwind tables describe, at most 65,536 of them.

    Empty where the file has no usable tables. For a single address ``function_range_at`` reads far less of a large
    file.
    """
    try:
        with Image(path) as image:
            return all_ranges(image)
    except (ElfError, OSError):
        return []


def all_ranges(image: Image) -> list[tuple[int, int]]:
    """``function_ranges`` of an open file, as far as its tables can be read."""
    found: list[tuple[int, int]] = []
    with contextlib.suppress(ElfError):
        found.extend(_all_ranges(image))
    return found


def _all_ranges(image: Image) -> Iterator[tuple[int, int]]:
    table = _search_table(image)
    if table is None:
        yield from sorted(_scanned_ranges(image))
        return
    encodings: dict[int, int] = {}
    for index in range(min(table.count, _MAX_FUNCTIONS)):
        start, description = table.entry(index)
        size = _range_length(image, description, encodings)
        if size:
            yield start, start + size


def _scanned_ranges(image: Image) -> Iterator[tuple[int, int]]:
    """The ranges of the frame description entries of ``.eh_frame``, in the order of the file."""
    section = next((s for s in image.sections if s.name == ".eh_frame"), None)
    if section is None:
        return
    at, end = section.offset, min(section.offset + section.size, image.size)
    encodings: dict[int, int] = {}
    for _ in range(_MAX_FUNCTIONS):
        if at + 16 > end:
            return
        length, distance, start = struct.unpack("<Iii", image.read(at, 12))
        if length in (0, 0xFFFFFFFF):
            return
        field = section.address + at + 8 - section.offset
        size = _range_length(image, field - 8, encodings) if distance else 0
        if size:
            yield field + start, field + start + size
        at += 4 + length


def function_range_at(image: Image, address: int) -> tuple[int, int] | None:
    """(start, end) of the function that contains link-time ``address``; None where the tables have none."""
    try:
        table = _search_table(image)
        if table is None:
            return next((r for r in _scanned_ranges(image) if r[0] <= address < r[1]), None)
        index = bisect.bisect_right(range(table.count), address, key=lambda i: table.entry(i)[0]) - 1
        if index < 0:
            return None
        start, description = table.entry(index)
        size = _range_length(image, description, {})
    except ElfError:
        return None
    return (start, start + size) if start <= address < start + size else None
