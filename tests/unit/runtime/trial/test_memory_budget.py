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


def test_where_the_kernel_promises_only_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy takes no more than half of it: the program may want memory, too."""
    monkeypatch.setattr(memory_budget, "promises_left", lambda: 1 << 40)
    check_copies(os.getpid())
    monkeypatch.setattr(memory_budget, "promises_left", lambda: 130 << 20)
    with pytest.raises(Rejected, match="130 MiB that the kernel may still promise"):
        check_copies(os.getpid())


def test_promises_are_read_where_they_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "_number", lambda _: 2)
    left = memory_budget.promises_left()
    assert left is not None
    assert left % 1024 == 0
    for mode in (0, 1, None):
        monkeypatch.setattr(memory_budget, "_number", lambda _, mode=mode: mode)
        assert memory_budget.promises_left() is None


def test_the_program_can_still_start_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "processes_left", lambda _: 66)
    check_copies(os.getpid(), 2)
    with pytest.raises(Rejected, match="a limit leaves 66 processes") as caught:
        check_copies(os.getpid(), 3)
    assert caught.value.reason is Reason.NO_MEMORY


def test_limits_on_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "_cgroups", lambda _: [("", "/a")])
    monkeypatch.setattr(memory_budget, "_room", lambda root, *_: 1 << 62 if root == "/sys/fs/cgroup" else 0)
    monkeypatch.setattr(memory_budget.resource, "prlimit", lambda *_: (5000, 5000))
    monkeypatch.setattr(memory_budget, "_threads_of", lambda user, enough: 4000)
    monkeypatch.setattr(memory_budget, "status_field", lambda *_: "1000 1000 1000 1000")
    assert memory_budget.processes_left(7) == 1000
    monkeypatch.setattr(memory_budget, "status_field", lambda *_: "0 0 0 0")
    assert memory_budget.processes_left(7) == 1 << 62
    monkeypatch.setattr(memory_budget, "_cgroups", lambda _: [("cpu,pids", "/a")])
    assert memory_budget.processes_left(7) == 0


def test_threads_are_counted_where_the_number_of_all_is_not_enough() -> None:
    everybody = memory_budget._threads_of(os.geteuid(), 1 << 30)
    own = memory_budget._threads_of(os.geteuid(), 0)
    assert own > 0
    assert everybody > 0
    assert memory_budget._threads_of(4_000_000, 0) == 0
