"""memopt killed, or failing, at every single step: the program goes on and its output is right."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import traceback
from typing import NoReturn

import pytest

from memopt.ir.reasons import Rejected, VerifyError
from runtime import faults
from runtime.patching.install import Installed, find_installed, install, remove
from runtime.target.ptrace import TargetEnded
from runtime.target.tracee import attach, thread_state
from runtime.trial.shadow import fork_shadow, reap
from tests.support.targets import RIGHT, Worker, build, symbols
from tests.support.version import prepare

PATIENCE = 30.0


def whole_session(pid: int, header: int) -> None:
    """Everything memopt does to a process, once."""
    with attach(pid) as tracee:
        tracee.stop(PATIENCE)
        cache, patch = prepare(tracee, header)
        cache.reserve_scratch(tracee, 1 << 20)
        shadow = fork_shadow(tracee)
    shadow.run_to(header, PATIENCE, hits=2)
    shadow.kill()
    with attach(pid) as tracee:
        tracee.stop(PATIENCE)
        reap(tracee, (shadow,))
        install(tracee, patch, cache, PATIENCE)
    with attach(pid) as tracee:
        remove(tracee, Installed(patch, cache.placement), PATIENCE)


def undo(worker: Worker) -> None:
    for found in find_installed(worker.pid):
        with attach(worker.pid) as tracee:
            remove(tracee, found, PATIENCE)


def session_with_fault(worker: Worker, fault: str) -> int:
    """A memopt of its own, with a fault armed; its wait status."""
    child = os.fork()
    if not child:
        run_and_leave(worker.pid, worker.address("spin_header"), fault)
    return os.waitpid(child, 0)[1]


def run_and_leave(pid: int, header: int, fault: str) -> NoReturn:
    try:
        faults.arm(fault)
        whole_session(pid, header)
        os._exit(0)
    except VerifyError:
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(2)


def runs(worker: Worker) -> bool:
    """It is neither over nor left stopped (a stop on the way out of ptrace takes a moment)."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if (state := thread_state(worker.pid, worker.pid)) not in "tT":
            return state not in "ZX"
        time.sleep(0.001)
    return False


def alone(worker: Worker) -> bool:
    """No second copy of the program runs; a killed memopt may leave a zombie nobody is told of."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if all(line.split()[1].startswith("Z") for line in worker.children()):
            return True
        time.sleep(0.001)
    return False


@pytest.mark.parametrize(("action", "stride"), [("kill", 1), ("raise", 3)])
def test_at_every_step(action: str, stride: int) -> None:
    step, status = 0, -1
    while status:
        with Worker("timer") as worker:  # each dead memopt leaves a few pages: a new program every 50 steps
            for _ in range(50):
                step += stride
                status = session_with_fault(worker, f"{action}:*:{step}")
                assert runs(worker), f"step {step}"
                assert alone(worker), f"step {step}"
                if status == 0:
                    break
                if action == "kill":
                    assert os.WIFSIGNALED(status), f"step {step}"
                    assert os.WTERMSIG(status) == signal.SIGKILL
                else:
                    assert os.WEXITSTATUS(status) == 1, f"step {step}"
                undo(worker)
            assert worker.finish() == RIGHT, f"until step {step}"
    assert step > 100


def test_when_memopt_is_the_parent() -> None:
    """Shadows are then memopt's own children; a sample of the steps, each with its own program."""
    path = build("-no-pie")
    header = symbols(path)["spin_header"]
    killed = 0
    for step in range(1, 400, 7):
        output, number = os.pipe(), os.pipe()
        memopt = os.fork()
        if not memopt:
            os.close(output[0])
            program = subprocess.Popen([path], stdout=output[1])
            os.write(number[1], program.pid.to_bytes(4, "little"))
            run_and_leave(program.pid, header, f"kill:*:{step}")
        os.close(output[1])
        pid = int.from_bytes(os.read(number[0], 4), "little")
        killed += os.WIFSIGNALED(os.waitpid(memopt, 0)[1])
        with open(output[0], encoding="ascii") as lines:
            assert lines.readline() == "ready\n"
            os.kill(pid, signal.SIGUSR1)
            assert lines.read().strip() == RIGHT, f"step {step}"
        for descriptor in number:
            os.close(descriptor)
    assert killed > 15


def test_ended_targets_are_reported() -> None:
    with Worker() as worker:
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises((TargetEnded, Rejected)):
            whole_session(worker.pid, worker.address("spin_header"))
