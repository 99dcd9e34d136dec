from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from memopt.elf.image import ElfError, Image
from memopt.elf.symbols import Symbols
from tests.conftest import Build


def _error(path: Path) -> str:
    with pytest.raises(ElfError) as caught, Image(str(path)):
        pass
    return str(caught.value)


def test_what_is_not_a_program_is_named(tmp_path: Path, build: Build) -> None:
    program = build("gemm_ijk.c").read_bytes()
    cases = {
        b"#!/bin/sh\n" + b" " * 100: "not an ELF file",
        program[:40]: "too short for an ELF header",
        program[:100]: "truncated",
        program[:4] + b"\1" + program[5:]: "a 32-bit program",
        program[:18] + struct.pack("<H", 183) + program[20:]: "for another architecture",
        program[:16] + struct.pack("<H", 1) + program[18:]: "neither an executable nor a shared object",
        program[:56] + struct.pack("<H", 60000) + program[58:]: "its program headers are malformed",
    }
    for content, words in cases.items():
        path = tmp_path / "file"
        path.write_bytes(content)
        assert _error(path) == words
    assert _error(tmp_path) == "not a regular file"


def test_reads_stay_in_the_file(build: Build) -> None:
    with Image(str(build("gemm_ijk.c"))) as image:
        assert image.read(image.size - 4, 4)
        for offset, size in ((image.size - 4, 5), (-1, 4), (0, -1), (1 << 63, 8)):
            with pytest.raises(ElfError):
                image.read(offset, size)


@pytest.mark.parametrize("flags", [(), ("-no-pie", "-fno-pie"), ("-static",), ("-static-pie", "-fPIE")])
def test_load_bias_links_live_and_file_addresses(build: Build, flags: tuple[str, ...]) -> None:
    program = build("where.c", *flags)
    first, *maps = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    live = int(first, 16)
    checked = 0
    with Image(str(program)) as image:
        symbols = Symbols(image)
        for line in maps:
            if not line.endswith(str(program)):
                continue
            span, permissions, offset, *_ = line.split()
            if "x" not in permissions:
                continue
            bias = image.load_bias(int(span.split("-")[0], 16), int(offset, 16))
            found = symbols.function_at(live - bias)
            assert found is not None
            assert found.name == "landmark"
            checked += 1
        with pytest.raises(ElfError):
            image.load_bias(0x1000, 1 << 40)
    assert checked == 1
