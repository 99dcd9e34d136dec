from __future__ import annotations

import os
from pathlib import Path

import pytest

from memopt.ir.reasons import Reason, Rejected
from runtime.trial import memory_budget
from runtime.trial.memory_budget import _room, available, check_copies


def cgroup(directory: Path, limit: str, usage: int, inactive: int = 0) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "memory.max").write_text(limit + "\n")
    (directory / "memory.current").write_text(f"{usage}\n")
    (directory / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\n")


def test_the_tightest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    cgroup(tmp_path / "a/b", "max", 10)
    cgroup(tmp_path / "a", "1000", 700, 50)
    cgroup(tmp_path, "5000", 0)
    assert _room(str(tmp_path), "/a/b", "memory.max", "memory.current", "inactive_file") == 350
    assert _room(str(tmp_path), "/", "memory.max", "memory.current", "inactive_file") == 5000
    assert _room(str(tmp_path), "/a/none", "memory.max", "memory.current", "inactive_file") == 350


def test_no_limits_at_all(tmp_path: Path) -> None:
    assert _room(str(tmp_path / "nowhere"), "/x", "memory.max", "memory.current", "inactive_file") == 1 << 62


def test_this_process_has_room_for_itself() -> None:
    assert available(os.getpid()) > 1 << 20
    check_copies(os.getpid())


def test_what_could_exhaust_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    free = available(os.getpid())
    check_copies(os.getpid(), 1)
    with pytest.raises(Rejected) as caught:
        check_copies(os.getpid(), free // (1 << 20))
    assert caught.value.reason is Reason.NO_MEMORY
    monkeypatch.setattr(memory_budget, "available", lambda _: 60 << 20)
    with pytest.raises(Rejected, match="60 MiB are free"):
        check_copies(os.getpid())
