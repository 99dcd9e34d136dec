"""``memopt merge``: the profiles of several processes as one; each rank under mpirun writes its own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from bench.measure.execution import memopt_command, run
from tests.conftest import Build
from tests.support.profiles import asked, record
from tests.support.tools import need_mpich
from tests.support.waiting import PATIENCE

_TOTALS = """SELECT f.name AS function, sum(c.instructions) AS instructions FROM context c
    JOIN function f ON f.id = c.function GROUP BY f.name"""


def merged(path: Path, *sources: Path) -> None:
    done = run([*memopt_command(), "merge", "-o", str(path), *map(str, sources)], PATIENCE)
    assert done.exit_code == 0, done.stderr


def totals(path: Path) -> dict[object, int]:
    return {row["function"]: int(str(row["instructions"])) for row in asked(path, _TOTALS)}


@pytest.mark.long
def test_counts_add_up_and_code_is_there_once(build: Build, tmp_path: Path) -> None:
    first, second = str(build("watched_dependences.c", level="-O1")), str(build("paths.c", level="-O1"))
    one, two, three, whole = (tmp_path / f"{n}.db" for n in range(4))
    record((first,), one, "--memory")
    record((first,), two, "--memory")
    record((second, "50"), three, "--memory")
    merged(whole, one, two, three)
    parts = [totals(path) for path in (one, two, three)]
    names = {name for part in parts for name in part}
    assert totals(whole) == {name: sum(part.get(name, 0) for part in parts) for name in names}
    (code,) = asked(whole, "SELECT count(*) AS rows, count(DISTINCT image || ' ' || start) AS functions FROM function")
    assert code["rows"] == code["functions"]
    for table in ("loop", "block", "instruction", "edge"):
        counts = [int(str(asked(path, f"SELECT count(*) AS n FROM {table}")[0]["n"])) for path in (one, three, whole)]
        assert counts[0] < counts[2] < counts[0] + counts[1]
    assert len(asked(whole, "SELECT * FROM run")) == 3
    ids = {int(str(row["id"])): str(row["text"]) for row in asked(whole, "SELECT id, text FROM pattern")}
    assert {int(n) for text in ids.values() for n in re.findall(r"\[ID(\d+)\]", text)} <= ids.keys()
    told = "SELECT sum(t.accesses) AS n FROM part p JOIN pattern t ON t.id = p.pattern"
    *each, together = (int(str(asked(path, told)[0]["n"] or 0)) for path in (one, two, three, whole))
    assert together == sum(each)
    (outside,) = asked(whole, "SELECT count(*) AS n FROM context c WHERE last < id OR parent >= id")
    assert outside["n"] == 0
    assert run([*memopt_command(), "report", str(whole)], PATIENCE).exit_code == 0


def test_what_cannot_be_merged_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no profile")
    for sources in (["missing.db"], ["text"]):
        refused = run([*memopt_command(), "merge", "-o", str(tmp_path / "all.db"),
                       *(str(tmp_path / s) for s in sources)], PATIENCE)
        assert refused.exit_code != 0
        assert refused.stderr.count("\n") == 1
    itself = run([*memopt_command(), "merge", "-o", str(tmp_path / "text"), str(tmp_path / "text")], PATIENCE)
    assert itself.exit_code == 2


@pytest.mark.long
def test_each_rank_writes_its_own(tmp_path: Path) -> None:
    need_mpich()
    source = tmp_path / "ranks.c"
    source.write_text("""
        #include <mpi.h>
        #include <stdio.h>
        __attribute__((noinline)) static long work(int rank)
        {
            volatile long sum = 0;
            for (long i = 0; i < 1000 * (rank + 1); i++)
                sum += i;
            return sum;
        }
        int main(int argc, char **argv)
        {
            int rank;
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            long own = work(rank), all = 0;
            MPI_Reduce(&own, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
            if (!rank)
                printf("%ld\\\\n", all);
            MPI_Finalize();
        }""".replace("\\\\n", "\\n"))
    program = tmp_path / "ranks"
    subprocess.run(["mpicc.mpich", "-O1", str(source), "-o", str(program)], check=True)
    profiled = run(["mpirun.mpich", "-n", "2", *memopt_command(), "profile", "--quiet", "--exact", "-o",
                    str(tmp_path / "p.db"), "--", str(program)], 4 * PATIENCE)
    assert profiled.stdout == f"{sum(n * (n - 1) // 2 for n in (1000, 2000))}\n".encode(), profiled.stderr
    ranks = [tmp_path / f"p.{rank}.db" for rank in range(2)]
    rounds = """SELECT sum(x.iterations) AS n FROM context_loop x JOIN loop l ON l.id = x.loop
        JOIN function f ON f.id = l.function WHERE f.name = 'work'"""
    assert [asked(path, rounds)[0]["n"] for path in ranks] == [1000, 2000]
    merged(tmp_path / "all.db", *ranks)
    assert asked(tmp_path / "all.db", rounds)[0]["n"] == 3000
