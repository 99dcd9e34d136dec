"""The driver: the only place, with the command line, where memopt, passes and runtime meet.

Invariant: a program that is to be improved is started before anything but the launcher is imported.
"""

from __future__ import annotations

import os

from runtime.identify import identify
from runtime.launch import launch, release_inherited_files

TYPE_CHECKING = False  # as in typing, which takes five milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.options import Options
    from memopt.session.watch import Session
    from runtime.launch import Target
    from runtime.sampling import Sample, Sampler


def start(arguments: Sequence[str]) -> Target:
    """The program that ``memopt exec`` runs, before anything else is made ready. Raises ``CannotRun``."""
    target = launch(identify(arguments[0], os.environ.get("PATH")), arguments)
    release_inherited_files()
    return target


def run(options: Options, target: Target | None = None) -> int:
    """``memopt exec`` and ``memopt profile``: exit code of the program, or minus the signal it died by. ``target``: it
    was started already. Raises ``CannotRun``."""
    if options.exact or options.paths:
        from memopt.session.exact import record

        return record(options)
    if options.profile is not None:
        return _profile(options)
    target = target or start(options.arguments)

    from memopt.session.watch import Session
    from runtime.sampling import open_sampler

    sessions: list[Session] = []

    def look() -> Sequence[Sample]:
        return sessions[0].look() if sessions else ()

    sessions.append(Session(options, target, open_sampler(target.pid, on_exec=False, interrupter=look)))
    return _watch(sessions[0])


def _profile(options: Options) -> int:
    """Nothing is to be missed, and the program may wait."""
    from memopt.session.profile import Profiling
    from runtime.sampling import open_sampler

    executable = identify(options.arguments[0], os.environ.get("PATH"))
    samplers: list[Sampler] = []
    sessions: list[Session] = []

    def look() -> Sequence[Sample]:
        return sessions[0].look() if sessions else ()

    target = launch(executable, options.arguments, prepare=lambda pid: samplers.append(
        open_sampler(pid, on_exec=True, interrupter=look, children=True)))
    release_inherited_files()
    sessions.append(Profiling(options, target, samplers[0]))
    return _watch(sessions[0])


def _watch(session: Session) -> int:
    note = session.target.executable.note
    return session.watch() if note is None else session.leave_alone(note)


def attach(options: Options) -> int:
    """``memopt attach``; see memopt.session.attached."""
    from memopt.session import attached

    return attached.attach(options)
