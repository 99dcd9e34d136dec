"""Square roots that the compiler guards by a call for negative numbers: replaced, and taken back when one comes."""

from __future__ import annotations

import pytest

from bench.measure.execution import run
from tests.conftest import Build
from tests.support.attempts import PATIENCE, until_replaced
from tests.support.effort import some

REPETITIONS = 200


@pytest.mark.parametrize("bad", some([-1, REPETITIONS - 10], 0))
def test_negative_numbers_take_the_programs_own_way(build: Build, bad: int) -> None:
    command = (str(build("roots.c", "-Wl,--no-as-needed", "-lm")), "1501", str(REPETITIONS), str(bad))
    native = run(command, PATIENCE)
    trial = until_replaced(command, native)
    assert (b"errno" in native.stdout) == (bad >= 0)
    assert trial.replaced, trial.stderr


@pytest.mark.parametrize("negative", some([(), ("negative",)], 0))
def test_a_branch_for_nans_too_takes_the_programs_own_way(build: Build, negative: tuple[str, ...]) -> None:
    command = (str(build("roots_or_nan.c", "-Wl,--no-as-needed", "-lm")), "2048", "4500", "4490", *negative)
    native = run(command, PATIENCE)
    trial = until_replaced(command, native)
    assert b"4000000000000000" in native.stdout
    assert trial.replaced, trial.stderr
