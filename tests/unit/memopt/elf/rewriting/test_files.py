"""OUT is the old file or the new one, whatever happens on the way."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from memopt.elf.rewriting.files import replace_file


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"source")
    path.chmod(0o4751)
    return path


def test_the_new_file_has_the_mode_but_no_set_uid(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"old")
    replace_file(str(out), b"new", str(source))
    assert out.read_bytes() == b"new"
    assert out.stat().st_mode & 0o7777 == 0o751
    assert sorted(os.listdir(tmp_path)) == ["out", "source"]


def test_a_link_is_replaced_not_followed(source: Path, tmp_path: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "link"
    other.write_bytes(b"other")
    link.symlink_to(other)
    replace_file(str(link), b"new", str(source))
    assert other.read_bytes() == b"other"
    assert not link.is_symlink()


def test_the_input_is_never_touched(source: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(source)
    for path in (source, link):
        with pytest.raises(OSError, match="it is the input itself"):
            replace_file(str(path), b"new", str(source))
    with pytest.raises(OSError, match="it is a folder"):
        replace_file(str(tmp_path), b"new", str(source))
    assert source.read_bytes() == b"source"


def without_unnamed(path: str, flags: int, *rest: int, open_file: Callable[..., int] = os.open, **named: int) -> int:
    if flags & os.O_TMPFILE == os.O_TMPFILE:
        raise OSError(errno.EOPNOTSUPP, "no such files here")
    return open_file(path, flags, *rest, **named)


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(source: Path, tmp_path: Path, unnamed: bool,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path / "out"
    out.write_bytes(b"old")
    if not unnamed:
        monkeypatch.setattr(os, "open", without_unnamed)
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(str(out), b"new", str(source))
    monkeypatch.undo()
    assert out.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["out", "source"]


def test_without_unnamed_files_it_works_as_well(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", without_unnamed)
    replace_file(str(tmp_path / "out"), b"new", str(source))
    assert (tmp_path / "out").read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == ["out", "source"]


def test_a_kill_leaves_the_old_file_or_the_new_one(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = ("import sys; from memopt.elf.rewriting.files import replace_file\n"
            "print(flush=True)\n"
            "for n in range(100000): replace_file(sys.argv[1], bytes([n % 256]) * 100000, sys.argv[2])")
    for wait in (0.002, 0.01, 0.03, 0.05):
        writer = subprocess.Popen([sys.executable, "-c", code, str(out), str(source)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(wait)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        content = out.read_bytes() if out.exists() else bytes(100000)
        assert len(content) == 100000
        assert len(set(content)) == 1
