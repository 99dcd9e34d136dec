"""Loop plans of every family: legal, and the same operations on the same operands as the original."""

from __future__ import annotations

from functools import cache
from itertools import islice

import pytest

from memopt.ir.linear import Linear
from memopt.ir.plan import Isa, LoopPlan
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Access, Array, Dimension, ElementType, Read, Scop, Statement
from memopt.models.loop_cost import MOST_NEIGHBOURS
from memopt.polyhedral.dependence_pieces import dependence_pieces
from passes.context import Context
from passes.legality.loops import check_loops
from passes.loop_schedule.allen_kennedy import AllenKennedy
from passes.loop_schedule.blocking import blockings
from passes.loop_schedule.candidates import loop_plans
from passes.loop_schedule.leaf_options import STRIP
from passes.loop_schedule.rebasing import rebase
from tests.support.affine_nests import nests
from tests.support.effort import some
from tests.support.loop_runs import fitted, run_plan, run_scop
from tests.support.machines import HASWELL, ZEN5
from tests.support.nests import region as nest_region

_LARGE, _SMALL = nests(2000), nests(9)


@cache
def _plans(name: str, isa: Isa = Isa.AVX512) -> list[LoopPlan]:
    """The best three."""
    context = Context(ZEN5 if isa is Isa.AVX512 else HASWELL, isa, trips=2000)
    return list(islice(loop_plans(_LARGE[name].scop, context), 3))


@pytest.mark.parametrize("name", some(_LARGE, 12))
def test_every_family_has_a_legal_plan(name: str) -> None:
    for isa in (Isa.AVX512, Isa.AVX2):
        made = _plans(name, isa)
        assert made
        for each in made:
            check_loops(_LARGE[name].scop, each)
            assert each.summary.endswith(isa.value)


@pytest.mark.parametrize("name", some(_SMALL, 12))
def test_a_plan_performs_the_same_operations(name: str) -> None:
    """The plan made for the large nest, run on a small one of the same shape."""
    small = _SMALL[name].scop
    for trips in (2, 18):
        expected = run_scop(small, trips)
        for each in _plans(name):
            assert run_plan(small, fitted(each, _LARGE[name].scop, small), trips) == expected


@pytest.mark.parametrize(("name", "slope"), [("jacobi", 2), ("three fields", 1)])
def test_stencils_that_leave_the_cache_are_tiled_in_time(name: str, slope: int) -> None:
    best = _plans(name)[0]
    assert "12 time steps at once" in best.summary
    assert best.trial_iterations > 12
    for leaf in best.leaves:
        assert str(leaf.dates[0]) == "floor((t)/12)"
        assert leaf.dates[1].expression.coefficient("t") == slope
        assert leaf.vector == "j"


def test_long_rows_are_tiled_too() -> None:
    scop = nests(50_000)["jacobi"].scop
    best = next(iter(loop_plans(scop, Context(ZEN5, Isa.AVX512, trips=100))))
    assert [d.divisor for d in best.leaves[0].dates[:3]] == [12, 16, 256]
    check_loops(scop, best)


def test_time_tiles_do_not_depend_on_where_in_the_time_loop_it_was_found() -> None:
    for left in (1, 2, 11):
        best = next(iter(loop_plans(_LARGE["jacobi"].scop, Context(ZEN5, Isa.AVX512, trips=left))))
        assert "time steps at once" in best.summary
        assert best.leaves[0].dates[0].divisor >= 6


def test_rows_are_found_in_arrays_of_one_dimension() -> None:
    region = nest_region("""
for t < R
  for j < 2895
    for k < 2895
      B[2897*j+k+2897] = add(add(A[2897*j+k+2896], A[2897*j+k+2898]), add(A[2897*j+k], A[2897*j+k+5794]))
  for l < 2895
    for m < 2895
      A[2897*l+m+2897] = B[2897*l+m+2897]
""", {"A": (1,), "B": (1,)})
    best = next(iter(loop_plans(region.scop, Context(ZEN5, Isa.AVX512, trips=12))))
    assert "12 time steps at once" in best.summary
    assert [str(leaf.dates[1].expression) for leaf in best.leaves] == ["j + 2*t + 1", "l + 2*t + 2"]
    check_loops(region.scop, best)


_BLOCKED = ["factors", "peeled factors", "square roots", "triangular product", "triangular solution"]


@pytest.mark.parametrize("name", _BLOCKED)
def test_blocks_leave_most_of_the_work_to_products(name: str) -> None:
    best = _plans(name)[0]
    assert best.summary.startswith("blocks of 64")
    assert any(leaf.promote and leaf.rows and leaf.sequential for leaf in best.leaves)


@pytest.mark.parametrize("name", _BLOCKED)
@pytest.mark.parametrize("steps", [2, 3])
def test_small_blocks_perform_the_same_operations(name: str, steps: int) -> None:
    small, context = _SMALL[name].scop, Context(ZEN5, Isa.AVX512, trips=9)
    counted, rebases = rebase(small)
    (blocking,) = blockings(counted, dependence_pieces(counted), 9, steps)
    found = AllenKennedy(blocking.scop, dependence_pieces(blocking.scop), context, 1, blocking.loops).blocked(blocking)
    made = LoopPlan(Isa.AVX512, blocking.scop.statements, tuple(o.leaf for o in found), rebases=rebases)
    check_loops(small, made)
    for trips in (2, 8):
        assert run_plan(small, made, trips) == run_scop(small, trips)


def _check_in_blocks(small: Scop, most: int) -> Scop:
    """The pieces of ``small`` in blocks of 3, which do what it does; R is ``most`` at most."""
    context, facts = Context(ZEN5, Isa.AVX512, trips=9), (Linear.symbol("R", -1, most),)
    (blocking,) = blockings(small, dependence_pieces(small, facts), 9, 3, facts)
    found = AllenKennedy(blocking.scop, dependence_pieces(blocking.scop, facts), context, 1,
                         blocking.loops).blocked(blocking)
    made = LoopPlan(Isa.AVX512, blocking.scop.statements, tuple(o.leaf for o in found))
    check_loops(small, made, facts=facts)
    for trips in (1, 2, most):
        assert run_plan(small, made, trips) == run_scop(small, trips)
    return blocking.scop


def test_rows_counted_from_the_last_one_have_the_dates_of_others() -> None:
    """A nest that is entered in its middle: the row comes from R, the columns count from 0."""
    small = nest_region("""
for i < R
  A[i-R+8,i-R+8] = sqrt(A[i-R+8,i-R+8])
  for j < i-R+9
    for k < j
      A[i-R+9,j] = sub(A[i-R+9,j], mul(A[i-R+9,k], A[j,k]))
    A[i-R+9,j] = div(A[i-R+9,j], A[j,j])
  for k < i-R+9
    A[i-R+9,i-R+9] = sub(A[i-R+9,i-R+9], mul(A[i-R+9,k], A[i-R+9,k]))
""", {"A": (10, 10)}).scop
    context, facts = Context(ZEN5, Isa.AVX512, trips=9), (Linear.symbol("R", -1, 8),)
    pairs = dependence_pieces(small, facts)
    (blocking,) = blockings(small, pairs, 9, 3, facts)
    inside = AllenKennedy(blocking.scop, dependence_pieces(blocking.scop, facts), context, 1,
                          blocking.loops).blocked(blocking)
    for scop, found in ((blocking.scop, inside), (small, AllenKennedy(small, pairs, context).made())):
        made = LoopPlan(Isa.AVX512, scop.statements, tuple(o.leaf for o in found))
        assert "-R + i + 8" in {str(leaf.dates[-2 if scop is small else 2]) for leaf in made.leaves}
        check_loops(small, made, facts=facts)
        if scop is not small:
            with pytest.raises(Rejected, match="left out"):
                check_loops(small, made)
        for trips in (1, 2, 8):
            assert run_plan(small, made, trips) == run_scop(small, trips)


@pytest.mark.parametrize(("row", "column"), [("i", "i-R+8"), ("i-R", "i-R+8"), ("i-R+8", "i")])
def test_columns_begin_elsewhere_than_rows(row: str, column: str) -> None:
    """A factorisation, its last column apart, entered in its middle: block by block all the same, and from block 0."""
    last = "8" if column != "i" else "R"
    small = nest_region(f"""
for i < R
  for j < R-i
    A[{row}+j+1,{column}] = div(A[{row}+j+1,{column}], A[{row},{column}])
    for k < R-i-1
      A[{row}+j+1,{column}+k+1] = sub(A[{row}+j+1,{column}+k+1], mul(A[{row},{column}+k+1], A[{row}+j+1,{column}]))
    A[{row}+j+1,{last}] = sub(A[{row}+j+1,{last}], mul(A[{row}+j+1,{column}], A[{row},{last}]))
""", {"A": (10, 10)}).scop
    assert len(_check_in_blocks(small, 8).statements) == 2 + 4 + 3


def test_blocks_of_loops_with_rows_and_of_such_without() -> None:
    """Where only some statements go over rows that are counted from R, all dates begin at the same one."""
    small = nest_region("""
for i < R
  A[i-R] = 0
  for j < i-R+10
    A[i-R] = add(A[i-R], mul(B[j], C[i-j]))
""", {"A": (1,), "B": (1,), "C": (1,)}).scop
    _check_in_blocks(small, 8)


def test_rows_that_are_gone_through_upwards_have_one_date_too() -> None:
    """From the last row up, entered in the middle: what a block needs of those below it is one product."""
    small = nest_region("""
for i < R
  x[R-i] = b[R-i]
  for j < i-R+9
    x[R-i] = sub(x[R-i], mul(U[R-i,9-j], x[9-j]))
  x[R-i] = div(x[R-i], U[R-i,R-i])
""", {"x": (1,), "b": (1,), "U": (10, 1)}).scop
    assert [s.conditions[2:] for s in _check_in_blocks(small, 9).statements if "mul" in str(s)] == [
        (Linear.build({"block": 3, "j": -1}, -1),), (Linear.build({"block": -3, "j": 1}),)]


def test_counters_start_where_subscripts_do() -> None:
    counted, rebases = rebase(_SMALL["factors"].scop)
    assert [str(r) for r in rebases] == ["S0 counts i from k + 1", "S1 counts i from k + 1", "S1 counts j from k + 1"]
    assert str(counted.statements[1]) == (
        "S1[k<R, i<9, j<9, i - k - 1 >= 0, j - k - 1 >= 0] at (0, 1, 0, 0): "
        "A[i, j] = sub(A[i, j], mul(A[i, k], A[k, j]))")


@pytest.mark.parametrize(("text", "together"), [
    ("add(add(A[i,j+1], A[i+1,j]), add(A[i+1,j+2], A[i+2,j+1]))", True),
    ("add(add(A[i,j+1], A[i,j]), add(A[i,j+2], C[i+2,j+1]))", False)])
def test_rows_run_together_where_they_read_the_same_cells(text: str, together: bool) -> None:
    region = nest_region(f"""
for i < R
  for j < 2000
    B[i,j] = {text}
""", dict.fromkeys("ABC", (2002, 2002)))
    (leaf,) = next(loop_plans(region.scop, Context(ZEN5, Isa.AVX512, trips=2000))).leaves
    assert leaf.vector == "j"
    assert (leaf.rows == "i" and leaf.row_count > 1) == together


@pytest.mark.parametrize(("inside", "refused"), [(4, True), (2000, False)])
def test_a_short_loop_in_vectors_is_not_made_one_in_wider_vectors(inside: int, refused: bool) -> None:
    """What can be gained of it is little, and its operands may lie further out than its own footprint tells."""
    region = nest_region(f"""
for i < R
  for j < {inside}
    B[i,j] = add(add(A[i,j], C[i,j]), D[i,j])
""", dict.fromkeys("ABCD", (1000, inside)))
    assert next(loop_plans(region.scop, Context(ZEN5, Isa.AVX512, trips=1000)))
    packed = loop_plans(region.scop, Context(ZEN5, Isa.AVX512, trips=1000, packed=32))
    if refused:
        with pytest.raises(Rejected, match=r"expected \d.\d\d times as fast"):
            next(packed)
    else:
        assert next(packed)


def test_lines_that_are_crossed_are_used_up_before_they_leave_the_cache() -> None:
    """Vectors along what is written, in strips around the loop along what is read."""
    (leaf,) = _plans("transposition")[0].leaves
    strips, inside = leaf.dates
    assert (strips.expression, strips.divisor) == (Linear.symbol(str(leaf.vector)), STRIP)
    assert inside.expression.symbols.isdisjoint(strips.expression.symbols)


def test_rows_run_one_by_one_where_that_is_what_memory_is_best_at() -> None:
    """Rows of a cube follow each other in memory: one sequence of lines; planes at once would be too many of them."""
    side = 173
    region = nest_region(f"""
for i < R
  for j < {side - 2}
    for k < {side - 2}
      B[i+1,j+1,k+1] = add(A[i+1,j+1,k+1], mul(K[i+1,j+1,k+1], add(add(add(A[i,j+1,k+1], A[i+2,j+1,k+1]),\
 add(A[i+1,j+1,k], A[i+1,j+1,k+2])), add(A[i+1,j,k+1], A[i+1,j+2,k+1]))))
""", dict.fromkeys("ABK", (side, side, side)))
    (leaf,) = next(loop_plans(region.scop, Context(ZEN5, Isa.AVX512, trips=side - 2))).leaves
    assert (leaf.vector, leaf.row_count) == ("k", 1)


def test_few_rows_run_together_where_each_is_a_sequence_of_lines() -> None:
    """Weights that no row moves do not make rows cheaper."""
    region = nest_region("""
for i < R
  for j < 2000
    B[i,j] = add(mul(w[0,0], A[i,j]), add(mul(w[0,1], A[i+1,j]), mul(w[1,0], A[i+2,j+1])))
""", {"A": (2002, 2002), "B": (2002, 2002), "w": (2, 2)})
    (leaf,) = next(loop_plans(region.scop, Context(ZEN5, Isa.AVX512, trips=2000))).leaves
    assert (leaf.rows, leaf.vector) == ("i", "j")
    assert 1 < leaf.row_count <= MOST_NEIGHBOURS


def test_a_mask_keeps_its_counters_and_its_sums_are_vectors() -> None:
    region = nest_region("""
for y < R
  for x < 2000
    out[y,x] = 0
    for dy < 7
      for dx < 7
        out[y,x] = add(out[y,x], mul(image[y+dy,x+dx], mask[dy,dx]))
""", {"out": (2000, 2000), "image": (2008, 2008), "mask": (7, 7)})
    assert rebase(region.scop)[1] == ()
    best = next(loop_plans(region.scop, Context(ZEN5, Isa.AVX512, trips=2000)))
    sums = best.leaves[1]
    assert (sums.vector, sums.promote) == ("x", True)


def test_statements_that_no_loop_goes_round_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random nests have some that depend on each other in every direction, inside of what was tried around them."""
    monkeypatch.setattr(AllenKennedy, "_serial", lambda *_: iter(()))
    with pytest.raises(Rejected) as refusal:
        list(loop_plans(_LARGE["factors"].scop, Context(ZEN5, Isa.AVX512, trips=2000)))
    assert refusal.value.reason is Reason.NO_SCHEDULE


def test_a_row_that_is_not_known_until_entry_is_in_any_block() -> None:
    """for i < 18: a[i] = a[i + n]"""
    i, array = Linear.symbol("i"), Array("A0", ElementType.I64, Linear.symbol("p"), (8,))
    copy = Statement("S0", (Dimension("i", Linear.of(18)),), Access("A0", (i,)),
                     (Access("A0", (i + Linear.symbol("n"),)),), Read(0), (0, 0))
    scop = Scop((array,), (copy,))
    assert not list(blockings(scop, dependence_pieces(scop), 9))
