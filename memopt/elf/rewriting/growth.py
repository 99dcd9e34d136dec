"""The program header table grows in place: which bytes behind it have to leave, and where they go.

Example: in most programs ``.interp`` and ``.note.gnu.property`` lie behind the table. A new entry takes their place, so
both move into the new segment. In most libraries the build id and ``.gnu.hash`` lie there. ``.gnu.hash`` moves, and the
build id slides up within the freed place: core dumps keep only the first page of a file, and debuggers look for the
build id there.

In: an image, the number of new entries. Out: a ``Growth``. What can move: notes (those of one segment together),
``.interp``, and the tables that one dynamic tag names: ``.gnu.hash``, ``.hash``, ``.dynsym``. Other sections, and bytes
that belong to no section and are not zero, are in the way: ``NotRewritable(FILE_LAYOUT)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from memopt.elf.image import ET_EXEC, PROGRAM_HEADER, PT_LOAD, SHT_DYNSYM, ElfError, Image, Section
from memopt.elf.rewriting.refusals import NotRewritable
from memopt.ir.reasons import Reason

PT_INTERP, PT_NOTE, PT_PHDR, PT_GNU_PROPERTY = 3, 4, 6, 0x6474E553
PAGE = 4096
_SHT_HASH, _SHT_NOTE, _SHT_GNU_HASH = 5, 7, 0x6FFFFFF6
TAGS = {_SHT_HASH: 4, _SHT_GNU_HASH: 0x6FFFFEF5, SHT_DYNSYM: 6}  # DT_HASH, DT_GNU_HASH, DT_SYMTAB
_BUILD_ID = ".note.gnu.build-id"
# Bytes of a table that may move so that the build id stays; the file grows by as much. Into a larger gap of a program
# at a fixed address patchelf puts .dynamic: the dynamic linker writes there, and that memory is read-only.
_MOST_MOVED, _MOST_MOVED_FIXED = 16 << 10, 256


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes that move together: file offsets ``[start, end)``, loaded at ``address``; the sections that lie there."""

    start: int
    end: int
    address: int
    alignment: int
    sections: tuple[int, ...]  # indices in the section table

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Growth:
    """How the table grows.

    ``end``: file offset behind the grown table. ``leaving``: what moves into the new segment, in order. ``sliding``:
    blocks that stay near, with their new file offsets. ``widened``: the index of the PT_LOAD whose file and memory
    sizes must reach ``end``; None where it does already.
    """

    end: int
    leaving: tuple[Block, ...]
    sliding: tuple[tuple[Block, int], ...]
    widened: int | None


def growth(image: Image, entries: int) -> Growth:
    """Room for ``entries`` more program headers. Raises ``NotRewritable``, and ``ElfError`` for malformed files."""
    table_end = image.segments_at + len(image.segments) * PROGRAM_HEADER.size
    end = table_end + entries * PROGRAM_HEADER.size
    blocks = _blocks(image, table_end)
    count, limit = 0, blocks[0].start if blocks else image.size
    while limit < end:
        if not _movable(image, blocks[count]):
            names = ", ".join(image.sections[s].name or "a section" for s in blocks[count].sections)
            raise NotRewritable(Reason.FILE_LAYOUT, f"{names} is in the way of new program headers")
        count += 1
        limit = blocks[count].start if count < len(blocks) else image.size
    _check_padding(image, table_end, end, blocks)
    leaving, sliding = _with_build_id_near(image, blocks, count, end)
    return Growth(end, leaving, sliding, _widened(image, table_end, end))


def _blocks(image: Image, start: int) -> list[Block]:
    """The sections from file offset ``start`` on, those of one note segment as one block, sorted."""
    found: list[Block] = []
    numbered = sorted(((s.offset, s.offset + s.file_size, n, s) for n, s in enumerate(image.sections) if s.file_size))
    for at, section_end, number, section in numbered:
        if section_end <= start:
            continue
        if at < start:
            raise NotRewritable(Reason.FILE_LAYOUT, f"{section.name or 'a section'} holds the program headers")
        if found and (at < found[-1].end or _one_segment(image, found[-1].start, at)):
            last = found[-1]
            found[-1] = Block(last.start, max(last.end, section_end), last.address,
                              max(last.alignment, section.alignment), (*last.sections, number))
        else:
            found.append(Block(at, section_end, section.address, max(section.alignment, 1), (number,)))
    return found


def _one_segment(image: Image, first: int, second: int) -> bool:
    """Whether one segment of notes holds the file offsets ``first`` and ``second``."""
    return any(s.kind == PT_NOTE and s.offset <= first and second < s.file_end for s in image.segments)


def _movable(image: Image, block: Block) -> bool:
    sections = [image.sections[number] for number in block.sections]
    if not _loaded_together(image, block) or block.alignment & (block.alignment - 1) or block.alignment > PAGE:
        return False
    if all(s.kind == _SHT_NOTE for s in sections):
        return True
    return len(sections) == 1 and (_is_interpreter(image, sections[0]) or _is_named_by_a_tag(image, sections[0]))


def _loaded_together(image: Image, block: Block) -> bool:
    """Whether the block lies in one loaded segment, at the addresses that its sections say."""
    return any(s.kind == PT_LOAD and s.offset <= block.start and block.end <= s.file_end
               and all(image.sections[n].address - s.address == image.sections[n].offset - s.offset
                       for n in block.sections)
               for s in image.segments)


def _is_interpreter(image: Image, section: Section) -> bool:
    return any(s.kind == PT_INTERP and (s.offset, s.file_size) == (section.offset, section.size)
               for s in image.segments)


def _is_named_by_a_tag(image: Image, section: Section) -> bool:
    tag = TAGS.get(section.kind)
    return tag is not None and [v for t, v, _ in image.dynamic if t == tag] == [section.address]


def _check_padding(image: Image, start: int, end: int, blocks: list[Block]) -> None:
    """What lies between the sections must be zero. Raises ``NotRewritable``."""
    at = start
    for block in blocks:
        if at >= end:
            return
        if any(image.read(at, max(0, min(block.start, end) - at))):
            break
        at = max(at, block.end)
    else:
        if at >= end or (end <= image.size and not any(image.read(at, end - at))):
            return
    raise NotRewritable(Reason.FILE_LAYOUT, "unknown bytes are in the way of new program headers")


def _with_build_id_near(image: Image, blocks: list[Block], count: int, end: int
                        ) -> tuple[tuple[Block, ...], tuple[tuple[Block, int], ...]]:
    """The first ``count`` blocks leave, but for the build id where the freed place, or that of a small table of
    symbols behind it, has room for both the program headers and the build id."""
    found = next((b for b in blocks[:count] if any(image.sections[n].name == _BUILD_ID for n in b.sections)), None)
    if found is None:
        return tuple(blocks[:count]), ()
    place = found.start + -(found.start - end) // found.alignment * found.alignment
    most = _MOST_MOVED_FIXED if image.kind == ET_EXEC else _MOST_MOVED
    for taken in (count, count + 1):
        limit = blocks[taken].start if taken < len(blocks) else 0
        extra = blocks[count:taken]
        small = all(image.sections[n].kind in TAGS and b.size <= most for b in extra for n in b.sections)
        if place + found.size <= limit and small and all(_movable(image, b) for b in extra):
            return tuple(b for b in blocks[:taken] if b is not found), ((found, place),)
    return tuple(blocks[:count]), ()


def _widened(image: Image, table_end: int, end: int) -> int | None:
    """The index of the loaded segment that must grow to hold the new entries, where one holds the table."""
    loaded = [(n, s) for n, s in enumerate(image.segments) if s.kind == PT_LOAD]
    holder = next(((n, s) for n, s in loaded if s.offset <= image.segments_at and table_end <= s.file_end), None)
    if holder is None or holder[1].file_end >= end:
        return None
    number, segment = holder
    new_end = segment.address + end - segment.offset
    if segment.memory_size != segment.file_size or any(
            s.address & -PAGE < new_end for _, s in loaded if s.address > segment.address) or any(
            segment.offset < s.offset < end for _, s in loaded if s.file_size):
        raise NotRewritable(Reason.FILE_LAYOUT, "there is no room for new program headers")
    return number


def checked_load_order(image: Image) -> None:
    """Loaded segments must lie in the file and be sorted by address, apart. Raises ``NotRewritable``, ``ElfError``."""
    loaded = [s for s in image.segments if s.kind == PT_LOAD]
    if not loaded:
        raise NotRewritable(Reason.FILE_LAYOUT, "nothing of it is loaded")
    for segment in loaded:
        if segment.file_end > image.size or segment.memory_size < segment.file_size or segment.end >= 1 << 47:
            raise ElfError("its program headers are malformed")
    if any(a.end > b.address for a, b in pairwise(loaded)):
        raise NotRewritable(Reason.FILE_LAYOUT, "its segments are not sorted by address")
