"""The running program that is improved, as the stages see it: its identity, how to stop it, how to fork shadows.

In: a process id, the user's options, and who may stop the process when. Out: the stopped process (``stopped``,
``eligible``) and ``shadows``, forked copies of it. A process is stopped for moments only: it goes on when the context
is left. Whoever is about to change it looks first, in the same stop: what was seen in an earlier stop may be over.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import field
from typing import TYPE_CHECKING

from memopt.console import say
from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Rejected
from memopt.options import Options
from memopt.session.replacing.stage_times import Timer
from runtime.trial.copy_cost import CopyBudget

if TYPE_CHECKING:
    from memopt.machine.description import Machine
    from memopt.session.replacing.site import Ranges
    from memopt.session.replacing.validation import Trial
    from runtime.target.tracee import Tracee
    from runtime.trial.shadow import Shadow

MOST_LOOKS, MOST_ASLEEP_SECONDS = 8, 0.3  # for a process to be in a loop: stops, and seconds of waiting for it to run
PAUSE_SECONDS = 0.001  # between the first two of these stops, and longer each time

Attached = Callable[[], AbstractContextManager[None]]


@functools.cache
def detected_machine() -> Machine:
    """The machine memopt runs on."""
    from memopt.machine.detect import detect

    return detect()


@dataclass(frozen=True)
class Process:
    """One process. Raises Rejected(ENDED), or ``TargetEnded``, where it is to be stopped and has ended."""

    pid: int
    options: Options
    attached: Attached  # held while the process is stopped: nobody else waits for it meanwhile
    started: float  # seconds on the monotonic clock
    timer: Timer = field(default_factory=Timer)
    copies: CopyBudget = field(default_factory=CopyBudget)
    machine: Callable[[], Machine] = detected_machine  # a function, because detection takes its time
    verify: Callable[[], None] = lambda: None  # raises Rejected(ENDED) where ``pid`` is another process by now
    movable: bool = False  # loops are lifted so that their versions work wherever the program is loaded
    after_trial: Callable[[Trial], None] | None = None  # called where the shadow of a trial still stands at the header
    unreaped: list[Shadow] = field(default_factory=list)  # dead copies that the process has not waited for yet

    @contextmanager
    def traced(self) -> Iterator[Tracee]:
        """The process, traced but running until ``Tracee.stop`` is called."""
        from runtime.target.tracee import attach

        with self.attached(), attach(self.pid) as tracee:
            yield tracee

    @contextmanager
    def stopped(self) -> Iterator[Tracee]:
        """The process, traced and stopped."""
        with self.traced() as tracee:
            tracee.stop()
            began = time.monotonic()
            try:
                self.verify()
                yield tracee
            finally:
                self.timer.stopped += time.monotonic() - began

    @contextmanager
    def eligible(self) -> Iterator[Tracee]:
        """The process, stopped, and eligible in this stop. Raises Rejected, as ``check_process`` does."""
        from runtime.target.eligibility import check_process

        with self.stopped() as tracee:
            check_process(self.pid)
            yield tracee

    @contextmanager
    def _eligible_in(self, ranges: Ranges) -> Iterator[Tracee]:
        """``eligible``, while the process executes code of ``ranges`` if it does at one of a few moments. A copy of a
        process that sleeps, or has just been woken up, would get no further than to its next system call."""
        from runtime.target.proc import await_running

        until = time.monotonic() + MOST_ASLEEP_SECONDS
        for look in range(1, MOST_LOOKS + 1):
            await_running(self.pid, until - time.monotonic())
            with self.eligible() as tracee:
                at = tracee.registers().rip
                if not ranges or look == MOST_LOOKS or any(low <= at < high for low, high in ranges):
                    yield tracee
                    return
            time.sleep(PAUSE_SECONDS * look)

    @contextmanager
    def shadows(self, count: int, given_up: Callable[[], bool], inside: Ranges = ()) -> Iterator[tuple[Shadow, ...]]:
        """``count`` shadows of one instant of the process, gone when the context is left. ``given_up``: asked while a
        shadow runs; True ends its run. ``inside``: the code that the process had best be in. Raises
        Rejected(COPY_COSTS) where they are not worth their cost yet.

        Shadows of a process that memopt did not start are its children. They are waited for in the end, so that no
        zombies stay. Where the process has confined itself meanwhile (seccomp), that is not possible: the zombies stay
        until it ends. Only a call with __WALL or __WCLONE sees them, and no signal tells of them.
        """
        from runtime.trial.shadow import fork_shadow

        self.copies.check(self.pid)
        shadows: list[Shadow] = []
        try:
            with self.copies.counted(self.pid), ExitStack() as stack:
                with self._eligible_in(inside) as tracee:
                    for _ in range(count):
                        shadows.append(stack.enter_context(fork_shadow(tracee, copies=count)))
                        shadows[-1].given_up = given_up
                yield tuple(shadows)
        finally:
            self.unreaped.extend(shadow for shadow in shadows if shadow.zombie)
            self._reap()

    def _reap(self) -> None:
        from runtime.target.ptrace import TargetEnded
        from runtime.trial.shadow import reap

        if self.unreaped:
            with suppress(Rejected, TargetEnded), self.stopped() as tracee:
                reap(tracee, self.unreaped)
                self.unreaped.clear()

    def print_after(self, name: str, value: object) -> None:
        """``--print-after``: show the result of a stage or pass, if the user asked for it."""
        if name in self.options.print_after:
            say(f"after {name}:\n{value}")
