from __future__ import annotations

import pytest

from memopt.ir.reasons import Reason, VerifyError
from memopt.report.model import LoopReport, Outcome, RunReport


@pytest.mark.parametrize(("outcome", "plan", "reason"), [
    (Outcome.KEPT, "", None), (Outcome.REPLACED, "", None), (Outcome.REPLACED, "tiled", Reason.CALL),
])
def test_a_loop_is_either_replaced_with_a_plan_or_kept_with_a_reason(outcome: Outcome, plan: str, reason: Reason | None
                                                                     ) -> None:
    with pytest.raises(VerifyError):
        LoopReport(0x1000, 0.5, outcome, plan=plan, reason=reason)


def test_speedup_needs_both_times() -> None:
    def loop(before: float | None, after: float | None) -> LoopReport:
        return LoopReport(0, 1, Outcome.REPLACED, plan="p", seconds_per_iteration_before=before,
                          seconds_per_iteration_after=after)

    assert loop(0.5, 0.25).speedup == 2
    assert loop(None, 0.25).speedup is None
    assert loop(0.5, None).speedup is None
    assert loop(0.5, 0.0).speedup is None


def test_hot_loops_come_hottest_first_and_replaced_ones_always() -> None:
    cold = LoopReport(1, 0.019, Outcome.KEPT, reason=Reason.CALL)
    warm = LoopReport(2, 0.02, Outcome.KEPT, reason=Reason.CALL)
    replaced = LoopReport(3, 0.001, Outcome.REPLACED, plan="p")
    hot = LoopReport(4, 0.9, Outcome.KEPT, reason=Reason.CALL)
    assert RunReport("1", ("x",), (cold, warm, replaced, hot)).hot_loops == (hot, warm, replaced)
