"""memopt killed with SIGKILL, or failing inside, at every stage and between every two steps it takes on the program:
the program runs on, its output and exit code are right, nothing is left stopped, traced or beside it.

CI walks a spread of the points where a fault can strike; MEMOPT_ALL_POINTS=1 walks every single one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.told import EXIT_CODE, native_output

ROOT = Path(__file__).resolve().parents[2]
SIZE = "400"
STAGES = ("launch", "find", "capture", "lift", "schedule", "generate", "validate", "install", "report")
STEPS = ("ptrace.seize", "ptrace.interrupt", "ptrace.pwrite", "ptrace.setregset", "ptrace.syscall", "ptrace.sysemu",
         "ptrace.detach", "shadow.fork", "codecache.write", "install.commit")
ALL_POINTS = os.environ.get("MEMOPT_ALL_POINTS") == "1"


@pytest.fixture(scope="module")
def expected(program: Path) -> str:
    output = native_output(program, SIZE)
    assert output.endswith("different 0\n")
    return output


@pytest.fixture(scope="module")
def passed(program: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The points passed, in order, in a run that ends with the nest replaced."""
    folder = tmp_path_factory.mktemp("log")
    shutil.copy(program, folder / "program")
    log = folder / "log"
    verdict = fault(f"log:{log}", folder)
    assert verdict["memopt"] == EXIT_CODE
    assert "replaced" in verdict["stderr"]
    return log.read_text().split()


@pytest.fixture(scope="module")
def points(passed: list[str]) -> Counter[str]:
    """How often each point is passed."""
    return Counter(passed)


def fault(text: str, folder: Path) -> dict[str, object]:
    done = subprocess.run([sys.executable, "-m", "tests.support.orphan", text, str(folder), SIZE],
                          capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def spread(action: str, name: str, count: int) -> list[str]:
    """Passes of one point to strike at: counts differ a little from run to run, so the last ones are left out."""
    if ALL_POINTS and name != "watch":
        chosen = set(range(1, count + 1))
    elif action == "raise":  # tests/live/test_exec_faults.py has the first pass of each
        chosen = {(count + 1) // 2} if count > 1 else set()
    else:
        chosen = {1, count * 2 // 3} if count > 20 else {(count + 1) // 2}
    return [f"{action}:{name}:{number}" for number in sorted(chosen)]


def test_every_stage_and_step_is_a_point(points: Counter[str]) -> None:
    assert {*STAGES, *STEPS} <= set(points)


@pytest.mark.long
@pytest.mark.timeout(7200 if ALL_POINTS else 1800)
@pytest.mark.parametrize("action", ["kill", "raise"])
def test_program_survives_a_fault_of_memopt_at_any_point(program: Path, expected: str, points: Counter[str],
                                                         tmp_path: Path, action: str) -> None:
    faults = [text for name, count in sorted(points.items()) for text in spread(action, name, count)]
    struck = []

    def strike(text: str) -> str:
        kind, name, number = text.split(":")
        for attempt in range(3):
            folder = tmp_path / f"{kind}-{name}-{number}-{attempt}"
            folder.mkdir()
            os.link(program, folder / "program")
            now = f"{kind}:{name}:{max(1, int(number) >> attempt)}"  # fewer passes may be made than in the log
            verdict = fault(now, folder)
            if (wrong := what_is_wrong(now, verdict, expected)):
                return f"{now}: {wrong}"
            if verdict["memopt"] == -9 or "internal error" in str(verdict["stderr"]):
                struck.append(text)
                break
        return ""

    with ThreadPoolExecutor(2) as pool:
        failures = [text for text in pool.map(strike, faults) if text]
    assert not failures
    assert {text for text in faults if text.split(":")[1] in STAGES} <= set(struck)
    assert len(struck) >= len(faults) * 9 // 10


def what_is_wrong(text: str, verdict: dict[str, object], expected: str) -> dict[str, object]:
    """A fault that was not reached must have left everything as it is without one."""
    right: dict[str, object] = {"untouched": True, "strays": [], "stdout": expected}
    if text.startswith("kill:report"):
        right["memopt"] = -9
    elif verdict["memopt"] == -9:
        right["program"] = EXIT_CODE
    else:
        right["memopt"] = EXIT_CODE
    return {key: verdict[key] for key, value in right.items() if verdict[key] != value}


@pytest.mark.parametrize("action", ["kill", "raise"])
def test_fault_right_after_the_commit(program: Path, expected: str, passed: list[str], tmp_path: Path,
                                      action: str) -> None:
    """The program is in the new code by then: a memopt that fails takes it out before it gives its pages back."""
    committed = passed.index("install.commit")
    following = passed.index("ptrace.detach", committed)
    text = f"{action}:ptrace.detach:{passed[:following + 1].count('ptrace.detach')}"
    os.link(program, tmp_path / "program")
    verdict = fault(text, tmp_path)
    assert (verdict["memopt"], verdict["stdout"]) == (-9 if action == "kill" else EXIT_CODE, expected)
    assert (verdict["untouched"], verdict["strays"]) == (True, [])
    assert action == "kill" or "internal error in install: " in str(verdict["stderr"])
