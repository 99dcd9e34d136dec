"""Cells that a branch on data passes over: new code neither reads nor writes them, whatever has become of them.

The program runs until it is told. By then its nest has new code, installed without a trial, faster or not.
memopt is killed, so that the code stays. Then the cells that are passed over become read-only, unmapped, or another
thread's, and the nest runs three times more.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from memopt.ir.plan import Isa
from memopt.machine.description import usable_isas
from memopt.machine.detect import detect
from tests.conftest import Build
from tests.support.effort import some_rows
from tests.support.told import Told, await_that, native_output, text_of

MODES = ("read-only", "rows", "dirty", "freed", "counted", "minima", "loads", "integers", "ways", "page", "bytes")
CASES = [(mode, isa.value) for mode in MODES for isa in Isa]


@pytest.mark.live
@pytest.mark.parametrize(("mode", "isa"), some_rows(CASES, 3))
def test_what_is_passed_over_is_not_touched(build: Build, tmp_path: Path, mode: str, isa: str) -> None:
    if isa not in {each.value for each in usable_isas(detect())}:
        pytest.skip(f"this machine has no {isa}")
    check(build("passed_over.c"), mode, tmp_path, "--isa", isa)


@pytest.mark.live
@pytest.mark.long
@pytest.mark.parametrize("mode", ["counted", "minima"])
def test_a_static_program_starts_a_thread(build: Build, tmp_path: Path, mode: str) -> None:
    """No C library tells how many threads there are, and none needs to."""
    check(build("passed_over.c", "-static", "-s"), mode, tmp_path)


def check(program: Path, mode: str, folder: Path, *options: str) -> None:
    expected = native_output(program, mode)
    with Told(program, folder, *options, "--no-shadow", arguments=(mode,)) as told:
        original = text_of(told.pid)
        await_that(lambda: text_of(told.pid) != original, lambda: f"new code in the program; {told.stderr}")
        told.memopt.kill()
        told.memopt.wait()
        assert text_of(told.pid) != original, "the new code stays"
        os.kill(told.pid, signal.SIGUSR1)
        await_that(lambda: _has_ended(told.pid), lambda: f"the end of {mode}")
    assert told.stdout == expected, told.stderr


def _has_ended(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
