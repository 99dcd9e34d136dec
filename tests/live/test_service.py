"""A version that loses in service is taken out; its twin that goes on winning stays."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench.measure.execution import run, run_under_memopt
from memopt.ir.reasons import Reason
from tests.conftest import Build
from tests.support.effort import some_rows
from tests.support.waiting import PATIENCE


def outcome(command: tuple[str, ...]) -> tuple[str, str | None]:
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
    assert trial.same_result(native), trial.stderr
    assert trial.report is not None, trial.stderr
    hottest = next(x for x in trial.report["loops"] if x["function"] in ("multiply", "main"))
    return hottest["outcome"], hottest["reason"]


@pytest.mark.long
def test_what_loses_in_service_is_taken_out(build: Build) -> None:
    """After the trial the nest is only entered for three rows at a time: the way in and out costs more."""
    assert outcome((str(build("shrinking.c")), "3000", "8000000")) == ("kept", Reason.NOT_FASTER.value)


@pytest.mark.long
def test_what_wins_in_service_stays(build: Build) -> None:
    assert outcome((str(build("shrinking.c")), "6000", "0")) == ("replaced", None)


@pytest.mark.long
@pytest.mark.parametrize(("loss", "expected"), some_rows([
    (0.0, ("replaced", None)), (1e9, ("kept", Reason.NOT_FASTER.value)),
], 1, ["won", "lost"]))
def test_turns_with_the_original_decide(build: Build, tmp_path: Path, loss: float, expected: tuple[str, str | None]
                                        ) -> None:
    """The same gain, once above what counts as a loss, once below; in both cases the version has rested for a while."""
    command, report = (str(build("shrinking.c")), "12000", "0"), tmp_path / "report.json"
    native = run(command, PATIENCE)
    memopt = ("from memopt.session.measuring import ab_measurement as turns\n"
              f"turns.LOSS, turns.CLEAR, turns.LONGEST_RUN_SECONDS, turns.STEADY = {loss}, 1e9, 1.0, 1e9\n"
              "from memopt.cli import main\nmain()")
    trial = run((sys.executable, "-c", memopt, "exec", "--json", str(report), "--", *command), PATIENCE)
    assert trial.same_result(native), trial.stderr
    told = json.loads(report.read_text())
    assert "turns" in told["stages"]
    hottest = next(x for x in told["loops"] if x["function"] in ("multiply", "main"))
    assert (hottest["outcome"], hottest["reason"]) == expected
    if hottest["outcome"] == "replaced":
        assert hottest["iterations_run"] > 0
    else:
        assert "in service" in hottest["detail"]
