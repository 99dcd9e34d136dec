"""The ways to run a program of the table under memopt: each gives an ``Execution``.

The programs look at AWAIT_NEW_CODE: it is taken away for native runs.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench.measure.execution import Execution, ask, memopt_command, run, run_under_memopt

ATTEMPTS = 3  # at a program whose loop may be caught in an entry that has few iterations left
AWAIT, PATIENCE = "20", 150.0  # seconds: for new code, and for one run
HIGHEST = 4 * PATIENCE  # for all that is run for one outcome
YES, NO = "new code in place", "no new code in place"


def natively(command: Sequence[str], patience: float = PATIENCE) -> Execution:
    return run(["env", "-u", "AWAIT_NEW_CODE", *command], patience)


def by_exec(command: Sequence[str]) -> Execution:
    os.environ["AWAIT_NEW_CODE"] = AWAIT
    return run_under_memopt(command, PATIENCE)


def by_profile(command: Sequence[str]) -> Execution:
    """An exact profile; the report is what the profile holds, as {"contexts": number}."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.db"
        done = run([*memopt_command(), "profile", "--exact", "-o", str(path), "--", *command], PATIENCE)
        rows = ask(path, "SELECT count(*) AS contexts FROM context") if path.exists() else []
        return replace(done, report={"loops": [], "contexts": rows[0]["contexts"] if rows else 0})


def by_undo(command: Sequence[str]) -> Execution:
    """``memopt attach``, then ``--undo`` while the program stands where the version may be on the stack.

    The program is told by three files, as its comment says; it tells on standard error that it stands.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pause, stay, go, errors = (folder / n for n in ("pause", "stay", "go", "stderr"))
        stay.touch()
        go.touch()
        with open(errors, "wb") as stderr, open(folder / "stdout", "wb") as stdout:
            process = subprocess.Popen([*command, pause, stay, go], stdin=subprocess.DEVNULL, stdout=stdout,
                                       stderr=stderr)
        try:
            said = list[str]()
            while len(said) < ATTEMPTS and not any("replaced" in words for words in said):
                said.append(run([*memopt_command(), "attach", str(process.pid)], PATIENCE).stderr)
            pause.touch()
            _await(lambda: "place" in errors.read_text() or process.poll() is not None)
            said.append(run([*memopt_command(), "attach", "--undo", str(process.pid)], PATIENCE).stderr)
            stay.unlink()
            time.sleep(1.0)  # the program goes on in what may have been taken away
            go.unlink()
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            process.kill()
            process.wait()
        return Execution(0.0, code, (folder / "stdout").read_bytes(), "".join(said) + errors.read_text(), {"loops": []})


def _await(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


WAYS = {"exec": by_exec, "profile": by_profile, "undo": by_undo}
