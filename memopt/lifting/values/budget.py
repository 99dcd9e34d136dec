"""The time budget of lifting: the user's program waits meanwhile.

Example: paths of branches multiply, and so do questions whether two accesses overlap; ``check`` is called at each of
them. In: a callable that becomes False when the time is over. Out: nothing, or Rejected.
"""

from __future__ import annotations

from collections.abc import Callable

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected


@dataclass(frozen=True, slots=True)
class Budget:
    """Unlimited unless ``patient``, which is called at each check, says otherwise."""

    patient: Callable[[], bool] = lambda: True

    def check(self) -> None:
        """Raises Rejected(NO_PLAN) when the time is over."""
        if not self.patient():
            raise Rejected(Reason.NO_PLAN, "understanding the loop takes too long")
