from __future__ import annotations

from pathlib import Path

import pytest

from memopt.elf.image import Image
from memopt.elf.symbols import Symbols
from memopt.elf.unwind import function_range_at, function_ranges
from tests.conftest import Build

BUILDS = [("gcc", ()), ("gcc", ("-no-pie", "-fno-pie")), ("gcc", ("-static",)), ("clang", ())]


def _dgemm(program: Path) -> tuple[int, int]:
    with Image(str(program)) as image:
        return next((f.start, f.end) for f in Symbols(image).functions if f.name == "dgemm")


@pytest.mark.parametrize(("compiler", "flags"), BUILDS)
def test_ranges_agree_with_the_symbol_table(build: Build, compiler: str, flags: tuple[str, ...]) -> None:
    program = build("gemm_ijk.c", *flags, compiler=compiler)
    ranges = function_ranges(str(program))
    assert ranges == sorted(ranges)
    assert _dgemm(program) in ranges


@pytest.mark.parametrize(("compiler", "flags"), BUILDS)
def test_stripping_changes_nothing(build: Build, compiler: str, flags: tuple[str, ...]) -> None:
    whole = build("gemm_ijk.c", *flags, compiler=compiler)
    stripped = build("gemm_ijk.c", *flags, "-s", compiler=compiler)
    assert function_ranges(str(stripped)) == function_ranges(str(whole))


@pytest.mark.parametrize("flags", [(), ("-static",)])
def test_lookup_of_one_address_finds_the_same_range(build: Build, flags: tuple[str, ...]) -> None:
    program = build("gemm_ijk.c", "-s", *flags)
    ranges = function_ranges(str(program))
    with Image(str(program)) as image:
        for start, end in ranges[:200]:
            for address in (start, (start + end) // 2, end - 1):
                assert function_range_at(image, address) == (start, end)
        for outside in (0, ranges[0][0] - 1, ranges[-1][1], 1 << 60):
            assert function_range_at(image, outside) is None


def test_a_file_without_tables_has_no_ranges(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no program\n" * 20)
    assert function_ranges(str(text)) == []
    assert function_ranges(str(tmp_path / "missing")) == []
