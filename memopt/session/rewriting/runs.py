"""Runs of the original and of the new file: what they print, how they end, and whether the new code ran.

In: a command line, optionally the file that stands for the program or is preloaded in place of a library. Out: a
``Run``. The program's standard input is empty; its messages go nowhere. The counters of the versions are read from the
running process a few times a second, because they are gone when it has ended.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memopt.ir.reasons import Rejected

if TYPE_CHECKING:
    from memopt.elf.rewriting.record import Record

_LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Run:
    """``exit_value``: the exit code, or minus the signal. ``seconds``: of processor time, of the program alone.
    ``runs``: of each version, by its place in the record; empty where they were not looked at."""

    exit_value: int
    output: bytes
    seconds: float
    runs: tuple[int, ...] = ()


def run(arguments: Sequence[str], *, executable: str | None = None, environment: Mapping[str, str] | None = None,
        watched: tuple[str, Record] | None = None) -> Run:
    """Run ``arguments``. ``executable``: the file to execute, where that is not the one that argv[0] names.
    ``environment``: variables that are added. ``watched``: a rewritten file and its record. Raises ``OSError``."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(list(arguments), executable=executable, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
        counted: tuple[int, ...] = ()
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        while not ended:
            if watched is not None:
                counted = _counters(process.pid, *watched) or counted
            time.sleep(_LOOK_SECONDS)
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return Run(process.returncode, output.read(), usage.ru_utime + usage.ru_stime, counted)


def _counters(pid: int, file: str, record: Record) -> tuple[int, ...]:
    from memopt.elf.image import ElfError, Image
    from memopt.session.rewriting.inspection import counters

    try:
        with Image(file) as image:
            return tuple(found.runs for found in counters(image, record, file, pid))
    except (ElfError, OSError, Rejected):  # it has not mapped the file yet, or does not any more
        return ()
