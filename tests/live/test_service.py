"""A version that loses in service is taken out; its twin that goes on winning stays."""

from __future__ import annotations

from bench.execution import run, run_under_memopt
from memopt.ir.reasons import Reason
from tests.conftest import Build

PATIENCE = 120.0


def outcome(command: tuple[str, ...]) -> tuple[str, str | None]:
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
    assert trial.same_result(native), trial.stderr
    assert trial.report is not None, trial.stderr
    hottest = next(x for x in trial.report["loops"] if x["function"] in ("multiply", "main"))
    return hottest["outcome"], hottest["reason"]


def test_what_loses_in_service_is_taken_out(build: Build) -> None:
    """After the trial the nest is only entered for three rows at a time: the way in and out costs more."""
    assert outcome((str(build("shrinking.c")), "3000", "8000000")) == ("kept", Reason.NOT_FASTER.value)


def test_what_wins_in_service_stays(build: Build) -> None:
    assert outcome((str(build("shrinking.c")), "6000", "0")) == ("replaced", None)
