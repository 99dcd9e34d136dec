from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from memopt.ir.reasons import VerifyError
from runtime import faults


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    faults.arm(None)


def test_raises_at_the_nth_point_of_that_name_only() -> None:
    faults.arm("raise:lift:2")
    faults.point("lift")
    faults.point("schedule")
    with pytest.raises(VerifyError, match="lift"):
        faults.point("lift")
    faults.point("lift")


def test_a_star_stands_for_every_name_with_that_beginning() -> None:
    faults.arm("raise:ptrace.*:2")
    faults.point("lift")
    faults.point("ptrace.seize")
    with pytest.raises(VerifyError, match=r"ptrace\.cont"):
        faults.point("ptrace.cont")


def test_kills_this_process() -> None:
    child = os.fork()
    if not child:
        faults.arm("kill:x:1")
        faults.point("x")
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def test_disarmed_points_do_nothing() -> None:
    faults.arm(None)
    faults.point("anything")


@pytest.mark.parametrize("text", ["kill", "kill:x", "kill:x:0", "kill:x:-1", "kill::1", "stop:x:1", "raise:x:n"])
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(VerifyError, match="expected"):
        faults.parse(text)
