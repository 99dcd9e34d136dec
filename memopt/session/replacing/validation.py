"""The stage validate: original and versions run the same iterations in shadows (forked copies), and must agree.

In: the versions of one loop. Out: the fastest version that wrote bit for bit what the original wrote, and the measured
times. Nothing is changed in the process. The first trial starts from the shadow in which the loop was captured, which
costs the process nothing; if that trial decides nothing, later ones start from new shadows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from memopt.ir.reasons import Reason, Rejected
from memopt.session.replacing.decision import TRANSIENT
from memopt.session.replacing.history import History
from memopt.session.replacing.process import Process

if TYPE_CHECKING:
    from memopt.ir.code import CompiledRegion, Placement
    from memopt.ir.plan import NestPlan
    from memopt.session.replacing.site import LoopCode
    from runtime.trial.shadow import Shadow
    from runtime.trial.trial import Measurement

CLEARLY = 1.1  # by how much a candidate beats the one before it: shadows fault in their pages, and trials are short
TRIALS = 6  # at most, while none can run to its end
UNLIKE_TRIALS = 2  # at most, if guards fail: successive entries have other values

_Validated = tuple["CompiledRegion", "Measurement"]
_Kept = TypeVar("_Kept")
_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Trial:
    """A trial that ran to its end: the loop, a shadow that stands at its header as before it, the versions with
    their results. ``Process.after_trial`` gets it."""

    code: LoopCode
    shadow: Shadow
    versions: tuple[CompiledRegion, ...]
    results: tuple[Measurement | Rejected, ...]


def validate(process: Process, code: LoopCode, versions: tuple[CompiledRegion, ...], history: History) -> _Validated:
    """The fastest of the versions that computed the same bytes as the original. Raises Rejected: GUARD_FAILED,
    NOT_FASTER, ...
    """
    header = code.loop.header

    def trial(kept: Shadow | None, on: bool) -> _Validated:
        with (_copy_of(kept, versions[0].placement) if kept is not None
              else _copy_of_program(process, code, history.given_up)) as shadow:
            return _race(process, shadow, versions, code, on, [d.cache.placement for d in history.installed])

    with process.timer.stage("validate"):
        return first_decided(history.copies.standing(header), trial)


def first_decided(kept: _Kept | None, trial: Callable[[_Kept | None, bool], _T]) -> _T:
    """The result of the first of up to ``TRIALS`` trials that decides something.

    ``trial`` starts from a shadow of ``kept``, or of the program if that is None. If its second argument is True, it
    starts at the next entry of the loop, else at the arrival at which the shadow stands. Shadows of the program are
    forked a little later each time. Raises the last Rejected.
    """
    on = True
    for number in range(1, TRIALS + 1):
        try:
            return trial(kept, on)
        except Rejected as rejected:
            transient = rejected.reason in TRANSIENT
            if not transient and (rejected.reason is not Reason.GUARD_FAILED or number >= UNLIKE_TRIALS):
                raise
            if number == TRIALS:
                raise
        if kept is None:
            time.sleep(0.02 * number)
        elif not on or not transient:
            kept = None
        on = False
    raise AssertionError


@contextmanager
def _copy_of(kept: Shadow, placement: Placement) -> Iterator[Shadow]:
    """A shadow of the kept shadow, with pages for a version."""
    from runtime.patching.code_cache import map_alike
    from runtime.trial.shadow import copies_of

    with ExitStack() as stack:
        try:
            shadow, = stack.enter_context(copies_of(kept, 1))
            map_alike(shadow.tracee, placement)
        except Rejected as rejected:
            raise Rejected(Reason.SHADOW_INCONCLUSIVE, str(rejected)) from rejected
        yield shadow


@contextmanager
def _copy_of_program(process: Process, code: LoopCode, given_up: Callable[[], bool]) -> Iterator[Shadow]:
    """A shadow of the program as it is by now, at the header of the loop."""
    from runtime.trial.trial import reach

    with process.shadows(1, given_up, code.ranges) as (shadow,):
        reach(shadow, code.loop.header)
        yield shadow


def _race(process: Process, shadow: Shadow, versions: tuple[CompiledRegion, ...], code: LoopCode, on: bool,
          others: list[Placement]) -> _Validated:
    """``shadow`` stands at the header, with the pages of the versions. ``on``: see ``come_to_entry``; ``others``: where
    installed versions keep their memory."""
    from runtime.trial.shadow import copies_of
    from runtime.trial.trial import Measurement, come_to_entry, race

    values = come_to_entry(versions[0], shadow, on)
    kept = 0 if process.after_trial is None else 1  # the shadow itself runs the original
    with copies_of(shadow, len(versions) + kept) as copies:
        results = race(shadow, tuple(zip(copies[kept:], versions, strict=True)), values,
                       max(trial_iterations(v.plan) for v in versions), code.exits, exact=process.options.fp == "exact",
                       others=others)
        if process.after_trial is not None:
            process.after_trial(Trial(code, copies[0], versions, tuple(results)))
    finished = [(v, r) for v, r in zip(versions, results, strict=True) if isinstance(r, Measurement)]
    if not finished:
        raise next(r for r in results if isinstance(r, Rejected))
    return min(finished, key=lambda f: f[1].version * (1.0 if f[0] is versions[0] else CLEARLY))


def trial_iterations(plan: NestPlan) -> int:
    """Outer iterations of a trial: one full register tile and a ragged one, whichever dimension is patched."""
    return max(p.trial_iterations for p in plan.parts)
