"""Drawn command lines: what ``memopt.arguments`` reads without click means the same to ``memopt.usage``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import chdir
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memopt.arguments import plain
from memopt.options import Options
from memopt.store.schema import create
from memopt.usage import parse

WRITABLE = {"exec": ("old", "new", "link"), "profile": ("empty", "new", "profile.db")}
# In the folder of the test: files that are there, that can be made, that cannot be written; and words that name none.
FILES = ("old", "empty", "profile.db", "link", "dangling", "new", "folder/new", "folder", "missing/new", "/dev/null",
         "", "-", "--quiet", "--")
SWITCHES = {"exec": ("--quiet", "--dry-run", "--verbose", "--no-shadow", "--no-cache", "--follow"),
            "profile": ("--quiet",)}
NAMING = {"exec": ("--json", "--report"), "profile": ("-o", "--output")}  # options that take a file
OTHERS = ("--exact", "--fp=fast", "--help", "--undo", "-x", "-", "--json=old", "-onew", "--quie", "--isa", "avx2",
          "--json", "-o", "--report")

# The same lines in every run. No deadline: the machine may be busy.
drawn = settings(derandomize=True, database=None, deadline=None, max_examples=300)


def lines(files: dict[str, Sequence[str]], others: Sequence[str] = ()) -> st.SearchStrategy[list[str]]:
    """``exec`` or ``profile`` with options, which name ``files``; ``others`` are drawn as options, too."""
    def of(command: str) -> st.SearchStrategy[list[str]]:
        words = st.sampled_from((*SWITCHES[command], *others)).map(lambda word: [word])
        named = st.tuples(st.sampled_from(NAMING[command]), st.sampled_from(files[command])).map(list)
        return st.lists(st.one_of(words, named), max_size=4).map(lambda found: [command, *chain.from_iterable(found)])

    return st.one_of(of("exec"), of("profile"))


programs = st.lists(st.one_of(st.sampled_from(("prog", "./prog", "a/b.c", "", "--", "--quiet", "-o")),
                              st.text(st.characters(exclude_characters="\0"), max_size=5)), max_size=4)


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The current folder, with the files of ``FILES``."""
    with chdir(tmp_path_factory.mktemp("folder")):
        Path("old").write_text("text")
        Path("empty").touch()
        Path("folder").mkdir()
        Path("link").symlink_to("old")
        Path("dangling").symlink_to("gone")
        create("profile.db").close()
        yield


def read_alike(line: Sequence[str]) -> bool:
    """Whether ``memopt.arguments`` reads ``line``. If it does, ``memopt.usage`` must read it alike."""
    found = plain(line)
    if found is None:
        return False
    arguments, chosen = found
    assert Options(arguments=arguments, **chosen) == parse(line)  # type: ignore[arg-type]  # fields of Options
    return True


@drawn
@given(line=lines(WRITABLE), program=programs)
def test_common_lines_are_read_without_click(line: list[str], program: list[str]) -> None:
    assert read_alike([*line, "prog", *program])
    assert read_alike([*line, "--", "prog", *program])


@drawn
@given(line=lines(dict.fromkeys(WRITABLE, FILES)), separator=st.booleans(), program=programs)
def test_files_of_every_kind(line: list[str], separator: bool, program: list[str]) -> None:
    read_alike([*line, *["--"] * separator, "prog", *program])


@drawn
@given(line=lines(dict.fromkeys(WRITABLE, FILES), OTHERS), program=programs)
def test_options_that_only_click_reads(line: list[str], program: list[str]) -> None:
    read_alike([*line, *program])
