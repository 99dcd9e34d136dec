from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from memopt.report.files import ReportError, write


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_text("something much longer than what comes")
    before = path.stat().st_ino
    write(str(path), "new\n")
    assert path.read_text() == "new\n"
    assert path.stat().st_ino != before
    assert os.listdir(tmp_path) == ["report"]


def test_a_link_of_the_users_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write(str(tmp_path / "link"), "x")
    assert (tmp_path / "real").read_text() == "x"
    assert (tmp_path / "link").is_symlink()


def test_nobody_elses_file_is_written_through_the_temporary_name(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / f"report.{os.getpid()}.part").symlink_to(victim)
    with pytest.raises(ReportError):
        write(str(tmp_path / "report"), "x")
    assert victim.read_text() == "untouched"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(path.read_text()))
    reader.start()
    write(str(path), "through\n")
    reader.join()
    assert read == ["through\n"]
    assert path.is_fifo()


def test_errors_are_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "folder", tmp_path):
        with pytest.raises(ReportError) as caught:
            write(str(path), "x")
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_full_disk_is_reported() -> None:
    with pytest.raises(ReportError, match="No space left"):
        write("/dev/full", "x")
