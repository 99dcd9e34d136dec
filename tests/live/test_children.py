"""``memopt profile`` and the processes that a program makes: each is recorded on its own, and nothing of theirs differs
from what they do alone."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from bench.measure.execution import memopt_command, run
from tests.conftest import Build
from tests.support.effort import some, some_rows
from tests.support.profiles import asked, record
from tests.support.waiting import PATIENCE

_OF_WORK = """SELECT c.thread, sum(x.iterations) AS iterations FROM context_loop x JOIN loop l ON l.id = x.loop
    JOIN function f ON f.id = l.function JOIN context c ON c.id = x.context WHERE f.name LIKE 'work%'
    GROUP BY c.thread"""
_WORK = {"main": 30, "child": 230, "grandchild": 200, "of a thread": 1000, "executed": 20000, "spawned": 30000,
         "signalled": 10}


@pytest.mark.parametrize(("compiler", "level"), some_rows(
    [("gcc", "-O0"), ("gcc", "-O2"), ("clang", "-O2"), ("gcc", "-O3")], 2))
def test_counts_of_each_child(build: Build, tmp_path: Path, compiler: str, level: str) -> None:
    path = tmp_path / "p.db"
    record((str(build("counted_children.c", "-pthread", compiler=compiler, level=level)),), path)
    rounds = {int(str(row["thread"])): int(str(row["iterations"])) for row in asked(path, _OF_WORK)}
    assert sorted(rounds.values()) == sorted(_WORK.values())
    threads = asked(path, "SELECT * FROM thread")
    parents = {row["process"]: row["parent"] for row in threads}
    (main,) = (process for process, parent in parents.items() if parent is None)
    (grandchild,) = (process for process, parent in parents.items() if parent not in (None, main))
    assert rounds[int(str(parents[grandchild]))] == _WORK["child"]
    assert rounds[int(str(grandchild))] == _WORK["grandchild"]
    assert Counter(row["process"] for row in threads)[main] == 2
    (row,) = asked(path, """SELECT (SELECT sum(instructions) FROM context) AS own,
        (SELECT sum(instructions) FROM execution) AS executed,
        (SELECT sum(inclusive) FROM context WHERE parent IS NULL) AS roots,
        (SELECT count(*) FROM execution WHERE count < 0) + (SELECT count(*) FROM context WHERE entries < 0)
        + (SELECT count(*) FROM context_loop WHERE entries < 0 OR iterations < 0) AS odd,
        (SELECT count(*) FROM context c WHERE c.inclusive <> (SELECT sum(d.instructions) FROM context d
         WHERE d.id BETWEEN c.id AND c.last)) AS wrong""")
    assert row["own"] == row["executed"] == row["roots"]
    assert (row["odd"], row["wrong"]) == (0, 0)


def test_a_child_has_the_calls_of_its_parent_above_it(build: Build, tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    record((str(build("counted_children.c", "-pthread")),), path)
    rows = asked(path, """SELECT c.entries FROM context c JOIN function f ON f.id = c.function
        JOIN context p ON p.id = c.parent JOIN function g ON g.id = p.function
        JOIN context q ON q.id = p.parent JOIN function h ON h.id = q.function
        WHERE f.name LIKE 'rounds%' AND g.name LIKE 'family%' AND h.name = 'main' ORDER BY c.entries""")
    # The fork returns twice in the first child and in the parent, once in the child of the child.
    assert [row["entries"] for row in rows] == [0, 0, 1, 1]


@pytest.mark.parametrize("how", some([
    ("--dependences",), ("--memory",), ("--values",), ("--paths",), ("--paths", "--unhook", "50", "--rehook", "200000"),
    ("--paths", "--exact")], 3))
def test_whatever_is_asked_for(build: Build, tmp_path: Path, how: tuple[str, ...]) -> None:
    path, command = tmp_path / "p.db", (str(build("counted_children.c", "-pthread")),)
    native = run(command, PATIENCE)
    done = run([*memopt_command(), "profile", *how, "-o", str(path), "--", *command], PATIENCE)
    assert done.same_result(native), done.stderr
    assert "memopt failed" not in done.stderr
    assert "not recorded" not in done.stderr
    sums = {"--dependences": """SELECT d.count + 1 AS n FROM dependence d JOIN context c ON c.id = d.sink_context
                JOIN function f ON f.id = c.function WHERE f.name = 'work' AND d.kind = 'RAW' AND d.loop IS NOT NULL
                AND d.least = 1 AND d.most = 1 AND d.source <> d.sink""",
            "--memory": """SELECT a.count AS n FROM access a JOIN context c ON c.id = a.context
                JOIN function f ON f.id = c.function WHERE f.name = 'work' AND a.kind = 'R'"""}
    if how[0] in sums:
        numbers = [row["n"] for row in asked(path, sums[how[0]])]
        assert {_WORK["of a thread"], _WORK["executed"], _WORK["spawned"]} < set(numbers), numbers
    if how == ("--paths", "--exact"):
        (row,) = asked(path, """SELECT sum(p.count) AS n FROM path p JOIN function f ON f.id = p.function
            WHERE f.name = 'work'""")
        assert abs(float(str(row["n"])) - sum(_WORK.values())) <= len(_WORK)  # the last of each may not be seen to end


def test_the_trace_of_all(build: Build, tmp_path: Path) -> None:
    trace, program = tmp_path / "trace", str(build("counted_children.c", "-pthread"))
    record((program,), tmp_path / "p.db", "--trace", str(trace))
    text = run([*memopt_command(), "trace", str(trace)], PATIENCE).stdout.decode()
    sizes = Counter(line for line in text.splitlines() if line.startswith("W4@"))
    assert max(sizes.values()) >= _WORK["spawned"]


@pytest.mark.parametrize("shell", some(["sh", "bash"], 1))
def test_scripts(build: Build, tmp_path: Path, shell: str) -> None:
    """The shells run what they start by vfork and by fork."""
    path, program = tmp_path / "p.db", str(build("counted_children.c", "-pthread"))
    record((shell, "-c", f"for n in 11 22; do echo $n | tr 1 3; {program} work $n; done; ({program} work 33); exit 5"),
           path)
    rows = asked(path, _OF_WORK)
    assert sorted(int(str(row["iterations"])) for row in rows) == [11, 22, 33]
    assert {str(row["program"]) for row in asked(path, "SELECT program FROM thread")} >= {program}


@pytest.mark.parametrize("how", some(["--exact", "--memory", "--paths"], 1))
def test_children_that_another_traces(build: Build, tmp_path: Path, how: str) -> None:
    command = (str(build("traced_children.c")),)
    native = run(command, PATIENCE)
    done = run([*memopt_command(), "profile", how, "-o", str(tmp_path / "p.db"), "--", *command], PATIENCE)
    assert done.same_result(native), done.stderr
    assert "another process traces it" in done.stderr


@pytest.mark.parametrize("how", some(["--exact", "--memory", "--paths"], 1))
def test_what_parents_are_told_of_children(build: Build, tmp_path: Path, how: str) -> None:
    command = (str(build("stopped_children.c")),)
    native = run(command, PATIENCE)
    done = run([*memopt_command(), "profile", how, "-o", str(tmp_path / "p.db"), "--", *command], PATIENCE)
    assert done.same_result(native), done.stderr
    assert "memopt failed" not in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("how", some(["--exact", "--memory", "--paths"], 1))
def test_a_child_that_goes_on_when_the_program_has_ended(tmp_path: Path, how: str) -> None:
    left = tmp_path / "left"
    script = f"(i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 1; echo $i >{left}) >/dev/null 2>&1 & exit 4"
    done = run([*memopt_command(), "profile", how, "-o", str(tmp_path / "p.db"), "--", "bash", "-c", script], PATIENCE)
    assert done.exit_code == 4
    assert "memopt failed" not in done.stderr
    deadline = time.monotonic() + PATIENCE
    while not (left.exists() and left.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left.read_text() == "20000\n"


@pytest.mark.parametrize("seconds", some([0.3, 0.6, 0.9, 1.2, 1.5, 1.8], 2))
def test_children_survive_memopt(build: Build, tmp_path: Path, seconds: float) -> None:
    """Nobody asks for memopt's end until all that it has traced are gone."""
    program = str(build("counted_children.c", "-pthread"))
    command = ("sh", "-c", f"for i in 1 2 3; do {program}; {program} work 9; done")
    expected = run(command, PATIENCE).stdout
    with subprocess.Popen([*memopt_command(), "profile", "--exact", "-o", str(tmp_path / "p.db"), "--", *command],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as memopt:
        time.sleep(seconds)
        memopt.kill()
        assert memopt.stdout is not None
        said = memopt.stdout.read()  # until all have ended
    assert said in (expected, b"")  # killed before it had started the program


@pytest.mark.parametrize("fault", some(
    ["record.answer:3", "record.answer:9", "ptrace.interrupt:2", "ptrace.setregset:9",
                                   "ptrace.setregset:40", "ptrace.detach:1", "ptrace.pwrite:900",
                                   "record.child:1", "record.child:2", "record.child:6"], 2))
@pytest.mark.parametrize("how", some(["--exact", "--memory"], 1))
def test_memopt_fails_inside_and_all_run_on(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                            how: str, fault: str) -> None:
    command = (str(build("counted_children.c", "-pthread")),)
    native = run(command, PATIENCE)
    monkeypatch.setenv("MEMOPT_FAULT", f"raise:{fault}")
    done = run([*memopt_command(), "profile", how, "-o", str(tmp_path / "p.db"), "--", *command], PATIENCE)
    assert done.same_result(native), done.stderr
    assert "Traceback" not in done.stderr
