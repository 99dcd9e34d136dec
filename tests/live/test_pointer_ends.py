"""Triangles whose inner loops end where two moving pointers meet, inlined into a loop that calls a function: replaced
as a whole, once, with the same output. And nests whose sizes no register tells: how often they are tried."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bench.measure.execution import Execution, run, run_under_memopt
from tests.conftest import Build
from tests.support.effort import some_rows
from tests.support.waiting import PATIENCE

# (nest, flags, compiler, level, rounds). Each runs natively for some ten seconds.
TRIANGLES = [
    ("lower", "-DSIZE=800", "gcc", "-O2", 50),
    ("lower_both", "-DSIZE=600", "gcc", "-O2", 60),
    ("upper", "-DSIZE=800", "gcc", "-O2", 50),
    ("upper_both", "-DSIZE=600", "clang", "-O2", 60),
    ("downward", "-DSIZE=800", "gcc", "-O2", 50),
    ("ordered", "", "gcc", "-O2", 50),
    ("ordered", "-DREAL=float", "gcc", "-O3", 50),
    ("strict", "-DSIZE=800", "gcc", "-O2", 50),
    ("pairs", "-DSIZE=800", "gcc", "-O2", 50),
]


def replaced(execution: Execution) -> list[Mapping[str, object]]:
    assert execution.report is not None, execution.stderr
    return [x for x in execution.report["loops"] if x["outcome"] == "replaced"]


@pytest.mark.parametrize(("nest", "flags", "compiler", "level", "rounds"), some_rows(TRIANGLES, 0, most=4))
def test_a_triangle_among_calls_is_replaced_once(build: Build, nest: str, flags: str, compiler: str, level: str,
                                                 rounds: int) -> None:
    command = (str(build("rank_k.c", f"-DNEST={nest}", *flags.split(), compiler=compiler, level=level)), str(rounds),
               "800")
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
    assert trial.stdout == native.stdout
    assert trial.exit_code == native.exit_code == 0
    loops = replaced(trial)
    assert [x["function"] for x in loops] == ["main"], trial.stderr
    assert int(str(loops[0]["iterations_run"])) > 1000, trial.stderr


def lifted_regions(execution: Execution) -> int:
    return execution.stderr.count("\nregion 0x")


@pytest.mark.long
def test_sizes_that_never_come_again_are_tried_twice(build: Build) -> None:
    command = (str(build("new_sizes.c")), "new", "60")
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE, ("--print-after", "lift"))
    assert trial.same_result(native), trial.stderr
    assert trial.report is not None
    assert lifted_regions(trial) <= 2, trial.stderr
    assert "ever-new-sizes" in {x["reason"] for x in trial.report["loops"]}, trial.stderr


@pytest.mark.long
def test_a_few_sizes_in_turn_are_not_taken_for_new_ones(build: Build) -> None:
    """How many of the five get a version depends on where copies of the program stop; the first one does."""
    command = (str(build("new_sizes.c")), "few", "60")
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE, ("--no-shadow",))
    assert trial.same_result(native), trial.stderr
    loops = replaced(trial)
    assert sum(int(str(x["runs"])) for x in loops) > 100, trial.stderr
    assert trial.report is not None
    assert "ever-new-sizes" not in {x["reason"] for x in trial.report["loops"]}, trial.stderr
