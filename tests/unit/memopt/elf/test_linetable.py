from __future__ import annotations

import struct

import pytest

from memopt.elf.linetable import Header, find_row

# The header gcc and clang write: special opcodes from 13, lines -5 to +8 per opcode.
HEADER = Header(13, -5, 14, 1, (0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1))


def _start(address: int) -> bytes:
    return b"\0\x09\x02" + struct.pack("<Q", address)


def _special(advance: int, line: int) -> bytes:
    return bytes([13 + advance * 14 + line + 5])


END = b"\x02\x04\0\x01\x01"  # advance_pc 4, end_sequence


def test_rows_cover_addresses_up_to_the_next() -> None:
    program = _start(0x1000) + b"\x03\x09\x01" + _special(4, 1) + _special(6, -3) + END
    expected = {0xFFF: None, 0x1000: (1, 10), 0x1003: (1, 10), 0x1004: (1, 11), 0x1009: (1, 11), 0x100A: (1, 8),
                0x100D: (1, 8), 0x100E: None}
    assert {address: find_row(HEADER, program, address) for address in expected} == expected


def test_every_kind_of_advance() -> None:
    program = (_start(0) + b"\x01"  # 0: line 1
               + b"\x08\x01"  # const_add_pc: (255 - 13) // 14 = 17
               + b"\x09\x00\x01\x03\x7f\x01"  # fixed_advance_pc 256, line - 1
               + b"\x02\x80\x01\x03\xe4\x00\x01"  # advance_pc 128, line + 100
               + END)
    assert find_row(HEADER, program, 16) == (1, 1)
    assert find_row(HEADER, program, 17 + 255) == (1, 1)
    assert find_row(HEADER, program, 17 + 256) == (1, 1)  # line 0: the last real line
    assert find_row(HEADER, program, 17 + 256 + 128) == (1, 100)


def test_line_0_shows_the_last_real_line_and_files_change() -> None:
    program = _start(0) + b"\x04\x03\x03\x06\x01" + _special(2, -5) + b"\x03\x7e\x01" + _special(2, 0) + END
    assert find_row(HEADER, program, 0) == (3, 7)
    assert find_row(HEADER, program, 3) == (3, 2)


def test_sequences_are_apart() -> None:
    program = _start(0x2000) + b"\x01" + END + _start(0x1000) + b"\x03\x05\x01" + END
    assert find_row(HEADER, program, 0x2003) == (1, 1)
    assert find_row(HEADER, program, 0x1003) == (1, 6)
    assert find_row(HEADER, program, 0x1800) is None


def test_malformed_programs_raise() -> None:
    for broken in (b"\x02" + b"\xff" * 20, b"\x02", b"\0"):
        with pytest.raises((ValueError, IndexError)):
            find_row(HEADER, broken, 0)
    with pytest.raises(ValueError, match="line range"):
        find_row(Header(13, -5, 0, 1, HEADER.operand_counts), b"\x01", 0)
