"""``--fp fast``: results of floating-point nests may differ in rounding, those of integer nests never do."""

from __future__ import annotations

from pathlib import Path

from bench.cells import BUILDS
from bench.measure.execution import run, run_under_memopt
from bench.programs.families import KERNELS
from tests.support.waiting import PATIENCE


def test_integers_are_replaced_and_equal(tmp_path: Path) -> None:
    command = (str(BUILDS["gcc-O2"].compile(KERNELS["gemm_int32"], tmp_path)), "8")
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE, ("--fp", "fast"))
    assert trial.same_result(native), trial.stderr
    assert trial.replaced, trial.stderr
