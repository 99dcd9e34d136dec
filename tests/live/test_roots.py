"""Square roots that the compiler guards by a call for negative numbers: replaced, and taken back when one comes."""

from __future__ import annotations

import pytest

from bench.execution import run, run_under_memopt
from tests.conftest import Build

PATIENCE = 120.0
REPETITIONS = 400


@pytest.mark.parametrize("bad", [-1, REPETITIONS - 10])
def test_negative_numbers_take_the_programs_own_way(build: Build, bad: int) -> None:
    command = (str(build("roots.c", "-Wl,--no-as-needed", "-lm")), "1501", str(REPETITIONS), str(bad))
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
    assert (b"errno" in native.stdout) == (bad >= 0)
    assert trial.same_result(native), trial.stderr
    assert trial.replaced, trial.stderr
