from __future__ import annotations

from pathlib import Path

import pytest

from bench.programs.variants import KERNELS
from memopt.elf.image import Image
from memopt.elf.lines import source_line, source_lines
from memopt.elf.symbols import Symbols
from tests.conftest import Build
from tests.support.effort import some_rows


def _span(program: Path, name: str) -> range:
    with Image(str(program)) as image:
        return next(range(f.start, f.end) for f in Symbols(image).functions if f.name == name)


@pytest.mark.parametrize(("compiler", "flags"), some_rows([
    ("gcc", ("-g",)), ("gcc", ("-gdwarf-4",)), ("clang", ("-g",)), ("gcc", ("-g", "-static")),
], 2))
def test_every_address_of_a_function_has_a_line_of_it(build: Build, compiler: str, flags: tuple[str, ...]) -> None:
    program = build("gemm_ijk.c", *flags, compiler=compiler)
    source = (KERNELS / "gemm_ijk.c").read_text().splitlines()
    first = next(n for n, text in enumerate(source, 1) if "void dgemm" in text)
    last = source.index("}", first) + 1
    expected = {f"gemm_ijk.c:{n}" for n in range(first, last + 1)}
    found = {source_line(str(program), address) for address in _span(program, "dgemm")[::7]}
    assert found <= expected
    assert len(found) >= 3
    span = _span(program, "dgemm")
    rows = source_lines(str(program), span.start, span.stop)
    assert {path for _, path, _ in rows} == {str(KERNELS / "gemm_ijk.c")}
    for (address, _, line), following in zip(rows, [*(a for a, _, _ in rows[1:]), span.stop], strict=True):
        assert {source_line(str(program), a) for a in range(address, following)} == {f"gemm_ijk.c:{line}"}


def test_no_line_without_debug_information(build: Build, tmp_path: Path) -> None:
    program = build("gemm_ijk.c")
    assert source_line(str(program), _span(program, "dgemm").start) is None
    assert source_line(str(build("gemm_ijk.c", "-g")), 1 << 50) is None
    assert source_line(str(tmp_path / "missing"), 0) is None
    assert source_lines(str(program), _span(program, "dgemm").start, 1 << 50) == []
