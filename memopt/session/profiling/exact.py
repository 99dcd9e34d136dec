"""``memopt profile --exact``: everything a program executes is counted, and becomes a file of ``memopt.store``.

Invariant: what fails here leaves the program running, and its end is memopt's end.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from memopt.console import Progress, say, say_internal
from memopt.options import Options
from memopt.session.profiling.images import MappedCode
from memopt.session.profiling.profile_file import create_file
from memopt.session.profiling.static_rows import write_structure
from memopt.traces.core.sources import waits_for_compiler
from runtime.launch import launch as launching
from runtime.launch.identify import CannotRun, identify
from runtime.launch.jobcontrol import exit_value
from runtime.launch.launch import launch, release_inherited_files
from runtime.recording.escapes import Escapes
from runtime.recording.intermittent import Intermittent
from runtime.recording.recorder import Recorder, Watcher
from runtime.recording.translation.trace_probes import Recording, Told

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memopt.session.profiling.memory_rows import MemoryWatch
    from memopt.session.profiling.path_rows import PathWatch
    from memopt.session.profiling.trace_file import TraceWatch
    from memopt.session.profiling.value_rows import ValueWatch


def record(options: Options) -> int:
    """Exit code of the program, or minus the signal it died by. Raises ``CannotRun``."""
    executable = identify(options.arguments[0], os.environ.get("PATH"))
    if (options.memory or options.paths or options.values) and not options.quiet and waits_for_compiler():
        say("the first profile of this kind takes half a minute more: what reads traces is compiled now")
    recorders: list[Recorder] = []
    paths: PathWatch | None = None
    if options.paths:
        from memopt.session.profiling.path_rows import PathWatch, intermittent

        paths = PathWatch(options.exact)
    tracing: TraceWatch | None = None
    watch = _watch(options)
    watchers: list[Watcher] = [] if watch is None else [watch]
    if options.trace is not None:
        from memopt.session.profiling.trace_file import TraceWatch, Watches

        try:
            tracing = TraceWatch(options.trace)
        except OSError as error:
            raise CannotRun(1, f"{options.trace}: {error.strerror}; name a file that can be written") from error
        watchers = [Watches(*watchers, tracing)]

    def prepare(_: int) -> None:
        supervisor = launching.supervised()
        assert supervisor is not None
        recorder = Recorder(supervisor, _recording(options), watchers[0] if watchers else None) if (
            paths is None) else intermittent(options, supervisor, paths)
        if executable.note is None:
            if paths is None:
                recorder.escapes = Escapes(recorder.pid)
            recorder.seize()
        recorders.append(recorder)

    began, started = datetime.now(UTC), time.monotonic()
    target = launch(executable, options.arguments, prepare=prepare)
    release_inherited_files()
    (recorder,) = recorders
    progress = Progress(not options.quiet)
    recorder.progress = progress.show if progress.wanted else None
    recorder.run()
    progress.show("what was seen is written down")
    outcome = target.supervisor.outcome
    assert outcome is not None
    if executable.note is not None:
        say(str(executable.note))
    else:
        try:
            connection = create_file(options, began, time.monotonic() - started, outcome)
            if connection is not None:
                if paths is not None:
                    assert isinstance(recorder, Intermittent)
                    _write_paths(options, recorder, paths, connection)
                else:
                    _write(options, recorder, watch, connection)
            if tracing is not None:
                tracing.close(recorder.texts)
                if tracing.error:
                    say(tracing.error)
        except Exception as error:  # noqa: BLE001 - the program's end must still become memopt's
            say_internal("profile", error)
    progress.clear()
    return exit_value(outcome)


def _watch(options: Options) -> MemoryWatch | ValueWatch | None:
    if options.memory:
        from memopt.session.profiling.memory_rows import MemoryWatch

        return MemoryWatch(options.dependences, options.reuse)
    if options.values:
        from memopt.session.profiling.value_rows import ValueWatch

        return ValueWatch()
    return None


def _recording(options: Options) -> Recording:
    accesses = options.memory or options.trace is not None
    return Recording(Told.VALUES if options.values else Told.ACCESSES if accesses else Told.NOTHING, options.elide,
                     allocations=options.memory and not options.dependences)


def _write(options: Options, recorder: Recorder, watch: MemoryWatch | ValueWatch | None,
           connection: sqlite3.Connection) -> None:
    from memopt.session.profiling.count_rows import Static, write_counts

    _write_threads(recorder, connection)
    met: dict[str, set[int]] = {}
    for item in recorder.counted:
        met.setdefault(item.text.mapping.path, set()).add(item.unit.graph.entry - item.text.bias)
    static = Static(connection, _write_structure(recorder, connection, met), recorder.made.texts)
    written = write_counts(connection, recorder.counted, static)
    seen: tuple[str, ...] = ()
    if watch is not None:
        seen = watch.write(connection, written, tuple(recorder.processes.values()))
    unseen = _write_escapes(recorder, connection)
    _close(options, recorder, connection, seen, "tree",
           f"{written.instructions:,} instructions in {sum(map(len, written.contexts.values())):,} calling contexts"
           f"{_in_processes(recorder)}{unseen}")


def _write_threads(recorder: Recorder, connection: sqlite3.Connection) -> None:
    connection.executemany("INSERT INTO thread VALUES (?, ?, ?, ?)", (
        (tid, process.pid, process.parent or None, os.path.realpath(process.program))
        for process in recorder.processes.values() for tid in process.threads))


def _write_escapes(recorder: Recorder, connection: sqlite3.Connection) -> str:
    """What is to be said of it."""
    escapes = recorder.escapes
    if escapes is None or not escapes.known or not escapes.samples:
        return ""
    connection.execute("INSERT INTO observation VALUES (?, ?)", (escapes.samples, escapes.outside))
    return f"; {100 * escapes.outside / escapes.samples:.1f} % of the time ran unobserved"


def _write_paths(options: Options, recorder: Intermittent, watch: PathWatch, connection: sqlite3.Connection) -> None:
    from memopt.session.profiling.count_rows import Static

    _write_threads(recorder, connection)
    texts = recorder.made.texts
    met: dict[str, set[int]] = {}
    for unit in recorder.made.units:
        text = texts[unit.number]
        met.setdefault(text.mapping.path, set()).add(unit.graph.entry - text.bias)
    numbers = _write_structure(recorder, connection, met)
    count, seen = watch.write(connection, Static(connection, numbers, texts), recorder)
    _close(options, recorder, connection, seen, "hot-paths",
           f"{count:,.0f} paths, {recorder.windows:,} windows of {recorder.inside_seconds:.1f} s in all"
           f"{_in_processes(recorder)}")


def _in_processes(recorder: Recorder) -> str:
    return f" of {len(recorder.processes):,} processes" if len(recorder.processes) > 1 else ""


def _write_structure(recorder: Recorder, connection: sqlite3.Connection, met: dict[str, set[int]]) -> dict[str, int]:
    places = {MappedCode(t.mapping.start, t.mapping.end, t.mapping.path, t.bias) for t in recorder.texts}
    return write_structure(connection, places, os.path.realpath(recorder.program), met)


def _close(options: Options, recorder: Recorder, connection: sqlite3.Connection, seen: Iterable[str], query: str,
           summary: str) -> None:
    connection.close()
    if not options.quiet:
        notes = (f"{text} ({count} times)" if count > 1 else text for text, count in recorder.notes.items())
        path = options.profile or ""
        say("\n".join((*notes, *seen, f"{path}: {summary}", f"next: memopt query {shlex.quote(path)} {query}")))
