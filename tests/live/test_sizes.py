"""Nests that come with other sizes at every call: one version for all of them, or one for each behind the others."""

from __future__ import annotations

import pytest

from bench.measure.execution import run, run_under_memopt
from tests.conftest import Build
from tests.support.effort import some_rows
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize(("what", "function", "repetitions", "least"), some_rows([
    ("triangles", "update", "100", 100_000),
    ("strides", "product", "150", 2000),
    ("lengths", "multiply", "300", 20_000),
], 1))
@pytest.mark.long
def test_other_sizes_at_every_call(build: Build, what: str, function: str, repetitions: str, least: int) -> None:
    """What is faster is not asked here: short triangles take microseconds, and other tests share the processors."""
    command = (str(build("sizes.c")), what, repetitions)
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
    assert trial.same_result(native), trial.stderr
    trial = run_under_memopt(command, PATIENCE, ("--no-shadow",))
    assert trial.same_result(native), trial.stderr
    assert trial.report is not None, trial.stderr
    versions = [x for x in trial.report["loops"] if x["function"] == function and x["outcome"] == "replaced"]
    assert sum(x["iterations_run"] for x in versions) > least, trial.stderr
    if what == "triangles":
        assert sum(x["runs"] for x in versions) > 100, trial.stderr
    if what == "lengths":  # a version with numbers would run once in each repetition
        assert max(x["runs"] for x in versions) > 300, trial.stderr
