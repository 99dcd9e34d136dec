"""What is kept between runs: a finding comes back only to whom it belongs, and only for what it depends on."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from memopt.elf import kept


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


class Planted:
    """A pickle that runs code when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


def only_file(place: Path) -> Path:
    (found,) = (path for path in place.rglob("*") if path.is_file())
    return found


def test_a_finding_comes_back() -> None:
    assert kept.load("kind", 1, "a") is None
    kept.store([1, 2], "kind", 1, "a")
    assert kept.load("kind", 1, "a") == [1, 2]
    assert kept.load("kind", 2, "a") is None
    assert kept.load("other", 1, "a") is None


def test_nobody_else_may_read_it(place: Path) -> None:
    kept.store([1, 2], "kind")
    found = only_file(place)
    assert [p.stat().st_mode & 0o777 for p in (found, found.parent, found.parent.parent)] == [0o600, 0o700, 0o700]


@pytest.mark.parametrize("how", ["file", "directory", "link", "content"])
def test_what_others_may_have_written_is_not_read(place: Path, how: str) -> None:
    kept.store([1, 2], "kind")
    found, ran = only_file(place), place / "ran"
    digest = found.read_bytes()[:32]
    planted = pickle.dumps(Planted(ran))
    match how:
        case "file":
            found.chmod(0o620)
        case "directory":
            found.parent.parent.chmod(0o770)
        case "link":
            found.rename(place / "elsewhere")
            found.symlink_to(place / "elsewhere")
        case "content":
            found.write_bytes(digest + planted)
    assert kept.load("kind") is None
    assert not ran.exists()


def test_another_version_finds_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    kept.store([1, 2], "kind")
    monkeypatch.setattr(kept, "_version", lambda: "another")
    assert kept.load("kind") is None


def test_there_may_be_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.delenv("HOME", raising=False)
    kept.store([1, 2], "kind")
    assert kept.load("kind") is None


def test_the_oldest_go_where_there_is_too_much(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_MOST_BYTES", 3000)
    for number in range(4):
        kept.store(bytes(1000), "kind", number)
        os.utime(max(place.rglob("kind-*"), key=lambda p: p.stat().st_ctime_ns), (number, number))
    assert [kept.load("kind", number) is not None for number in range(4)] == [False, False, True, True]
