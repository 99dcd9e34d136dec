"""Sums with operands in two orders: replaced while there is no NaN, and left to the program when there is one."""

from __future__ import annotations

import pytest

from bench.measure.execution import run, run_under_memopt
from tests.conftest import Build
from tests.support.effort import some
from tests.support.waiting import PATIENCE

REPETITIONS = 10_000


@pytest.mark.long
@pytest.mark.parametrize("bad", some([-1, REPETITIONS - 10], 1))
def test_nans_keep_their_payloads(build: Build, bad: int) -> None:
    command = (str(build("swapped.c")), "4096", str(REPETITIONS), str(bad))
    native = run(command, PATIENCE)
    trial = run_under_memopt(command, PATIENCE)
    assert trial.same_result(native)
    assert native.stdout.count(b"7ff80000000000") == (6 if bad >= 0 else 0)
    assert trial.replaced, trial.stderr
