"""Lets a fault strike memopt and says what became of the program: ``python -m tests.support.orphan FAULT FOLDER N``.

Runs tests/programs/until_told.c (built as FOLDER/program) under ``memopt exec`` with ``MEMOPT_FAULT=FAULT`` as the
reaper of whatever memopt leaves behind; prints one JSON object, see ``Verdict``. A process of its own, so that every
child it has or inherits belongs to this one run.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.told import await_idle

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE = 300.0  # seconds until something that must come about counts as missing


@dataclass(frozen=True)
class Verdict:
    """``memopt``: its exit value (-9: killed by the fault). ``untouched``: some time after that the program was neither
    stopped nor traced. ``strays``: processes left beside it, as "pid state". ``program``: its own exit value."""

    memopt: int
    untouched: bool
    strays: list[str]
    program: int | None
    stdout: str
    stderr: str


def judge(fault: str, folder: Path, size: str) -> Verdict:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    environment = {**os.environ, "MEMOPT_FAULT": fault}
    with open(folder / "stdout", "wb") as stdout, open(folder / "stderr", "wb") as stderr:
        memopt = subprocess.Popen([sys.executable, "-m", "memopt", "exec", str(folder / "program"), size],
                                  stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=environment)
    program = _program(folder)
    await_idle(memopt, program, lambda: b"internal error" in (folder / "stderr").read_bytes())
    if memopt.poll() is None:  # the fault has not struck yet, or never will
        os.kill(program, signal.SIGUSR1)
    code = memopt.wait(_PATIENCE)
    running = _exists(program) and _state(program) != "Z"
    untouched = not running or _within(lambda: _state(program) not in "tT" and _tracer(program) == "0")
    _within(lambda: not _strays(program))
    strays = _strays(program)
    ended: int | None = None
    if running:
        os.kill(program, signal.SIGUSR1)
    if _within(lambda: not _exists(program) or _state(program) == "Z") and _exists(program):
        ended = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    for stray in (*strays, *([] if ended is not None else [f"{program}"])):
        try:
            os.kill(int(stray.split()[0]), signal.SIGKILL)
        except ProcessLookupError:
            continue
    return Verdict(code, untouched, strays, ended, (folder / "stdout").read_text(), (folder / "stderr").read_text())


def _within(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def _program(folder: Path) -> int:
    ready: list[int] = []

    def look() -> bool:
        found = re.search(r"^ready (\d+)$", (folder / "stderr").read_text(), re.MULTILINE)
        ready.extend([int(found.group(1))] if found else [])
        return bool(ready)

    if not _within(look):
        raise SystemExit(f"the program did not start: {(folder / 'stderr').read_text()}")
    return ready[0]


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def _tracer(pid: int) -> str:
    found = re.search(r"^TracerPid:\s*(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return found.group(1) if found else "?"


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _strays(program: int) -> list[str]:
    """What else descends from this process now; the dead among those it inherited are collected first."""
    for child in _children(os.getpid()):
        if child != program and _state(child) == "Z":
            os.waitpid(child, os.WNOHANG)
    found = [child for child in _children(os.getpid()) if child != program] + _children(program)
    return [f"{pid} {_state(pid)}" for pid in found]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(judge(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))))
