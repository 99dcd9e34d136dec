"""memopt under small resource limits: the program is started with the limits as given, whatever becomes of memopt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.measure.execution import Execution, memopt_command, run
from tests.conftest import Build
from tests.support.effort import some, some_rows
from tests.support.waiting import PATIENCE

_LIMITS = [("-s 96", "stack"), ("-s 256", "stack"), ("-S -s 128", ""), ("-v 120000", "address space"),
           ("-v 400000", ""), ("-S -v 100000", ""), ("-d 20000", "data"), ("-d 100000", "data"),
           ("-d 400000", ""), ("-S -d 20000", "")]


def limited(limit: str, command: list[str], *, as_root: bool) -> Execution:
    """Runs ``command`` under a limit that it may not raise, unless it is root."""
    drop = () if as_root else ("--inh-caps=-all", "--bounding-set=-all")
    privileged = ["setpriv", *drop] if os.geteuid() == 0 and drop else []
    return run(["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *privileged, *command], PATIENCE)


@pytest.mark.parametrize("how", [("exec",), ("profile", "--exact", "-o")], ids=["exec", "profile"])
@pytest.mark.parametrize(("limit", "small"), some_rows(_LIMITS, 4))
def test_a_program_has_the_limits_that_it_was_started_with(
        build: Build, tmp_path: Path, limit: str, small: str, how: tuple[str, ...]) -> None:
    program = str(build("limits.c"))
    native = limited(limit, [program], as_root=False)
    done = limited(limit, [*memopt_command(), *how, *([str(tmp_path / "p.db")] if len(how) > 1 else []), "--", program],
                   as_root=False)
    assert done.same_result(native), done.stderr
    assert native.exit_code == 5
    assert ("program runs natively; raise it by ulimit" in done.stderr) == bool(small), done.stderr
    assert f"the {small} is limited to" in done.stderr or not small


@pytest.mark.parametrize("limit", some(["-s 128", "-v 100000", "-d 20000"], 1))
def test_root_lifts_the_limits_of_memopt_alone(build: Build, limit: str) -> None:
    if run(["sh", "-c", "ulimit -s 128 && ulimit -s 256"], PATIENCE).exit_code:
        pytest.skip("this user may not raise hard limits")
    program = str(build("limits.c"))
    done = limited(limit, [*memopt_command(), "exec", "--", program], as_root=True)
    assert done.same_result(limited(limit, [program], as_root=True)), done.stderr
    assert "raise it by ulimit" not in done.stderr


def test_memory_that_is_limited_is_not_taken_by_recording(build: Build, tmp_path: Path) -> None:
    program = str(build("limits.c"))
    done = limited("-v 3000000", [*memopt_command(), "profile", "--exact", "-o", str(tmp_path / "p.db"), "--", program],
                   as_root=True)
    assert done.same_result(limited("-v 3000000", [program], as_root=True)), done.stderr
    assert "its memory is limited" in done.stderr
