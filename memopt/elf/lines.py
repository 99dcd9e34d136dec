"""Source lines from DWARF, by pyelftools, which only this module imports.

For the report, after the program has ended. A large or malformed file costs a bounded amount of work and then has
no line: every answer may be None.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from memopt.elf.image import ElfError, Image
from memopt.elf.linetable import Header, find_row

_MAX_DEBUG_BYTES = 256 << 20
_MAX_LINE_PROGRAM_BYTES = 2 << 20
_SECONDS = 1.0


def _malformed() -> tuple[type[Exception], ...]:
    """pyelftools checks little of what it reads: a hostile file surfaces as any of these."""
    from elftools.common.exceptions import DWARFError, ELFError
    from elftools.construct import ConstructError

    return (DWARFError, ELFError, ConstructError, ArithmeticError, AssertionError, AttributeError, LookupError,
            MemoryError, OSError, RecursionError, TypeError, ValueError)


def source_line(path: str, address: int) -> str | None:
    """``file.c:12`` for link-time ``address``, or None without (usable) debug information."""
    try:
        with Image(path) as image:  # a look that spares most programs the import of a big library
            if not any(section.name.endswith("debug_line") for section in image.sections):
                return None
    except (ElfError, OSError):
        return None
    try:
        with open(path, "rb") as stream:
            return _find_line(stream, address)
    except _malformed():
        return None


def _find_line(stream: Any, address: int) -> str | None:
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(stream)
    debug = [s for s in elf.iter_sections() if s.name.startswith((".debug_", ".zdebug_"))]
    if not any(s.name.endswith("debug_line") for s in debug) or sum(s.data_size for s in debug) > _MAX_DEBUG_BYTES:
        return None
    dwarf = elf.get_dwarf_info(relocate_dwarf_sections=False, follow_links=False)
    deadline = time.monotonic() + _SECONDS
    for unit in _units_for(dwarf, address, deadline):
        program = dwarf.line_program_for_CU(unit)
        if program is None or program.header["unit_length"] > _MAX_LINE_PROGRAM_BYTES:
            continue
        line = _line_in_program(program, address)
        if line:
            return line
    return None


def _units_for(dwarf: Any, address: int, deadline: float) -> Iterator[Any]:
    """The compilation units whose ranges contain ``address``: by .debug_aranges where it is, else one by one."""
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
        # Its code is in several pieces: only its line program can tell.
        return "DW_AT_ranges" in top
    end = high.value if high.form == "DW_FORM_addr" else low.value + high.value
    return bool(low.value <= address < end)


def _line_in_program(program: Any, address: int) -> str | None:
    header = program.header
    program.stream.seek(program.program_start_offset)
    code = program.stream.read(program.program_end_offset - program.program_start_offset)
    fields = Header(header.opcode_base, header.line_base, header.line_range, header.minimum_instruction_length,
                    header.standard_opcode_lengths)
    row = find_row(fields, code, address)
    return f"{_file_name(program, row[0])}:{row[1]}" if row else None


def _file_name(program: Any, index: int) -> str:
    files = program.header["file_entry"]
    name = files[index if program.header["version"] >= 5 else index - 1].name
    return os.path.basename(os.fsdecode(name))
