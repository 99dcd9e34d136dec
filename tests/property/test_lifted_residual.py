"""A solver that sums its residual in every sweep and returns the last one: the sum must not keep the sweeps apart."""

from __future__ import annotations

import pytest

from memopt.ir.plan import Isa
from passes.planning import plan_candidates
from tests.conftest import Build
from tests.support.lifting import lift_stopped, stopped_at_nest
from tests.support.machines import ZEN5


@pytest.mark.parametrize(("compiler", "level"), [("gcc", "-O1"), ("gcc", "-O2")])
def test_sweeps_are_tiled_in_time(build: Build, compiler: str, level: str) -> None:
    program = build("poisson_19.c", compiler=compiler, level=level)
    with stopped_at_nest([str(program), "1"]) as (process, code, loop):
        region = lift_stopped(process, code, loop).region
    found = plan_candidates(region, ZEN5, Isa.AVX512, trips=9)
    assert any("time steps at once" in plan.summary for _, plan in found)
