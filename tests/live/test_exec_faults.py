"""memopt failing inside, at every stage: one line on standard error, and the program runs on natively to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.told import EXIT_CODE, Told

BEFORE_INSTALLED = ("find", "capture", "lift", "schedule", "generate", "validate", "install", "shadow.fork",
                    "codecache.write", "install.commit", "ptrace.seize", "ptrace.interrupt", "ptrace.setregset",
                    "ptrace.sysemu", "ptrace.detach", "ptrace.pwrite")
ANY_TIME = ("launch", "watch", "report")
IN_MODULE = {"watch": "launched"}  # what happens outside the stages of a loop is put down to a module


@pytest.mark.parametrize("stage", [*BEFORE_INSTALLED, *ANY_TIME])
def test_one_line_and_the_program_runs_on(program: Path, expected: str, tmp_path: Path, stage: str) -> None:
    with Told(program, tmp_path, environment={"MEMOPT_FAULT": f"raise:{stage}:1"}) as told:
        if stage != "report":
            told.await_stderr("internal error")
        assert told.finish() == (EXIT_CODE, expected)
    complaints = [line for line in told.words if "internal error" in line]
    assert len(complaints) == 1
    assert complaints[0].endswith("; the program runs on natively")
    assert "Traceback" not in told.stderr
    assert all(line.startswith(("memopt: ", "ready ")) for line in told.stderr.splitlines())
    if stage in ANY_TIME or "." not in stage:
        assert complaints[0].startswith(f"memopt: internal error in {IN_MODULE.get(stage, stage)}: ")
    assert "replaced" not in told.stderr


@pytest.mark.check
def test_quiet_leaves_that_one_line(program: Path, expected: str, tmp_path: Path) -> None:
    with Told(program, tmp_path, "--quiet", environment={"MEMOPT_FAULT": "raise:validate:1"}) as told:
        told.await_stderr("internal error")
        assert told.finish() == (EXIT_CODE, expected)
    assert len(told.words) == 1
