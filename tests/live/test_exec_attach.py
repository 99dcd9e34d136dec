"""``memopt attach PID`` and ``--undo`` on a process that runs already and is nobody's child here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.measure.execution import Execution, memopt_command, run
from memopt.ir.reasons import Reason
from tests.conftest import Build
from tests.support.effort import some_rows
from tests.support.told import EXIT_CODE, Told, await_that, has_new_code, text_of
from tests.support.waiting import PATIENCE

ALONE = ["bash", "-c", '"$@"; exit $?', "bash"]  # the parent of the program is a shell, not this process


@pytest.fixture
def running(program: Path, tmp_path: Path) -> Iterator[Told]:
    with Told(program, tmp_path, command=ALONE) as told:
        yield told


def attach(pid: int, *options: str) -> Execution:
    return run([*memopt_command(), "attach", *options, str(pid)], PATIENCE)


def state_of(pid: int) -> dict[str, str]:
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    found = {name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt", "Threads", "TracerPid", "PPid")}
    return found | {"descriptors": " ".join(sorted(os.listdir(f"/proc/{pid}/fd"))), "children": str(children(pid))}


def children(pid: int, *, dead: bool = True) -> list[int]:
    """A memopt that is killed in a trial leaves a dead child to the program: only __WALL and __WCLONE wait for it."""
    found = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in found if dead or ") Z " not in Path(f"/proc/{child}/stat").read_text()]


@pytest.mark.check
def test_improves_leaves_and_undoes(running: Told, expected: str, tmp_path: Path) -> None:
    report = tmp_path / "report"
    text, state = text_of(running.pid), state_of(running.pid)
    done = attach(running.pid, "--json", str(report))
    assert (done.exit_code, done.stdout) == (0, b""), done.stderr
    assert all(line.startswith("memopt: ") for line in done.stderr.splitlines())
    assert f"--undo {running.pid}" in done.stderr.splitlines()[-1]
    loop = json.loads(report.read_text())["loops"][0]
    assert loop["outcome"] == "replaced"
    assert loop["iterations_run"] > 0
    assert has_new_code(running.pid)
    assert text_of(running.pid) != text
    assert state_of(running.pid) == state

    undone = attach(running.pid, "--undo")
    assert undone.exit_code == 0
    assert undone.stderr.count("\n") == 1
    assert "KiB of former code stay until it ends" in undone.stderr
    assert text_of(running.pid) == text
    assert state_of(running.pid) == state
    assert not has_new_code(running.pid)
    assert attach(running.pid, "--undo").stderr.startswith(f"memopt: process {running.pid} runs no code of memopt's;")
    await_that(lambda: attach(running.pid).exit_code == 0 and has_new_code(running.pid), lambda: "new code once more")
    attach(running.pid, "--undo")
    assert text_of(running.pid) == text
    assert running.finish() == (EXIT_CODE, expected)


@pytest.mark.long
def test_new_code_stays_when_memopt_has_gone(running: Told, expected: str) -> None:
    assert attach(running.pid, "--quiet").stderr == ""
    assert has_new_code(running.pid)
    assert running.finish() == (EXIT_CODE, expected)
    Path(f"/tmp/perf-{running.pid}.map").unlink(missing_ok=True)


@pytest.mark.long
def test_twice_improved_and_undone_once(running: Told, expected: str) -> None:
    text = text_of(running.pid)
    for _ in range(2):
        assert attach(running.pid).exit_code == 0
    attach(running.pid, "--undo")
    assert text_of(running.pid) == text
    assert running.finish() == (EXIT_CODE, expected)


def test_undo_after_exec(program: Path, expected: str, tmp_path: Path) -> None:
    """What ``memopt exec`` put in can be taken out while it still stands above the program."""
    with Told(program, tmp_path) as told:
        text = text_of(told.pid)
        told.await_replaced()
        told.await_idle()
        assert text_of(told.pid) != text
        assert attach(told.pid, "--undo").exit_code == 0
        assert text_of(told.pid) == text
        assert told.finish() == (EXIT_CODE, expected)


def test_undo_of_nothing(running: Told, expected: str) -> None:
    done = attach(running.pid, "--undo")
    assert (done.exit_code, done.stderr.count("\n")) == (0, 1)
    assert running.finish() == (EXIT_CODE, expected)


def test_what_cannot_be_attached_to_is_one_line(running: Told, expected: str, tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid in (ended.pid, 1 << 21):
        done = attach(pid)
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
    for pid in ("0", "-1", "x", ""):
        assert run([*memopt_command(), "attach", "--", pid], 60).exit_code == 2
    if os.geteuid() == 0 and shutil.which("setpriv"):
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *memopt_command()]
        if run([*nobody, "--version"], 60).exit_code == 0:
            done = run([*nobody, "attach", str(running.pid)], 60)
            assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
            assert Reason.PTRACE_FORBIDDEN.explain in done.stderr
    assert running.finish() == (EXIT_CODE, expected)


def test_process_under_seccomp_is_left_alone(program: Path, expected: str, tmp_path: Path) -> None:
    with Told(program, tmp_path, command=ALONE, arguments=("400", "seccomp")) as told:
        done = attach(told.pid)
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
        assert Reason.SECCOMP.explain in done.stderr
        assert told.finish() == (EXIT_CODE, expected)


def test_stopped_process_stays_stopped(running: Told, expected: str) -> None:
    os.kill(running.pid, signal.SIGSTOP)
    await_that(lambda: "T (" in Path(f"/proc/{running.pid}/status").read_text(), lambda: "stopped")
    assert attach(running.pid).exit_code == 0
    assert "T (stopped)" in Path(f"/proc/{running.pid}/status").read_text()
    os.kill(running.pid, signal.SIGCONT)
    assert running.finish() == (EXIT_CODE, expected)


@pytest.mark.parametrize(("action", "point"), some_rows([
    ("kill", "install.commit"), ("kill", "validate"), ("raise", "validate"), ("raise", "install.commit"),
], 1))
def test_fault_of_memopt_harms_nothing(running: Told, expected: str, monkeypatch: pytest.MonkeyPatch, point: str,
                                       action: str) -> None:
    state = state_of(running.pid)
    monkeypatch.setenv("MEMOPT_FAULT", f"{action}:{point}:1")
    done = attach(running.pid)
    assert done.exit_code == (-9 if action == "kill" else 0)
    if action == "raise":
        assert done.stderr.count("internal error in") == 1
        assert state_of(running.pid) == state
    await_that(lambda: children(running.pid, dead=False) == [], lambda: f"no children: {children(running.pid)}")
    monkeypatch.delenv("MEMOPT_FAULT")
    assert attach(running.pid).exit_code == 0
    assert has_new_code(running.pid)
    attach(running.pid, "--undo")
    assert running.finish() == (EXIT_CODE, expected)


@pytest.mark.long
def test_a_loop_that_has_to_move(build: Build, tmp_path: Path) -> None:
    """The patch would cover the start of the inner loop: the whole nest goes on in a copy."""
    program = build("short_header.c")
    native = run((str(program), "1607"), PATIENCE)
    process = subprocess.Popen([str(program), "1607"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        report = tmp_path / "report"
        done = attach(process.pid, "--json", str(report))
        assert json.loads(report.read_text())["loops"][0]["outcome"] == "replaced", done.stderr
        output, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert (output, process.returncode) == (native.stdout, native.exit_code)
