from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime.patching import perf_map


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "perf-7.map"
    monkeypatch.setattr(perf_map, "path_of", lambda _: str(file))
    return file


def test_adds_names_and_deletes(path: Path) -> None:
    assert perf_map.add(7, 0x400000, 64, "dgemm+0x40", "avx512 1")
    assert perf_map.add(7, 0x500000, 4096, "other", "2")
    assert path.read_text() == "400000 40 memopt:dgemm+0x40:avx512_1\n500000 1000 memopt:other:2\n"
    perf_map.delete(7)
    assert not path.exists()
    perf_map.delete(7)


def test_the_file_of_a_just_in_time_compiler_is_left_alone(path: Path) -> None:
    path.write_text("400000 40 py::main:main.py\n")
    assert not perf_map.add(7, 0x500000, 64, "nest", "1")
    perf_map.delete(7)
    assert path.read_text() == "400000 40 py::main:main.py\n"


def test_no_link_is_followed(path: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("400000 40 memopt:x:1\n")
    os.symlink(precious, path)
    assert not perf_map.add(7, 0x500000, 64, "nest", "1")
    perf_map.delete(7)
    assert precious.read_text() == "400000 40 memopt:x:1\n"
    assert path.is_symlink()


def test_an_empty_file_under_two_names_is_left_alone(path: Path, tmp_path: Path) -> None:
    """Where hard links to others' files are allowed, somebody may give a file of this user's a second name."""
    precious = tmp_path / "precious"
    precious.touch()
    os.link(precious, path)
    assert not perf_map.add(7, 0x500000, 64, "nest", "1")
    perf_map.delete(7)
    assert precious.read_text() == ""
    assert path.exists()


def test_a_pipe_holds_nobody_up(path: Path) -> None:
    os.mkfifo(path)
    assert not perf_map.add(7, 0x500000, 64, "nest", "1")
    perf_map.delete(7)
    assert path.exists()


def test_the_file_that_is_looked_at_is_the_one_that_is_written_to(path: Path, tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """Exchanged after the look: the lines go to the file that was memopt's."""
    assert perf_map.add(7, 0x400000, 64, "first", "1")
    other, looked = tmp_path / "other", perf_map._ours

    def look(descriptor: int) -> bool:
        found = looked(descriptor)
        path.rename(other)
        path.write_text("")
        return found

    monkeypatch.setattr(perf_map, "_ours", look)
    assert perf_map.add(7, 0x500000, 64, "second", "1")
    assert path.read_text() == ""
    assert "second" in other.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_left_alone(path: Path) -> None:
    path.touch()
    os.chown(path, 1234, 1234)
    assert not perf_map.add(7, 0x500000, 64, "nest", "1")
    perf_map.delete(7)
    assert path.read_text() == ""
