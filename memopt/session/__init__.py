"""The driver: the only place, with the command line, where memopt, passes and runtime meet.

Invariant: a program that is to be improved is started before anything but the launcher is imported.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from memopt.options import Options
from runtime.identify import identify
from runtime.launch import launch, release_inherited_files
from runtime.sampling import open_sampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.session.watch import Session
    from runtime.sampling import Sample, Sampler


def run(options: Options) -> int:
    """``memopt exec`` and ``memopt profile``: exit code of the program, or minus the signal it died by. Raises
    ``CannotRun``."""
    if options.exact or options.paths:
        from memopt.session.exact import record

        return record(options)
    executable = identify(options.arguments[0], os.environ.get("PATH"))
    if options.profile is not None:  # nothing is to be missed, and the program may wait
        from memopt.session import profile  # noqa: F401
    samplers: list[Sampler] = []
    sessions: list[Session] = []

    def look() -> Sequence[Sample]:
        return sessions[0].look() if sessions else ()

    target = launch(executable, options.arguments,
                    prepare=lambda pid: samplers.append(open_sampler(
                        pid, on_exec=True, interrupter=look, children=options.profile is not None)))
    release_inherited_files()

    from memopt.session.watch import Session

    if options.profile is None:
        session = Session(options, target, samplers[0])
    else:
        from memopt.session.profile import Profiling

        session = Profiling(options, target, samplers[0])
    sessions.append(session)
    return session.watch() if executable.note is None else session.leave_alone(executable.note)


def attach(options: Options) -> int:
    """``memopt attach``; see memopt.session.attached."""
    from memopt.session import attached

    return attached.attach(options)
