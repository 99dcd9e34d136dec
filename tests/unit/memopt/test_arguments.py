"""What is read without the library means the same as what is read with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from memopt.arguments import plain
from memopt.options import Options
from memopt.usage import parse


@pytest.mark.parametrize("words", [
    ("prog",), ("--", "prog"), ("--", "--quiet"), ("--", "--", "x"), ("prog", "--", "x"), ("",),
    ("--quiet", "prog", "-x"),
    ("--dry-run", "--verbose", "--no-shadow", "--follow", "--", "prog", ""), ("--json", "{}/j", "prog"),
    ("--report", "{}/r", "--json", "{}/old", "--", "prog", "--json", "x"), ("--quiet", "--quiet", "prog"),
])
def test_plain_command_lines_mean_the_same(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    line = ("exec", *(word.format(tmp_path) for word in words))
    found = plain(line)
    assert found is not None
    arguments, chosen = found
    assert Options(arguments=arguments, **chosen) == parse(line)  # type: ignore[arg-type]  # fields of Options


@pytest.mark.parametrize("words", [
    (), ("--help",), ("attach", "1"), ("exec",), ("exec", "--"), ("exec", "--quiet"), ("exec", "--json"),
    ("exec", "-", "x"),
    ("exec", "--json", "/dev/null", "x"), ("exec", "--json", "/no/such/directory/file", "x"), ("exec", "--help"),
    ("exec", "--json", "/", "x"), ("exec", "--json", "/etc/passwd/x", "x"),
    ("exec", "--isa", "avx2", "x"), ("exec", "--json=f", "x"), ("exec", "--undo", "x"),
])
def test_anything_else_is_left_to_the_library(words: tuple[str, ...]) -> None:
    assert plain(words) is None
