"""New code touches no page that the original does not: each row of an array lies in pages of its own, which begin or
end with the row, and the pages between rows cannot be accessed. Sizes divide nothing."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

import pytest

from memopt.ir.plan import Isa, NestPlan
from memopt.ir.reasons import Rejected
from memopt.ir.region import Region
from passes.context import Context
from passes.loop_schedule.candidates import loop_plans
from passes.planning import plan_candidates
from tests.support.effort import some
from tests.support.inprocess import host_isas
from tests.support.loop_check import check
from tests.support.machines import ZEN5
from tests.support.nests import region

ISAS = [pytest.param(isa, id=isa.value, marks=pytest.mark.skipif(isa not in host_isas(), reason="not this machine"))
        for isa in Isa]
ROW = 1024  # numbers of 8 bytes: two pages
NESTS = {
    "sum": """
for i < R
  for j < 37
    C[i, j] = add(A[i, j], B[i, j])
""",
    "transposed": """
for i < R
  for j < 19
    C[j, i] = add(C[j, i], A[i, j])
""",
    "product": """
for i < R
  for j < 29
    for k < 23
      C[i, j] = add(C[i, j], mul(A[i, k], B[k, j]))
""",
    "product with a transposed operand": """
for i < R
  for j < 29
    for k < 23
      C[i, j] = add(C[i, j], mul(A[i, k], B[j, k]))
""",
    "triangle": """
for i < R
  for j < i + 1
    for k < 11
      C[i, j] = add(C[i, j], mul(A[i, k], B[k, j]))
""",
    "stencil": """
for i < R
  for j < 31
    C[i, j] = add(A[i, j], mul(A[i, j + 1], A[i + 1, j + 2]))
""",
    "time steps": """
for t < R
  for i < 13
    for j < 21
      C[i, j] = add(C[i, j], mul(A[i, j], C[i, j + 1]))
""",
}


def plans(nest: Region, isa: Isa) -> list[NestPlan]:
    """Those of the scheduler for loops, whether they pay or not, and those of the scheduler for contractions."""
    found = [NestPlan((p,)) for p in islice(loop_plans(nest.scop, Context(ZEN5, isa, "exact", 4000), least_gain=0), 3)]
    with suppress(Rejected):
        found += [plan for (whole, *rest), plan in plan_candidates(nest, ZEN5, isa, trips=4000)
                  if not rest and whole.scop == nest.scop]
    return found


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", some(NESTS, 3))
def test_no_page_between_rows_is_touched(isa: Isa, name: str) -> None:
    nest = region(NESTS[name], {"A": (60, ROW), "B": (60, ROW), "C": (60, ROW)})
    for plan in plans(nest, isa):
        for trips, seed in ((1, 1), (2, 2), (7, 1), (17, 1), (17, 2)):
            check(nest, plan, {"H": trips}, seed=seed, guarded=True)
