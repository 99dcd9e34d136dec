"""The nest's code is compared at every entry: the version runs only while each byte is as it was lifted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.ir.region import Region
from tests.support.entering import TRIPS, N, passes
from tests.support.header import Header


def region(header: Header, size: int, before: int = 0) -> Region:
    """A region whose code is ``size`` bytes in the arena, and ``before`` more bytes that lie 512 bytes further on."""
    header.write_arena(0, bytes(n * 7 % 251 for n in range(1024)))
    parts = [(header.arena, header.read_arena(0, size))]
    if before:
        parts.append((header.arena + 512, header.read_arena(512, before)))
    return replace(header.region((N,), TRIPS), code=tuple(parts))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 31, 32, 33, 39, 40, 100, 300])
def test_each_byte_counts(header: Header, size: int) -> None:
    header.install(region(header, size))
    assert passes(header, {"rsi": 10})
    for offset in {0, 1, size // 2, size - 8, size - 2, size - 1} & set(range(size)):
        old = header.read_arena(offset, 1)
        header.write_arena(offset, bytes([old[0] ^ 0x80]))
        assert not passes(header, {"rsi": 10}), f"byte {offset}"
        header.write_arena(offset, old)
    assert passes(header, {"rsi": 10})


def test_all_parts_count(header: Header) -> None:
    header.install(region(header, 45, 37))
    assert passes(header, {"rsi": 10})
    for offset in (44, 512, 548):
        old = header.read_arena(offset, 1)
        header.write_arena(offset, bytes([old[0] ^ 1]))
        assert not passes(header, {"rsi": 10}), f"byte {offset}"
        header.write_arena(offset, old)
    header.write_arena(549, b"\x99")
    assert passes(header, {"rsi": 10})


def test_the_bytes_under_the_patch_are_not_compared(header: Header) -> None:
    """The patch is there, and only the byte behind it counts."""
    made = header.region((N,), TRIPS)
    code = made.displaced[:5] + made.displaced[5:]
    header.install(replace(made, code=((header.address, code),)))
    assert passes(header, {"rsi": 10})
    header.install(replace(made, code=((header.address, code[:-1] + b"\x90"),)))
    assert not passes(header, {"rsi": 10})
