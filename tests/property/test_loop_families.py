"""The scheduler's plans for every family of nests as machine code: what the statements compute one by one."""

from __future__ import annotations

from itertools import islice

import pytest

from memopt.ir.plan import Isa
from memopt.ir.reasons import Rejected
from passes.context import Context
from passes.loop_schedule.candidates import loop_plans
from tests.support.affine_nests import nests
from tests.support.effort import some
from tests.support.inprocess import host_isas
from tests.support.loop_check import check
from tests.support.loop_runs import fitted
from tests.support.machines import HASWELL, ZEN5

_LARGE, _SMALL = nests(2000), {n: nests(n) for n in (9, 23)}
SCALARS = (0x3FF8000000000000,) * 4


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("name", some(_LARGE, 4))
def test_plans_of_large_nests_run_on_small_ones(name: str, isa: Isa) -> None:
    context = Context(ZEN5 if isa is Isa.AVX512 else HASWELL, isa, trips=2000)
    try:
        plans = list(islice(loop_plans(_LARGE[name].scop, context), 2))
    except Rejected:
        pytest.skip("nothing to be gained")
    for size, trips in ((9, 2), (23, 19)):
        small = _SMALL[size][name]
        for each in plans:
            check(small, fitted(each, _LARGE[name].scop, small.scop), {"H": trips}, seed=size, scalars=SCALARS)
