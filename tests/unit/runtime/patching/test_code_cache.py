from __future__ import annotations

import pytest

from memopt.ir.reasons import Reason, Rejected
from runtime.patching.code_cache import Gap, choose_address, choose_scratch, free_gaps
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


def largest(maps: tuple[Mapping, ...], address: int = 0, size: int = 0) -> int:
    """The largest free interval below the stack, with ``[address, address + size)`` in use."""
    used = sorted([(m.start, m.end) for m in maps if m.start < 1 << 47] + [(address, address + size)])
    ends = [LOWEST, *(end for _, end in used)]
    return max(start - max(ends[:n + 1]) for n, (start, _) in enumerate(used))


SCRATCH = 6 << 20
LEGACY = """\
2aaaaaaab000-2aaaaaad3000 r-xp 00000000 fe:00 3 /libc.so.6
"""  # with an unlimited stack, mappings grow upwards from a third of the address space
LOW_HEAP = "700000000-780000000 rw-p 00000000 00:00 0\n"  # as of a Java machine with compressed pointers


@pytest.mark.parametrize(("text", "lost"), [
    pytest.param(POSITION_INDEPENDENT + HEAP + LIBRARY, 5 << 30, id="position-independent"),
    pytest.param(POSITION_INDEPENDENT + LIBRARY, 5 << 30, id="no heap yet"),
    pytest.param(FIXED + LIBRARY, 65 << 30, id="at a fixed address"),
    pytest.param(LOW_HEAP + POSITION_INDEPENDENT + HEAP + LIBRARY, 5 << 30, id="memory below the program"),
    pytest.param(LEGACY + POSITION_INDEPENDENT + HEAP + LIBRARY[LIBRARY.index("7ffffffde000"):], 65 << 30,
                 id="mappings grow upwards"),
])
def test_scratch_leaves_the_largest_gap_to_the_program(text: str, lost: int) -> None:
    maps = parse_mappings(text)
    gaps = free_gaps(maps, LOWEST)
    address = choose_scratch(maps, gaps, SCRATCH, "/prog")
    assert address % (2 << 20) == 0
    assert any(g.start <= address and address + SCRATCH <= g.end for g in gaps)
    assert largest(maps, address, SCRATCH) >= largest(maps) - lost


def test_the_scratch_of_several_versions_lies_together() -> None:
    maps = parse_mappings(POSITION_INDEPENDENT + HEAP + LIBRARY)
    first = choose_scratch(maps, free_gaps(maps, LOWEST), SCRATCH, "/prog")
    taken = f"{first:x}-{first + SCRATCH:x} rw-p 00000000 00:00 0\n"
    more = parse_mappings(taken + POSITION_INDEPENDENT + HEAP + LIBRARY)
    second = choose_scratch(more, free_gaps(more, LOWEST), SCRATCH, "/prog")
    assert second == first - SCRATCH
    assert 0x555555555000 - first > REACH  # so that the code of many versions keeps its room


def test_no_room_for_scratch_is_a_refusal() -> None:
    maps = parse_mappings("00010000-7fff00000000 r-xp 00000000 fe:00 9 /prog\n")
    with pytest.raises(Rejected) as caught:
        choose_scratch(maps, (Gap(0x7FFF00000000, 0x7FFF00300000),), SCRATCH, "/prog")
    assert caught.value.reason is Reason.NO_MEMORY


def test_gaps_of_many_mappings_are_those_of_few() -> None:
    """Neighbouring mappings, which a walk over all of them for each would take minutes for, leave the same gaps."""
    start, pages = 0x7FFF00000000, 60_000
    many = "".join(f"{start + 0x1000 * n:x}-{start + 0x1000 * (n + 1):x} r{'w-'[n & 1]}-p 00000000 00:00 0\n"
                   for n in range(pages))
    one = f"{start:x}-{start + 0x1000 * pages:x} rw-p 00000000 00:00 0\n"
    before = POSITION_INDEPENDENT + HEAP
    assert free_gaps(parse_mappings(before + many + LIBRARY), LOWEST) == (
        free_gaps(parse_mappings(before + one + LIBRARY), LOWEST))
