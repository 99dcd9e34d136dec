"""Cells that a branch on data passes over: new code neither reads nor writes them, whatever has become of them.

Each program runs until it is told: by then its nest has new code. Then the cells that are passed over become read-only,
unmapped, or another thread's, and the nest runs three times more.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memopt.ir.plan import Isa
from memopt.machine.description import usable_isas
from memopt.machine.detect import detect
from tests.conftest import Build
from tests.support.effort import some_rows
from tests.support.told import EXIT_CODE, Told, native_output

pytestmark = pytest.mark.live
MODES = ("read-only", "rows", "dirty", "freed", "counted", "minima", "loads", "integers", "ways", "page", "bytes")
CASES = [(mode, isa.value) for mode in MODES for isa in Isa]


@pytest.mark.parametrize(("mode", "isa"), some_rows(CASES, 3))
def test_what_is_passed_over_is_not_touched(build: Build, tmp_path: Path, mode: str, isa: str) -> None:
    if isa not in {each.value for each in usable_isas(detect())}:
        pytest.skip(f"this machine has no {isa}")
    program, report = build("passed_over.c"), tmp_path / "report.json"
    expected = native_output(program, mode)
    with Told(program, tmp_path, "--isa", isa, "--json", str(report), arguments=(mode,)) as told:
        told.await_replaced()
        before = told.stderr
        code, printed = told.finish()
    assert (code, printed) == (EXIT_CODE, expected), before
    loop = json.loads(report.read_text())["loops"][0]
    assert loop["outcome"] == "replaced", told.stderr
    assert isa in loop["plan"]
    assert loop["iterations_run"] > 0
