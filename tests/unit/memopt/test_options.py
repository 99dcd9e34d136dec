from __future__ import annotations

from memopt.options import PRINTABLE
from passes.contraction_schedule.pipeline import PIPELINE


def test_every_pass_can_be_printed() -> None:
    names = tuple(step.name for step in PIPELINE)
    assert ("lift", *names, "plan", "generate") == PRINTABLE
