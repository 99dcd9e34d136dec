from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from memopt.ir.reasons import Reason
from runtime.launch.identify import NOT_EXECUTABLE, NOT_FOUND, CannotRun, identify

TRUE = Path("/bin/true").resolve()
Make = Callable[..., str]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes an executable file and returns its path."""

    def write(content: bytes, name: str = "program", mode: int = 0o755) -> str:
        path = tmp_path / name
        path.write_bytes(content)
        path.chmod(mode)
        return str(path)

    return write


def header(*, wide: bool = True, machine: int = 62, kind: int = 3, order: str = "<", table: int = 64,
           entry_size: int = 56, entries: int = 1) -> bytes:
    ident = b"\x7fELF" + bytes([2 if wide else 1, 2 if order == ">" else 1, 1]) + bytes(9)
    if wide:
        return ident + struct.pack(order + "HHIQQQIHHHHHH", kind, machine, 1, 0, table, 0, 0, 64, entry_size, entries,
                                   0, 0, 0)
    return ident + struct.pack(order + "HHIIIIIHHHHHH", kind, machine, 1, 0, table, 0, 0, 52, entry_size, entries,
                               0, 0, 0)


def load(offset: int, length: int, kind: int = 1) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, 5, offset, 0, 0, length, length, 4096)


def refused(program: str, path: str | None = None) -> tuple[int, str]:
    with pytest.raises(CannotRun) as caught:
        identify(program, path)
    message = str(caught.value)
    assert "\n" not in message
    assert message
    return caught.value.exit_code, message


def test_plain_program_has_no_note() -> None:
    found = identify("true", "/nowhere:/bin")
    assert (found.path, found.image, found.note) == ("/bin/true", "/bin/true", None)


def test_search_skips_what_is_not_executable(make: Make, tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for folder in (first, second):
        folder.mkdir()
    make(TRUE.read_bytes(), "1/tool", mode=0o644)
    make(TRUE.read_bytes(), "2/tool")
    assert identify("tool", f"{first}:{second}").path == f"{second}/tool"
    code, message = refused("tool", str(first))
    assert code == NOT_EXECUTABLE
    assert "chmod +x" in message


def test_empty_path_element_is_the_current_directory(make: Make, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    make(TRUE.read_bytes(), "tool")
    monkeypatch.chdir(tmp_path)
    assert identify("tool", "/nowhere:").path == "./tool"
    code, message = refused("tool", "/nowhere")
    assert code == NOT_FOUND
    assert "./tool" in message


def test_unset_path_searches_the_system_default() -> None:
    assert identify("true", None).path == "/bin/true"


@pytest.mark.parametrize("program", ["./no-such-file", "no-such-program", "", "/no/such/directory/x"])
def test_missing(program: str) -> None:
    assert refused(program, "/bin")[0] == NOT_FOUND


@pytest.mark.parametrize(("content", "words"), [
    (b"", "empty"),
    (b"hello\n", "neither an ELF program nor a script"),
    (b"MZ\x90", "Windows"),
    (b"\x7fELF", "truncated"),
    (header()[:40], "truncated"),
    (header(), "truncated"),
    (header(table=1 << 62) + load(0, 64), "truncated"),
    (header() + load(0, 1 << 40), "truncated"),
    (header() + load(1 << 63, 1), "truncated"),
    (header() + load(1 << 40, 20, kind=3), "truncated"),
    (header() + load(0, 1 << 20, kind=3), "loader is damaged"),
    (header() + load(0, 3, kind=3), "loader is damaged"),
    (header(entries=0) + load(0, 64), "damaged"),
    (header(entry_size=57) + load(0, 64), "damaged"),
    (header(entries=0xFFFF) + bytes(1 << 22), "damaged"),
    (header(kind=1) + load(0, 64), "not linked"),
    (header(kind=4) + load(0, 64), "core dump"),
    (header(machine=183) + load(0, 64), "AArch64"),
    (header(machine=22, order=">") + load(0, 64), "S/390"),
    (header(machine=9999) + load(0, 64), "machine number 9999"),
    (b"#!\n", "names no interpreter"),
    (b"#!   \t\n", "names no interpreter"),
    (b"#!/" + b"x" * 400 + b"\n", "longer than the kernel reads"),
    (b"#!/etc/passwd\n", "not executable"),
    (b"#!/tmp\n", "is a directory"),
])
def test_not_executable(make: Make, content: bytes, words: str) -> None:
    code, message = refused(make(content))
    assert code == NOT_EXECUTABLE
    assert words in message


@pytest.mark.parametrize(("content", "words"), [
    (b"#!/no/such/interpreter -x\n", "interpreter /no/such/interpreter does not exist"),
    (b"#!/bin/sh\r\n", "carriage return"),
    (header() + load(120, 9, kind=3) + b"/no/such\0", "loader '/no/such' does not exist"),
])
def test_missing_interpreter(make: Make, content: bytes, words: str) -> None:
    code, message = refused(make(content))
    assert code == NOT_FOUND
    assert words in message


def test_directory_device_and_closed_file(make: Make, tmp_path: Path) -> None:
    assert refused(str(tmp_path)) == (NOT_EXECUTABLE, f"{tmp_path} is a directory; name a program in it")
    assert refused("/dev/null")[0] == NOT_EXECUTABLE
    assert refused(make(TRUE.read_bytes(), mode=0o644))[0] == NOT_EXECUTABLE
    assert refused(str(tmp_path / "program" / "x"))[0] == NOT_EXECUTABLE


def test_fifo_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o755)
    assert refused(str(tmp_path / "fifo"))[0] == NOT_EXECUTABLE


def test_last_page_beyond_the_end_is_not_truncated(make: Make) -> None:
    assert identify(make(header() + load(0, 4096)), None).note is None
    assert refused(make(header() + load(0, 4097)))[0] == NOT_EXECUTABLE


def test_script_is_its_interpreter(make: Make) -> None:
    inner = make(b"#! \t/bin/true  an argument\n", "inner")
    script = make(b"#!" + inner.encode() + b"\n", "script")
    found = identify(script, None)
    assert (found.path, found.image, found.note) == (script, "/bin/true", None)


def test_script_chain_has_the_depth_of_the_kernel(make: Make) -> None:
    path = "/bin/true"
    for level in range(5):
        path = make(b"#!" + path.encode() + b"\n", f"level{level}")
    assert identify(path, None).image == "/bin/true"
    assert os.spawnv(os.P_WAIT, path, [path]) == 0
    path = make(b"#!" + path.encode() + b"\n", "level5")
    assert refused(path)[0] == NOT_EXECUTABLE
    with pytest.raises(OSError, match="symbolic links"):
        os.posix_spawn(path, [path], {})


@pytest.mark.parametrize("bit", [0o4000, 0o2000])
def test_set_id_is_a_note(make: Make, bit: int) -> None:
    note = identify(make(TRUE.read_bytes(), mode=0o755 | bit), None).note
    assert note is not None
    assert note.reason is Reason.SET_UID
    assert "natively" in str(note)


def test_set_group_without_group_execution_is_none(make: Make) -> None:
    assert identify(make(TRUE.read_bytes(), mode=0o2705), None).note is None


@pytest.mark.skipif(os.geteuid() != 0, reason="setting file capabilities needs privilege")
def test_file_capabilities_are_a_note(make: Make) -> None:
    path = make(TRUE.read_bytes())
    try:
        os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0))
    except OSError:
        pytest.skip("this file system keeps no capabilities")
    note = identify(path, None).note
    assert note is not None
    assert note.reason is Reason.SET_UID


@pytest.mark.parametrize("content", [
    header(wide=False, machine=3, table=52, entry_size=32) + struct.pack("<8I", 1, 0, 0, 0, 84, 84, 5, 4096),
    header(wide=False, machine=62, table=52, entry_size=32) + struct.pack("<8I", 1, 0, 0, 0, 84, 84, 5, 4096),
])
def test_32_bit_is_a_note(make: Make, content: bytes) -> None:
    note = identify(make(content), None).note
    assert note is not None
    assert note.reason is Reason.THIRTY_TWO_BIT


def test_truncation_at_every_header_byte(make: Make) -> None:
    whole = TRUE.read_bytes()
    path = make(whole)
    for length in reversed(range(64 + 56 * struct.unpack_from("<H", whole, 56)[0])):
        os.truncate(path, length)
        assert refused(path)[0] == NOT_EXECUTABLE


def test_flipped_bits_never_escape(make: Make) -> None:
    whole = TRUE.read_bytes()
    chance = random.Random(7)
    path, refusals, accepted = make(whole), 0, 0
    for _ in range(1000):
        damaged = bytearray(whole[:1024])
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(900)] ^= 1 << chance.randrange(8)
        with open(path, "r+b") as file:
            file.write(damaged)
        try:
            identify(path, None)
        except CannotRun as error:
            refusals += "\n" not in str(error)
        else:
            accepted += 1
    assert refusals + accepted == 1000
    assert refusals > 50
