"""Traces in files, and as text."""

from __future__ import annotations

import random
from pathlib import Path

import numpy
import pytest

from memopt.traces.core import file as files
from memopt.traces.core.file import TraceError, TraceWriter, text
from memopt.traces.core.format import BLOCK

ROWS = [[(0x4005E1, 8, "R", False), (0x4005E8, 4, "RW", False)], [], [(0x7FFF_1234_5678, 1, "W", True)]]


def as_text(path: Path) -> str:
    with path.open("rb") as opened:
        return b"".join(text(opened)).decode()


@pytest.mark.parametrize("seed", range(10))
def test_each_access_is_a_line(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(files, "_OUT", draw.choice((256, 1 << 16)))
    words: list[int] = []
    lines: list[str] = []
    for _ in range(300):
        block = draw.randrange(3)
        words += [BLOCK << 48 | block, 16]
        for index, (address, size, kind, repeated) in enumerate(ROWS[block]):
            at, times = draw.choice((0, 7, 0x7F12A0C8, (1 << 47) - 4096)), 1
            words.append(index << 48 | at)
            if repeated:
                times = draw.randrange(40)
                words.append(times)
            lines += [f"{letter}{size}@{address:x} {at + size * n:x}\n" for n in range(times) for letter in kind]
    writer = TraceWriter(str(tmp_path / "t"))
    writer.words(1, numpy.array([BLOCK << 48, 16], numpy.uint64))
    writer.begin()
    writer.code(ROWS[:1])
    writer.code(ROWS[1:])
    for piece in numpy.array_split(numpy.array(words, numpy.uint64), draw.randrange(1, 9)):
        writer.words(1, piece)
    writer.close([("/bin/true", 0, 4096, 0)])
    assert as_text(tmp_path / "t") == "".join(lines)


def test_threads_go_on_where_they_were(tmp_path: Path) -> None:
    writer = TraceWriter(str(tmp_path / "t"))
    writer.code(ROWS)
    writer.words(1, numpy.array([BLOCK << 48, 16, 1], numpy.uint64))
    writer.words(2, numpy.array([BLOCK << 48 | 2, 16, 5], numpy.uint64))
    writer.words(1, numpy.array([1 << 48 | 2], numpy.uint64))
    writer.words(2, numpy.array([2], numpy.uint64))
    writer.close([])
    assert as_text(tmp_path / "t") == (
        "R8@4005e1 1\nR4@4005e8 2\nW4@4005e8 2\nW1@7fff12345678 5\nW1@7fff12345678 6\n")


@pytest.mark.parametrize("content", [b"", b"\x7fELF", files.MAGIC + b"WORD", files.MAGIC + b"\0" * 40])
def test_what_is_no_trace_is_said_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(TraceError):
        as_text(tmp_path / "t")
