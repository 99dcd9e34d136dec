"""Copies are made once: processes of a run share them, and later runs read them from a directory of the user's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.measure.execution import memopt_command, run
from tests.conftest import Build
from tests.support.effort import some
from tests.support.profiles import asked, record
from tests.support.waiting import PATIENCE

# Of libraries no instructions: how many ``strlen`` executes depends on where a string lies in its page.
_BY_PROCESS = """SELECT t.process, sum(CASE WHEN i.path LIKE '%/tasks' THEN c.instructions END) AS instructions,
    sum(c.entries) AS entries, count(*) AS contexts FROM context c JOIN thread t ON t.thread = c.thread
    LEFT JOIN image i ON i.id = c.image GROUP BY t.process ORDER BY t.process"""


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for what is kept between runs."""
    place = tmp_path / "cache"
    place.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    return place


def counts(path: Path) -> list[tuple[object, ...]]:
    return [(row["instructions"], row["entries"], row["contexts"]) for row in asked(path, _BY_PROCESS)]


def files(kept: Path) -> list[Path]:
    return sorted(path for path in kept.rglob("*") if path.is_file())


@pytest.mark.parametrize("how", some([(), ("--no-elision",), ("--trace", "trace")], 1))
def test_processes_of_one_program_have_the_same_counts(build: Build, tmp_path: Path, kept: Path,
                                                       monkeypatch: pytest.MonkeyPatch, how: tuple[str, ...]) -> None:
    """The second one has the copies of the first one, at other addresses."""
    monkeypatch.chdir(tmp_path)
    program = str(build("tasks.c", level="-O1"))
    record(("sh", "-c", f"for n in 1 2 3; do {program} plain; done; exit 2"), tmp_path / "p.db", *how)
    _, *others = counts(tmp_path / "p.db")
    assert len(others) == 3
    assert len({instructions for instructions, _, _ in others}) == 1
    assert len({entries for _, entries, _ in others}) == 1


def test_the_second_run_reads_what_the_first_has_kept(build: Build, tmp_path: Path, kept: Path) -> None:
    command = (str(build("tasks.c", level="-O1")), "plain")
    record(command, tmp_path / "p.db")
    assert {path.name.partition("-")[0] for path in files(kept)} == {"kit", "structures", "symbols"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (*files(kept), *kept.rglob("memopt/*")))
    before = {path: path.stat().st_mtime_ns for path in files(kept)}
    record(command, tmp_path / "q.db")
    assert before == {path: path.stat().st_mtime_ns for path in files(kept)}  # nothing had to be made
    assert counts(tmp_path / "p.db") == counts(tmp_path / "q.db")
    functions = "SELECT f.name, f.start, f.end FROM function f ORDER BY 1, 2, 3"
    assert asked(tmp_path / "p.db", functions) == asked(tmp_path / "q.db", functions)


def test_units_of_several_runs_keep_their_functions(build: Build, tmp_path: Path, kept: Path) -> None:
    """Each run meets functions that the runs before have not met, and maps the program elsewhere."""
    program = str(build("tasks.c", level="-O1"))
    for number, how in enumerate(("plain", "clone3", "vfork", "plain", "shared")):
        path = tmp_path / f"{number}.db"
        run([*memopt_command(), "profile", "--exact", "-o", str(path), "--", program, how], PATIENCE)
        names = {row["name"] for row in asked(path, """SELECT f.name FROM context c JOIN function f
            ON f.id = c.function WHERE c.entries > 0""")}
        wanted = {"main", "work", *(["await"] if how not in ("plain", "vfork") else [])}
        assert wanted <= names, how


def test_a_program_that_is_built_anew_is_copied_anew(build: Build, tmp_path: Path, kept: Path) -> None:
    program = tmp_path / "program"
    rounds = []
    for level in ("-O0", "-O2"):
        program.unlink(missing_ok=True)
        program.write_bytes(Path(build("tasks.c", level=level)).read_bytes())
        program.chmod(0o700)
        record((str(program), "plain"), tmp_path / f"{level}.db")
        rounds += asked(tmp_path / f"{level}.db", """SELECT c.entries, c.instructions FROM context c
            JOIN function f ON f.id = c.function WHERE f.name = 'work'""")
    assert [row["entries"] for row in rounds] == [1, 1]
    assert int(str(rounds[0]["instructions"])) > int(str(rounds[1]["instructions"])) > 1000


@pytest.mark.parametrize("how", some(["open to others", "torn", "a link", "another user's", "no place"], 1))
def test_what_is_kept_is_read_only_if_nobody_else_can_have_written_it(build: Build, tmp_path: Path, kept: Path,
                                                                     how: str) -> None:
    command = (str(build("tasks.c", level="-O1")), "plain")
    record(command, tmp_path / "p.db")
    assert files(kept)
    for path in files(kept):
        match how:
            case "open to others":
                path.chmod(0o644)
            case "torn":
                path.write_bytes(path.read_bytes()[:-100])
            case "a link":
                path.rename(tmp_path / path.name)
                path.symlink_to(tmp_path / path.name)
            case "another user's":
                if os.geteuid():
                    pytest.skip("only root may give files away")
                os.chown(path, 65534, 65534)
            case "no place":
                path.parent.chmod(0o755)
    before = {path: path.lstat().st_ino for path in kept.rglob("*")}
    done = run([*memopt_command(), "profile", "--exact", "-o", str(tmp_path / "q.db"), "--", *command], PATIENCE)
    assert done.same_result(run(command, PATIENCE)), done.stderr
    assert "failed" not in done.stderr
    assert counts(tmp_path / "p.db") == counts(tmp_path / "q.db")
    replaced = {path for path in kept.rglob("*") if path.is_file() and before.get(path) != path.lstat().st_ino}
    assert bool(replaced) == (how != "no place")  # made anew, and kept where the place is private
