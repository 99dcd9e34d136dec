"""Running a program natively and under memopt, and what came of it."""

from __future__ import annotations

import compileall
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import memopt
import passes
import runtime

_NEST_SECONDS = re.compile(r"^seconds ([0-9.]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Execution:
    """``seconds``: from before the start to after the end, as a user's clock shows it. ``exit_code`` is negative
    for a signal, None when the time was up. ``report``: what ``--json`` wrote, None without it."""

    seconds: float
    exit_code: int | None
    stdout: bytes
    stderr: str
    report: dict[str, Any] | None = None

    @property
    def nest_seconds(self) -> float | None:
        """What the kernel measured around its nest."""
        found = _NEST_SECONDS.search(self.stderr)
        return float(found.group(1)) if found else None

    @property
    def steps(self) -> list[float]:
        """Seconds of each repetition, for a kernel that prints each."""
        return [float(x) for x in _NEST_SECONDS.findall(self.stderr)]

    @property
    def replaced(self) -> list[dict[str, Any]]:
        """The loops whose replacement ran, hottest first."""
        loops = self.report["loops"] if self.report else []
        return [x for x in loops if x["outcome"] == "replaced" and x.get("iterations_run")]

    def reason(self) -> str:
        """Why nothing was replaced, in memopt's words; the last ``memopt:`` line when there is no report."""
        loops = self.report["loops"] if self.report else []
        if loops:
            first = loops[0]
            if first["outcome"] == "replaced":
                return "installed, but never entered"
            return str(first["reason"]) + (f" ({first['detail']})" if first.get("detail") else "")
        lines = [x for x in self.stderr.splitlines() if x.startswith("memopt:")]
        return lines[-1].removeprefix("memopt: ") if lines else "no report"

    def same_result(self, other: Execution) -> bool:
        return self.stdout == other.stdout and self.exit_code == other.exit_code


def run(command: Sequence[str], timeout: float) -> Execution:
    """Runs ``command`` with its output in files, so that no reader of a pipe competes for the processor."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        start = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                   start_new_session=True)
        up = threading.Event()

        def end() -> None:
            up.set()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the program would outlive memopt

        watchdog = threading.Timer(timeout, end)
        watchdog.start()
        code = process.wait()  # with a timeout of its own it would look only every 50 ms
        seconds = time.monotonic() - start
        watchdog.cancel()
        watchdog.join()
        stdout.seek(0)
        stderr.seek(0)
        return Execution(seconds, None if up.is_set() else code, stdout.read(),
                         stderr.read().decode("utf-8", "replace"))


def run_under_memopt(command: Sequence[str], timeout: float, options: Sequence[str] = ()) -> Execution:
    """``memopt exec OPTIONS --json ... -- command``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        execution = run([*memopt_command(), "exec", *options, "--json", str(path), "--", *command], timeout)
        try:
            report = json.loads(path.read_text())
        except (OSError, ValueError):
            report = None
    return Execution(execution.seconds, execution.exit_code, execution.stdout, execution.stderr, report)


def ask(path: Path, question: str) -> list[dict[str, int | str]]:
    """Rows that ``memopt query`` has for a file; none where it fails."""
    answer = run([*memopt_command(), "query", "--format", "json", str(path), question], 600.0)
    return list(json.loads(answer.stdout)) if answer.exit_code == 0 else []


def memopt_command() -> list[str]:
    """The command a user types: the script of this environment, else the module of this checkout."""
    _compile()
    script = Path(sys.executable).parent / "memopt"
    return [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "memopt"]


@cache
def _compile() -> None:
    """Byte code for the modules of this checkout, which an installation has: where the environment forbids to write
    any (PYTHONDONTWRITEBYTECODE), every run of a changed checkout would compile for a fifth of a second."""
    for package in (memopt, passes, runtime):
        compileall.compile_dir(package.__path__[0], quiet=2)


def median(values: Sequence[float | None]) -> float | None:
    """The median of what was measured, None when nothing was."""
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None
