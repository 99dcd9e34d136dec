"""The command ``memopt``, for which any gain is enough: ``python -m tests.support.surroundings.eager exec --
./program``.

Drawn nests are short, and most versions of them gain little. Here any plan is worth while, and what is installed stays
(EAGER=kept) or is judged as always. All else is memopt's own: sampling, copies, trials, the patch, the watch.
"""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from unittest import mock

from memopt.cli import main
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


def eager() -> None:
    """Change what memopt takes for a gain, in this process, for good."""
    mock.patch("passes.planning.loop_plans", functools.partial(loop_plans, least_gain=0.0)).start()
    mock.patch.object(Profitability, "run", _worth_while).start()
    mock.patch.multiple(improver, LEAST_SHARE=0.1, MOST_SHARE=0.1, VAIN_SECONDS=60.0).start()
    mock.patch("runtime.trial.trial._least_gain", return_value=0.0).start()
    if os.environ.get("EAGER") == "kept":
        mock.patch.object(Service, "judge", return_value=None).start()
        mock.patch.object(InService, "hold", return_value=False).start()


if __name__ == "__main__":
    eager()
    main()
