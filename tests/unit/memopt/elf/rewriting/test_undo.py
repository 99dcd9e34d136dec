from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from memopt.elf.image import ElfError, Image
from memopt.elf.rewriting.record import record_of
from memopt.elf.rewriting.undo import patched, undone
from tests.conftest import Build
from tests.support.rewritten import counted
from tests.support.tools import need


def rewritten(path: Path) -> bytes:
    with Image(str(path)) as image:
        return counted(image, image.entry)


def test_the_original_comes_back_to_the_byte(build: Build) -> None:
    path = build("gemm_ijk.c", "-g")
    back = undone(rewritten(path))
    assert back.whole
    assert back.content == path.read_bytes()


def test_of_a_changed_file_the_code_comes_back_once(build: Build, tmp_path: Path) -> None:
    need("strip")
    path, out = build("gemm_ijk.c", "-g"), tmp_path / "out"
    out.write_bytes(rewritten(path))
    subprocess.run(["strip", out], check=True)
    back = undone(out.read_bytes())
    assert not back.whole
    with Image(str(path)) as original:
        after = Image.of(back.content)
        assert after.read(after.offset_of(original.entry), 16) == original.read(
            original.offset_of(original.entry), 16)
    with pytest.raises(ElfError, match="its code is the original's already"):
        undone(back.content)


def test_what_memopt_did_not_write_is_refused(build: Build) -> None:
    path = build("gemm_ijk.c")
    with pytest.raises(ElfError, match="memopt has not rewritten it"):
        undone(path.read_bytes())
    content = bytearray(rewritten(path))
    image = Image.of(bytes(content))
    record = record_of(image)
    assert record is not None
    assert patched(image, record)
    content[image.offset_of(record.patches[0].address)] ^= 1
    with pytest.raises(ElfError, match="its code was changed"):
        undone(bytes(content))
