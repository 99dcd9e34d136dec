"""``memopt profile --exact`` and programs that make more threads, or processes, than live at once: each is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.measure.execution import memopt_command, run
from tests.conftest import Build
from tests.support.effort import some, some_rows
from tests.support.profiles import asked, record
from tests.support.waiting import PATIENCE

_ROUNDS = """SELECT c.thread, c.entries, x.iterations FROM context_loop x JOIN context c ON c.id = x.context
    JOIN function f ON f.id = c.function WHERE f.name = 'work'"""


@pytest.mark.parametrize(("how", "count"), some_rows(
    [("threads", 200), ("together", 100), ("waves", 300), ("threads", 1000)], 2))
def test_each_thread_is_recorded(build: Build, tmp_path: Path, how: str, count: int) -> None:
    path = tmp_path / "p.db"
    record((str(build("numbers_again.c", "-pthread", level="-O1")), how, str(count)), path)
    rows = asked(path, _ROUNDS)
    assert len(rows) == count
    assert {(row["entries"], row["iterations"]) for row in rows} == {(1, 100)}


@pytest.mark.parametrize("how", some(["--dependences", "--values", "--paths", "--memory"], 1))
@pytest.mark.long
def test_traces_of_threads_one_after_the_other(build: Build, tmp_path: Path, how: str) -> None:
    path, command = tmp_path / "p.db", (str(build("numbers_again.c", "-pthread", level="-O1")), "threads", "150")
    done = run([*memopt_command(), "profile", how, "-o", str(path), "--", *command], PATIENCE)
    assert done.same_result(run(command, PATIENCE)), done.stderr
    assert "failed" not in done.stderr
    if how == "--dependences":
        rows = asked(path, """SELECT d.count FROM dependence d JOIN context c ON c.id = d.sink_context
            JOIN function f ON f.id = c.function WHERE f.name = 'work' AND d.kind = 'RAW' AND d.least = 1""")
        assert [row["count"] for row in rows] == [99] * 150


def test_more_threads_at_once_than_can_be_recorded(build: Build, tmp_path: Path) -> None:
    command = (str(build("numbers_again.c", "-pthread", level="-O1")), "together", "140")
    done = run([*memopt_command(), "profile", "--exact", "-o", str(tmp_path / "p.db"), "--", *command], PATIENCE)
    assert done.same_result(run(command, PATIENCE)), done.stderr
    assert "a thread was not recorded" in done.stderr
    assert "failed" not in done.stderr


def test_processes_with_the_same_number(build: Build, tmp_path: Path) -> None:
    path, command = tmp_path / "p.db", (str(build("numbers_again.c", "-pthread", level="-O1")), "processes", "4")
    if run(command, PATIENCE).exit_code == 77:
        pytest.skip("only root may choose the numbers of processes")
    record(command, path)
    rows = asked(path, _ROUNDS)
    assert len({row["thread"] for row in rows}) == len(rows) == 4
    assert {row["iterations"] for row in rows} == {100}
    assert len(asked(path, "SELECT * FROM thread")) == 5
