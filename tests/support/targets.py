"""Processes to attach to: the worker program, as a child of the test or as somebody else's child."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.support.waiting import PATIENCE

_SOURCE = Path(__file__).with_name("worker.c")
_DIRECTORY = tempfile.TemporaryDirectory(prefix="memopt-worker-")
RIGHT = "right children=0 wait=-1"
EXIT_CODE = 7


@cache
def build(*flags: str) -> str:
    """The worker compiled with gcc -O1 and ``flags``; its path."""
    path = os.path.join(_DIRECTORY.name, "worker" + "".join(flags).replace("/", "_"))
    subprocess.run(["gcc", "-O1", "-w", "-pthread", *flags, "-o", path, str(_SOURCE)], check=True)
    return path


@cache
def symbols(path: str) -> dict[str, int]:
    lines = subprocess.run(["nm", path], check=True, capture_output=True, text=True).stdout.splitlines()
    return {fields[2]: int(fields[0], 16) for fields in map(str.split, lines) if len(fields) == 3}


class Worker:
    """A running worker. ``foreign``: its parent is a shell, not this process. A context manager that kills it."""

    def __init__(self, *arguments: str, flags: tuple[str, ...] = ("-no-pie",), foreign: bool = False) -> None:
        self.path = build(*flags)
        command = [self.path, *arguments]
        if foreign:
            command = ["/bin/sh", "-c", '"$@" & echo $!; wait $!; echo status $?', "sh", *command]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline().strip() for _ in range(2 if foreign else 1)]
        assert "ready" in lines
        self.pid = self.process.pid
        if foreign:
            self.pid = int(next(line for line in lines if line != "ready"))
        self.foreign = foreign

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in (self.pid, self.process.pid):
            if self.process.poll() is None:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()  # not read to its end: a shadow left over by a failed test may hold the other side

    def address(self, symbol: str) -> int:
        """The run-time address; only for programs that are not position-independent."""
        return symbols(self.path)[symbol]

    def finish(self) -> str:
        """Tell it to end; what it printed since "ready", without its exit code, which is checked."""
        os.kill(self.pid, signal.SIGUSR1)
        output, _ = self.process.communicate(timeout=PATIENCE)
        if self.foreign:
            output, _, status = output.rpartition("status ")
            assert int(status) == EXIT_CODE
        else:
            assert self.process.returncode == EXIT_CODE
        return str(output).strip()

    def children(self) -> list[str]:
        return children_of(self.pid)

    def breathe(self, seconds: float = 0.02) -> None:
        """Let it run for a moment."""
        time.sleep(seconds)


def children_of(pid: int) -> list[str]:
    """Number, state and name of each child of a process, zombies too."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            number, _, rest = path.read_text().partition(" (")
            name, _, fields = rest.rpartition(") ")
            state, parent, *_ = fields.split()
            if int(parent) == pid:
                found.append(f"{number} {state} {name}")
    return found
