"""Unwind tables for new code: debuggers, profilers and crash handlers get through it to its callers.

Three forms of the same rows: ``.eh_frame`` entries, which programs and profilers find through the search table
``.eh_frame_hdr``; a search table that holds the old entries and the new ones; ``.debug_frame`` for gdb, which reads
sections by name (DWARF 4, 6.4 and 7.23; Linux Standard Base Core, "Exception Frames").

In: ``UnwindRows``, and where the tables will lie. Out: their bytes. Sizes do not depend on places.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence

from memopt.elf.frame_rows import RETURN_ADDRESS, RSP, Rule, UnwindRow, UnwindRows, sleb128, uleb128
from memopt.elf.image import ElfError

_PCREL_SIGNED_4, _DATAREL_SIGNED_4, _UNSIGNED_4 = 0x1B, 0x3B, 0x03
_DATA_ALIGNMENT = -8
# DW_CFA_def_cfa rsp 8; DW_CFA_offset: the return address is at CFA - 8
_AT_ENTRY = bytes((0x0C, RSP, 8, 0x80 | RETURN_ADDRESS, 1))


def eh_frame(code: Sequence[UnwindRows], address: int) -> tuple[bytes, list[tuple[int, int]]]:
    """The entries for ``code`` in an ``.eh_frame`` at ``address``, and for each (code's start, entry's address)."""
    common = b"\1zR\0" + uleb128(1) + sleb128(_DATA_ALIGNMENT) + uleb128(RETURN_ADDRESS) + bytes((1, _PCREL_SIGNED_4))
    content = _entry(bytes(4) + common + _AT_ENTRY, 8)
    places = []
    for rows in code:
        at = len(content)
        head = struct.pack("<iiI", at + 4, _distance(rows.start, address + at + 8), rows.end - rows.start)
        content += _entry(head + b"\0" + _instructions(rows), 8)
        places.append((rows.start, address + at))
    return content + bytes(4), places


def debug_frame(code: Sequence[UnwindRows], begin: int) -> bytes:
    """The entries for ``code`` in a ``.debug_frame``, ``begin`` bytes behind its start."""
    common = b"\1\0" + uleb128(1) + sleb128(_DATA_ALIGNMENT) + uleb128(RETURN_ADDRESS)
    content = _entry(b"\xff" * 4 + common + _AT_ENTRY, 8)
    for rows in code:
        head = struct.pack("<IQQ", begin, rows.start, rows.end - rows.start)
        content += _entry(head + _instructions(rows), 8)
    return content


def search_table(entries: Iterable[tuple[int, int]], eh_frame_at: int, address: int) -> bytes:
    """An ``.eh_frame_hdr`` at ``address`` with ``entries`` (code's start, entry's address)."""
    ordered = sorted(entries)
    head = struct.pack("<BBBBiI", 1, _PCREL_SIGNED_4, _UNSIGNED_4, _DATAREL_SIGNED_4,
                       _distance(eh_frame_at, address + 4), len(ordered))
    return head + b"".join(struct.pack("<ii", _distance(start, address), _distance(entry, address))
                           for start, entry in ordered)


def _entry(content: bytes, alignment: int) -> bytes:
    """``content`` with its length before it, padded with DW_CFA_nop."""
    padding = -(len(content) + 4) % alignment
    return struct.pack("<I", len(content) + padding) + content + bytes(padding)


def _distance(to: int, of: int) -> int:
    if not -(1 << 31) <= to - of < 1 << 31:
        raise ElfError("its unwind tables are too far from its code")
    return to - of


def _instructions(rows: UnwindRows) -> bytes:
    """The call frame instructions that make these rows."""
    used = sorted({number for row in rows.rows for number, _ in row.saved} - {RETURN_ADDRESS})
    content, at = b"", rows.start
    for row in rows.rows:
        if row.start > at:
            content += b"\4" + struct.pack("<I", row.start - at)  # DW_CFA_advance_loc4
            at = row.start
        content += _cfa(row)
        rules = dict(row.saved)
        for number in used:
            content += _rule(number, rules.get(number))
        if RETURN_ADDRESS in rules:
            content += _rule(RETURN_ADDRESS, rules[RETURN_ADDRESS])
    return content


def _cfa(row: UnwindRow) -> bytes:
    if row.expression:
        return b"\x0f" + _block(row.expression)  # DW_CFA_def_cfa_expression
    if row.offset >= 0:
        return b"\x0c" + uleb128(row.register) + uleb128(row.offset)  # DW_CFA_def_cfa
    return b"\x12" + uleb128(row.register) + _factored(row.offset)  # DW_CFA_def_cfa_sf


def _rule(number: int, rule: Rule | None) -> bytes:
    if rule is None:
        return b"\6" + uleb128(number)  # DW_CFA_restore_extended
    forms: dict[str, tuple[int, Callable[[], bytes]]] = {
        "offset": (0x11, lambda: _factored(rule.value)), "val_offset": (0x15, lambda: _factored(rule.value)),
        "register": (0x09, lambda: uleb128(rule.value)), "expression": (0x10, lambda: _block(rule.expression)),
        "val_expression": (0x16, lambda: _block(rule.expression)), "same": (0x08, bytes), "undefined": (0x07, bytes),
    }
    operation, operand = forms[rule.kind]
    return bytes((operation,)) + uleb128(number) + operand()


def _factored(offset: int) -> bytes:
    if offset % _DATA_ALIGNMENT:
        raise ElfError(f"a register is saved at an unaligned place ({offset})")
    return sleb128(offset // _DATA_ALIGNMENT)


def _block(expression: bytes) -> bytes:
    return uleb128(len(expression)) + expression
