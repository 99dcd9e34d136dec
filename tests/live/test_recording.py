"""``memopt profile --exact``: the program behaves as it does alone, and every instruction of its own is counted."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.measure import callgrind
from bench.measure.execution import memopt_command, run
from memopt.elf.image import PF_X, PT_LOAD, Image
from memopt.elf.symbols import Symbols
from memopt.traces.core.format import PAGE
from tests.conftest import Build
from tests.support.effort import some
from tests.support.profiles import asked, record
from tests.support.tools import need
from tests.support.waiting import PATIENCE

_OF_LOOPS = """SELECT f.name AS function, l.depth, x.entries, x.iterations FROM context_loop x
    JOIN loop l ON l.id = x.loop JOIN function f ON f.id = l.function"""


_LATE = """
import select, sys, time
from memopt.cli import main

class Late:
    def __init__(self):
        self._poll, self._early = POLL(), True

    def register(self, *what):
        self._poll.register(*what)

    def poll(self, milliseconds):
        if self._early:
            self._early = time.sleep(0.5)
            return []
        return self._poll.poll(milliseconds)

POLL, select.poll = select.poll, Late
main()
"""


def test_a_program_that_is_there_before_memopt_looks_is_recorded(build: Build, tmp_path: Path) -> None:
    """Its execve is met by what waits for that, not by what records it."""
    program = str(build("gemm_ijk.c"))
    done = run([sys.executable, "-c", _LATE, "profile", "--exact", "-o", str(tmp_path / "p.db"), "--", program, "9"],
               PATIENCE)
    assert done.same_result(run([program, "9"], PATIENCE))
    assert executed(tmp_path / "p.db", program) > 0


def executed(path: Path, program: str) -> int:
    """Instructions of the program's own text."""
    (row,) = asked(path, f"""SELECT sum(e.instructions) AS sum FROM execution e JOIN image m ON m.id = e.image
        WHERE m.path = '{os.path.realpath(program)}'""")
    return int(str(row["sum"]))


def counted_by_callgrind(command: tuple[str, ...]) -> int:
    need("valgrind")
    return callgrind.instructions(command, 10 * PATIENCE)[os.path.realpath(command[0])]


@pytest.mark.parametrize("level", some(["-O0", "-O1", "-O2", "-O3"], 2))
@pytest.mark.parametrize("compiler", some(["gcc", "clang"], 1))
def test_counts_are_those_of_callgrind(build: Build, tmp_path: Path, compiler: str, level: str) -> None:
    command = (str(build("gemm_ijk.c", compiler=compiler, level=level)), "47")
    path = tmp_path / "p.db"
    record(command, path)
    assert executed(path, command[0]) == counted_by_callgrind(command)


@pytest.mark.parametrize("level", some(["-O1", "-O2", "-O3"], 1))
@pytest.mark.parametrize("nest", some(["lu", "cholesky", "branches"], 2))
def test_what_registers_tell_is_what_is_counted(build: Build, tmp_path: Path, nest: str, level: str) -> None:
    command = (str(build("triangles.c", f"-DNEST={nest}", "-fno-math-errno", "-lm", level=level)), "37")
    told, counted = tmp_path / "told.db", tmp_path / "counted.db"
    record(command, told)
    record(command, counted, "--no-elision")
    own = f"WHERE m.path = '{os.path.realpath(command[0])}'"
    loops = f"{_OF_LOOPS} JOIN image m ON m.id = f.image {own} ORDER BY 1, 2, 3, 4"
    assert asked(told, loops) == asked(counted, loops)
    assert executed(told, command[0]) == executed(counted, command[0])


def test_iterations_and_calls_are_those_of_the_source(build: Build, tmp_path: Path) -> None:
    path, n = tmp_path / "p.db", 53
    record((str(build("gemm_ijk.c")), str(n)), path)
    loops = asked(path, f"{_OF_LOOPS} WHERE f.name = 'dgemm' ORDER BY l.depth")
    assert [(row["entries"], row["iterations"]) for row in loops] == [(1, n), (n, n * n), (n * n, n ** 3)]
    (main,) = asked(path, """SELECT c.entries, p.entries AS around, c.inclusive, c.instructions FROM context c
        JOIN function f ON f.id = c.function JOIN context p ON p.id = c.parent WHERE f.name = 'main'""")
    assert main["entries"] == main["around"] == 1
    assert int(str(main["inclusive"])) > int(str(main["instructions"]))


def test_handlers_and_jumps_out_of_them(build: Build, tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    record((str(build("counted_signals.c")),), path)
    counts = {str(row["function"]): int(str(row["entries"])) for row in asked(path, "counted-functions")}
    assert counts["count"] >= 51
    assert counts["leave"] == 10


def test_handlers_that_interrupt_probes_and_each_other(build: Build, tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    record((str(build("counted_timers.c")),), path)
    counts = {str(row["function"]): int(str(row["entries"])) for row in asked(path, "counted-functions")}
    assert counts["tick"] > 10
    assert counts["compare"] > 300 * 20000


@pytest.mark.parametrize("how", some(
    [("--exact",), ("--memory",), ("--paths", "--unhook", "50", "--rehook", "200000")], 1))
def test_handlers_find_the_program_in_its_own_code(build: Build, tmp_path: Path, how: tuple[str, ...]) -> None:
    """So they return there wherever recording has ended meanwhile."""
    done = run([*memopt_command(), "profile", *how, "-o", str(tmp_path / "p.db"), "--",
                str(build("counted_context.c"))], PATIENCE)
    assert (done.stdout, done.exit_code) == (b"0\n", 0), done.stderr


def test_threads_have_trees_of_their_own(build: Build, tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    record((str(build("counted_threads.c")),), path)
    rows = asked(path, """SELECT c.thread, x.iterations FROM context_loop x JOIN context c ON c.id = x.context
        JOIN function f ON f.id = c.function WHERE f.name = 'work' ORDER BY x.iterations""")
    assert [row["iterations"] for row in rows] == [100003 * k for k in (1, 2, 3, 4)]
    assert len({row["thread"] for row in rows}) == 4


def test_unwinding_and_virtual_calls(build: Build, tmp_path: Path) -> None:
    program, path = str(build("counted_unwinding.cpp", compiler="g++", level="-O1")), tmp_path / "p.db"
    record((program,), path)
    counts = {str(row["function"]): int(str(row["entries"])) for row in asked(path, "counted-functions")}
    assert counts["Plus::next(int)"] == 66_000
    assert counts["Twice::next(int)"] == 34_000
    assert counts["deep(int, int&)"] == sum(i % 13 + 1 for i in range(200))


def test_libraries_that_come_and_go(build: Build, tmp_path: Path) -> None:
    """Two libraries, in turn at the same addresses."""
    libraries = [str(build("counted_library.c", "-shared", "-fPIC", f"-DSTEP={step}")) for step in ("+", "*3+")]
    command = (str(build("counted_libraries.c", "-ldl")), *libraries, "40")
    path = tmp_path / "p.db"
    record(command, path)
    rows = asked(path, """SELECT m.path, sum(c.entries) AS entries FROM context c JOIN function f ON f.id = c.function
        JOIN image m ON m.id = f.image WHERE f.name = 'work' GROUP BY m.id""")
    assert {row["path"]: row["entries"] for row in rows} == {os.path.realpath(path): 20 for path in libraries}


@pytest.mark.parametrize("binding", ["lazy", "now"])
def test_what_a_library_calls_is_called_by_nobody_in_between(build: Build, tmp_path: Path, binding: str) -> None:
    """Neither stubs nor the dynamic linker, which looks for a function at its first call, are callers."""
    library = build("linked_library.c", "-shared", "-fPIC", f"-Wl,-z,{binding}")
    program = str(build("linked.c", "-Wl,--no-as-needed", str(library), f"-Wl,-z,{binding}"))
    path = tmp_path / "p.db"
    record((program,), path)
    rows = {int(str(row["id"])): row for row in asked(path, """SELECT c.id, c.parent, f.name, c.entries, c.inclusive
        FROM context c LEFT JOIN function f ON f.id = c.function""")}

    def callers(row: Mapping[str, object]) -> str:
        above, name = rows.get(int(str(row["parent"] or 0))), str(row["name"])
        return name if name in ("main", "handler") or above is None else f"{callers(above)} > {name}"

    ours = {"main", "middle", "first", "handler", "leaf", "twice", "last", "down"}
    found = Counter((callers(row), row["entries"]) for row in rows.values() if row["name"] in ours)
    assert found == Counter({
        ("main", 1): 1, ("main > middle", 1): 1, ("main > first", 1): 2, ("handler", 1): 1, ("handler > twice", 1): 1,
        ("handler > twice > leaf", 1): 2, ("main > middle > twice", 10): 1, ("main > middle > twice > leaf", 10): 2,
        ("main > middle > leaf", 1): 1, ("main > first > last", 1): 2, ("main > first > last > leaf", 1): 2,
        ("main > down", 6): 1, ("main > down > leaf", 1): 1, ("main > last", 1): 1, ("main > last > leaf", 1): 1})
    (row,) = asked(path, """SELECT (SELECT sum(instructions) FROM context) AS own,
        (SELECT sum(instructions) FROM execution) AS executed""")
    assert row["own"] == row["executed"]


def test_a_function_that_goes_on_inside_is_one_context(build: Build, tmp_path: Path) -> None:
    """A computed goto leads into the middle of a function; a function begins behind a call that does not return."""
    path = tmp_path / "p.db"
    record((str(build("goes_on_inside.c")),), path)
    rows = asked(path, """SELECT p.name AS caller, f.name, c.entries, c.site IS NULL AS apart, c.inclusive
        FROM context c JOIN function f ON f.id = c.function JOIN context a ON a.id = c.parent
        LEFT JOIN function p ON p.id = a.function
        WHERE f.name IN ('guarded', 'behind', 'interpret', 'leaf') ORDER BY c.id""")
    assert [(row["caller"], row["name"], row["entries"], row["apart"]) for row in rows] == [
        ("main", "guarded", 10, 0), ("main", "behind", 10, 0), ("main", "interpret", 5, 0),
        ("interpret", "leaf", 35, 0), ("interpret", "leaf", 15, 0)]
    assert (rows[0]["inclusive"], rows[1]["inclusive"]) == (40, 20)


def test_the_parts_of_the_tree_add_up(build: Build, tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    record((str(build("counted_unwinding.cpp", compiler="g++")),), path)
    (row,) = asked(path, """SELECT (SELECT sum(instructions) FROM context) AS own,
        (SELECT sum(instructions) FROM execution) AS executed,
        (SELECT sum(inclusive) FROM context WHERE parent IS NULL) AS roots,
        (SELECT count(*) FROM context c WHERE c.inclusive <> (SELECT sum(d.instructions) FROM context d
         WHERE d.id BETWEEN c.id AND c.last)) AS wrong,
        (SELECT count(*) FROM context_loop x WHERE x.instructions > x.inclusive OR x.entries < 0 OR x.iterations < 0
         OR x.inclusive > (SELECT c.inclusive FROM context c WHERE c.id = x.context)) AS odd""")
    assert row["own"] == row["executed"] == row["roots"]
    assert (row["wrong"], row["odd"]) == (0, 0)


@pytest.mark.parametrize("command", some([
    ("/usr/bin/xz", "-9", "-c", "/usr/bin/env"), ("/usr/bin/sort", "-r", "/etc/services"),
    ("/usr/bin/awk", "BEGIN { for (i = 0; i < 30000; i++) s += i % 7; print s }"),
    ("/usr/bin/perl", "-e", "my %h; $h{$_ % 97} += $_ for 1 .. 9999; print join ',', map { $h{$_} } sort keys %h"),
    ("/bin/bash", "-c", "for i in 1 2 3; do echo $i | tr 1-3 a-c; done; exit 7"),
    ("/bin/ls", "/no such folder"),
], 1))
def test_programs_of_a_distribution(tmp_path: Path, command: tuple[str, ...]) -> None:
    need(command[0])
    native = run(command, PATIENCE)
    path = tmp_path / "p.db"
    recorded = run([*memopt_command(), "profile", "--exact", "--quiet", "-o", str(path), "--", *command], PATIENCE)
    assert recorded.same_result(native), recorded.stderr
    assert executed(path, command[0]) > 100


@pytest.mark.parametrize("seconds", some([0.0, 0.1, 0.3, 0.5, 0.7, 0.9], 2))
def test_a_program_survives_memopt(build: Build, tmp_path: Path, seconds: float) -> None:
    program = str(build("counted_unwinding.cpp", compiler="g++", level="-O1"))
    expected = run((program,), PATIENCE).stdout
    with subprocess.Popen([*memopt_command(), "profile", "--exact", "-o", str(tmp_path / "p.db"), "--", program],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as memopt:
        children = Path(f"/proc/{memopt.pid}/task/{memopt.pid}/children")
        deadline = time.monotonic() + PATIENCE
        while not children.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(seconds)
        memopt.kill()
        assert memopt.stdout is not None
        said = memopt.stdout.read()  # until the program has ended as well
    assert said == expected


def test_a_program_that_is_killed_is_recorded_up_to_then(build: Build, tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    recorded = run([*memopt_command(), "profile", "--exact", "--quiet", "-o", str(path), "--", "/bin/sh", "-c",
                    "kill -TERM $$"], PATIENCE)
    assert recorded.exit_code in (-signal.SIGTERM, 128 + signal.SIGTERM)
    (row,) = asked(path, "SELECT ended FROM run")
    assert row["ended"] == f"signal {signal.SIGTERM}"
    assert executed(path, "/bin/sh") > 100


@pytest.mark.parametrize("options", [(), ("--no-elision",)])
@pytest.mark.parametrize(("how", "expected"), [("jump", (10, 40_925, 204_585)), ("fault", (1, 4097, 20_481))])
def test_loops_that_a_signal_leaves_are_counted_up_to_there(build: Build, tmp_path: Path, how: str,
                                                            expected: tuple[int, int, int], options: tuple[str, ...]
                                                            ) -> None:
    """At byte 4096 the first of the five instructions of an iteration faults."""
    path = tmp_path / "p.db"
    record((str(build("left_in_loops.c", "-pthread", level="-O2")), how), path, *options)
    assert _counted(path, "scan") == expected


@pytest.mark.parametrize("options", some([(), ("--no-elision",)], 1))
@pytest.mark.parametrize("how", ["alarm", "exit"])
def test_loops_that_end_with_the_program_are_counted_up_to_there(build: Build, tmp_path: Path, how: str,
                                                                 options: tuple[str, ...]) -> None:
    path = tmp_path / "p.db"
    record((str(build("left_in_loops.c", "-pthread", level="-O2")), how), path, *options)
    entries, iterations, instructions = _counted(path, "spin")
    assert entries == 1
    assert iterations > 1_000_000
    assert 0 <= 3 * iterations + 1 - instructions <= 3


@pytest.mark.parametrize(("name", "depths"), [("f", [1, 1]), ("g", [1, 1]), ("h", [1, 2, 3])])
def test_what_lies_behind_a_call_that_does_not_return_does_not_follow_it(build: Build, tmp_path: Path, name: str,
                                                                         depths: list[int]) -> None:
    """Where it is not known that it does not, the first loop's part behind it makes a loop of both."""
    path, program = tmp_path / "p.db", str(build("ended_in_loops.c", level="-O2"))
    record((program,) if name == "f" else (program, name), path)
    loops = asked(path, f"""SELECT l.depth, sum(x.iterations) AS rounds FROM context_loop x JOIN loop l ON l.id = x.loop
        JOIN function f ON f.id = l.function WHERE f.name = '{name}' GROUP BY l.id ORDER BY l.header""")
    assert sorted(int(str(loop["depth"])) for loop in loops) == depths
    if name != "h":
        assert [int(str(loop["rounds"])) for loop in loops] == [100, 200]


@pytest.mark.parametrize("options", [(), ("--no-elision",)])
def test_a_function_that_goes_on_in_its_middle_is_not_entered_again(build: Build, tmp_path: Path,
                                                                    options: tuple[str, ...]) -> None:
    path = tmp_path / "p.db"
    record((str(build("resumed_in_loops.c", level="-O2")),), path, *options)
    assert _counted(path, "handled") == (1, 1000, 2 + 500 * (4 + 2 + 2) + 500 * (5 + 1 + 2))


def _counted(path: Path, function: str) -> tuple[int, int, int]:
    """Entries, iterations and instructions of one with one loop."""
    (row,) = asked(path, f"""SELECT sum(c.entries) AS entries, sum(c.instructions) AS instructions,
        (SELECT sum(x.iterations) FROM context_loop x JOIN loop l ON l.id = x.loop WHERE l.function = f.id) AS rounds
        FROM context c JOIN function f ON f.id = c.function WHERE f.name = '{function}'""")
    return int(str(row["entries"])), int(str(row["rounds"])), int(str(row["instructions"]))


@pytest.mark.check
def test_what_runs_unobserved_is_told(build: Build, tmp_path: Path) -> None:
    """Code that is written while the program runs cannot be copied; it takes about half of the time here."""
    program, path = str(build("unobserved.c")), tmp_path / "p.db"
    native = run([program], PATIENCE)
    recorded = run([*memopt_command(), "profile", "--exact", "-o", str(path), "--", program], PATIENCE)
    assert recorded.same_result(native), recorded.stderr
    assert "ran unrecorded" in recorded.stderr
    for row in asked(path, "SELECT * FROM observation"):  # none where there are no perf events
        assert 0.2 < int(str(row["outside"])) / int(str(row["samples"])) < 0.8
        assert "% of the time ran unobserved" in recorded.stderr
    record((str(build("counted_signals.c")),), path)
    for row in asked(path, "SELECT * FROM observation"):
        assert row["outside"] == 0


@pytest.mark.skipif("[vsyscall]" not in Path("/proc/self/maps").read_text(), reason="the kernel has no such code")
def test_code_of_the_kernel_runs_unobserved(build: Build, tmp_path: Path) -> None:
    command, path = (str(build("vsyscall.c")), "5000"), tmp_path / "p.db"
    for how in ((), ("--exact",)):
        done = run([*memopt_command(), "profile", *how, "-o", str(path), "--", *command], PATIENCE)
        assert (done.exit_code, done.stdout) == (0, b"5000\n")
        assert ("ran unrecorded: code that is not the program's own" in done.stderr) == bool(how)
        assert "internal" not in done.stderr


def test_progress_is_shown_on_a_terminal_and_goes(build: Build, tmp_path: Path) -> None:
    reader, terminal = os.openpty()
    command = [*memopt_command(), "profile", "--exact", "-o", str(tmp_path / "p.db"), "--",
               str(build("unobserved.c")), "3500000000"]
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, check=False, timeout=PATIENCE)
    os.close(terminal)
    text = b""
    with contextlib.suppress(OSError):  # at the end
        while piece := os.read(reader, 4096):
            text += piece
    os.close(reader)
    assert process.stdout == b"done\n"
    shown = text.decode().split("\r\x1b[K")
    assert any(re.fullmatch(r"memopt: \d+ s, \d+ functions met", line) for line in shown)
    assert shown[-1].startswith("memopt: ")
    assert shown[-1].endswith("tree\r\n")


@pytest.mark.parametrize("fault", some(
    ["record.answer:1", "record.answer:4", "ptrace.interrupt:2", "ptrace.setregset:9"], 1))
@pytest.mark.parametrize("how", some(
    [("--exact",), ("--memory",), ("--paths", "--unhook", "50", "--rehook", "200000")], 2))
def test_memopt_fails_inside_and_the_program_runs_on(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                     how: tuple[str, ...], fault: str) -> None:
    command = (str(build("counted_signals.c")),)
    native = run(command, PATIENCE)
    monkeypatch.setenv("MEMOPT_FAULT", f"raise:{fault}")
    done = run([*memopt_command(), "profile", *how, "-o", str(tmp_path / "p.db"), "--", *command], PATIENCE)
    assert done.same_result(native), done.stderr
    assert "memopt failed, please report it" in done.stderr
    assert "Traceback" not in done.stderr


def text_end(program: Path) -> int:
    with Image(str(program)) as image:
        return max(s.address + s.file_size for s in image.segments if s.kind == PT_LOAD and s.flags & PF_X)


@pytest.mark.parametrize("left", some([0, 40, 200], 1))
def test_a_static_program_whose_text_fills_its_last_page(build: Build, tmp_path: Path, left: int) -> None:
    """There is no room behind it for the code that makes system calls for memopt."""
    def padded(size: int) -> Path:
        source = tmp_path / f"{size}.s"
        source.write_text(f".text\n.skip {size}, 0x90\n.section .note.GNU-stack,\"\",@progbits\n")
        return build("interpreters.c", str(source), "-static", "-no-pie")

    end = text_end(padded(0))
    program = padded(-(end + left) % PAGE // 16 * 16)
    assert -text_end(program) % PAGE < left + 48
    path = tmp_path / "p.db"
    profiled = run([*memopt_command(), "profile", "--exact", "-o", str(path), "--", str(program), "3"], PATIENCE)
    assert profiled.same_result(run([str(program), "3"], PATIENCE))
    (row,) = asked(path, "SELECT sum(c.entries) AS n FROM context c JOIN function f ON f.id = c.function "
                         "WHERE f.name = 'by_labels'")
    assert row["n"] == 3


@pytest.mark.parametrize("strip", some([False, True], 1))
@pytest.mark.parametrize("level", some(["-O0", "-O1", "-O2", "-O3"], 2))
@pytest.mark.parametrize("compiler", some(["g++", "clang++"], 1))
def test_exceptions_and_parts_apart_belong_to_their_loop(build: Build, tmp_path: Path, compiler: str, level: str,
                                                         strip: bool) -> None:
    """A function goes on where an exception is caught, and in what the compiler has put elsewhere; neither is a call.
    What only ends with an exception is known for a part by its name."""
    rounds, path = 30, tmp_path / "p.db"
    named = str(build("caught_in_loops.cpp", compiler=compiler, level=level))
    program = str(build("caught_in_loops.cpp", "-s", compiler=compiler, level=level)) if strip else named
    profiled = run([*memopt_command(), "profile", "--exact", "-o", str(path), "--", program, str(rounds)], PATIENCE)
    assert profiled.same_result(run([program, str(rounds)], PATIENCE))
    with Image(named) as image:
        places = {f.shown.partition("(")[0]: f.start for f in Symbols(image).everything if ".cold" not in f.name}
    found = {int(str(row["start"])): (row["entries"], row["rounds"]) for row in asked(path, f"""
        SELECT f.start, sum(c.entries) AS entries,
            (SELECT sum(x.iterations) FROM context_loop x JOIN context d ON d.id = x.context
             WHERE d.function = f.id) AS rounds
        FROM context c JOIN function f ON f.id = c.function JOIN image m ON m.id = f.image
        WHERE m.path = '{os.path.realpath(program)}' GROUP BY f.id""")}
    assert [found[places[name]] for name in ("caught", "around", "split")] == [(1, rounds)] * 3
    assert strip or found.keys() <= set(places.values())


@pytest.mark.parametrize("flags", some([(), ("-no-pie",)], 1, ["pie", "no-pie"]))
@pytest.mark.parametrize("level", some(["-O0", "-O1", "-O2", "-O3"], 2))
@pytest.mark.parametrize("compiler", some(["gcc", "clang"], 1))
def test_jumps_to_labels_and_cases_are_no_calls(build: Build, tmp_path: Path, compiler: str, level: str,
                                                flags: tuple[str, ...]) -> None:
    program, path = str(build("interpreters.c", *flags, compiler=compiler, level=level)), tmp_path / "p.db"
    record((program, "10"), path)
    rows = asked(path, """SELECT substr(f.name, 1, 9) AS name, count(DISTINCT c.site) AS sites,
            sum(c.entries) AS entries,
            (SELECT max(x.iterations) FROM context_loop x JOIN context d ON d.id = x.context
             WHERE d.function = f.id AND x.entries = c.entries) AS rounds
        FROM context c JOIN function f ON f.id = c.function WHERE f.name LIKE 'by_%' GROUP BY 1""")
    found = {row["name"]: row for row in rows}
    assert {name: row["entries"] for name, row in found.items()} == {"by_labels": 10, "by_switch": 10}
    if found["by_switch"]["sites"] == 1:  # else the loop around is unrolled, and each call a context
        assert found["by_switch"]["rounds"] == 10 * 201
        assert int(str(found["by_labels"]["rounds"])) > 10
