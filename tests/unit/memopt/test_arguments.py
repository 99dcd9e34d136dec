"""What is read without the library means the same as what is read with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from memopt.arguments import plain
from memopt.options import Options
from memopt.store.schema import create
from memopt.usage import parse


@pytest.mark.parametrize("words", [
    ("prog",), ("--", "prog"), ("--", "--quiet"), ("--", "--", "x"), ("prog", "--", "x"), ("",),
    ("--quiet", "prog", "-x"),
    ("--dry-run", "--verbose", "--no-shadow", "--no-cache", "--follow", "--", "prog", ""), ("--json", "{}/j", "prog"),
    ("--report", "{}/r", "--json", "{}/old", "--", "prog", "--json", "x"), ("--quiet", "--quiet", "prog"),
])
def test_plain_command_lines_mean_the_same(words: tuple[str, ...], tmp_path: Path) -> None:
    _check(("exec", *words), tmp_path)


def _check(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    line = tuple(word.format(tmp_path) for word in words)
    found = plain(line)
    assert found is not None
    arguments, chosen = found
    assert Options(arguments=arguments, **chosen) == parse(line)  # type: ignore[arg-type]  # fields of Options


@pytest.mark.parametrize("rank", [None, "3"])
@pytest.mark.parametrize("words", [
    ("prog",), ("--", "prog"), ("--quiet", "some/prog", "-o", "x"), ("-o", "{}/new.db", "prog"),
    ("--output", "{}/old", "--quiet", "--", "prog"), ("-o", "{}/profile", "--", ""),
    ("-o", "{}/a", "-o", "{}/b", "prog"),
])
def test_plain_profiles_mean_the_same(words: tuple[str, ...], rank: str | None, tmp_path: Path,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old").touch()
    create(str(tmp_path / "profile")).close()
    if rank is not None:
        monkeypatch.setenv("PMI_RANK", rank)
    _check(("profile", *words), tmp_path)


@pytest.mark.parametrize("words", [
    (), ("--help",), ("attach", "1"), ("exec",), ("exec", "--"), ("exec", "--quiet"), ("exec", "--json"),
    ("exec", "-", "x"),
    ("exec", "--json", "/dev/null", "x"), ("exec", "--json", "/no/such/directory/file", "x"), ("exec", "--help"),
    ("exec", "--json", "/", "x"), ("exec", "--json", "/etc/passwd/x", "x"),
    ("exec", "--isa", "avx2", "x"), ("exec", "--json=f", "x"), ("exec", "--undo", "x"),
    ("profile",), ("profile", "-o", "f"), ("profile", "--exact", "x"), ("profile", "-of", "x"),
    ("profile", "--json", "f", "x"),
    ("profile", "-o", "/etc/passwd", "x"), ("profile", "-o", "/", "x"), ("profile", "-o", "/no/such/directory/f", "x"),
    ("exec", "-o", "f", "x"),
])
def test_anything_else_is_left_to_the_library(words: tuple[str, ...]) -> None:
    assert plain(words) is None


def test_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
                               ) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert plain(("profile", "true")) is None
    assert parse(("profile", "true")) == 2
    assert capfd.readouterr().err.startswith("memopt: the current folder is gone")
