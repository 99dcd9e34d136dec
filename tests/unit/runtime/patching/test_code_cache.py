from __future__ import annotations

import pytest

from memopt.ir.reasons import Reason, Rejected
from runtime.patching.code_cache import choose_address, free_gaps
from runtime.target.memory import Mapping, parse_mappings

LOWEST = 0x10000
SIZE = 0x20000
REACH = 1 << 31

FIXED = """\
00400000-00401000 r--p 00000000 fe:00 9 /prog
00401000-00402000 r-xp 00001000 fe:00 9 /prog
00404000-00405000 rw-p 00003000 fe:00 9 /prog
00405000-18405000 rw-p 00000000 00:00 0
"""
POSITION_INDEPENDENT = """\
555555554000-555555555000 r--p 00000000 fe:00 9 /prog
555555555000-555555556000 r-xp 00001000 fe:00 9 /prog
555555558000-555555559000 rw-p 00003000 fe:00 9 /prog
"""
HEAP = "555555560000-555555581000 rw-p 00000000 00:00 0 [heap]\n"
LIBRARY = """\
7ffff7c00000-7ffff7c28000 r--p 00000000 fe:00 3 /libc.so.6
7ffff7c28000-7ffff7dbd000 r-xp 00028000 fe:00 3 /libc.so.6
7ffff7fc3000-7ffff7fc5000 r-xp 00000000 00:00 0 [vdso]
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
"""


def overlaps(maps: tuple[Mapping, ...], address: int) -> bool:
    return any(m.start < address + SIZE and address < m.end for m in maps)


@pytest.mark.parametrize("text", [
    FIXED + LIBRARY, POSITION_INDEPENDENT + LIBRARY, POSITION_INDEPENDENT + HEAP + LIBRARY,
])
def test_below_the_text_of_the_program(text: str) -> None:
    maps = parse_mappings(text)
    near = next(m for m in maps if m.executable).start + 0x123
    address = choose_address(maps, near, SIZE, LOWEST)
    assert LOWEST <= address < near
    assert address % 4096 == 0
    assert not overlaps(maps, address)
    assert near - address < REACH - SIZE


def test_library_code_gets_a_place_off_the_next_mappings() -> None:
    maps = parse_mappings(POSITION_INDEPENDENT + HEAP + LIBRARY)
    address = choose_address(maps, 0x7FFFF7C29000, SIZE, LOWEST)
    assert not overlaps(maps, address)
    assert (1 << 29) < 0x7FFFF7C00000 - address < REACH - SIZE


def test_never_where_the_heap_or_the_stack_grows() -> None:
    for text in (POSITION_INDEPENDENT + LIBRARY, POSITION_INDEPENDENT + HEAP + LIBRARY):
        gaps = free_gaps(parse_mappings(text), LOWEST)
        assert not any(gap.start < 0x555555559000 + (32 << 30) and gap.end > 0x555555559000 for gap in gaps)
        assert not any(gap.end > 0x7FFFFFFDE000 - (1 << 20) for gap in gaps)


def test_no_room_is_a_refusal() -> None:
    """A program that fills everything within reach."""
    near = 0x600000000000
    maps = parse_mappings(f"{near - (1 << 32):x}-{near + (1 << 32):x} r-xp 00000000 fe:00 9 /prog\n")
    with pytest.raises(Rejected) as caught:
        choose_address(maps, near, SIZE, LOWEST)
    assert caught.value.reason is Reason.NO_ROOM


def test_a_text_at_the_bottom_has_no_room_below() -> None:
    maps = parse_mappings("00010000-00400000 r-xp 00000000 fe:00 9 /prog\n" + LIBRARY)
    with pytest.raises(Rejected):  # above it only brk's room lies within reach
        choose_address(maps, 0x20000, SIZE, LOWEST)
