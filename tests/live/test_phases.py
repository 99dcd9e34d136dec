"""Several nests of one function: each is a decision of its own, whatever becomes of those beside it."""

from __future__ import annotations

import pytest

from bench.measure.execution import run, run_under_memopt
from tests.conftest import Build
from tests.support.effort import some
from tests.support.waiting import PATIENCE


@pytest.mark.long
@pytest.mark.parametrize("compiler", some(["gcc", "clang"], 1))
def test_each_nest_of_a_loop_is_replaced(build: Build, compiler: str) -> None:
    """Exception flags are printed too: operations that a branch passes over raise none."""
    command = (str(build("phases.c", "-fno-tree-vectorize", compiler=compiler)), "501", "4000")
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE, ("--no-shadow",))
    assert trial.same_result(native), trial.stderr
    assert trial.report is not None, trial.stderr
    replaced = {x["address"] for x in trial.report["loops"] if x["iterations_run"]}
    assert len(replaced) >= 3, trial.stderr


@pytest.mark.long
def test_a_nest_that_loses_does_not_stand_for_the_others(build: Build) -> None:
    command = (str(build("phases.c", "-fno-tree-vectorize")), "501", "4000")
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
    assert trial.same_result(native), trial.stderr
    assert trial.report is not None, trial.stderr
    assert len(trial.report["loops"]) > 1, trial.stderr
    assert sum(x["share"] for x in trial.report["loops"]) <= 1.001, trial.stderr


@pytest.mark.long
def test_a_loop_that_never_comes_again_holds_nothing_up(build: Build) -> None:
    """The data is set up in the hot loop that is seen first; when it is looked at, the program has left it."""
    program = str(build("set_up.c"))
    native, trial = run([program], PATIENCE), run_under_memopt([program], PATIENCE)
    assert trial.same_result(native), trial.stderr
    assert trial.report is not None, trial.stderr
    assert [x["function"] for x in trial.report["loops"] if x["iterations_run"]] == ["product"], trial.stderr
