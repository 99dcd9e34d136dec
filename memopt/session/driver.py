"""The start of ``memopt exec``, ``profile`` and ``attach``: starts the program, then chooses the session that looks
after it.

Example: for ``memopt exec -- ./dgemm`` the program runs before ``memopt.session.watching`` is imported. In:
``Options``. Out: the exit code. A program that is to be improved is started before anything but the launcher is
imported: so this module imports nothing else at its top.
"""

from __future__ import annotations

import gc
import os
import resource

from runtime.launch.identify import identify
from runtime.launch.launch import launch_prepared, release_inherited_files
from runtime.sampling.perf_events import Events

TYPE_CHECKING = False  # as in typing, which takes five milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.ir.isa import Isa
    from memopt.options import FloatingPoint, Options
    from memopt.session.watching.launched import Session
    from memopt.snapshots.form import Snapshot
    from runtime.launch.launch import Target
    from runtime.sampling.samples import Sample


_ADDRESS_SPACE = 6 << 30  # bytes, for a replay; its parts map 2 GiB
_COPIES = 8  # of the pages of a snapshot that a replay holds at a time, at most
_COLLECTIONS = (20_000, 20, 20)  # gc's defaults take a twelfth of the time of a decision, a fifth of an exact profile's


def start(arguments: Sequence[str], *, children: bool = False) -> tuple[Target, Events]:
    """Start the program; it is sampled from its first instruction on. ``children``: the processes that it starts are
    sampled as well, and their starts and ends are reported. Raises ``CannotRun``."""
    target, events = launch_prepared(identify(arguments[0], os.environ.get("PATH")), arguments,
                                     lambda pid: Events(pid, on_exec=True, children=children, news=children))
    release_inherited_files()
    return target, events


def run(options: Options, started: tuple[Target, Events] | None = None) -> int:
    """``memopt exec`` and ``memopt profile``: the exit code of the program, or minus the signal it died by.

    ``started``: the program, where it runs already. Raises ``CannotRun``."""
    gc.set_threshold(*_COLLECTIONS)
    if options.mode not in ("sampled", "affine"):
        from memopt.session.profiling.exact import record

        return record(options)
    if options.profile is None:
        target, events = started or start(options.arguments)
        from memopt.session.watching.launched import Session
    else:  # no event may be missed, and the program may wait
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


def replay(snapshot: Snapshot, plan: str | None, isa: Isa | None, fp: FloatingPoint,
           seconds: float) -> Iterator[tuple[bool, str]]:
    """``memopt replay``: lines for the user, each with whether all is well so far as it says. ``plan``: its text.

    Raises ``SnapshotError``."""
    gc.set_threshold(*_COLLECTIONS)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    own = _ADDRESS_SPACE + _COPIES * snapshot.size  # anybody may have written the file
    resource.setrlimit(resource.RLIMIT_AS, (own if most == resource.RLIM_INFINITY else min(own, most), most))
    from memopt.ir.cursor import ParseError
    from memopt.ir.parse import parse_plan
    from memopt.ir.plan import NestPlan
    from memopt.session.snapshotting.replaying import Asked
    from memopt.session.snapshotting.replaying import replay as replayed
    from memopt.snapshots.form import SnapshotError

    try:
        found = None if plan is None else parse_plan(plan)
    except ParseError as error:
        raise SnapshotError(f"the plan cannot be read: {error}") from error
    whole = found if found is None or isinstance(found, NestPlan) else NestPlan((found,))
    yield from replayed(snapshot, Asked(isa, whole, fp, seconds))


def attach(options: Options) -> int:
    """``memopt attach``: the exit code: 0, or 1 if the process could not be watched."""
    gc.set_threshold(*_COLLECTIONS)
    from memopt.session.watching import attached

    return attached.attach(options)
