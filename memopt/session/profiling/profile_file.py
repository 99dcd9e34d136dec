"""The database file of a profile, with its first rows: the command, its end, the machine and its caches.

In: ``Options.profile``, times and outcome of the run. Out: a connection for the rows that follow.
"""

from __future__ import annotations

import shlex
import sqlite3
from datetime import datetime

from memopt import __version__
from memopt.console import say
from memopt.options import Options
from runtime.launch.jobcontrol import Exited, Signaled


def create_file(options: Options, began: datetime, seconds: float,
                outcome: Exited | Signaled) -> sqlite3.Connection | None:
    """Create the file; None where that is not possible, after a line for the user. ``seconds``: of the program's run.
    """
    from memopt.machine.detect import detect
    from memopt.store.schema import StoreError, create

    assert options.profile is not None
    try:
        connection = create(options.profile)
    except StoreError as error:
        say(str(error))
        return None
    machine = detect()
    ended = f"exit {outcome.code}" if isinstance(outcome, Exited) else f"signal {outcome.signal}"
    connection.execute("INSERT INTO run VALUES (?, ?, ?, ?, ?, ?)", (
        __version__, shlex.join(options.arguments), machine.model, began.isoformat(timespec="seconds"), seconds,
        ended))
    connection.executemany("INSERT INTO cache VALUES (?, ?, ?)", (
        (cache.level, cache.name, cache.size) for cache in machine.levels))
    return connection
