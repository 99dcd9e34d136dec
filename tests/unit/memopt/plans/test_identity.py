"""The same code on the same machine has the same identity, and everything that a plan depends on changes it."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from memopt.elf.image import PF_X, PT_LOAD, Image
from memopt.machine.detect import detect
from memopt.plans.identity import file_identity, file_name, origin, own_sources
from tests.conftest import Build
from tests.support.tools import need


@pytest.fixture
def program(build: Build, tmp_path: Path) -> Path:
    return Path(shutil.copy(build("one_product.c", "-Wl,--build-id"), tmp_path / "program"))


def test_code_and_build_id_are_told(program: Path) -> None:
    found = file_identity(str(program))
    assert found is not None
    assert found.size == program.stat().st_size
    assert len(found.code) == 64
    need("readelf")
    notes = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
    assert found.build_id
    assert found.build_id in notes


def test_another_byte_of_code_is_another_file(program: Path) -> None:
    before = file_identity(str(program))
    with Image(str(program)) as image:
        code = next(s for s in image.segments if s.kind == PT_LOAD and s.flags & PF_X)
    content = bytearray(program.read_bytes())
    content[code.offset + code.file_size - 1] ^= 1
    program.write_bytes(content)
    after = file_identity(str(program))
    assert before is not None
    assert after is not None
    assert (before.size, before.build_id) == (after.size, after.build_id)
    assert before.code != after.code


def test_other_data_is_the_same_code(program: Path) -> None:
    before = file_identity(str(program))
    with Image(str(program)) as image:
        data = next(s for s in image.sections if s.name == ".comment")
    content = bytearray(program.read_bytes())
    content[data.offset] ^= 1
    program.write_bytes(content)
    assert file_identity(str(program)) == before


@pytest.mark.parametrize("mode", [0o4755, 0o2755], ids=["set-uid", "set-gid"])
def test_programs_with_privileges_have_none(program: Path, mode: int) -> None:
    program.chmod(mode)
    assert file_identity(str(program)) is None


def test_root_has_none_for_programs_of_others(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "stat", lambda path, stat=os.stat: _owned_by(stat(path), 1000))
    assert file_identity(str(program)) is None


def _owned_by(status: os.stat_result, owner: int) -> os.stat_result:
    return os.stat_result((*status[:4], owner, *status[5:10]))


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n" + bytes(100)])
def test_what_is_no_program_has_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    assert file_identity(str(tmp_path / "x")) is None
    assert file_identity(str(tmp_path / "missing")) is None


def test_names_differ_with_file_and_options(program: Path) -> None:
    found = file_identity(str(program))
    assert found is not None
    names = {file_name(found, "exact", ""), file_name(found, "fast", ""), file_name(found, "exact", "avx2"),
             file_name(replace(found, code="0" * 64), "exact", "")}
    assert len(names) == 4
    assert all(len(name) == 32 and int(name, 16) >= 0 for name in names)
    assert file_name(found, "exact", "") in names


def test_the_origin_tells_machine_options_and_sources() -> None:
    machine = detect()
    one = origin(machine, "exact", "", lambda: "a" * 64)
    assert one == origin(replace(machine, frequency=1), "exact", "", lambda: "a" * 64)
    others = (origin(replace(machine, xcr0=machine.xcr0 ^ 4), "exact", "", lambda: "a" * 64),
              origin(replace(machine, levels=machine.levels[:-1]), "exact", "", lambda: "a" * 64),
              origin(machine, "fast", "", lambda: "a" * 64), origin(machine, "exact", "sse2", lambda: "a" * 64),
              origin(machine, "exact", "", lambda: "b" * 64))
    assert one not in others
    assert len(own_sources()) == 64
