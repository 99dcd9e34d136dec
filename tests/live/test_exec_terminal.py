"""Ctrl-C, Ctrl-Z, fg and bg under bash on a terminal, while memopt is at each of its stages and after it."""

from __future__ import annotations

import functools
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.measure.execution import memopt_command
from tests.support.terminal import Terminal
from tests.support.told import EXIT_CODE, await_that, has_new_code

STAGES = ("watch", "find", "ptrace.syscall", "ptrace.sysemu", "lift", "validate", "install.commit")
REPLACED = "replaced"


class Job:
    """The program under memopt as a job of an interactive shell; its output goes to files."""

    def __init__(self, terminal: Terminal, program: Path, folder: Path) -> None:
        self.terminal, self.folder, self.program = terminal, folder, program
        command = " ".join([*memopt_command(), "exec", "--", str(program), "400"])
        terminal.command(f"MEMOPT_FAULT=log:{folder}/log {command} >{folder}/out 2>{folder}/err")
        await_that(lambda: "ready" in self.errors, lambda: f"ready in {self.errors}, {terminal.output}")
        self.pid = int(re.findall(r"ready (\d+)", self.errors)[0])
        self.memopt = int(Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[1])

    @property
    def errors(self) -> str:
        path = self.folder / "err"
        return path.read_text() if path.exists() else ""

    def await_stage(self, stage: str) -> None:
        """Until memopt has come to ``stage``."""
        log = self.folder / "log"
        if stage == REPLACED:
            await_that(lambda: has_new_code(self.pid), lambda: f"new code; {self.errors}")
        else:
            await_that(lambda: log.exists() and stage in log.read_text().split(), lambda: f"{stage}; {self.errors}")

    def await_states(self, letters: str) -> None:
        for pid in (self.pid, self.memopt):
            await_that(functools.partial(in_state, pid, letters), lambda: f"{letters}: {self}")

    def __str__(self) -> str:
        return f"program {self.pid} {state(self.pid)}, memopt {self.memopt} {state(self.memopt)}; {self.errors}"

    def stop(self) -> None:
        self.terminal.type("\x1a")
        self.terminal.expect("Stopped")
        self.terminal.expect("prompt> ")
        self.await_states("T")
        time.sleep(0.05)
        self.await_states("T")

    def finish(self) -> tuple[int, str]:
        os.kill(self.pid, signal.SIGUSR1)
        self.terminal.expect("prompt> ")
        return self.code(), (self.folder / "out").read_text()

    def code(self) -> int:
        self.terminal.command("echo code=$?")
        return int(self.terminal.expect(r"\ncode=(\d+)\n").group(1))

    def left(self) -> list[int]:
        """Processes that still run the program."""
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if self._is_ours(path)]

    def _is_ours(self, path: Path) -> bool:
        try:
            return os.readlink(path / "exe") == str(self.program) and state(int(path.name)) != "Z"
        except OSError:
            return False


def in_state(pid: int, letters: str) -> bool:
    return state(pid) in letters


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


@pytest.fixture
def job(tmp_path: Path, program: Path) -> Iterator[Job]:
    own = tmp_path / "program"
    os.link(program, own)
    with Terminal(tmp_path) as terminal:
        terminal.expect("prompt> ")
        job = Job(terminal, own, tmp_path)
        yield job
        for pid in job.left():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("stage", [*STAGES, REPLACED])
def test_ctrl_z_and_fg(job: Job, expected: str, stage: str) -> None:
    job.await_stage(stage)
    job.stop()
    job.terminal.command("fg")
    job.await_states("RS")
    job.await_stage(REPLACED)
    job.stop()
    job.terminal.command("fg")
    job.await_states("RS")
    assert job.finish() == (EXIT_CODE, expected)
    assert "replaced" in job.errors
    assert job.left() == []


@pytest.mark.parametrize("stage", [*STAGES, REPLACED])
def test_ctrl_c(job: Job, stage: str) -> None:
    job.await_stage(stage)
    job.terminal.type("\x03")
    job.terminal.expect("prompt> ")
    assert job.code() == 128 + signal.SIGINT
    await_that(lambda: job.left() == [], lambda: f"no process left: {job.left()}")
    assert state(job.memopt) == "X"
    assert all(line.startswith(("memopt: ", "ready ")) for line in job.errors.splitlines())
    assert "internal error" not in job.errors


def test_bg_while_memopt_is_at_work_and_fg_again(job: Job, expected: str) -> None:
    job.await_stage("capture")
    job.stop()
    job.terminal.command("bg")
    job.terminal.expect("prompt> ")
    job.await_stage(REPLACED)
    job.terminal.command("fg")
    job.terminal.expect("program")
    job.terminal.await_foreground(job.pid)
    job.stop()
    job.terminal.command("fg")
    job.await_states("RS")
    assert job.finish() == (EXIT_CODE, expected)


def test_ctrl_z_again_and_again(job: Job, expected: str) -> None:
    for _ in range(12):
        job.stop()
        job.terminal.command("fg")
        job.await_states("RS")
        time.sleep(0.04)
    job.await_stage(REPLACED)
    assert job.finish() == (EXIT_CODE, expected)
