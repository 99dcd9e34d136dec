"""``memopt profile``: the program behaves as it does alone, and the file says where its time went."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from bench.measure.execution import memopt_command, run
from tests.conftest import Build
from tests.support.profiles import asked, profile_with_children
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize("level", ["-O1", "-O3"])
def test_where_the_time_goes(build: Build, tmp_path: Path, level: str) -> None:
    command, path = (str(build("gemm_ijk.c", level=level)), "500"), tmp_path / "p.db"
    native = run(command, PATIENCE)
    profiled = run([*memopt_command(), "profile", "-o", str(path), "--", *command], PATIENCE)
    assert profiled.same_result(native), profiled.stderr
    assert f"memopt: {path}: " in profiled.stderr
    hottest = asked(path, "hot-functions")[0]
    assert hottest["function"] == "dgemm"
    assert float(str(hottest["percent"])) > 60
    inner = max((r for r in asked(path, "hot-loops") if r["function"] == "dgemm"), key=lambda r: r["own_percent"])
    assert inner["depth"] == 3
    (row,) = asked(path, "SELECT ended, seconds, command FROM run")
    assert (row["ended"], row["command"]) == ("exit 0", " ".join(command))
    (sums,) = asked(path, "SELECT sum(seconds) AS seconds FROM sample")
    assert float(str(sums["seconds"])) <= 1.1 * float(str(row["seconds"]))


def test_code_of_libraries_is_told_by_file(build: Build, tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    trial = run([*memopt_command(), "profile", "--quiet", "-o", str(path), "--", "/usr/bin/python3", "-c",
                 "import zlib; d = bytes(range(256)) * 4000\nfor _ in range(8): zlib.compress(d + d, 9)"], PATIENCE)
    assert (trial.exit_code, trial.stderr) == (0, "")
    (named,) = asked(path, """SELECT sum(count) AS all_of_them, sum(count * (block IS NOT NULL)) AS in_blocks,
        count(DISTINCT image) AS files FROM sample""")
    assert int(str(named["in_blocks"])) > 0.9 * int(str(named["all_of_them"]))
    assert int(str(named["files"])) >= 1


def test_children_are_profiled_each_on_its_own(build: Build, tmp_path: Path) -> None:
    """Copies of the program, and other programs that it starts."""
    path, program = tmp_path / "p.db", build("gemm_ijk.c")
    twice = f"import os, subprocess\npid = os.fork()\nsubprocess.run(['{program}', '400'])\nif pid: os.waitpid(pid, 0)"
    profile_with_children(path, "/usr/bin/python3", "-c", twice)
    found = asked(path, """SELECT s.thread, f.name AS function, sum(s.count) AS samples FROM sample s
        JOIN block b ON b.id = s.block JOIN function f ON f.id = b.function GROUP BY s.thread, f.id""")
    hot = {row["thread"] for row in found if row["function"] == "dgemm" and int(str(row["samples"])) > 20}
    assert len(hot) == 2
    profile_with_children(path, "/usr/bin/python3", "-c", """import os, zlib
pid = os.fork()
for _ in range(40): zlib.compress(bytes(range(256)) * 4000, 9)
if pid: os.waitpid(pid, 0)""")
    threads = asked(path, """SELECT thread, sum(count) AS samples, sum(count * (block IS NOT NULL)) AS in_blocks
        FROM sample GROUP BY thread ORDER BY samples""")
    assert len(threads) == 2
    assert all(int(str(row["in_blocks"])) > 0.9 * int(str(row["samples"])) > 20 for row in threads)


def test_children_that_end_at_once_are_told_by_file(build: Build, tmp_path: Path) -> None:
    path, program = tmp_path / "p.db", build("gemm_ijk.c")
    script = f"i=0; while [ $i -lt 60 ]; do i=$((i+1)); {program} 160 >/dev/null; done"
    profile_with_children(path, "/bin/sh", "-c", script)
    (told,) = asked(path, "SELECT sum(count) AS samples, sum(count * (image IS NOT NULL)) AS in_files FROM sample")
    assert int(str(told["in_files"])) > 0.9 * int(str(told["samples"])) > 30
    (threads,) = asked(path, f"""SELECT count(*) AS all_of_them, sum(program = '{program}') AS of_program,
        count(DISTINCT parent) AS parents, sum(parent = 0) AS orphans FROM thread WHERE parent IS NOT NULL""")
    assert int(str(threads["of_program"])) > 0.8 * int(str(threads["all_of_them"]))
    assert (threads["parents"], threads["orphans"]) == (1, 0)


@pytest.mark.parametrize(("script", "ended", "code"), [
    ("exit 7", "exit 7", 7), ("kill -TERM $$", "signal 15", -signal.SIGTERM)])
def test_the_end_is_the_programs(tmp_path: Path, script: str, ended: str, code: int) -> None:
    path = tmp_path / "p.db"
    assert run([*memopt_command(), "profile", "-o", str(path), "sh", "-c", script], PATIENCE).exit_code == code
    assert asked(path, "SELECT ended FROM run") == [{"ended": ended}]


def test_a_file_that_is_no_profile_stays_and_nothing_runs(tmp_path: Path) -> None:
    path, ran = tmp_path / "notes.txt", tmp_path / "ran"
    path.write_text("notes")
    trial = run([*memopt_command(), "profile", "-o", str(path), "touch", str(ran)], PATIENCE)
    assert trial.exit_code == 2
    assert trial.stderr.startswith(f"memopt: {path}: not a profile")
    assert trial.stderr.count("\n") == 1
    assert path.read_text() == "notes"
    assert not ran.exists()


@pytest.mark.check
def test_what_cannot_be_written_in_the_end_costs_a_line(build: Build, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    trial = run([*memopt_command(), "profile", "-o", str(folder / "p.db"), "sh", "-c", f"rmdir {folder}; echo done"],
                PATIENCE)
    assert (trial.exit_code, trial.stdout) == (0, b"done\n")
    assert trial.stderr.startswith(f"memopt: {folder / 'p.db'}: cannot be written")
