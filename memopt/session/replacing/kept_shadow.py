"""The shadow (forked copy of the program) in which loops are captured, kept from one loop to the next.

Example: the shadow runs to the header of the outer loop, which is refused. The same shadow then runs on to the header
of the inner loop, and the shadows of a trial are forked from it.

Why: after a fork the program takes a page fault for each page that it writes, which costs far more than the fork
itself. So the program is forked as rarely as possible. A shadow is in a state that the program may reach by itself, and
guards check everything captured from it at every entry: it need not have the latest state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from memopt.ir.reasons import Reason, Rejected

if TYPE_CHECKING:
    from runtime.trial.shadow import Shadow

FURTHER_SECONDS = 0.2  # for the kept shadow to reach a header; if it takes longer, a new one may start nearer

Fork = Callable[[], AbstractContextManager["tuple[Shadow, ...]"]]


class KeptShadow:
    """Holds at most one shadow. ``keep``: whether it is kept after the loop that it was made for, until ``drop``."""

    def __init__(self, patience_s: float | None = None) -> None:
        """``patience_s``: processor seconds in which a new shadow must reach a header; None: ``REACH_SECONDS``."""
        self.keep = False
        self._patience_s = patience_s
        self._kept: tuple[ExitStack, Shadow] | None = None

    @contextmanager
    def at(self, header: int, fork: Fork) -> Iterator[Shadow]:
        """A shadow that stands at ``header``: the kept one if it gets there soon, else a new one by ``fork``. Raises
        Rejected: NOT_REACHED, and what ``fork`` raises."""
        from runtime.trial.timing import REACH_SECONDS
        from runtime.trial.trial import reach

        with ExitStack() as stack:
            shadow = self._further(header, stack)
            if shadow is None:
                shadow, = stack.enter_context(fork())
                reach(shadow, header, self._patience_s or REACH_SECONDS)
            try:
                yield shadow
            except Rejected as rejected:
                if self.keep and rejected.reason is not Reason.NOT_REACHED:
                    self._kept = stack.pop_all(), shadow
                raise
            if self.keep:
                self._kept = stack.pop_all(), shadow

    @property
    def kept(self) -> bool:
        """Whether there is a kept shadow."""
        return self._kept is not None

    def standing(self, header: int) -> Shadow | None:
        """The kept shadow, if it stands at ``header``."""
        return self._kept[1] if self._kept is not None and self._kept[1].registers().rip == header else None

    def leave(self, exits: frozenset[int]) -> None:
        """Let the kept shadow run out of the loop it stands in, to one of the addresses ``exits``: the next entry of
        the loop may have other values. A shadow that does not get there soon is dropped.
        """
        from runtime.trial.shadow import ShadowStopped

        if self._kept is not None:
            try:
                self._kept[1].run_out(exits, FURTHER_SECONDS)
            except ShadowStopped:
                self.drop()

    def drop(self) -> None:
        """Kill the kept shadow, if there is one."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept[0].close()

    def _further(self, header: int, stack: ExitStack) -> Shadow | None:
        """The kept shadow, now in ``stack``, if it gets to ``header`` soon."""
        from runtime.trial.trial import reach

        kept, self._kept = self._kept, None
        if kept is None:
            return None
        stack.enter_context(kept[0])
        try:
            reach(kept[1], header, FURTHER_SECONDS)
        except Rejected:
            stack.close()
            return None
        return kept[1]
