"""An interpreter of DWARF line-number programs (DWARF 5, section 6.2.5; the opcodes of versions 2 to 5).

In: the header's parameters and the bytes of a line-number program. Out: rows of (address, file number, line).

pyelftools decodes the same program some twenty times slower. For a large unit that would take more time than memopt may
cost a program that has nothing to gain.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE = 1, 2, 3, 4
_CONST_ADD_PC, _FIXED_ADVANCE_PC = 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of the program's header on which its opcodes depend."""

    opcode_base: int  # the first special opcode
    line_base: int  # the smallest line advance of a special opcode
    line_range: int  # the number of line advances of special opcodes
    instruction_length: int  # bytes; the unit of address advances
    operand_counts: Sequence[int]  # of the standard opcodes 1, 2, ...


def find_row(header: Header, program: bytes, address: int) -> tuple[int, int] | None:
    """(file number, line) of the row that covers ``address``, or None.

    Line 0 marks code that belongs to no line; the last real line before it is returned instead. Raises ``ValueError``
    or ``IndexError`` on a malformed program.
    """
    start: int | None = None
    real: tuple[int, int] | None = None
    for row_address, file, line, ends in _rows(header, program):
        if start is not None and start <= address < row_address:
            return real
        if ends:
            start = real = None
        else:
            start = row_address
            real = (file, line) if line else real
    return None


def rows_between(header: Header, program: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(address, file number, line) of the rows with addresses in ``[start, end)``, without those of line 0.

    Raises as ``find_row``.
    """
    for address, file, line, ends in _rows(header, program):
        if start <= address < end and line and not ends:
            yield address, file, line


def _rows(header: Header, program: bytes) -> Iterator[tuple[int, int, int, bool]]:
    """(address, file number, line, whether the row ends its sequence) of each row, in program order."""
    if header.line_range <= 0 or header.opcode_base <= _FIXED_ADVANCE_PC:
        raise ValueError("a line-number header without a line range or the standard opcodes")
    address, file, line, at, end = 0, 1, 1, 0, len(program)
    while at < end:
        opcode = program[at]
        at += 1
        if opcode >= header.opcode_base:
            advance, step = divmod(opcode - header.opcode_base, header.line_range)
            address += advance * header.instruction_length
            line += header.line_base + step
            yield address, file, line, False
        elif opcode == 0:
            length, at = _unsigned(program, at)
            kind, operand = program[at], program[at + 1 : at + length]
            at += length
            if kind == _END_SEQUENCE:
                yield address, file, line, True
                address, file, line = 0, 1, 1
            elif kind == _SET_ADDRESS and len(operand) == 8:
                address = struct.unpack("<Q", operand)[0]
        elif opcode == _COPY:
            yield address, file, line, False
        elif opcode == _CONST_ADD_PC:
            address += (255 - header.opcode_base) // header.line_range * header.instruction_length
        elif opcode == _FIXED_ADVANCE_PC:
            address += int.from_bytes(program[at : at + 2], "little")
            at += 2
        elif opcode == _ADVANCE_LINE:
            change, at = _signed(program, at)
            line += change
        else:
            operand_value = 0
            for _ in range(header.operand_counts[opcode - 1]):
                operand_value, at = _unsigned(program, at)
            if opcode == _ADVANCE_PC:
                address += operand_value * header.instruction_length
            elif opcode == _SET_FILE:
                file = operand_value


def _unsigned(program: bytes, at: int) -> tuple[int, int]:
    """A ULEB128 number of at most 64 bits and the position after it."""
    value = shift = 0
    while shift < 70:
        byte = program[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number in the line-number program is too long")


def _signed(program: bytes, at: int) -> tuple[int, int]:
    value, after = _unsigned(program, at)
    bits = 7 * (after - at)
    return (value - (1 << bits) if value >> (bits - 1) & 1 else value), after
