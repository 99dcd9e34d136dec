"""``memopt exec`` on tests/programs/until_told.c, which runs until it is told to end: phases can be waited for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.execution import memopt_command

PATIENCE = 90.0
EXIT_CODE = 3
_IDLE_SECONDS, _IDLE_TICKS = 1.5, 15


def await_that(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    """AssertionError with ``what()`` when ``condition`` does not come to hold."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"in vain: {what()}"
        time.sleep(0.005)


def has_new_code(pid: int) -> bool:
    """Whether memopt has installed something in ``pid``: only then there is a perf map."""
    return Path(f"/proc/{pid}").exists() and Path(f"/tmp/perf-{pid}.map").exists()


def await_idle(memopt: subprocess.Popen[bytes], enough: Callable[[], bool] = lambda: False) -> None:
    """Until memopt has ended, or uses so little processor time that it must have done all it can, or ``enough()``."""
    end = time.monotonic() + PATIENCE
    since, used = time.monotonic(), _ticks(memopt.pid)
    while memopt.poll() is None and not enough() and time.monotonic() < end:
        time.sleep(0.01)
        if time.monotonic() - since > _IDLE_SECONDS:
            if _ticks(memopt.pid) - used <= _IDLE_TICKS:
                return
            since, used = time.monotonic(), _ticks(memopt.pid)


def _ticks(pid: int) -> int:
    """Processor time used, in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


class Told:
    """The program and memopt above it. A context manager that leaves nothing running."""

    def __init__(self, program: Path, folder: Path, *options: str, arguments: Sequence[str] = ("400",),
                 environment: Mapping[str, str] | None = None, command: Sequence[str] = ()) -> None:
        """``command``: what stands before the program instead of ``memopt exec OPTIONS --``."""
        self._stdout, self._stderr = folder / "told.out", folder / "told.err"
        words = [*(command or [*memopt_command(), "exec", *options, "--"]), str(program), *arguments]
        with open(self._stdout, "wb") as stdout, open(self._stderr, "wb") as stderr:
            self.memopt = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                           env={**os.environ, **(environment or {})})
        self.await_stderr(r"(?m)^ready \d+$")
        self.pid = int(re.findall(r"(?m)^ready (\d+)$", self.stderr)[0])

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in (self.pid, self.memopt.pid):
            if self.memopt.poll() is None:
                os.kill(pid, signal.SIGKILL)
        self.memopt.wait()

    @property
    def stdout(self) -> str:
        return self._stdout.read_text()

    @property
    def stderr(self) -> str:
        return self._stderr.read_text()

    @property
    def words(self) -> list[str]:
        """memopt's own lines on standard error."""
        return [line for line in self.stderr.splitlines() if line.startswith("memopt: ")]

    def await_stderr(self, pattern: str) -> None:
        await_that(lambda: re.search(pattern, self.stderr) is not None, lambda: f"{pattern} in {self.stderr}")

    def await_replaced(self) -> None:
        await_that(lambda: has_new_code(self.pid), lambda: f"new code in the program; {self.stderr}")

    def await_idle(self) -> None:
        """Until memopt has looked at everything that is hot."""
        await_idle(self.memopt)

    def finish(self) -> tuple[int, str]:
        """Tell the program to end; memopt's exit code and the program's output."""
        os.kill(self.pid, signal.SIGUSR1)
        return self.memopt.wait(PATIENCE), self.stdout


def native_output(program: Path, *arguments: str) -> str:
    """What the program prints, whenever it is told to end."""
    command = [program, *(arguments or ("400",))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    await_that(lambda: Path(f"/proc/{process.pid}/exe").resolve() == program.resolve(), lambda: "the program runs")
    time.sleep(0.2)
    process.send_signal(signal.SIGUSR1)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == EXIT_CODE
    return output
