"""Programs under ``memopt profile``, and what the file of a profile answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.measure.execution import memopt_command, run
from tests.support.waiting import PATIENCE


def asked(path: Path, question: str) -> list[dict[str, object]]:
    answered = run([*memopt_command(), "query", "--format", "json", str(path), question], PATIENCE)
    assert answered.exit_code == 0, answered.stderr
    return list(json.loads(answered.stdout))


def record(command: tuple[str, ...], path: Path, *options: str) -> None:
    """Run ``command`` alone and recorded: nothing that can be seen differs."""
    native = run(command, PATIENCE)
    recorded = run([*memopt_command(), "profile", "--exact", *options, "-o", str(path), "--", *command], PATIENCE)
    assert recorded.same_result(native), recorded.stderr
    assert "unrecorded" not in recorded.stderr
    assert "not recorded" not in recorded.stderr


def profile_with_children(path: Path, *command: str) -> None:
    """Skips where the system has no perf events: without them children are not sampled."""
    trial = run([*memopt_command(), "profile", "-o", str(path), "--", *command], PATIENCE)
    assert trial.exit_code == 0
    if "perf events" in trial.stderr:
        pytest.skip(trial.stderr)
