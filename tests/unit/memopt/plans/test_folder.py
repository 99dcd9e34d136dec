"""Files of the cache: only own, regular, unlinked ones count; writing merges; the oldest go first."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from memopt.plans import folder as folders
from memopt.plans.entries import Entry, OddFile, StoredRefusal, text
from memopt.plans.identity import FileIdentity
from tests.support.stored import STORED, entry

NAME = "0123456789abcdef" * 2


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = folders.plans_folder()
    assert found is not None
    return Path(found)


def write(folder: Path, content: str | None = None) -> Path:
    path = folder / NAME
    path.write_text(text(STORED) if content is None else content)
    return path


def add(folder: Path, *found: Entry, name: str = NAME, file: FileIdentity = STORED.file) -> None:
    folders.add(str(folder), name, STORED.origin, file, found)


def test_there_is_one_folder_and_only_its_user_sees_it(folder: Path, tmp_path: Path) -> None:
    assert folder == tmp_path / "memopt" / "plans" / "v1"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_without_a_home_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    assert folders.plans_folder() is None


def test_the_default_is_below_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folders.plans_folder(make=False) is None
    assert not (tmp_path / ".cache").exists()
    assert folders.plans_folder() == str(tmp_path / ".cache" / "memopt" / "plans" / "v1")


def test_a_folder_that_is_open_to_others_is_none(folder: Path) -> None:
    folder.chmod(0o770)
    assert folders.plans_folder() is None


def test_what_was_written_is_read(folder: Path) -> None:
    assert folders.load(str(folder), NAME) is None
    write(folder)
    assert folders.load(str(folder), NAME) == STORED


def test_a_link_is_odd(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text(text(STORED))
    (folder / NAME).symlink_to(tmp_path / "other")
    with pytest.raises(OddFile, match="a link"):
        folders.load(str(folder), NAME)
    folders.remove(str(folder), NAME)
    assert (tmp_path / "other").exists()


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_odd(folder: Path, mode: int) -> None:
    write(folder).chmod(mode)
    with pytest.raises(OddFile, match="others may write"):
        folders.load(str(folder), NAME)


def test_a_file_of_another_user_is_odd(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(OddFile, match="somebody else"):
        folders.load(str(folder), NAME)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_odd(folder: Path, make: object) -> None:
    make(folder / NAME)  # type: ignore[operator]
    with pytest.raises(OddFile):
        folders.load(str(folder), NAME)


@pytest.mark.parametrize("content", ["", "x" * (1 << 20) + "x", "\0", "sum \n", "memopt-plans 1\n"])
def test_a_corrupt_file_is_odd_and_written_anew(folder: Path, content: str) -> None:
    write(folder, content)
    with pytest.raises(OddFile):
        folders.load(str(folder), NAME)
    add(folder, *STORED.entries)
    assert folders.load(str(folder), NAME) == STORED


def test_bytes_that_are_no_text_are_odd(folder: Path) -> None:
    (folder / NAME).write_bytes(b"\xff\xfe" * 100)
    with pytest.raises(OddFile):
        folders.load(str(folder), NAME)


def test_writing_keeps_what_another_run_has_written(folder: Path) -> None:
    one, two = entry(1, StoredRefusal("non-affine", "", 1)), entry(2, StoredRefusal("non-affine", "", 1))
    add(folder, one)
    add(folder, two)
    add(folder, one)
    found = folders.load(str(folder), NAME)
    assert found is not None
    assert found.entries == (entry(1, StoredRefusal("non-affine", "", 2)), two)


def test_entries_of_another_origin_are_dropped(folder: Path) -> None:
    write(folder, text(replace(STORED, origin=("memopt 2",))))
    add(folder, STORED.entries[1])
    assert folders.load(str(folder), NAME) == replace(STORED, entries=STORED.entries[1:])


def test_writers_at_once_leave_one_whole_file(folder: Path) -> None:
    entries = [entry(n, StoredRefusal("non-affine", "", 1)) for n in range(24)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda e: add(folder, e), entries))
    found = folders.load(str(folder), NAME)
    assert found is not None
    assert set(found.entries) <= set(entries)
    assert found.entries


def test_a_full_or_closed_folder_is_silent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    add(folder, *STORED.entries)
    assert list(folder.iterdir()) == []
    monkeypatch.setattr(os, "open", full)
    add(folder, *STORED.entries)


def test_the_files_used_least_recently_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_FILES", 3)
    names = [f"{n:032x}" for n in range(5)]
    for number, name in enumerate(names):
        add(folder, *STORED.entries, name=name)
        os.utime(folder / name, (1e9 + number, 1e9 + number))
    os.utime(folder / names[3], (1e9, 1e9))
    folders.touch(str(folder), names[3])
    (folder / f"{NAME}.77").touch()
    os.utime(folder / f"{NAME}.77", (1e9, 1e9))
    add(folder, *STORED.entries)
    assert folders.names(str(folder)) == (NAME, names[3], names[4])
    assert sorted(p.name for p in folder.iterdir()) == sorted([NAME, names[3], names[4]])


def test_all_files_together_stay_small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_ALTOGETHER", 2 * len(text(STORED)))
    for number in range(4):
        add(folder, *STORED.entries, name=f"{number:032x}")
        os.utime(folder / f"{number:032x}", (1e9 + number, 1e9 + number))
    assert len(folders.names(str(folder))) <= 2
