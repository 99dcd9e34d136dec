"""Loads and stores under a condition, run in this process: pages that are passed over are inaccessible or read-only.

Each row of an array is longer than a page, and many conditions hold in whole rows. So a lane that is read or written
where the reference does not ends the test run by a fault.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memopt.ir.plan import Isa, Leaf, LoopPlan
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.ir.region import Region
from memopt.ir.scop import Apply, Constant, ElementType, Expression, extreme
from passes.legality.loops import check_loops
from passes.loop_code.leaf_shape import leaf_shape
from passes.planning import plan_candidates
from tests.support.effort import some, some_rows
from tests.support.inprocess import host_isas
from tests.support.loop_check import check
from tests.support.machines import ZEN5
from tests.support.nests import region
from tests.unit.passes.loop_code.test_nest_code import dates

F64, F32, I64, I32, I16, I8 = ElementType
WIDE = dict.fromkeys("ABC", (60, 720)) | {"D": (60, 3)}
ROW = "flt(D[i, 0], D[i, 1])"  # holds in whole rows, or not
LOOPS = "for i < R\n  for j < 701\n    "
NESTS = {
    "a store": f"{LOOPS}A[i, j] = when(flt(B[i, j], C[i, j]), add(B[i, j], C[i, j]))",
    "a store to some rows": f"{LOOPS}A[i, j] = when({ROW}, B[i, j])",
    "a store and a load": f"{LOOPS}A[i, j] = when({ROW}, add(when({ROW}, B[i, j]), C[i, j]))",
    "a load on either way": f"{LOOPS}A[i, j] = select({ROW}, when({ROW}, B[i, j]), when(not({ROW}), C[i, j]))",
    "apart": "for i < R\n  for j < 349\n    "
             f"A[i, 2*j] = when({ROW}, add(when({ROW}, B[i, 2*j]), C[i, 349 - j]))",
    "one cell for all lanes": f"{LOOPS}A[i, j] = when({ROW}, add(when({ROW}, B[i, 0]), C[i, j]))",
    "two conditions": f"{LOOPS}A[i, j] = when(and({ROW}, not(flt(B[i, j], D[i, 2]))), B[i, j])",
}
LEAVES = (Leaf("S0", dates("i"), vector="j", vector_count=2), Leaf("S0", dates("i"), sequential="j"),
          Leaf("S0", dates("0"), rows="i", row_count=3, vector="j"), Leaf("S0", dates("0"), sequential="j", vector="i"))
TRUTHS = ("flt", "fle", "slt", "sle", "eq", "and", "or", "not")


def typed(node: Expression, element: ElementType) -> Expression:
    """An expression as ``tests.support.nests`` reads it, of ``element`` throughout."""
    if isinstance(node, Constant):
        return replace(node, element=element)
    if not isinstance(node, Apply):
        return node
    integer = {8: I64, 4: I32, 2: I16, 1: I8}[element.size]
    name = node.operator if element.is_float else {"flt": "slt", "fle": "sle"}.get(node.operator, node.operator)
    return Apply(name, tuple(typed(o, element) for o in node.operands), integer if name in TRUTHS else element)


def nest(text: str, element: ElementType = F64, extents: dict[str, tuple[int, ...]] = WIDE) -> Region:
    made = region(text, extents, element)
    return replace(made, scop=replace(made.scop, statements=tuple(
        replace(s, expression=typed(s.expression, element)) for s in made.scop.statements)))


CASES = [(isa, element, name, number) for isa in host_isas() for element in ElementType for name in NESTS
         for number in range(len(LEAVES))]


@pytest.mark.parametrize(("isa", "element", "name", "number"), some_rows(CASES, 30, most=180))
def test_what_is_passed_over_is_not_touched(isa: Isa, element: ElementType, name: str, number: int) -> None:
    made = nest(NESTS[name], element)
    plan = LoopPlan(isa, made.scop.statements, (LEAVES[number],))
    for seed in (1, 2):
        assert check(made, plan, {"H": 7}, seed=seed, guarded=True, specials=seed == 2) > 0


EXTREMES = {
    "less": "C[i, j] = when(flt(add(A[i, k], B[k, j]), C[i, j]), add(A[i, k], B[k, j]))",
    "greater": "C[i, j] = when(flt(C[i, j], mul(A[i, k], B[k, j])), mul(A[i, k], B[k, j]))",
}
PRODUCT = "for k < R\n  for i < 40\n    for j < 131\n      "


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("element", some([F64, F32, I32, I16], 2))
@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_are_kept_in_registers_and_stored_where_they_changed(isa: Isa, element: ElementType,
                                                                      name: str) -> None:
    """Rows 4 to 35 already hold less (or more) than what comes: their pages are read-only."""
    made = nest(PRODUCT + EXTREMES[name], element, {"A": (60, 60), "B": (60, 132), "C": (60, 132)})
    kind = {F64: np.float64, F32: np.float32, I32: np.int32, I16: np.int16}[element]
    held = np.full((40, 132), 50 if name == "less" else 0, dtype=kind)
    held[4:36] = -1 if name == "less" else 10000
    small = np.arange(60 * 132) % 97 % 53
    fixed = {"C": held.reshape(-1)[:39 * 132 + 131], "A": small[:39 * 60 + 7].astype(kind),
             "B": small[:6 * 132 + 131].astype(kind)}
    for _, plan in plan_candidates(made, ZEN5, isa, trips=7):
        passed = check(made, plan, {"H": 7}, seed=1, guarded=True, held={n: a.tobytes() for n, a in fixed.items()})
        assert passed > 32 * 132 * element.size // 4096 - 2


@pytest.mark.parametrize(("text", "found"), [
    ("when(flt(B[i, j], A[i, j]), B[i, j])", "min"), ("when(flt(A[i, j], B[i, j]), B[i, j])", "max"),
    ("when(fle(B[i, j], A[i, j]), B[i, j])", None), ("when(not(flt(A[i, j], B[i, j])), B[i, j])", None),
    ("when(flt(B[i, j], C[i, j]), B[i, j])", None), ("when(flt(B[i, j], A[i, j]), C[i, j])", None),
])
def test_what_counts_as_an_extreme(text: str, found: str | None) -> None:
    """Only a store of a number that is less, or greater, than the cell's shows in the bits of the cell."""
    statement, = nest(f"for i < R\n  for j < 9\n    A[i, j] = {text}").scop.statements
    made = extreme(statement)
    assert (made.operator if isinstance(made, Apply) else None) == found


@pytest.mark.parametrize("text", ["when(fle(B[i, k], A[i, 0]), B[i, k])", "when(flt(B[i, k], C[i, 0]), B[i, k])"])
def test_no_other_conditional_store_is_kept_in_a_register(text: str) -> None:
    made = nest(f"for i < R\n  for k < 9\n    A[i, 0] = {text}")
    kept = LoopPlan(Isa.AVX2, made.scop.statements, (
        Leaf("S0", dates("i"), sequential="k", promote=True),))
    with pytest.raises(Rejected, match="it cannot be told whether") as refused:
        check_loops(made.scop, kept)
    assert refused.value.reason is Reason.NO_SCHEDULE
    with pytest.raises(VerifyError):
        leaf_shape(made.scop, kept, kept.leaves[0], {})


def test_a_private_cell_is_always_written() -> None:
    made = nest("for i < R\n  for j < 9\n    t_A[i, j] = when(flt(B[i, j], C[i, j]), B[i, j])",
                extents={"t_A": (9, 9), "B": (9, 9), "C": (9, 9)})
    plan = LoopPlan(Isa.AVX2, made.scop.statements, (Leaf("S0", dates("i"), vector="j"),))
    with pytest.raises(Rejected, match="undefined"):
        check_loops(made.scop, plan)


def test_a_step_does_not_take_the_stored_value_for_the_cell() -> None:
    """A[i, j] = when(p, x) and A[i, j - 1] is read: it may hold what it held before."""
    made = nest("for i < R\n  for j < 9\n    A[i, j + 1] = when(flt(B[i, j], C[i, j]), add(A[i, j], B[i, j]))")
    for isa in host_isas():
        for leaf in (Leaf("S0", dates("i"), sequential="j"), Leaf("S0", dates("0"), vector="i", sequential="j")):
            check(made, LoopPlan(isa, made.scop.statements, (leaf,)), {"H": 21}, seed=3)
