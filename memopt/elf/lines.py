"""Source lines of addresses, from DWARF, by pyelftools, which only this module imports.

In: a path, link-time addresses. Out: ``file.c:12``, or None. It serves the report, after the program has ended. The
work is bounded in time and bytes: for a large or malformed file every answer may be None.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from memopt.elf.image import ElfError, Image
from memopt.elf.linetable import Header, find_row, rows_between

_MAX_DEBUG_BYTES = 256 << 20
_MAX_LINE_PROGRAM_BYTES = 2 << 20
_SECONDS = 1.0
_Answer = TypeVar("_Answer")


def _malformed() -> tuple[type[Exception], ...]:
    """The exceptions that pyelftools may raise for a hostile file: it checks little of what it reads."""
    from elftools.common.exceptions import DWARFError, ELFError
    from elftools.construct import ConstructError

    return (DWARFError, ELFError, ConstructError, ArithmeticError, AssertionError, AttributeError, LookupError,
            MemoryError, OSError, RecursionError, TypeError, ValueError)


def source_line(path: str, address: int) -> str | None:
    """``file.c:12`` for link-time ``address``; None without usable debug information."""
    def line(_: Any, program: Any) -> str | None:
        row = find_row(*_opcodes(program), address)
        return f"{os.path.basename(_names(program, row[0])[1])}:{row[1]}" if row else None

    return _ask(path, address, line)


def source_lines(path: str, start: int, end: int) -> list[tuple[int, str, int]]:
    """The line table of the link-time addresses ``[start, end)``: (address, path of the source, line), sorted.

    An entry holds up to the address of the next one. Empty without usable debug information.
    """
    def lines(unit: Any, program: Any) -> list[tuple[int, str, int]]:
        base = os.fsdecode(unit.get_top_DIE().attributes["DW_AT_comp_dir"].value)
        last = {address: (file, number) for address, file, number in rows_between(*_opcodes(program), start, end)}
        paths = {file: os.path.join(base, *_names(program, file)) for file, _ in last.values()}
        return [(address, paths[file], number) for address, (file, number) in sorted(last.items())]

    return _ask(path, start, lines) or []


def _ask(path: str, address: int, ask: Callable[[Any, Any], _Answer | None]) -> _Answer | None:
    """The first non-empty answer of ``ask(unit, line program)`` over the units that may contain ``address``."""
    try:
        with Image(path) as image:  # most programs have no line tables: skip the import of a large library
            if not any(section.name.endswith("debug_line") for section in image.sections):
                return None
    except (ElfError, OSError):
        return None
    try:
        with open(path, "rb") as stream:
            return next(filter(None, (ask(unit, program) for unit, program in _programs(stream, address))), None)
    except _malformed():
        return None


def _programs(stream: Any, address: int) -> Iterator[tuple[Any, Any]]:
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(stream)
    debug = [s for s in elf.iter_sections() if s.name.startswith((".debug_", ".zdebug_"))]
    if not any(s.name.endswith("debug_line") for s in debug) or sum(s.data_size for s in debug) > _MAX_DEBUG_BYTES:
        return
    dwarf = elf.get_dwarf_info(relocate_dwarf_sections=False, follow_links=False)
    deadline = time.monotonic() + _SECONDS
    for unit in _units_for(dwarf, address, deadline):
        program = dwarf.line_program_for_CU(unit)
        if program is not None and program.header["unit_length"] <= _MAX_LINE_PROGRAM_BYTES:
            yield unit, program


def _units_for(dwarf: Any, address: int, deadline: float) -> Iterator[Any]:
    """The compilation units that may contain ``address``: by .debug_aranges if it lists it, else all, until
    ``deadline``."""
    ranges = dwarf.get_aranges()
    offset = ranges.cu_offset_at_addr(address) if ranges else None
    if offset is not None:
        yield dwarf.get_CU_at(offset)
        return
    for unit in dwarf.iter_CUs():
        if time.monotonic() > deadline:
            return
        if _covers(unit, address):
            yield unit


def _covers(unit: Any, address: int) -> bool:
    top = unit.get_top_DIE().attributes
    low = top.get("DW_AT_low_pc")
    high = top.get("DW_AT_high_pc")
    if low is None or high is None:
        # The unit's code is in several ranges: only its line program can tell.
        return "DW_AT_ranges" in top
    end = high.value if high.form == "DW_FORM_addr" else low.value + high.value
    return bool(low.value <= address < end)


def _opcodes(program: Any) -> tuple[Header, bytes]:
    header = program.header
    program.stream.seek(program.program_start_offset)
    code = program.stream.read(program.program_end_offset - program.program_start_offset)
    return Header(header.opcode_base, header.line_base, header.line_range, header.minimum_instruction_length,
                  header.standard_opcode_lengths), code


def _names(program: Any, index: int) -> tuple[str, str]:
    """(folder, name) of file number ``index``. Folder 0 is the one in which the compiler ran (DWARF 5, 6.2.4)."""
    header = program.header
    later = header["version"] >= 5
    entry = header["file_entry"][index if later else index - 1]
    folders = header["include_directory"]
    number = entry.dir_index if later else entry.dir_index - 1
    return os.fsdecode(folders[number]) if number >= 0 else "", os.fsdecode(entry.name)
