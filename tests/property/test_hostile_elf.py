"""Damaged programs: whatever the bytes say, the answer is "nothing known" or ``ElfError``, and it comes soon."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from memopt.elf.image import ElfError, Image
from memopt.elf.lines import SourceLines
from memopt.elf.symbols import Symbols
from memopt.elf.unwind import function_ranges
from tests.conftest import Build
from tests.support.effort import some


def _look(path: str, address: int) -> None:
    function_ranges(path)
    with suppress(ElfError, OSError), Image(path) as image:
        Symbols(image).function_at(address)
    lines = SourceLines(path)
    for at in range(address, address + 256, 5):
        lines.at(at)


def _place(program: Path) -> int:
    with Image(str(program)) as image:
        return next(f.start for f in Symbols(image).functions if f.name == "dgemm")


def test_truncation_at_every_header_byte(build: Build, tmp_path: Path) -> None:
    program = build("gemm_ijk.c", "-g")
    content, address, path = program.read_bytes(), _place(program), tmp_path / "cut"
    for length in (*range(64 + 56 * 14), *range(900, len(content), 997)):
        path.write_bytes(content[:length])
        _look(str(path), address)


@pytest.mark.parametrize("seed", some(range(4), 1))
def test_flipped_bytes(build: Build, tmp_path: Path, seed: int) -> None:
    program = build("gemm_ijk.c", "-g")
    content, address, path = program.read_bytes(), _place(program), tmp_path / "flipped"
    source = random.Random(seed)
    for _ in range(150):
        damaged = bytearray(content)
        # Half of the damage goes to the tables at both ends of the file, where the counts and offsets are.
        ends = (*range(64 + 56 * 14), *range(len(content) - 64 * 40, len(content)))
        for _ in range(source.choice((1, 4, 40))):
            at = source.choice(ends) if source.random() < 0.5 else source.randrange(4, len(content))
            damaged[at] = source.choice((0, 0xFF, source.randrange(256)))
        path.write_bytes(damaged)
        _look(str(path), address)


def test_hostile_counts_are_refused(build: Build, tmp_path: Path) -> None:
    content = bytearray(build("gemm_ijk.c").read_bytes())
    content[32:40] = b"\xff" * 8  # e_phoff
    path = tmp_path / "hostile"
    path.write_bytes(content)
    with pytest.raises(ElfError), Image(str(path)):
        pass
    content[56:58] = b"\xff\xff"  # e_phnum
    path.write_bytes(content)
    assert function_ranges(str(path)) == []
