"""What ``memopt exec``, ``profile`` and ``attach`` begin with: start the program, then choose the driver for it.

Invariant: a program that is to be improved is started before anything but the launcher is imported.
"""

from __future__ import annotations

import gc
import os

from runtime.launch.identify import identify
from runtime.launch.launch import launch, release_inherited_files
from runtime.sampling.perf_events import Events

TYPE_CHECKING = False  # as in typing, which takes five milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.options import Options
    from memopt.session.watching.launched import Session
    from runtime.launch.launch import Target
    from runtime.sampling.samples import Sample


_COLLECTIONS = (20_000, 20, 20)  # the default ones take a twelfth of a decision, a fifth of an exact profile


def start(arguments: Sequence[str], *, children: bool = False) -> tuple[Target, Events]:
    """The program, before anything else is made ready, and what samples it and, ``children``, what it starts, and tells
    what becomes of these processes. Raises ``CannotRun``."""
    events: list[Events] = []
    target = launch(identify(arguments[0], os.environ.get("PATH")), arguments,
                    prepare=lambda pid: events.append(Events(pid, on_exec=True, children=children, news=children)))
    release_inherited_files()
    return target, events[0]


def run(options: Options, started: tuple[Target, Events] | None = None) -> int:
    """``memopt exec`` and ``memopt profile``: exit code of the program, or minus the signal it died by. ``started``:
    it was started already. Raises ``CannotRun``."""
    gc.set_threshold(*_COLLECTIONS)
    if options.exact or options.paths:
        from memopt.session.profiling.exact import record

        return record(options)
    if options.profile is None:
        target, events = started or start(options.arguments)
        from memopt.session.watching.launched import Session
    else:  # nothing is to be missed, and the program may wait
        from memopt.session.profiling.sampled import Profiling
        target, events = start(options.arguments, children=True)

    from runtime.sampling.samples import sampler_of

    sessions: list[Session] = []

    def look() -> Sequence[Sample]:
        return sessions[0].look() if sessions else ()

    sampler = sampler_of(events, look)
    session = Session(options, target, sampler) if options.profile is None else Profiling(options, target, sampler)
    sessions.append(session)
    note = target.executable.note
    return session.watch() if note is None else session.leave_alone(note)


def attach(options: Options) -> int:
    """``memopt attach``; see memopt.session.watching.attached."""
    gc.set_threshold(*_COLLECTIONS)
    from memopt.session.watching import attached

    return attached.attach(options)
