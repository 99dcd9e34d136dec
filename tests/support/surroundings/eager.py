"""The command ``memopt``, for which any gain is enough: ``python -m tests.support.surroundings.eager exec ./program``.

Drawn nests are short, and most versions of them gain little. Here any plan is worth while, and what is installed stays
(EAGER=kept) or is judged as always. With EAGER=wrong versions add where they should subtract, so that one can see that
somebody notices. All else is memopt's own: sampling, copies, trials, the patch, the watch.
"""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from typing import Any
from unittest import mock

from memopt.cli import main
from memopt.ir.scop import Apply, Expression
from memopt.lifting.lift import Lifted, lift_region
from memopt.session.improving import improver
from memopt.session.improving.in_service import InService
from memopt.session.measuring.verdict import Service
from passes.context import Context
from passes.contraction_schedule.base import ScheduledRegion
from passes.contraction_schedule.profitability import Profitability
from passes.loop_schedule.candidates import loop_plans

_decide = Profitability.run


def _worth_while(self: Profitability, state: ScheduledRegion, context: Context) -> ScheduledRegion:
    return _decide(replace(self, least_work=0.0, least_gain=0.0), state, context)


def _wrong(*arguments: Any) -> Lifted:
    lifted = lift_region(*arguments)
    scop = lifted.region.scop
    statements = tuple(replace(s, expression=_other_sign(s.expression)) for s in scop.statements)
    return replace(lifted, region=replace(lifted.region, scop=replace(scop, statements=statements)))


def _other_sign(expression: Expression) -> Expression:
    if not isinstance(expression, Apply):
        return expression
    operator = {"add": "sub", "sub": "add"}.get(expression.operator, expression.operator)
    return replace(expression, operator=operator, operands=tuple(map(_other_sign, expression.operands)))


def eager() -> None:
    """Change what memopt takes for a gain, in this process, for good."""
    mock.patch("passes.planning.loop_plans", functools.partial(loop_plans, least_gain=0.0)).start()
    mock.patch.object(Profitability, "run", _worth_while).start()
    mock.patch.multiple(improver, LEAST_SHARE=0.1, MOST_SHARE=0.1, VAIN_SECONDS=60.0).start()
    mock.patch("runtime.trial.trial._least_gain", return_value=0.0).start()
    words = os.environ.get("EAGER", "").split()
    if "wrong" in words:
        mock.patch("memopt.lifting.lift.lift_region", _wrong).start()
    if "kept" in words:
        mock.patch.object(Service, "judge", return_value=None).start()
        mock.patch.object(InService, "hold", return_value=False).start()


if __name__ == "__main__":
    eager()
    main()
