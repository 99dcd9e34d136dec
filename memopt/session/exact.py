"""``memopt profile --exact``: everything a program executes is counted, and becomes a file of ``memopt.store``.

Invariant: what fails here leaves the program running, and its end is memopt's end.
"""

from __future__ import annotations

import os
import shlex
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from memopt import __version__
from memopt.console import say, say_internal
from memopt.options import Options
from memopt.session.images import Images, Place
from runtime import launch as launching
from runtime.identify import identify
from runtime.jobcontrol import Exited, exit_value
from runtime.launch import launch, release_inherited_files
from runtime.recording.recorder import Recorder

if TYPE_CHECKING:
    from memopt.session.memory import MemoryWatch


def record(options: Options) -> int:
    """Exit code of the program, or minus the signal it died by. Raises ``CannotRun``."""
    executable = identify(options.arguments[0], os.environ.get("PATH"))
    recorders: list[Recorder] = []
    watch: MemoryWatch | None = None
    if options.memory:
        from memopt.session.memory import MemoryWatch

        watch = MemoryWatch()

    def prepare(_: int) -> None:
        supervisor = launching.supervised()
        assert supervisor is not None
        recorder = Recorder(supervisor, options.elide, watch)
        if executable.note is None:
            recorder.seize()
        recorders.append(recorder)

    began, started = datetime.now(UTC), time.monotonic()
    target = launch(executable, options.arguments, prepare=prepare)
    release_inherited_files()
    (recorder,) = recorders
    recorder.run()
    outcome = target.supervisor.outcome
    assert outcome is not None
    if executable.note is not None:
        say(str(executable.note))
    else:
        try:
            ended = f"exit {outcome.code}" if isinstance(outcome, Exited) else f"signal {outcome.signal}"
            _write(options, recorder, watch, began, time.monotonic() - started, ended)
        except Exception as error:  # noqa: BLE001 - the program's end must still become memopt's
            say_internal("profile", error)
    return exit_value(outcome)


def _write(options: Options, recorder: Recorder, watch: MemoryWatch | None, began: datetime, seconds: float,
           ended: str) -> None:
    from memopt.machine.detect import detect
    from memopt.session.counts import write_counts
    from memopt.store.schema import StoreError, create

    path = options.profile
    assert path is not None
    try:
        connection = create(path)
    except StoreError as error:
        say(str(error))
        return
    connection.execute("INSERT INTO run VALUES (?, ?, ?, ?, ?, ?)", (
        __version__, shlex.join(options.arguments), detect().model, began.isoformat(timespec="seconds"), seconds,
        ended))
    places = {Place(t.mapping.start, t.mapping.end, t.mapping.path, t.bias) for t in recorder.texts}
    images = Images(recorder.pid, places, os.path.realpath(recorder.program))
    met: dict[str, set[int]] = {}
    for item in recorder.counted:
        met.setdefault(item.text.mapping.path, set()).add(item.unit.graph.entry - item.text.bias)
    written = write_counts(connection, recorder.counted, images.write_structure(connection, met))
    seen = () if watch is None else watch.write(connection, written)
    connection.close()
    if not options.quiet:
        notes = (f"{text} ({count} times)" if count > 1 else text for text, count in recorder.notes.items())
        say("\n".join((*notes, *seen,
                       f"{path}: {written.instructions:,} instructions in {len(written.contexts):,} calling contexts",
                       f"next: memopt query {shlex.quote(path)} tree")))
