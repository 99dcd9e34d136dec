"""The lines of ``memopt cache``."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from memopt.plans import folder as folders
from memopt.plans.entries import text
from memopt.plans.identity import file_identity
from memopt.usage import parse
from tests.conftest import Build
from tests.support.stored import STORED

NAMES = ("0" * 32, "1" * 32)


@pytest.fixture
def program(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program for which the first file holds something; the second is damaged."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = shutil.copy(build("one_product.c"), tmp_path / "program")
    file, folder = file_identity(str(path)), folders.plans_folder()
    assert file is not None
    assert folder is not None
    Path(folder, NAMES[0]).write_text(text(replace(STORED, file=file)))
    Path(folder, NAMES[1]).write_text("x")
    return str(path)


def test_list_has_a_line_for_each_file(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["cache", "list"]) == 0
    lines = sorted(capsys.readouterr().out.splitlines())
    assert lines[0].startswith(f"{NAMES[0]}  1 plan, 1 refusal, last used 20")
    assert lines[1] == f"{NAMES[1]}  is ignored: its checksum does not match"


def test_show_finds_a_program_and_a_name(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["cache", "show", program]) == 0
    shown = capsys.readouterr().out
    assert "loop at 0x10: 4 times as fast in its trial, used 1 times" in shown
    assert 'loop at 0x20: left alone, because an address or bound is not affine' in shown
    assert parse(["cache", "show", NAMES[0]]) == 0
    assert capsys.readouterr().out == shown


def test_show_of_another_program_is_one_line(program: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert parse(["cache", "show", "/bin/sh"]) == 1
    assert capfd.readouterr().err == "memopt: nothing is known about /bin/sh; memopt cache list shows what is\n"


def test_clear_removes_one_program_or_all(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folders.plans_folder()
    assert folder is not None
    assert parse(["cache", "clear", program]) == 0
    assert folders.names(folder) == (NAMES[1],)
    assert parse(["cache", "clear", program]) == 1
    assert parse(["cache", "clear"]) == 0
    assert folders.names(folder) == ()
    assert "removed 1 file\n" in capsys.readouterr().out


def test_without_a_cache_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert parse(["cache", "list"]) == 0
    assert parse(["cache", "clear"]) == 0
    assert capsys.readouterr().out == "removed 0 files\n"
    assert list(tmp_path.iterdir()) == []
