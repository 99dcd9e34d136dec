"""``memopt profile --exact`` and modes like it: everything a program executes is counted, and written to a database.

Example: for ``for (i = 0; i < n; i++) s += f(i);`` the profile tells that ``f`` was called n times from this loop, and
how many instructions ran in it. In: options with another mode than "sampled" and "affine". Out: the database
(``memopt.store``), and the program's exit code. The program runs as copies of its code with probes in them
(``runtime.recording``). If something fails here, the program runs on; memopt ends when the program ends.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from memopt.console import Progress, say, say_internal
from memopt.options import Options
from memopt.session.profiling.images import MappedCode
from memopt.session.profiling.profile_file import create_file
from memopt.session.profiling.static_rows import write_structure
from memopt.traces.core.sources import waits_for_compiler
from runtime.launch import launch as launching
from runtime.launch.identify import CannotRun, identify
from runtime.launch.jobcontrol import exit_value
from runtime.launch.launch import launch_prepared, release_inherited_files
from runtime.recording.escapes import Escapes
from runtime.recording.intermittent import Intermittent
from runtime.recording.recorder import Recorder, Watcher
from runtime.recording.translation.trace_probes import Recording, Told

if TYPE_CHECKING:
    from memopt.session.profiling.count_rows import Written
    from memopt.session.profiling.trace_file import TraceWatch


class Watch(Watcher, Protocol):
    """A watcher of all threads, each by itself, whose findings go into the profile."""

    def write(self, connection: sqlite3.Connection, written: Written, recorder: Recorder) -> Sequence[str]:
        """Write the rows of what was found; lines for the user about it. ``written``: contexts and code that have their
        rows already."""


def record(options: Options) -> int:
    """Exit code of the program, or minus the signal it died by. Raises ``CannotRun``."""
    executable = identify(options.arguments[0], os.environ.get("PATH"))
    if options.mode != "exact" and not options.quiet and waits_for_compiler():
        say("the first profile of this kind takes half a minute more: what reads traces is compiled now")
    watch, trace = _watch(options), _trace_watch(options)

    def prepare(_: int) -> Recorder:
        recorder = _recorder(options, watch, trace)
        if executable.note is None:
            if options.mode != "paths":
                recorder.escapes = Escapes(recorder.pid)
            recorder.seize()
        return recorder

    began, started = datetime.now(UTC), time.monotonic()
    target, recorder = launch_prepared(executable, options.arguments, prepare)
    release_inherited_files()
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
                _write(options, recorder, watch, connection)
                recorder.made.keep()
            if trace is not None:
                trace.close(recorder.texts)
                if trace.error:
                    say(trace.error)
        except Exception as error:  # noqa: BLE001 - the program's end must still become memopt's
            say_internal("profile", error)
    progress.clear()
    return exit_value(outcome)


def _watch(options: Options) -> Watch | None:
    """The watcher for options that ask for more than execution counts, if there is one."""
    match options.mode:
        case "memory" | "dependences":
            from memopt.session.profiling.memory_rows import MemoryWatch

            return MemoryWatch(options.mode == "dependences", options.reuse)
        case "values":
            from memopt.session.profiling.value_rows import ValueWatch

            return ValueWatch()
        case "paths":
            from memopt.session.profiling.path_rows import PathWatch

            return PathWatch(beside=not options.unhook)
    return None


def _trace_watch(options: Options) -> TraceWatch | None:
    """The watcher that writes the trace to a file of its own. Raises ``CannotRun`` where that cannot be written."""
    if options.trace is None:
        return None
    from memopt.session.profiling.trace_file import TraceWatch

    try:
        return TraceWatch(options.trace)
    except OSError as error:
        raise CannotRun(1, f"{options.trace}: {error.strerror}; name a file that can be written") from error


def _recorder(options: Options, watch: Watch | None, trace: TraceWatch | None) -> Recorder:
    supervisor = launching.supervised()
    assert supervisor is not None
    if options.mode == "paths":
        from memopt.session.profiling.path_rows import PathWatch, intermittent

        assert isinstance(watch, PathWatch)
        return intermittent(options, supervisor, watch)
    watcher: Watcher | None = watch
    if trace is not None:
        from memopt.session.profiling.trace_file import Watches

        watcher = Watches(trace) if watch is None else Watches(watch, trace)
    accesses = options.mode in ("memory", "dependences") or trace is not None
    told = Told.VALUES if options.mode == "values" else Told.ACCESSES if accesses else Told.NOTHING
    return Recorder(supervisor, Recording(told, options.elide, allocations=options.mode == "memory"), watcher)


def _write(options: Options, recorder: Recorder, watch: Watch | None, connection: sqlite3.Connection) -> None:
    """All rows of the profile, and the lines for the user."""
    connection.executemany("INSERT INTO thread VALUES (?, ?, ?, ?)", (
        (number, process.number, process.parent or None, os.path.realpath(process.program))
        for process in recorder.processes.values() for number in process.threads))
    written = _write_code(recorder, connection)
    found = () if watch is None else watch.write(connection, written, recorder)
    if isinstance(recorder, Intermittent):
        paths, = connection.execute("SELECT total(count) FROM path").fetchone()
        query = "hot-paths"
        summary = f"{paths:,.0f} paths, {recorder.windows:,} windows of {recorder.inside_seconds:.1f} s in all"
    else:
        query, contexts = "tree", sum(len(set(of.values())) for of in written.contexts.values())
        summary = f"{written.instructions:,} instructions in {contexts:,} calling contexts"
    if len(recorder.processes) > 1:
        summary += f" of {len(recorder.processes):,} processes"
    summary += _write_escapes(recorder, connection)
    connection.close()
    if not options.quiet:
        notes = (f"{text} ({count} times)" if count > 1 else text for text, count in recorder.notes.items())
        path = options.profile or ""
        say("\n".join((*notes, *found, f"{path}: {summary}", f"next: memopt query {shlex.quote(path)} {query}")))


def _write_code(recorder: Recorder, connection: sqlite3.Connection) -> Written:
    """The rows of the code that ran, and of how often it did where that was counted."""
    from memopt.session.profiling.count_rows import Static, write_counts

    texts = recorder.made.texts
    windows = isinstance(recorder, Intermittent)
    counted = () if windows else recorder.counted
    ran = [(texts[unit.number], unit) for unit in recorder.made.units] if windows else [
        (item.text, item.unit) for item in counted]
    met: dict[str, set[int]] = {}
    for text, unit in ran:
        met.setdefault(text.mapping.path, set()).add(unit.graph.entry - text.bias)
    places = {MappedCode(t.mapping.start, t.mapping.end, t.mapping.path, t.bias) for t in recorder.texts}
    numbers = write_structure(connection, places, os.path.realpath(recorder.program), met)
    return write_counts(connection, counted, Static(connection, numbers, texts))


def _write_escapes(recorder: Recorder, connection: sqlite3.Connection) -> str:
    """The part of the time that ran unobserved, where it is known: its row, and its words for the user."""
    escapes = recorder.escapes
    if escapes is None or not escapes.known or not escapes.samples:
        return ""
    connection.execute("INSERT INTO observation VALUES (?, ?)", (escapes.samples, escapes.outside))
    return f"; {100 * escapes.outside / escapes.samples:.1f} % of the time ran unobserved"
