"""``--follow``: programs behind wrapper scripts and mpirun are improved, each process on its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bench.measure.execution import Execution, run, run_under_memopt
from tests.conftest import Build
from tests.support.tools import need
from tests.support.waiting import PATIENCE

SIZE = "1500"
PAIR_SIZE = "1301"  # both processors are busy then


def script(folder: Path, text: str) -> str:
    path = folder / "wrapper"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def replaced(trial: Execution) -> list[dict[str, Any]]:
    """The processes below the program in which a replaced loop ran."""
    assert trial.report is not None, trial.stderr
    return [p for p in trial.report["processes"]
            if any(x["outcome"] == "replaced" and x["iterations_run"] for x in p["loops"])]


def check(command: tuple[str, ...], processes: int) -> None:
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE, ("--follow",))
    assert sorted(trial.stdout) == sorted(native.stdout), trial.stderr  # ranks print in either order
    assert trial.exit_code == native.exit_code
    assert len(replaced(trial)) == processes, trial.stderr


def test_what_a_script_starts(build: Build, tmp_path: Path) -> None:
    program = build("gemm_ijk.c")
    check((script(tmp_path, f"echo before\n{program} {SIZE}\nexit 7"),), 1)


def test_without_the_option_only_the_program_itself(build: Build, tmp_path: Path) -> None:
    """The report says where the time went, and how to have that improved."""
    command = (script(tmp_path, f"{build('gemm_ijk.c')} 1200\nexit 0"),)
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
    assert trial.same_result(native)
    assert not replaced(trial)
    assert re.search(r"memopt: (9\d|100) % of the processor time, .* it started \(gemm_ijk\)", trial.stderr)
    assert f"memopt: next: memopt exec --follow -- {command[0]}\n" in trial.stderr


def test_a_program_that_starts_little_is_not_asked_to_be_followed(build: Build, tmp_path: Path) -> None:
    command = ("sh", "-c", f"/bin/true; exec {build('gemm_ijk.c')} 700")
    trial = run_under_memopt(command, PATIENCE)
    assert "--follow" not in trial.stderr


@pytest.mark.long
def test_two_at_the_same_time(build: Build, tmp_path: Path) -> None:
    program = build("gemm_ijk.c")
    check((script(tmp_path, f"{program} {PAIR_SIZE} & {program} {PAIR_SIZE}\nwait"),), 2)


@pytest.mark.parametrize("launcher", ["mpirun.mpich", "mpirun.openmpi"])
def test_ranks_of_mpirun(build: Build, launcher: str) -> None:
    need(launcher)
    options = ("--allow-run-as-root", "--oversubscribe") if launcher.endswith("openmpi") else ()
    check((launcher, *options, "-n", "2", str(build("gemm_ijk.c")), PAIR_SIZE), 2)
