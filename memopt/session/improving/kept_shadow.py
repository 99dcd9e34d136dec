"""The copy of the program in which loops are captured: one for all that are given up in a row, as far as it gets.

A fork costs the program a page fault for each page that it writes afterwards, which is far more than the fork itself.
So where a loop is given up, its copy runs on to the header of the next one, be it around the same hot address or around
another, and the copies of a trial are made of it.
Invariant: a copy is in a state the program may come to by itself; what is captured from it is checked at every entry,
so it need not be the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from memopt.ir.reasons import Reason, Rejected

if TYPE_CHECKING:
    from runtime.trial.shadow import Shadow

FURTHER_SECONDS = 0.2  # for a copy that is there already; where it takes longer, a new one may start nearer

Fork = Callable[[], AbstractContextManager["tuple[Shadow, ...]"]]


class KeptShadow:
    """At most one copy at a time. ``keep``: whether it outlives the loop that it was made for, until ``drop``.
    ``patience_s``: how long it may take to come to a loop, where that is not as long as anything may."""

    def __init__(self, patience_s: float | None = None) -> None:
        self.keep = False
        self._patience_s = patience_s
        self._kept: tuple[ExitStack, Shadow] | None = None

    @contextmanager
    def at(self, header: int, fork: Fork) -> Iterator[Shadow]:
        """A copy that stands at ``header``, by ``fork`` if need be; Rejected (NOT_REACHED and what ``fork`` raises)."""
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
        return self._kept is not None

    def standing(self, header: int) -> Shadow | None:
        """The copy that was kept, if it stands at ``header``."""
        return self._kept[1] if self._kept is not None and self._kept[1].registers().rip == header else None

    def leave(self, exits: frozenset[int]) -> None:
        """Let the copy that was kept run out of the loop it stands in, to one of ``exits``: the next entry may have
        other values. Where it does not get there soon, it is given up."""
        from runtime.trial.shadow import ShadowStopped

        if self._kept is not None:
            try:
                self._kept[1].run_out(exits, FURTHER_SECONDS)
            except ShadowStopped:
                self.drop()

    def drop(self) -> None:
        """Give up the copy that was kept, if there is one."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept[0].close()

    def _further(self, header: int, stack: ExitStack) -> Shadow | None:
        """The copy that was kept, now in ``stack``, if it gets to ``header`` soon."""
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
