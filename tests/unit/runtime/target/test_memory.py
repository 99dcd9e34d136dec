from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import pytest

from memopt.ir.reasons import Reason, Rejected
from runtime.target.memory import (
    PAGE,
    Memory,
    _Parser,
    check_private,
    exclusive_pages,
    mapping_at,
    mappings,
    parse_mappings,
)

MAPS = """\
00400000-00401000 r-xp 00001000 fe:00 99    /home/a b/prog (deleted)
00404000-00406000 rw-p 00003000 fe:00 99    /home/a b/prog (deleted)
00406000-00408000 rw-p 00000000 00:00 0
10000000-10002000 rw-s 00000000 00:01 7     /memfd:arrays (deleted)
20000000-20002000 rw-s 00001000 00:01 7     /memfd:arrays (deleted)
30000000-30001000 rw-s 00000000 00:01 8     /dev/zero (deleted)
40000000-40001000 rw-p 00000000 00:01 9     /memfd:beside (deleted)
50000000-50001000 rw-s 00000000 00:01 9     /memfd:beside (deleted)
60000000-60001000 rw-p 00000000 00:06 5     /dev/thing
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0    [stack]
"""


def test_parses_every_field() -> None:
    first, *_, last = parse_mappings(MAPS)
    assert (first.start, first.end, first.perms, first.shared) == (0x400000, 0x401000, "r-x", False)
    assert (first.offset, first.device, first.inode) == (0x1000, "fe:00", 99)
    assert first.path == "/home/a b/prog (deleted)"
    assert last.path == "[stack]"
    assert last.writable
    assert not last.executable


@pytest.mark.parametrize(("start", "size", "written", "reason"), [
    (0x404000, 0x4000, True, None),  # across two plain mappings
    (0x400000, 8, False, None),
    (0x400000, 8, True, Reason.PROTECTED_MAPPING),
    (0x407000, 0x1008, False, Reason.PROTECTED_MAPPING),  # runs into a hole
    (0x10000000, 8, True, Reason.DOUBLE_MAPPING),
    (0x20000000, 8, False, Reason.DOUBLE_MAPPING),
    (0x30000000, 8, False, Reason.SHARED_MAPPING),
    (0x40000000, 8, True, Reason.DOUBLE_MAPPING),  # private, but the same page is mapped shared beside it
    (0x60000000, 8, True, Reason.PROTECTED_MAPPING),
    (0x7FFC00000000, 64, True, None),
])
def test_private_memory(start: int, size: int, written: bool, reason: Reason | None) -> None:
    maps = parse_mappings(MAPS)
    if reason is None:
        check_private(maps, start, start + size, written=written)
        return
    with pytest.raises(Rejected) as caught:
        check_private(maps, start, start + size, written=written)
    assert caught.value.reason is reason


def test_reads_and_writes_this_process() -> None:
    buffer = ctypes.create_string_buffer(b"before", 16)
    address = ctypes.addressof(buffer)
    memory = Memory(os.getpid())
    assert memory.read(address, 6) == b"before"
    memory.write(address, b"after!")
    assert buffer.value == b"after!"
    place = mapping_at(mappings(os.getpid()), address)
    assert place is not None
    assert place.writable
    with pytest.raises(Rejected):
        memory.read(8, 8)
    assert memory.read_some(8, 8) == b""
    memory.close()


def test_reading_stops_at_the_end_of_the_mapping() -> None:
    with mmap.mmap(-1, 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
        view = ctypes.c_char.from_buffer(area)
        start = ctypes.addressof(view)
        del view
        place = mapping_at(mappings(os.getpid()), start)
        assert place is not None
        memory = Memory(os.getpid())
        assert len(memory.read_some(place.end - 16, 64)) >= 16
        memory.close()


def test_exclusive_pages_of_a_fork_are_the_written_ones() -> None:
    with mmap.mmap(-1, 16 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
        area[:] = b"x" * len(area)
        view = ctypes.c_char.from_buffer(area)
        start = ctypes.addressof(view)
        del view
        ready, done = os.pipe(), os.pipe()
        child = os.fork()
        if not child:
            area[3 * PAGE] = area[4 * PAGE + 1] = area[9 * PAGE] = 7
            os.write(ready[1], b"!")
            os.read(done[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
        try:
            found = exclusive_pages(child, [(start, start + 16 * PAGE)])
            parts = exclusive_pages(child, [(start + n * PAGE, start + (n + 2) * PAGE) for n in range(0, 16, 4)])
            far = exclusive_pages(child, [(PAGE, 2 * PAGE), (start + 4 * PAGE, start + 9 * PAGE)])
        finally:
            os.write(done[1], b"!")
            os.waitpid(child, 0)
        assert found == ((start + 3 * PAGE, start + 5 * PAGE), (start + 9 * PAGE, start + 10 * PAGE))
        assert parts == ((start + 4 * PAGE, start + 5 * PAGE), (start + 9 * PAGE, start + 10 * PAGE))
        assert far == ((start + 4 * PAGE, start + 5 * PAGE),)


@pytest.mark.parametrize("at_once", [True, False])
def test_reads_into_what_is_there(monkeypatch: pytest.MonkeyPatch, at_once: bool) -> None:
    if not at_once:
        monkeypatch.setattr("runtime.target.memory._copied", lambda *_: 0)
    source, target = ctypes.create_string_buffer(bytes(range(256)) * 100), bytearray(25_000)
    memory = Memory(os.getpid())
    memory.read_into(ctypes.addressof(source) + 3, memoryview(target))
    assert target == source.raw[3:25_003]
    memory.read_into(0, memoryview(target)[:0])
    with pytest.raises(Rejected):
        memory.read_into(0, memoryview(target))
    memory.close()


def test_a_memory_map_is_parsed_alike_each_time() -> None:
    """Also where a line was seen before, at another place or of another process."""
    first = b"1000-2000 r-xp 00001000 fe:00 9 /prog\n2000-3000 rw-p 00000000 00:00 0 \n"
    other = b"1000-2000 r-xp 00001000 fe:00 9 /prog\n2000-4000 rw-p 00000000 00:00 0 \n5000-6000 ---s 0 00:01 4 /a b\n"
    parser = _Parser()
    for content in (first, other, other, first, b"", first):
        assert parser.parse(content) == parse_mappings(content.decode())
    kept = parser.parse(first)
    assert parser.parse(first) is kept
    assert parser.parse(other)[0] is kept[0]


@pytest.mark.parametrize("name", ["a\rb", "a\x0bb", "a\x85b", "a\u2028b"])
def test_a_path_may_hold_what_ends_lines_elsewhere(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(bytes(PAGE))
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), PAGE, prot=mmap.PROT_READ):
        assert str(file) in {m.path for m in mappings(os.getpid())}
