from __future__ import annotations

from memopt.lifting.lift import PASSES
from memopt.options import PRINTABLE
from passes.contraction_schedule.pipeline import PIPELINE


def test_every_pass_can_be_printed() -> None:
    lifting, planning = (tuple(step.name for step in passes) for passes in (PASSES, PIPELINE))
    assert (*lifting, "lift", *planning, "plan", "generate") == PRINTABLE
