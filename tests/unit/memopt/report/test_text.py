from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.ir.reasons import Reason
from memopt.report.model import LoopReport, Outcome, RunReport, Stage
from memopt.report.text import duration, lines

REPLACED = LoopReport(
    0x5555, 0.973, Outcome.REPLACED, "dgemm", "gemm.c:8", plan="tiled (i/96), 8x24 register tile",
    seconds_per_iteration_before=0.0216, seconds_per_iteration_after=0.00017, installed_after_seconds=1.21,
    iterations_run=1999, runs=1,
)
KEPT = LoopReport(0x6666, 0.023, Outcome.KEPT, "main", reason=Reason.CALL, detail="call at 0x1122")


def test_replaced_and_kept_loops() -> None:
    report = RunReport("0.1.0", ("./dgemm", "2048"), (KEPT, REPLACED), (Stage("find", 0.002),), ("a note",))
    assert lines(report) == [
        "a note",
        "dgemm (gemm.c:8) at 0x5555, 97.3 % of the time: replaced 1.21 s after the start",
        "  tiled (i/96), 8x24 register tile",
        "  21.6 ms per outer iteration before, 170 us after: 127 times as fast",
        "  entered 1 time, 1,999 outer iterations",
        "main at 0x6666, 2.3 % of the time: left alone, because the loop calls a function (call at 0x1122)",
        "next: memopt exec --json FILE -- ./dgemm 2048   (the same figures as JSON)",
    ]
    assert "  find: 2 ms" in lines(report, verbose=True)


def test_nothing_hot_and_the_command_is_quoted() -> None:
    report = RunReport("0.1.0", ("./a b", "$x"), (LoopReport(1, 0.01, Outcome.KEPT, reason=Reason.CALL),))
    assert lines(report) == [
        "no hot loop was found",
        "next: memopt exec --verbose -- './a b' '$x'   (with the time of each stage)",
    ]
    assert lines(report, verbose=True)[-1] == "next: memopt profile -- './a b' '$x'   (where the time goes)"
    assert lines(replace(report, follow=True))[-1] == "next: memopt exec --follow -- './a b' '$x'"


def test_a_dry_run_says_what_it_would_do_and_how_to_do_it() -> None:
    loop = LoopReport(0x10, 0.9, Outcome.KEPT, reason=Reason.DRY_RUN, plan="tiled", shadow_speedup=31.4)
    assert lines(RunReport("1", ("./p",), (loop,))) == [
        "a loop at 0x10, 90.0 % of the time: would be replaced",
        "  tiled",
        "  31 times as fast in a trial copy",
        "next: memopt exec -- ./p",
    ]


@pytest.mark.parametrize(("seconds", "shown"), [
    (44.42, "44.4 s"), (1234.0, "1234 s"), (1.0, "1 s"), (0.0216, "21.6 ms"), (0.99999, "1 s"), (1.7e-4, "170 us"),
    (8e-8, "80 ns"), (0.0, "0 ns"), (0.9990, "999 ms"),
])
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
