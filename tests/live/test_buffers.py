"""Time loops that exchange their buffers: several iterations are one (memopt.cfg.unroll)."""

from __future__ import annotations

import pytest

from bench.measure.execution import run, run_under_memopt
from tests.conftest import Build
from tests.support.effort import some_rows
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize(("compiler", "level"), some_rows([("gcc", "-O1"), ("gcc", "-O2"), ("clang", "-O2")], 1))
@pytest.mark.long
def test_loops_that_exchange_buffers(build: Build, compiler: str, level: str) -> None:
    """With even and odd numbers of steps: whole rounds are the version's, the rest is the original's."""
    command = (str(build("buffers.c", compiler=compiler, level=level)), "151", "4000")
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE, ("--no-shadow",))
    assert trial.same_result(native), trial.stderr
    assert trial.report is not None, trial.stderr
    assert any(x["iterations_run"] and " statements" in x["plan"] for x in trial.report["loops"]), trial.stderr
