"""``memopt profile`` and system calls after which a process may not be recorded as before: it ends as it does alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.measure.execution import Execution, memopt_command, run
from tests.conftest import Build
from tests.support.effort import some, some_rows
from tests.support.profiles import asked
from tests.support.waiting import PATIENCE

_MODES = ("--exact", "--values", "--dependences", "--paths")


def same(command: tuple[str, ...], path: Path, mode: str = "--exact", output: str = "stdout") -> Execution:
    """Runs ``command`` alone and recorded: both end in the same way. ``output``: what else is compared."""
    native = run(command, PATIENCE)
    if native.exit_code == 77:
        pytest.skip("this user may not do that")
    done = run([*memopt_command(), "profile", mode, "-o", str(path), "--", *command], PATIENCE)
    assert done.exit_code == native.exit_code, done.stderr
    assert done.stdout == native.stdout, done.stderr
    assert "memopt failed" not in done.stderr
    return done


def entries(path: Path, function: str) -> int:
    return sum(int(str(row["entries"])) for row in asked(path, f"""SELECT c.entries FROM context c
        JOIN function f ON f.id = c.function WHERE f.name = '{function}'"""))


# -- seccomp -----------------------------------------------------------------------------------------------------------

_CONFINED = ("filter", "strict", "all-but-one", "poll", "prctl", "error", "trap", "thread")


@pytest.mark.parametrize(("how", "mode"), some_rows([(how, mode) for mode in _MODES for how in _CONFINED], 3))
def test_a_program_that_confines_itself(build: Build, tmp_path: Path, how: str, mode: str) -> None:
    path = tmp_path / "p.db"
    done = same((str(build("confined.c", "-pthread", level="-O1")), how), path, mode)
    assert "it confines itself by seccomp" in done.stderr
    if mode == "--exact":
        assert entries(path, "work") >= 1
        assert entries(path, "later") == 0


def test_a_child_that_confines_itself(build: Build, tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    done = same((str(build("confined.c", "-pthread", level="-O1")), "child"), path)
    assert "it confines itself by seccomp" in done.stderr
    assert entries(path, "later") == 1  # its parent is recorded to its end


def test_a_program_that_is_confined_before_it_begins(build: Build, tmp_path: Path) -> None:
    """It executes itself when it is confined."""
    program = str(build("confined.c", "-pthread", level="-O1"))
    done = same((program, "executed"), tmp_path / "p.db")
    assert "it confines itself by seccomp" in done.stderr
    done = same(("/bin/sh", "-c", f"{program} executed; exit 3"), tmp_path / "q.db")
    assert "it confines itself by seccomp" in done.stderr


# -- tasks -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("how", "mode"), some_rows(
    [(how, mode) for mode in _MODES for how in ("untraced", "untraced3", "untraced-fork", "attach")], 2))
def test_tasks_that_nobody_may_trace(build: Build, tmp_path: Path, how: str, mode: str) -> None:
    path = tmp_path / "p.db"
    done = same((str(build("tasks.c", level="-O1")), how), path, mode)
    assert "it makes a task that nobody may trace" in done.stderr


@pytest.mark.parametrize("how", some(["shared", "vfork", "spawn", "clone3", "numbers"], 2))
def test_tasks_of_other_kinds(build: Build, tmp_path: Path, how: str) -> None:
    path = tmp_path / "p.db"
    done = same((str(build("tasks.c", level="-O1")), how), path)
    assert entries(path, "work") == {"spawn": 2, "clone3": 2}.get(how, 1), done.stderr
    assert ("process numbers of its own" in done.stderr) == (how == "numbers")


@pytest.mark.parametrize("mode", some(_MODES, 1))
def test_a_program_that_asks_to_be_traced(build: Build, tmp_path: Path, mode: str) -> None:
    done = same((str(build("tasks.c", level="-O1")), "me"), tmp_path / "p.db", mode)
    assert done.stdout.startswith(b"0\n")  # it could
    assert "another process traces it" in done.stderr


@pytest.mark.parametrize(("sanitizer", "leaks"), some_rows(
    [("leak", True), ("address", True), ("leak", False), ("address", False)], 1))
def test_sanitizers(build: Build, tmp_path: Path, sanitizer: str, leaks: bool) -> None:
    """LeakSanitizer makes an untraced task at the end of a program, which stops and reads the program by ptrace."""
    try:
        program = str(build("leaking.c", f"-fsanitize={sanitizer}", level="-O1"))
    except subprocess.CalledProcessError:
        pytest.skip("the compiler has no sanitizers")
    command = (program, *(["leak"] if leaks else []))
    done = same(command, tmp_path / "p.db")
    native = run(command, PATIENCE)
    assert ("byte(s) leaked" in done.stderr) == ("byte(s) leaked" in native.stderr) == leaks
    assert entries(tmp_path / "p.db", "work") == 1


# -- code that changes -------------------------------------------------------------------------------------------------

_CHANGES = ("mprotect", "threads", "handler", "file", "advice", "moved", "child", "forked", "stays")


@pytest.mark.parametrize(("how", "mode"), some_rows([(how, mode) for mode in _MODES for how in _CHANGES], 6))
@pytest.mark.long
def test_code_that_the_program_changes(build: Build, tmp_path: Path, how: str, mode: str) -> None:
    path = tmp_path / "p.db"
    done = same((str(build("text_changes.c", "-pthread", "-Wno-stringop-overflow", level="-O1")), how), path, mode)
    assert len(set(done.stdout.split())) > 1
    if mode == "--exact" and how in ("mprotect", "file"):  # what it has become is recorded, too
        other, = asked(path, """SELECT total(c.entries) AS entries FROM context c JOIN image i ON i.id = c.image
            WHERE i.path LIKE '/memfd:text%'""")
        assert entries(path, "value") + int(float(str(other["entries"]))) == 1000 * len(done.stdout.split())
