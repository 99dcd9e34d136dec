"""Runs a program natively or under memopt, and returns wall time, exit code, output and memopt's JSON report."""

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
    """The result of one run."""

    seconds: float  # wall time from before the start to after the end
    exit_code: int | None  # negative: ended by that signal; None: ended because the time was up
    stdout: bytes
    stderr: str
    report: dict[str, Any] | None = None  # memopt's JSON report; None without one

    @property
    def nest_seconds(self) -> float | None:
        """Seconds of the nest, which the kernel measures and prints itself."""
        found = _NEST_SECONDS.search(self.stderr)
        return float(found.group(1)) if found else None

    @property
    def steps(self) -> list[float]:
        """Seconds of each repetition, for a kernel that prints them."""
        return [float(x) for x in _NEST_SECONDS.findall(self.stderr)]

    @property
    def replaced(self) -> list[dict[str, Any]]:
        """The loops in the report whose new code ran, hottest first."""
        loops = self.report["loops"] if self.report else []
        return [x for x in loops if x["outcome"] == "replaced" and x.get("iterations_run")]

    def reason(self) -> str:
        """Why nothing was replaced, by memopt's report; without a report the last line that begins with ``memopt:``."""
        loops = self.report["loops"] if self.report else []
        if loops:
            first = loops[0]
            if first["outcome"] == "replaced":
                return "installed, but never entered"
            return str(first["reason"]) + (f" ({first['detail']})" if first.get("detail") else "")
        lines = [x for x in self.stderr.splitlines() if x.startswith("memopt:")]
        return lines[-1].removeprefix("memopt: ") if lines else "no report"

    def same_result(self, other: Execution) -> bool:
        """Whether standard output and exit code are the same."""
        return self.stdout == other.stdout and self.exit_code == other.exit_code


def run(command: Sequence[str], timeout: float) -> Execution:
    """Runs ``command`` for at most ``timeout`` seconds. Its output goes to files, so that no reader of a pipe competes
    for the processor."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        start = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                   start_new_session=True)
        up = threading.Event()

        def end() -> None:
            up.set()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the whole group: the program outlives memopt

        watchdog = threading.Timer(timeout, end)
        watchdog.start()
        code = process.wait()  # without a timeout: with one, wait() polls every 50 ms
        seconds = time.monotonic() - start
        watchdog.cancel()
        watchdog.join()
        stdout.seek(0)
        stderr.seek(0)
        return Execution(seconds, None if up.is_set() else code, stdout.read(),
                         stderr.read().decode("utf-8", "replace"))


def run_under_memopt(command: Sequence[str], timeout: float, options: Sequence[str] = (), *, cache: bool = False
                     ) -> Execution:
    """Runs ``memopt exec OPTIONS --json ... -- COMMAND`` for at most ``timeout`` seconds. Without ``cache`` it starts
    from nothing: plans of earlier runs are not used."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        chosen = [*options, *([] if cache else ["--no-cache"]), "--json", str(path)]
        execution = run([*memopt_command(), "exec", *chosen, "--", *command], timeout)
        try:
            report = json.loads(path.read_text())
        except (OSError, ValueError):
            report = None
    return Execution(execution.seconds, execution.exit_code, execution.stdout, execution.stderr, report)


def ask(path: Path, question: str) -> list[dict[str, int | str]]:
    """The rows that ``memopt query`` returns for a profile; none if it fails."""
    answer = run([*memopt_command(), "query", "--format", "json", str(path), question], 600.0)
    return list(json.loads(answer.stdout)) if answer.exit_code == 0 else []


def memopt_command() -> list[str]:
    """The command ``memopt``: the script of this environment; without one, the module of this checkout."""
    _compile()
    script = Path(sys.executable).parent / "memopt"
    return [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "memopt"]


@cache
def _compile() -> None:
    """Compiles the modules of this checkout to byte code, as an installation would. If PYTHONDONTWRITEBYTECODE is set,
    every run would otherwise spend a fifth of a second on compiling changed modules."""
    for package in (memopt, passes, runtime):
        compileall.compile_dir(package.__path__[0], quiet=2)


def median(values: Sequence[float | None]) -> float | None:
    """The median of the values that are not None; None without any."""
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None
