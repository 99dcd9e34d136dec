"""The driver of the schedulers: contractions keep plans of their own, everything around them gets loop plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.ir.linear import Linear
from memopt.ir.plan import Isa, LoopPlan, Plan
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region
from memopt.ir.scop import TRIPS, Access, Apply, Array, Dimension, ElementType, Read, Scalar, Scop, Statement
from passes.legality.loops import check_sequence
from passes.planning import candidate_of, plan_candidates
from tests.support.affine_nests import nests
from tests.support.machines import ZEN5
from tests.support.nests import region as nest_region
from tests.support.products import product, with_symbols


def test_what_uses_no_operand_twice_is_no_contraction() -> None:
    """y[i] += a * x[i]: packing costs more than the loop."""
    i = (Linear.symbol("i"),)
    y, x = Access("y", i), Access("x", i)
    arrays = tuple(Array(n, ElementType.F64, Linear.symbol(n), (8,)) for n in ("y", "x"))
    body = Apply("add", (Read(0), Apply("mul", (Read(1), Scalar("xmm0", ElementType.F64)))))
    statement = Statement("S0", (Dimension("i", Linear.symbol(TRIPS)),), y, (y, x), body, (0, 0))
    region = replace(product("ijk", dict.fromkeys("ijk", 9)), scop=Scop(arrays, (statement,)))
    _, plan = plan_candidates(region, ZEN5, Isa.AVX512, trips=12011)[0]
    assert all(isinstance(part, LoopPlan) for part in plan.parts)


def test_contractions_keep_their_own_plans() -> None:
    region = product("ijk", dict.fromkeys("ijk", 1009))
    parts, plan = plan_candidates(region, ZEN5, Isa.AVX512)[0]
    assert len(parts) == 1
    assert isinstance(plan.parts[0], Plan)


def test_one_plan_for_rows_of_any_length() -> None:
    """Sizes that were seen do not matter to it, but for the estimate of what it gains."""
    plans = set()
    for size in (200, 1009):
        sizes = dict.fromkeys("ijk", size)
        region, values = with_symbols(product("ijk", sizes), sizes)
        ((parts, plan),) = plan_candidates(region, ZEN5, Isa.AVX512, trips=size, entry=values)
        assert parts[0].scop.strided
        plans.add(str(plan))
    assert len(plans) == 1
    with pytest.raises(Rejected) as refusal:
        plan_candidates(region, ZEN5, Isa.AVX512, trips=9, entry=values | {"n:j": 9, "n:k": 9})
    assert refusal.value.reason is Reason.TOO_SHORT


def test_rows_of_any_length_are_for_contractions_only() -> None:
    region, values = with_symbols(product("ijk", dict.fromkeys("ijk", 500)), dict.fromkeys("ijk", 500))
    (statement,) = region.scop.statements
    swept = replace(statement, reads=(statement.reads[1], statement.reads[2]),
                    expression=Apply("mul", (Read(0), Read(1))))
    for made in (replace(region, scop=replace(region.scop, statements=(swept,))), replace(region, rollback=(64,))):
        with pytest.raises(Rejected) as refusal:
            plan_candidates(made, ZEN5, Isa.AVX512, trips=500, entry=values)
        assert refusal.value.reason is Reason.NO_PLAN


def test_the_region_of_a_loop_plan_has_its_statements() -> None:
    parts, plan = plan_candidates(nests(2000)["jacobi"], ZEN5, Isa.AVX512, trips=100)[0]
    (loops,) = plan.parts
    assert isinstance(loops, LoopPlan)
    assert parts[0].scop.statements == loops.statements
    assert "vectors along j" in plan.summary


_CLEARED = nest_region("""
for i < R
  for j < 1009
    C[i, j] = 0
    for k < 1009
      C[i, j] = add(C[i, j], mul(A[i, k], B[j, k]))
    C[i, j] = mul(C[i, j], xmm1)
""", {"A": (1009, 1009), "B": (1009, 1009), "C": (1009, 1009)})


def test_a_product_between_other_statements_keeps_its_own_plan() -> None:
    first, second = plan_candidates(_CLEARED, ZEN5, Isa.AVX512, trips=1009)
    parts, plan = first
    assert [type(p) for p in plan.parts] == [LoopPlan, Plan, LoopPlan]
    assert [[s.name for s in p.scop.statements] for p in parts] == [["S0"], ["S1"], ["S2"]]
    assert [type(p) for p in second[1].parts] == [LoopPlan]


def test_parts_run_in_an_order_that_keeps_the_dependences() -> None:
    zero, product_, scaled = _CLEARED.scop.statements
    check_sequence(_CLEARED.scop, ((zero,), (product_,), (scaled,)))
    check_sequence(_CLEARED.scop, ((zero, product_), (scaled,)))
    for wrong in (((product_,), (zero,), (scaled,)), ((zero, scaled), (product_,)), ((zero,), (scaled,))):
        with pytest.raises(Rejected):
            check_sequence(_CLEARED.scop, wrong)
    private = nests(2000)["scaled product"].scop
    with pytest.raises(Rejected):
        check_sequence(private, tuple((s,) for s in private.statements))


@pytest.mark.parametrize("nest", [product("ijk", dict.fromkeys("ijk", 1009)), nests(2000)["jacobi"]],
                         ids=["contraction", "loops"])
def test_a_plan_that_a_user_gives_is_the_candidate_again(nest: Region) -> None:
    parts, plan = plan_candidates(nest, ZEN5, Isa.AVX512, trips=1009)[0]
    assert candidate_of(nest, plan) == (parts, plan)


def test_a_plan_for_another_nest_is_refused() -> None:
    one, other = product("ijk", dict.fromkeys("ijk", 1009)), nests(2000)["jacobi"]
    for nest, given in ((one, other), (other, one)):
        _, plan = plan_candidates(given, ZEN5, Isa.AVX512, trips=1009)[0]
        with pytest.raises(Rejected):
            candidate_of(nest, plan)
