from __future__ import annotations

from pathlib import Path

import pytest

from memopt.elf.executable import describe
from memopt.elf.image import ElfError
from tests.conftest import Build


def test_builds_are_what_they_claim(build: Build) -> None:
    plain = describe(str(build("gemm_ijk.c")))
    assert plain.position_independent
    assert not plain.stripped
    assert not plain.static
    assert not plain.debug_lines
    assert plain.libraries == ("libc.so.6",)
    assert len(plain.build_id) in (0, 40)
    assert describe(str(build("gemm_ijk.c", "-g"))).debug_lines
    assert describe(str(build("gemm_ijk.c", "-s"))).stripped
    assert not describe(str(build("gemm_ijk.c", "-no-pie", "-fno-pie"))).position_independent
    assert describe(str(build("gemm_ijk.c", "-static"))).static


def test_what_is_no_program_is_an_error_of_ours(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("x" * 100)
    with pytest.raises(ElfError, match="not an ELF file"):
        describe(str(text))
