"""What the processes that a program has started contribute to the time of its run."""

from __future__ import annotations

import pytest

from memopt.report.model import RunReport
from memopt.session.watching.launched import _gained


def process(seconds: float, without: float | None) -> RunReport:
    return RunReport("1", ("./p",), seconds=seconds, seconds_without=without)


@pytest.mark.parametrize(("processes", "gained"), [
    ((), 0.0),
    ((process(4.0, 9.0), process(5.0, 8.0)), 8.0),  # one after the other
    ((process(9.0, 15.0), process(9.5, 12.0)), 6.0),  # side by side: the run waits for the slowest
    ((process(4.0, None), process(5.0, 8.0)), 3.0),
])
def test_gains_of_processes(processes: tuple[RunReport, ...], gained: float) -> None:
    assert _gained(processes, 10.0) == gained
