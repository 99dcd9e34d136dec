"""Programs whose loop may be caught in an entry that has a few iterations to go, or that end before memopt's turn."""

from __future__ import annotations

from collections.abc import Sequence

from bench.measure.execution import Execution, run_under_memopt
from tests.support.waiting import PATIENCE

ATTEMPTS = 3


def until_replaced(command: Sequence[str], native: Execution) -> Execution:
    """The first run under memopt in which replaced code ran, else the last of ``ATTEMPTS``; each has the same result
    as ``native``."""
    for _ in range(ATTEMPTS):
        trial = run_under_memopt(command, PATIENCE)
        assert trial.same_result(native), trial.stderr
        if trial.replaced:
            break
    return trial
