"""``memopt exec`` on tests/programs/until_told.c, which runs until it is told to end: phases can be waited for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.measure.execution import memopt_command
from tests.support.waiting import PATIENCE

EXIT_CODE = 3
_IDLE_SECONDS, _IDLE_USED, _IDLE_WANTED = 1.5, 0.15, 1.2


def await_that(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    """AssertionError with ``what()`` when ``condition`` does not come to hold."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"in vain: {what()}"
        time.sleep(0.005)


def has_new_code(pid: int) -> bool:
    """Whether memopt has installed something in ``pid``: only then there is a perf map."""
    return Path(f"/proc/{pid}").exists() and Path(f"/tmp/perf-{pid}.map").exists()


def await_idle(memopt: subprocess.Popen[bytes], program: int, enough: Callable[[], bool] = lambda: False) -> None:
    """Until memopt has ended, or must have done all it can, or ``enough()``.

    It has done all it can when for a while it hardly used a processor, nor only waited for one on a busy machine, nor
    for a copy of the program.
    """
    end = time.monotonic() + PATIENCE
    since, (used, wanted) = time.monotonic(), _processor_seconds(memopt.pid)
    while memopt.poll() is None and not enough() and time.monotonic() < end:
        time.sleep(0.01)
        passed = time.monotonic() - since
        if copies(program):
            since, (used, wanted) = time.monotonic(), _processor_seconds(memopt.pid)
        elif passed > _IDLE_SECONDS:
            now_used, now_wanted = _processor_seconds(memopt.pid)
            if now_used - used <= _IDLE_USED and now_wanted - wanted <= _IDLE_WANTED * passed / _IDLE_SECONDS:
                return
            since, used, wanted = time.monotonic(), now_used, now_wanted


def copies(program: int) -> list[int]:
    """The living children of ``program``."""
    try:
        words = Path(f"/proc/{program}/task/{program}/children").read_text().split()
        return [int(word) for word in words if ") Z " not in Path(f"/proc/{word}/stat").read_text()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _processor_seconds(pid: int) -> tuple[float, float]:
    """What the threads of ``pid`` have used, and that together with what they have waited for a processor."""
    used = waited = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            fields = path.read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        used, waited = used + int(fields[0]), waited + int(fields[1])
    return used * 1e-9, (used + waited) * 1e-9


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
        await_idle(self.memopt, self.pid)

    def finish(self) -> tuple[int, str]:
        """Tell the program to end; memopt's exit code and the program's output."""
        os.kill(self.pid, signal.SIGUSR1)
        return self.memopt.wait(PATIENCE), self.stdout


def native_output(program: Path, *arguments: str) -> str:
    """What the program prints, whenever it is told to end."""
    command = [program, *(arguments or ("400",))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("ready ")
    process.send_signal(signal.SIGUSR1)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == EXIT_CODE
    return output


def text_of(pid: int) -> bytes:
    """The program's own executable pages; zero bytes behind the code, where stubs go, are left out."""
    path = os.readlink(f"/proc/{pid}/exe")
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        interval, perms, *rest = line.split()
        if "x" in perms and rest[-1] == path:
            start, end = (int(word, 16) for word in interval.split("-"))
            with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
                file.seek(start)
                return file.read(end - start).rstrip(b"\0")
    raise AssertionError("no text")
