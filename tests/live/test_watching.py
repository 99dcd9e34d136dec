"""``memopt profile --memory``: dependences through memory, of programs that behave as they do alone."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from bench.measure.execution import memopt_command, run
from bench.patterns import Texts, compared
from bench.programs.variants import KERNELS, compile_c
from memopt.store.schema import open_existing
from tests.conftest import Build
from tests.support.effort import some, some_rows
from tests.support.profiles import asked, record
from tests.support.tools import need
from tests.support.waiting import PATIENCE

_CARRIED = """SELECT f.name AS function, l.depth, d.kind, d.least, d.most, sum(d.count) AS count
    FROM dependence d JOIN loop l ON l.id = d.loop JOIN function f ON f.id = l.function
    JOIN image m ON m.id = f.image WHERE m.path = '{}' GROUP BY f.id, l.id, d.kind"""

_SETS = """SELECT f.name AS function, l.depth, w.entries, w.iterations, w.most_lines FROM working_set w
    JOIN loop l ON l.id = w.loop JOIN function f ON f.id = l.function WHERE w.at_end = 1"""


@pytest.mark.parametrize("level", some(["-O1", "-O0"], 1))
def test_dependences_of_known_loops(build: Build, tmp_path: Path, level: str) -> None:
    program, path = str(build("watched_dependences.c", level=level)), tmp_path / "p.db"
    record((program,), path, "--memory")
    verdicts = {(row["function"], row["depth"]): str(row["through_memory"])
                for row in asked(path, "parallel-candidates") if row["image"] == os.path.realpath(program)}
    expected = {
        ("fill", 1): "parallel", ("copy", 1): "parallel", ("chain", 1): "serial, distance 3 or more",
        ("count", 1): "parallel with a reduction", ("sweep", 1): "parallel with copies", ("sweep", 2): "parallel",
        ("row", 1): "parallel", ("rows", 1): "serial, distance 1 or more",
        ("shift", 1): "parallel with copies"}
    if level == "-O0":  # counters lie in the frame; the inner one is set anew in each iteration of the outer loop
        assert verdicts == expected | {("sweep", 1): "parallel with copies"}
        return
    assert verdicts == expected
    patterns = {(row["function"], row["kind"], row["stride"]): (row["pattern"], row["count"], row["span"])
                for row in asked(path, "access-patterns") if int(str(row["count"])) > 900 and row["size"] == 8}
    assert patterns["copy", "R", 8] == patterns["copy", "W", 8] == ("sequential", 1000, 8000)
    assert patterns["sweep", "W", 8] == ("sequential", 9980, 7984)
    assert patterns["count", "RW", 8] == ("sequential", 1000, 128)
    assert patterns["row", "W", 8] == ("sequential", 999 * 64, 999 * 64 * 8)
    sets = {(row["function"], row["depth"]): (row["entries"], row["iterations"], row["most_lines"])
            for row in asked(path, _SETS)}
    assert sets["copy", 1][:2] == (1, 1000)
    assert 16_000 <= int(str(sets["copy", 1][2])) <= 16_000 + 4 * 64
    assert sets["sweep", 2][:2] == (10, 998)
    assert sets["row", 1][:2] == (999, 64)
    assert 1024 <= int(str(sets["row", 1][2])) <= 1024 + 4 * 64
    trips = {(row["function"], row["depth"]): (row["iterations_from"], row["entries"])
             for row in asked(path, "trip-counts")}
    assert (trips["copy", 1], trips["sweep", 2], trips["row", 1]) == ((512, 1), (512, 10), (64, 999))
    said = run([*memopt_command(), "report", str(path)], PATIENCE).stdout.decode()
    assert "rows 0x" in said.split("loops, and the dependences that they carry through memory")[1]
    carried = {(row["function"], row["depth"], row["kind"]): (row["least"], row["most"], row["count"])
               for row in asked(path, _CARRIED.format(os.path.realpath(program)))}
    assert carried == {
        ("chain", 1, "RAW"): (3, 3, 994), ("count", 1, "RAW"): (16, 16, 984), ("count", 1, "WAW"): (16, 16, 984),
        ("sweep", 1, "WAW"): (1, 1, 9 * 998), ("rows", 1, "RAW"): (1, 1, 998 * 64),
        ("shift", 1, "WAR"): (1, 1, 998)}


@pytest.mark.check
def test_a_loop_that_is_entered_behind_its_header(build: Build, tmp_path: Path) -> None:
    program, path = str(build("watched_inside.c")), tmp_path / "p.db"
    record((program,), path, "--memory")
    rows = asked(path, """SELECT d.least, d.most, d.count FROM dependence d JOIN loop l ON l.id = d.loop
        JOIN function f ON f.id = l.function WHERE f.name = 'grow' AND d.kind = 'RAW' ORDER BY d.context, d.count""")
    assert [tuple(row.values()) for row in rows] == [(1, 1, 499), (1, 1, 999)] * 2
    sets = [(row["entries"], row["iterations"]) for row in asked(path, _SETS) if row["function"] == "grow"]
    assert sets == [(1, 1000)] * 2
    counts = asked(path, """SELECT a.kind, a.count FROM access a JOIN context c ON c.id = a.context
        JOIN function f ON f.id = c.function WHERE f.name = 'grow'""")
    assert sorted((row["kind"], row["count"]) for row in counts) == [
        ("R", 499), ("R", 500), ("R", 999), ("R", 1000), ("W", 1000), ("W", 1000)]


@pytest.mark.long
def test_what_is_called_through_others_that_are_not_told(build: Build, tmp_path: Path) -> None:
    """Each sum reads what the same round has filled, when the loop that has filled it is over."""
    program = str(build("watched_through.c"))
    for option in ("--memory", "--dependences"):
        path = tmp_path / f"{option}.db"
        record((program,), path, option)
        rows = asked(path, """
            SELECT f.name AS function, c.name AS carrier, d.kind, d.least, d.most, sum(d.count) AS count
            FROM dependence d JOIN context x ON x.id = d.sink_context JOIN function f ON f.id = x.function
            LEFT JOIN loop l ON l.id = d.loop LEFT JOIN function c ON c.id = l.function
            WHERE f.name IN ('fill', 'sum') GROUP BY f.id, c.id, d.kind""")
        assert {tuple(row.values()) for row in rows} == {
            ("sum", None, "RAW", 0, 0, 200), ("fill", "main", "WAR", 1, 1, 198), ("fill", "main", "WAW", 1, 1, 99 * 64)}


def test_patterns_are_the_trace(tmp_path: Path) -> None:
    """A stencil blocked in space and in time: its blocks are patterns of level 2."""
    program, path, trace = tmp_path / "stencil", tmp_path / "p.db", tmp_path / "t"
    compile_c(("gcc", "-O2"), KERNELS / "temporal_blocking.c", program, ["-g"])
    record((str(program), "70", "37", "9", "4"), path, "--memory", "--trace", str(trace))
    connection = open_existing(str(path))
    checked, wrong = compared(connection, Texts(connection), trace, str(program))
    assert checked > 30
    assert wrong == 0
    blocks = [row for row in asked(path, "patterns") if row["function"] == "update" and int(str(row["count"])) > 9999]
    assert len(blocks) >= 20
    assert all(int(str(row["level"])) >= 2 for row in blocks)
    said = run([*memopt_command(), "report", "--least", "0", str(path)], PATIENCE).stdout.decode()
    assert " in update: " in said.split("addresses of the most frequent accesses")[1]
    page = tmp_path / "p.html"
    run([*memopt_command(), "report", "--html", str(page), str(path)], PATIENCE)
    text = page.read_text()
    assert re.search(r'"temporal_blocking\.c:\d+  .*for \(', text)
    assert text.count("class=dots") == 12
    assert "class=lines" in text
    assert "http" not in text
    assert len(text) < 500_000
    lines = run([*memopt_command(), "trace", str(trace)], PATIENCE).stdout.decode().splitlines()
    (total,) = asked(path, "SELECT sum(count * length(kind)) AS lines FROM access")
    assert len(lines) == total["lines"]
    assert all(re.fullmatch(r"[RW]\d+@[0-9a-f]+ [0-9a-f]+", line) for line in lines[:9999])


def test_reads_that_nothing_fetches_ahead(build: Build, tmp_path: Path) -> None:
    program, path = str(build("unfetched.c", level="-O1")), tmp_path / "p.db"
    record((program,), path, "--memory")
    found = {(row["function"], row["pattern"], row["count"]) for row in asked(path, "missing-prefetch")
             if row["image"] == os.path.realpath(program)}
    assert found == {("far_steps", "steps of 8192", 2000), ("scattered", "irregular", 2000)}


@pytest.mark.long
def test_dependences_alone(build: Build, tmp_path: Path) -> None:
    program, verdicts = str(build("watched_dependences.c", level="-O1")), []
    for option in ("--memory", "--dependences"):
        path = tmp_path / f"{option}.db"
        record((program,), path, option)
        verdicts.append([(row["function"], row["depth"], row["through_memory"])
                         for row in asked(path, "parallel-candidates") if row["image"] == os.path.realpath(program)])
    assert verdicts[0] == verdicts[1] != []
    assert asked(path, "SELECT * FROM access") == []
    said = run([*memopt_command(), "report", str(path)], PATIENCE).stdout.decode().split("carry through memory\n")[1]
    assert "rows 0x" in said
    assert "KiB" not in said


@pytest.mark.long
def test_traces_that_memopt_may_not_see_are_copied(build: Build, tmp_path: Path) -> None:
    """Where files may not become as long as all traces together, no memory can be shared."""
    program, found = str(build("watched_dependences.c", level="-O1")), []
    for limit in ("unlimited", "1000000"):
        path = tmp_path / f"{limit}.db"
        copied = run(["sh", "-c", f'ulimit -f {limit}; exec "$@"', "sh", *memopt_command(), "profile", "--dependences",
                      "-o", str(path), "--", program], PATIENCE)
        assert copied.exit_code == 0, copied.stderr
        found.append(asked(path, _CARRIED.format(os.path.realpath(program))))
    assert found[0] == found[1] != []


def test_reuse_distances_of_known_loops(build: Build, tmp_path: Path) -> None:
    program, path = str(build("watched_dependences.c", level="-O1")), tmp_path / "p.db"
    record((program,), path, "--reuse")
    touches = asked(path, """SELECT f.name AS function, a.kind, a.count, sum(r.count) AS touches FROM reuse r
        JOIN access a ON a.id = r.access JOIN context c ON c.id = a.context JOIN function f ON f.id = c.function
        WHERE a.size = 8 AND a.misaligned = 0 GROUP BY a.id HAVING a.count > 900""")
    assert {row["function"] for row in touches} >= {"copy", "chain", "sweep"}
    assert all(row["count"] == row["touches"] for row in touches)
    rows = [row for row in asked(path, "reuse-distances") if row["function"] == "copy"]
    assert sum(int(str(row["count"])) for row in rows) == 2000  # 1000 are read, 1000 written, in turn
    assert next(row["count"] for row in rows if row["lines"] == 1) >= 2 * 875 - 4
    assert any(row["function"] == "copy" for row in asked(path, "worst-reuse"))


def test_a_trace_that_cannot_be_written_is_said_so(build: Build, tmp_path: Path) -> None:
    program = str(build("watched_dependences.c", level="-O1"))
    alone = run([program], PATIENCE)
    full = run([*memopt_command(), "profile", "--trace", "/dev/full", "-o", str(tmp_path / "p.db"), "--", program],
               PATIENCE)
    assert (full.stdout, full.exit_code) == (alone.stdout, alone.exit_code)
    assert "No space left on device" in full.stderr
    nowhere = run([*memopt_command(), "profile", "--trace", str(tmp_path / "no" / "t"), "-o", str(tmp_path / "p.db"),
                   "--", program], PATIENCE)
    assert nowhere.exit_code == 2
    assert nowhere.stderr.count("\n") == 1


def test_a_profile_without_memory_says_nothing_of_parallel_loops(build: Build, tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    record((str(build("watched_dependences.c", level="-O1")),), path)
    assert asked(path, "parallel-candidates") == []


@pytest.mark.parametrize(("source", "options", "compiler"), some_rows([
    ("counted_threads.c", ("-pthread",), "gcc"), ("counted_signals.c", (), "gcc"),
    ("counted_unwinding.cpp", (), "g++")], 2))
def test_programs_that_leave_their_functions_otherwise(build: Build, tmp_path: Path, source: str,
                                                       options: tuple[str, ...], compiler: str) -> None:
    path = tmp_path / "p.db"
    record((str(build(source, *options, compiler=compiler)),), path, "--memory")
    (row,) = asked(path, "SELECT count(*) AS threads, min(complete) AS complete FROM watched")
    assert row["threads"] == (5 if "threads" in source else 1)
    assert row["complete"] == 1


@pytest.mark.parametrize("command", some([
    ("/usr/bin/sort", "-r", "/etc/services"),
    ("/usr/bin/awk", "BEGIN { for (i = 0; i < 3000; i++) s += i % 7; print s }"),
    ("/usr/bin/perl", "-e", "my %h; $h{$_ % 97} += $_ for 1 .. 999; print join ',', map { $h{$_} } sort keys %h"),
    ("/bin/bash", "-c", "for i in 1 2 3; do echo $i | tr 1-3 a-c; done; exit 7"),
], 1))
def test_programs_of_a_distribution(tmp_path: Path, command: tuple[str, ...]) -> None:
    need(command[0])
    native = run(command, PATIENCE)
    path = tmp_path / "p.db"
    recorded = run([*memopt_command(), "profile", "--memory", "--quiet", "-o", str(path), "--", *command], PATIENCE)
    assert recorded.same_result(native), recorded.stderr
    (row,) = asked(path, "SELECT count(*) AS count FROM dependence WHERE kind = 'RAW'")
    assert int(str(row["count"])) > 100


@pytest.mark.parametrize("flags", some([(), ("-static",)], 1))
def test_accesses_lead_to_variables_stacks_and_the_heap(build: Build, tmp_path: Path, flags: tuple[str, ...]) -> None:
    path = tmp_path / "p.db"
    record((str(build("watched_objects.c", "-pthread", *flags, level="-O1")),), path, "--memory")
    found = {(row["function"], str(row["leads_to"])) for row in asked(path, "access-patterns") if row["count"] == 500}
    assert {(name, place.rpartition(" + ")[0]) for name, place in found if str(name).startswith("on_")} == {
        ("on_shared", "variable shared_table"), ("on_own", "variable own_table"), ("on_heap", "block of main"),
        ("on_mapped", "block of main"), ("on_stack", "stack"), ("on_stack_of_thread", "stack"),
        ("on_two", "variable shared_table"), ("on_two", "block of main")}
    assert {("on_shared", "variable shared_table + 0x0"), ("on_own", "variable own_table + 0xfa0"),
            ("on_heap", "block of main + 0x0"), ("on_mapped", "block of main + 0x8000")} <= found
    assert any(str(row["calls"]).partition(" < ")[0].endswith("calloc") and " < main" in str(row["calls"])
               for row in asked(path, "blocks"))
