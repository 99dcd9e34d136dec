"""A plan of an earlier run, read from its text, is proved as a new one is: what is legal passes, all else does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.ir.linear import Linear
from memopt.ir.parse import parse_plan
from memopt.ir.plan import Isa, LoopPlan, NestPlan, Plan, TileLoop
from memopt.ir.reasons import Rejected
from memopt.ir.region import Region
from passes.planning import plan_candidates, proved_again
from tests.support.affine_nests import nests
from tests.support.machines import ZEN5
from tests.support.nests import region as nest_region
from tests.support.products import product

PRODUCT = product("ijk", dict.fromkeys("ijk", 1009))
JACOBI = nests(2000)["jacobi"]
CLEARED = nest_region("""
for i < R
  for j < 1009
    C[i, j] = 0
    for k < 1009
      C[i, j] = add(C[i, j], mul(A[i, k], B[j, k]))
    C[i, j] = mul(C[i, j], xmm1)
""", {"A": (1009, 1009), "B": (1009, 1009), "C": (1009, 1009)})


def planned(region: Region) -> NestPlan:
    return plan_candidates(region, ZEN5, Isa.AVX512, trips=1009)[0][1]


def again(region: Region, plan: NestPlan, isa: Isa = Isa.AVX512, fp: str = "exact") -> NestPlan:
    _, proved = proved_again(region, plan, isa, fp)
    return proved


@pytest.mark.parametrize("region", [PRODUCT, JACOBI, CLEARED], ids=["product", "loops", "product between loops"])
def test_a_plan_that_was_read_is_the_same_candidate(region: Region) -> None:
    for parts, plan in plan_candidates(region, ZEN5, Isa.AVX512, trips=1009):
        read = parse_plan(str(plan))
        assert isinstance(read, NestPlan)
        assert proved_again(region, read, Isa.AVX512, "exact") == (parts, plan)


@pytest.mark.parametrize(("isa", "change"), [
    (Isa.AVX2, {}), (Isa.AVX512, {"most_iterations": 7}),
], ids=["another instruction set", "a limit that nobody proves"])
def test_plans_for_something_else_are_refused(isa: Isa, change: dict[str, int]) -> None:
    with pytest.raises(Rejected):
        again(PRODUCT, replace(planned(PRODUCT), **change), isa)


def test_fused_operations_need_fast_arithmetic() -> None:
    plan = planned(PRODUCT)
    fused = replace(plan, parts=(replace(plan.parts[0], fuse_multiply_add=True),))
    with pytest.raises(Rejected):
        again(PRODUCT, fused)
    assert again(PRODUCT, fused, fp="fast") == fused


def test_a_sum_in_another_order_is_refused() -> None:
    part, = planned(PRODUCT).parts
    assert isinstance(part, Plan)
    tile = replace(part.tile, rows=part.tile.reduction, reduction=part.tile.rows)
    with pytest.raises(Rejected):
        again(PRODUCT, NestPlan((replace(part, tile=tile),)))


def test_loops_that_leave_something_out_are_refused() -> None:
    part, = planned(PRODUCT).parts
    assert isinstance(part, Plan)
    with pytest.raises(Rejected):
        again(PRODUCT, NestPlan((replace(part, loops=(*part.loops, TileLoop("z", 4))),)))
    first, second, third = planned(CLEARED).parts
    for parts in ((first, second), (second, third), (second, first, third), (first, second, second, third)):
        with pytest.raises(Rejected):
            again(CLEARED, NestPlan(parts))


def test_statements_that_compute_something_else_are_refused() -> None:
    part, = planned(JACOBI).parts
    assert isinstance(part, LoopPlan)
    statement = part.statements[0]
    later = Linear.symbol(statement.dimensions[0].name) - 5
    for wrong in (replace(statement, write=statement.reads[0]), replace(statement, conditions=(later,)),
                  replace(statement, reads=statement.reads[::-1]),
                  replace(statement, expression=CLEARED.scop.statements[0].expression)):
        with pytest.raises(Rejected):
            again(JACOBI, NestPlan((replace(part, statements=(wrong, *part.statements[1:])),)))


def test_the_plan_of_another_nest_is_refused() -> None:
    for region, other in ((PRODUCT, JACOBI), (JACOBI, PRODUCT), (CLEARED, PRODUCT), (JACOBI, CLEARED)):
        with pytest.raises(Rejected):
            again(region, planned(other))
