"""``memopt profile --values``: what functions and loops had, of programs that behave as they do alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.measure.execution import memopt_command, run
from tests.conftest import Build
from tests.support.effort import some, some_rows
from tests.support.profiles import asked, record
from tests.support.tools import need
from tests.support.waiting import PATIENCE

_HAD = """SELECT f.name AS function, CASE WHEN v.loop IS NULL THEN 0 ELSE l.depth END AS depth, v.name, v.count,
    v.least, v.most, v.total, v.changes, v.alignment, (SELECT group_concat(amount || ' x ' || count, ', ') FROM
    (SELECT amount, count FROM frequent q WHERE q.value = v.id ORDER BY amount)) AS frequent
    FROM value v JOIN context c ON c.id = v.context JOIN function f ON f.id = c.function JOIN image m ON m.id = f.image
    LEFT JOIN loop l ON l.id = v.loop WHERE m.path = '{}'"""
TIMES = 60


def test_a_child_of_which_a_copy_fails_takes_nothing_from_others(build: Build, tmp_path: Path,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    program, path = str(build("child_fails.c")), tmp_path / "p.db"
    monkeypatch.setenv("MEMOPT_FAULT", "raise:record.copy.in_child:1")
    done = run([*memopt_command(), "profile", "--values", "-o", str(path), "--", program], PATIENCE)
    assert (done.exit_code, done.stdout) == (0, b"4 -25\n")
    assert "fault injected at record.copy.in_child" in done.stderr
    had = [(row["function"], row["depth"], row["name"], row["frequent"])
           for row in asked(path, _HAD.format(os.path.realpath(program))) if row["name"] in ("rdi", "trips")]
    assert sorted(row for row in had if row[0] == "behind") == [
        ("behind", depth, name, f"{times} x 1")
        for depth, name in ((0, "rdi"), (1, "rdi"), (1, "trips")) for times in (5, 6)]
    assert all(row[0] != "in_child" for row in had)


@pytest.mark.parametrize(("compiler", "level", "options"), some_rows([
    ("gcc", "-O2", ()), ("gcc", "-O2", ("--no-elision",)), ("gcc", "-O3", ()), ("clang", "-O1", ())], 2))
def test_values_of_known_functions(build: Build, tmp_path: Path, compiler: str, level: str, options: tuple[str, ...]
                                   ) -> None:
    need(compiler)
    program, path = str(build("valued.c", compiler=compiler, level=level)), tmp_path / "p.db"
    record((program, str(TIMES)), path, "--values", *options)
    rows = asked(path, _HAD.format(os.path.realpath(program)))
    had = {(row["function"], row["depth"], row["name"]): row for row in rows}
    of_sum = [had["sum", 0, name] for name in ("rdi", "rsi", "rdx")]
    assert [(row["count"], row["changes"]) for row in of_sum] == [(TIMES, 0), (TIMES, 39), (TIMES, 0)]
    assert [row["frequent"] for row in of_sum[1:]] == ["9 x 40, 40 x 20", f"5 x {TIMES}"]
    assert int(str(of_sum[0]["alignment"])) % 64 == 0
    lowest = had["lowest", 0, "rdi"]
    assert (lowest["least"], lowest["alignment"]) == (-1 << 63, 1 << 62)
    assert (had["depth", 0, "rdi"]["count"], had["depth", 0, "rdi"]["least"], had["depth", 0, "rdi"]["most"]) == (
        11, 0, 10)
    assert had["leave", 0, "rdi"]["frequent"] == "1 x 1, 2 x 1, 3 x 1, 4 x 1"
    assert had["leave", 0, "cycles"]["count"] == had["go", 0, "cycles"]["count"] == 4
    calls = [row for row in rows if row["function"] == "last" and row["name"] == "cycles"]
    assert sum(int(str(row["count"])) for row in calls) == 1 + TIMES * (TIMES - 1) // 2
    if level != "-O3":  # there the loop takes two numbers at once
        assert had["sum", 1, "trips"]["frequent"] == "9 x 40, 40 x 20"
    trips = had["triangle", 2, "trips"]
    assert (trips["count"], trips["least"], trips["most"], trips["total"]) == (
        TIMES - 1, 1, TIMES - 1, TIMES * (TIMES - 1) // 2)
    for function in ("main", "sum", "by_tail", "triangle"):
        whole, own = (int(str(had[function, 0, name]["total"])) for name in ("cycles", "own cycles"))
        assert 0 < own <= whole
    inner = sum(int(str(row["total"])) for row in calls)
    assert inner < sum(int(str(had[name, 0, "cycles"]["total"])) for name in ("by_tail", "triangle"))
    assert int(str(had["triangle", 2, "cycles"]["total"])) < int(str(had["triangle", 1, "cycles"]["total"]))
    assert next(row["entries"] for row in asked(path, "trip-counts")
                if (row["function"], row["depth"]) == ("triangle", 2)) == 1
    for query in ("cycles", "cycles-by-context", "cycle-classes", "values"):
        assert asked(path, query)
    (percent,) = (row["percent"] for row in asked(path, "cycles-by-context") if row["depth"] == 1)
    assert percent == 100


@pytest.mark.parametrize("command", some(
    [("sh", "-c", "echo $((6 * 7)); exit 3"), ("sort", "--version"), ("ls", "/usr")], 1))
def test_programs_nobody_prepared(tmp_path: Path, command: tuple[str, ...]) -> None:
    record(command, tmp_path / "p.db", "--values")
    assert asked(tmp_path / "p.db", "cycles")


@pytest.mark.check
def test_signals_and_threads(build: Build, tmp_path: Path) -> None:
    for source, flags in (("counted_signals.c", ()), ("counted_threads.c", ("-pthread",))):
        record((str(build(source, *flags)),), tmp_path / "p.db", "--values")
        assert asked(tmp_path / "p.db", "cycles")


def test_more_than_a_buffer_holds(build: Build, tmp_path: Path) -> None:
    record((str(build("valued.c")), "1500"), tmp_path / "p.db", "--values")
    (row,) = asked(tmp_path / "p.db", """SELECT sum(v.count) AS count FROM value v JOIN context c ON c.id = v.context
        JOIN function f ON f.id = c.function WHERE f.name = 'last' AND v.name = 'cycles'""")
    assert row["count"] == 1 + 1500 * 1499 // 2


@pytest.mark.parametrize("other", ["--memory", "--paths", "--affine", "--trace=t"])
def test_it_cannot_be_asked_for_with_what_is_seen_another_way(tmp_path: Path, other: str) -> None:
    refused = run([*memopt_command(), "profile", "--values", other, "-o", str(tmp_path / "p.db"), "--", "true"],
                  PATIENCE)
    assert refused.exit_code == 2
    assert refused.stderr.count("\n") == 1
