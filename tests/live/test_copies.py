"""What a copy of the program, and the pages of a version, could show the program, and do not; new code is in place."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.measure.execution import memopt_command, run, run_under_memopt
from memopt.ir.reasons import Reason, Rejected
from memopt.options import Options
from memopt.session.replacing.process import Process
from runtime.trial.copy_cost import CopyBudget
from tests.conftest import Build
from tests.support.effort import some
from tests.support.targets import RIGHT, Worker
from tests.support.told import EXIT_CODE, Told, native_output
from tests.support.waiting import PATIENCE

MODES = ("flock", "mapped", "segment", "ofd", "posix", "port", "pipe", "full", "epoll", "eventfd")
SMALL_LOSS = 66  # GiB, of some 80,000: brk keeps room to grow, and a version its distance


@pytest.mark.parametrize("mode", some(MODES, 3))
def test_nothing_is_held_by_a_copy(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.chdir(tmp_path)
    program = build("held_in_copies.c")
    expected = native_output(program, mode)
    assert expected.startswith("0 wrong, ")
    with Told(program, tmp_path, arguments=(mode,)) as told:
        told.await_replaced()
        assert told.finish() == (EXIT_CODE, expected)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts file systems")
def test_a_copy_keeps_no_file_system_busy(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = build("held_in_copies.c")
    expected = native_output(program, "directory")
    if not expected.startswith("0 wrong, "):
        pytest.skip("file systems cannot be mounted here")
    with Told(program, tmp_path, arguments=("directory",)) as told:
        told.await_replaced()
        assert told.finish() == (EXIT_CODE, expected)


@pytest.mark.parametrize(("flags", "limit"), [
    pytest.param(("-pie",), "", id="position-independent"),
    pytest.param(("-no-pie",), "", id="at a fixed address"),
    pytest.param(("-static",), "", id="static", marks=pytest.mark.long),
    pytest.param(("-pie",), "ulimit -s unlimited; ", id="mappings grow upwards", marks=pytest.mark.long),
])
def test_a_large_reservation_finds_its_place(build: Build, tmp_path: Path, flags: tuple[str, ...], limit: str) -> None:
    command = ["bash", "-c", f'{limit}exec "$@"', "bash", *memopt_command(), "exec", "--"]
    with Told(build("largest_gap.c", *flags), tmp_path, arguments=(), command=command) as told:
        told.await_replaced()
        code, output = told.finish()
    assert code == EXIT_CODE
    lost, before = (int(word) for word in re.findall(r"\d+", output))
    assert before > 1000
    assert lost <= SMALL_LOSS


@pytest.mark.parametrize("number", [20_000, pytest.param(60_000, marks=pytest.mark.long)])
def test_a_program_with_many_mappings_is_replaced(build: Build, tmp_path: Path, number: int) -> None:
    program = build("many_mappings.c")
    expected = native_output(program, str(number))
    assert expected.startswith(f"{number} ")
    with Told(program, tmp_path, arguments=(str(number),)) as told:
        told.await_replaced()
        assert told.finish() == (EXIT_CODE, expected)


@pytest.mark.parametrize("source", ["large_sweeps.c", pytest.param("multigrid.c", marks=pytest.mark.long)])
def test_a_large_program_that_ends_soon_pays_for_no_copy(build: Build, source: str) -> None:
    """It would take a fault for each of its 100,000 pages; what remains is memopt's own business."""
    program = str(build(source))
    natively, under_memopt = (int(re.findall(r"(?m)^faults (\d+)$", done.stderr)[0])
                              for done in (run([program], PATIENCE), run_under_memopt([program], PATIENCE)))
    assert natively > 98_000
    assert under_memopt < natively + 10_000


def test_a_copy_that_costs_too_much_does_not_stop_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it costs is known before; what it has cost, afterwards."""
    stops = 0

    @contextmanager
    def attached() -> Iterator[None]:
        nonlocal stops
        stops += 1
        yield

    with Worker() as worker:
        process = Process(worker.pid, Options(pid=worker.pid), attached, 0.0)
        with process.shadows(1, lambda: False) as (shadow,):
            shadow.run_to(worker.address("round_done"), 20.0)
            worker.breathe(0.2)  # in which it writes its pages
        assert stops >= 1
        assert process.copies.written
        assert process.copies.spent > 0
        before = stops
        monkeypatch.setattr(CopyBudget, "limit", lambda *_: process.copies.spent)
        with pytest.raises(Rejected) as caught, process.shadows(1, lambda: False):
            pass
        assert caught.value.reason is Reason.COPY_COSTS
        assert stops == before
        assert worker.finish() == RIGHT
