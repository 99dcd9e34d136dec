"""What a copy of the program, and the pages of a version, could show the program, and do not; new code is in place."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.conftest import Build
from tests.support.effort import some
from tests.support.told import EXIT_CODE, Told, native_output

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
    from bench.measure.execution import memopt_command

    command = ["bash", "-c", f'{limit}exec "$@"', "bash", *memopt_command(), "exec", "--"]
    with Told(build("largest_gap.c", *flags), tmp_path, arguments=(), command=command) as told:
        told.await_replaced()
        code, output = told.finish()
    assert code == EXIT_CODE
    lost, before = (int(word) for word in re.findall(r"\d+", output))
    assert before > 1000
    assert lost <= SMALL_LOSS
