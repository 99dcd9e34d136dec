"""Timing of the stages, and limits on the processor time of one.

Example: ``capture`` runs ``lift`` inside it. Of ten seconds in ``capture``, nine of them in ``lift``, one is counted
for ``capture`` and nine for ``lift``: the stages of ``--verbose`` add up to the time that was spent.

In: the names of stages, in the order in which they are entered. Out: seconds by name, and the name of the stage that an
exception was raised in. Each stage is also a point for fault injection (``runtime.faults``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from runtime import faults

ASK_SECONDS = 0.005  # between two questions to the kernel how much processor time was used


class Timer:
    """``seconds``: of each stage's own time, by name. ``name``: the innermost stage that is running; after an exception
    the stage that raised it, else the last one that has ended. ``stopped``: seconds for which the program stood
    still."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.name = "find"
        self.stopped = 0.0
        self._running: list[str] = []  # from the outermost stage to the innermost
        self._since = 0.0  # when the innermost stage was entered, or a stage inside it was left
        self._raised: BaseException | None = None  # already put down to the stage that raised it

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A stage, perhaps inside another one, whose clock stands still meanwhile."""
        self._count()
        self._running.append(name)
        self.name = name
        try:
            faults.point(name)
            yield
        except BaseException as error:
            if error is not self._raised:
                self._raised, self.name = error, name
            raise
        else:
            if len(self._running) > 1:
                self.name = self._running[-2]
        finally:
            self._count()
            self._running.pop()
            if not self._running:
                self._raised = None

    def _count(self) -> None:
        """Add the time since the last call to the innermost stage."""
        now = time.monotonic()
        if self._running:
            stage = self._running[-1]
            self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now


def processor_limit(seconds: float) -> Callable[[], bool]:
    """A predicate that is True until this thread has used ``seconds`` of processor time from now on.

    The kernel is asked for the processor time only every ``ASK_SECONDS``."""
    deadline, asked = time.thread_time() + seconds, time.monotonic()
    within = True

    def goes_on() -> bool:
        nonlocal asked, within
        if (now := time.monotonic()) >= asked + ASK_SECONDS:
            asked, within = now, time.thread_time() < deadline
        return within

    return goes_on
