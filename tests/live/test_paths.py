"""``memopt profile --paths``: acyclic paths of programs that behave as they do alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.measure.execution import memopt_command, run
from bench.paths import of_each, percent, rate, shares_of
from bench.programs.variants import KERNELS, compile_c
from tests.conftest import Build
from tests.support.effort import some, some_rows
from tests.support.profiles import asked, record
from tests.support.waiting import PATIENCE


def profiled(command: tuple[str, ...], path: Path, *options: str) -> None:
    native = run(command, PATIENCE)
    done = run([*memopt_command(), "profile", "--paths", *options, "-o", str(path), "--", *command], PATIENCE)
    assert (done.stdout, done.exit_code) == (native.stdout, native.exit_code), done.stderr
    assert "unrecorded" not in done.stderr
    assert "please report" not in done.stderr


@pytest.mark.check
def test_every_path_is_counted(build: Build, tmp_path: Path) -> None:
    """A function with three decisions, called for 0, 1, ..., 8999: how often each path is taken is known."""
    path = tmp_path / "p.db"
    profiled((str(build("paths.c", level="-O1")), "9000"), path, "--exact")
    rows = [row for row in asked(path, "hot-paths") if row["function"] == "decide"]
    assert sorted(int(float(str(row["count"]))) for row in rows) == sorted(
        sum((n % 2 == a) and (n % 3 == 0) is b and (n % 5 == 0) is c for n in range(9000))
        for a in (0, 1) for b in (False, True) for c in (False, True))
    assert {row["paths"] for row in rows} == {8}
    loop = next(row for row in asked(path, "hot-paths") if row["function"] == "repeat")
    assert loop["count"] == 8998  # the first iteration begins with the function, the last one ends with it


@pytest.fixture(scope="module")
def compressor(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The program, and the profile of all its paths."""
    folder = tmp_path_factory.mktemp("compressor")
    compile_c(("gcc", "-O2"), KERNELS / "compress.c", folder / "compress", [])
    profiled((str(folder / "compress"), "20"), folder / "whole.db", "--exact")
    return folder / "compress", folder / "whole.db"


@pytest.mark.long
@pytest.mark.parametrize("options", some([(), ("--rehook", "5000000"), ("--unhook", "200", "--rehook", "500000")], 1))
def test_windows_find_what_is_hot(compressor: tuple[Path, Path], tmp_path: Path, options: tuple[str, ...]) -> None:
    (program, whole), parts = compressor, tmp_path / "parts.db"
    profiled((str(program), "100"), parts, *options)  # enough windows on a busy machine, too
    (windows,) = asked(parts, "SELECT windows FROM windows")
    assert int(str(windows["windows"])) > 10
    full, found = shares_of(whole, program), shares_of(parts, program)
    detected, false = rate(percent(full), percent(found))
    assert detected >= 0.8
    assert false <= 0.2
    busy = {path for path in full if sum(share for other, share in full.items() if other[0] == path[0]) > 10}
    assert len({function for function, _ in busy}) >= 3
    assert rate(of_each({p: full[p] for p in busy}), of_each({p: found.get(p, 0.0) for p in busy}))[0] == 1.0


@pytest.mark.parametrize(("source", "options", "compiler"), some_rows([
    ("counted_threads.c", ("-pthread",), "gcc"), ("counted_signals.c", (), "gcc"),
    ("counted_unwinding.cpp", (), "g++"), ("counted_timers.c", (), "gcc")], 1))
@pytest.mark.parametrize("how", [("--exact",), ("--unhook", "50", "--rehook", "200000")])
def test_programs_that_leave_their_functions_otherwise(build: Build, tmp_path: Path, source: str,
                                                       options: tuple[str, ...], compiler: str,
                                                       how: tuple[str, ...]) -> None:
    profiled((str(build(source, *options, compiler=compiler)),), tmp_path / "p.db", *how)


@pytest.mark.parametrize("command", some([
    ("/bin/sh", "-c", "for i in 1 2 3; do echo $i; done; exit 3"), ("/usr/bin/gzip", "-9", "-c", "/bin/bash"),
    ("/bin/sh", "-c", "i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done; exec sort /etc/services")], 1))
def test_programs_that_nobody_prepared(tmp_path: Path, command: tuple[str, ...]) -> None:
    profiled(command, tmp_path / "p.db", "--unhook", "500", "--rehook", "1000000")


def test_other_counts_are_for_another_run(tmp_path: Path) -> None:
    refused = run([*memopt_command(), "profile", "--paths", "--memory", "-o", str(tmp_path / "p.db"), "--", "true"],
                  PATIENCE)
    assert refused.exit_code == 2
    assert refused.stderr.count("\n") == 1


def test_a_profile_without_paths_has_none(build: Build, tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    record((str(build("paths.c", level="-O1")), "10"), path)
    assert asked(path, "hot-paths") == []
