"""Broken loop plans are refused, by name; what is accepted performs the same operations."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from memopt.ir.linear import Linear
from memopt.ir.plan import Date, Isa, Leaf, LoopPlan, Rebase, Storage
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Dimension, Scop
from passes.context import Context
from passes.legality.loops import check_loops
from passes.loop_schedule.candidates import loop_plans
from passes.loop_schedule.rebasing import counted_from, rebase
from tests.support.affine_nests import nests
from tests.support.effort import some
from tests.support.loop_runs import fitted, run_plan, run_scop
from tests.support.machines import ZEN5
from tests.support.nests import linear, scop

_NESTS = nests(6)


def _plan(made: Scop, *leaves: Leaf, storage: tuple[Storage, ...] = ()) -> LoopPlan:
    return LoopPlan(Isa.AVX2, made.statements, leaves, storage)


def _dates(*texts: str) -> tuple[Date, ...]:
    """``i/8`` is a quotient."""
    parts = (t.split("/") for t in texts)
    return tuple(Date(linear(p[0]), int(p[1]) if len(p) > 1 else 1) for p in parts)


def _refusal(made: Scop, plan: LoopPlan) -> str:
    with pytest.raises(Rejected) as refusal:
        check_loops(made, plan)
    assert refusal.value.reason is Reason.NO_SCHEDULE
    return refusal.value.detail


_PRODUCT = scop("""
for i < R
  for j < 20
    for k < i+1
      C[i,j] = add(C[i,j], mul(A[i,k], B[k,j]))
""", {"A": (20, 20), "B": (20, 20), "C": (20, 20)})
_TILE = Leaf("S0", _dates("i/4", "k/8"), "k", "i", 4, "j", 2, True)


def test_a_register_tile_over_a_triangle() -> None:
    check_loops(_PRODUCT, _plan(_PRODUCT, _TILE))
    check_loops(_PRODUCT, _plan(_PRODUCT, replace(_TILE, dates=_dates("k/8", "i/4"))))
    assert "order" in _refusal(_PRODUCT, _plan(_PRODUCT, replace(_TILE, dates=_dates("i/4", "-1*k/8"))))
    assert "order" in _refusal(_PRODUCT, _plan(_PRODUCT, replace(_TILE, sequential=None, dates=_dates("i/4", "-1*k"),
                                                                 promote=False)))
    assert "order" in _refusal(_PRODUCT, _plan(_PRODUCT, replace(_TILE, sequential="i", rows="k", promote=False)))
    assert "fix" in _refusal(_PRODUCT, _plan(_PRODUCT, replace(_TILE, rows=None)))
    assert "moves" in _refusal(_PRODUCT, _plan(_PRODUCT, Leaf("S0", _dates("k"), "i", None, 1, "j", 1, True)))
    assert "no loop" in _refusal(_PRODUCT, _plan(_PRODUCT, Leaf("S0", _dates("k"), None, "i", 1, "j", 1, True)))
    assert "different loops" in _refusal(_PRODUCT, _plan(_PRODUCT, replace(_TILE, rows="j")))
    assert "empty" in _refusal(_PRODUCT, _plan(_PRODUCT, replace(_TILE, row_count=0)))
    assert "not its own" in _refusal(_PRODUCT, _plan(_PRODUCT, replace(_TILE, dates=_dates("i/4", "l"))))
    assert "one for each" in _refusal(_PRODUCT, LoopPlan(Isa.AVX2, _PRODUCT.statements, ()))


def test_lanes_do_not_depend_on_each_other_along_the_sequence() -> None:
    """All steps of one vector run before those of the next one."""
    made = scop("""
for k < R
  for i < 40
    A[k+1,i] = mul(A[k,i+1], B[i])
""", {"A": (50, 50), "B": (50,)})
    assert "order" in _refusal(made, _plan(made, Leaf("S0", _dates("0"), "k", vector="i")))
    check_loops(made, _plan(made, Leaf("S0", _dates("k"), vector="i")))


def test_an_operand_that_is_written_may_not_be_promoted_over() -> None:
    inside = scop("""
for i < R
  for k < 9
    C[i] = add(C[i], C[i+k-4])
""", {"C": (9,)})
    leaf = Leaf("S0", _dates("i"), "k")
    check_loops(inside, _plan(inside, leaf))
    assert "while it is kept" in _refusal(inside, _plan(inside, replace(leaf, promote=True)))


def test_a_front_must_be_steep_enough() -> None:
    made = _NESTS["in place, nine points"].scop
    check_loops(made, _plan(made, Leaf("S0", _dates("t", "2*i+j"), vector="i")))
    wide = scop("""
for i < R
  for j < 9
    A[i+1,j+2] = add(A[i+1,j+1], A[i,j+4])
""", {"A": (20, 20)})
    check_loops(wide, _plan(wide, Leaf("S0", _dates("3*i+j"), vector="i")))
    assert "order" in _refusal(wide, _plan(wide, Leaf("S0", _dates("2*i+j"), vector="i")))
    assert "order" in _refusal(wide, _plan(wide, Leaf("S0", _dates("i"), vector="j")))


def test_time_tiles_need_their_shift() -> None:
    made = _NESTS["jacobi"].scop

    def tiled(slope: int, shift: int, constants: tuple[int, int] = (0, 1)) -> LoopPlan:
        first, second = (_dates("t/4", f"i+{slope}*t+{s}", "t", str(c))
                         for s, c in zip((0, shift), constants, strict=True))
        return _plan(made, Leaf("S0", first, vector="j"), Leaf("S1", second, vector="j"))

    check_loops(made, tiled(2, 1))
    assert _refusal(made, tiled(1, 1))
    assert _refusal(made, tiled(2, 0))
    check_loops(made, tiled(3, 1))
    check_loops(made, tiled(3, 2))
    assert _refusal(made, tiled(3, 4))
    swapped = tiled(2, 1)
    late = tuple(replace(x, dates=(x.dates[0], x.dates[1], x.dates[3], x.dates[2])) for x in swapped.leaves)
    assert _refusal(made, replace(swapped, leaves=late))


def test_pieces_are_the_whole_statement() -> None:
    (whole,) = _NESTS["shortest paths"].scop.statements
    made = _NESTS["shortest paths"].scop
    ahead, behind = linear("j-k-1"), linear("k-j-1")
    at = (linear("j-k"), linear("k-j"))
    pieces = (replace(whole, name="S0a", conditions=(behind,)), replace(whole, name="S0b", conditions=at),
              replace(whole, name="S0c", conditions=(ahead,)))
    leaves = tuple(Leaf(p.name, _dates("k", str(n), "i"), vector="j") for n, p in enumerate(pieces))

    def plan(*kept: int) -> LoopPlan:
        return LoopPlan(Isa.AVX2, tuple(pieces[n] for n in kept), tuple(leaves[n] for n in kept))

    assert "left out" in _refusal(made, plan(0, 1))
    twice = replace(plan(0, 1, 2), statements=(pieces[0], replace(pieces[1], conditions=()), pieces[2]))
    assert "two pieces" in _refusal(made, twice)
    assert "no piece" in _refusal(made, replace(plan(0, 1, 2), statements=(
        *pieces[:2], replace(pieces[2], write=whole.reads[1]))))


def test_blocks_belong_to_one_instance_each() -> None:
    (whole,) = _PRODUCT.statements
    block = Dimension("b", Linear.symbol("R"))
    tied = (linear("i-4*b"), linear("4*b+3-i"))
    piece = replace(whole, dimensions=(*whole.dimensions, block), position=(*whole.position, 0), conditions=tied)
    leaf = replace(_TILE, dates=_dates("b", "k/8"))
    check_loops(_PRODUCT, LoopPlan(Isa.AVX2, (piece,), (leaf,)))
    loose = replace(piece, conditions=(tied[0], linear("4*b+4-i")))
    assert "twice" in _refusal(_PRODUCT, LoopPlan(Isa.AVX2, (loose,), (leaf,)))
    tight = replace(piece, conditions=(tied[0], linear("4*b+2-i")))
    assert "left out" in _refusal(_PRODUCT, LoopPlan(Isa.AVX2, (tight,), (leaf,)))
    few = replace(piece, dimensions=(*whole.dimensions, Dimension("b", Linear.of(3))))
    assert "left out" in _refusal(_PRODUCT, LoopPlan(Isa.AVX2, (few,), (leaf,)))


def test_counters_move_by_what_surrounds_them() -> None:
    made = _NESTS["factors"].scop
    counted, rebases = rebase(made)
    leaves = (Leaf("S0", _dates("k", "0"), vector="i"), Leaf("S1", _dates("k", "1"), rows="i", vector="j"))
    right = LoopPlan(Isa.AVX2, counted.statements, leaves, rebases=rebases)
    check_loops(made, right)
    assert "no piece" in _refusal(made, replace(right, rebases=rebases[:2]))
    assert "no piece" in _refusal(made, replace(right, rebases=(*rebases[:2], replace(rebases[2], by=linear("k+2")))))
    assert "fixed" in _refusal(made, replace(right, rebases=(replace(rebases[0], by=linear("i+1")), *rebases[1:])))
    assert "fixed" in _refusal(made, replace(right, rebases=(rebases[0], rebases[2], rebases[1])))
    negative = Rebase("S0", "i", linear("k-1"))
    moved = replace(counted, statements=(counted_from(made.statements[0], 1, negative.by), counted.statements[1]))
    assert "negative" in _refusal(made, LoopPlan(Isa.AVX2, moved.statements, leaves, rebases=(negative, *rebases[1:])))


def test_private_values_need_their_room() -> None:
    made = _NESTS["private sum"].scop
    leaves = tuple(Leaf(f"S{n}", _dates("i/8", str(n)), "j" if n == 1 else None, vector="i", promote=n == 1)
                   for n in range(3))

    def stored(origin: Linear, size: int) -> LoopPlan:
        return _plan(made, *leaves, storage=(Storage("t_s", (origin,), (size,)),))

    check_loops(made, stored(linear("8*d0"), 8))
    assert "outside" in _refusal(made, stored(linear("8*d0"), 7))
    assert "outside" in _refusal(made, stored(linear("8*d0+1"), 8))
    assert "outside" in _refusal(made, stored(Linear(), 1000))
    check_loops(made, replace(stored(Linear(), 1000), most_trips=1000))
    assert "outside" in _refusal(made, replace(stored(Linear(), 1000), most_trips=1001))
    check_loops(made, stored(Linear(), 1000), facts=(linear("1000-R"),))
    with pytest.raises(Rejected):
        check_loops(made, stored(Linear(), 1000), facts=(linear("1001-R"),))
    assert "0 places" in _refusal(made, _plan(made, *leaves))
    apart = tuple(replace(x, dates=(x.dates[1], x.dates[0])) for x in leaves)
    assert "longer" in _refusal(made, replace(stored(linear("8*d1"), 8), leaves=apart))


def test_unknown_is_illegal() -> None:
    with pytest.raises(Rejected) as refusal:
        check_loops(_PRODUCT, _plan(_PRODUCT, _TILE), operations=10)
    assert refusal.value.reason is Reason.NO_SCHEDULE


def _mutations(plan: LoopPlan, source: random.Random) -> Iterator[LoopPlan]:
    """The plan with one fault, or with a change that may be harmless."""
    for number, leaf in enumerate(plan.leaves):
        def with_leaf(changed: Leaf, number: int = number) -> LoopPlan:
            return replace(plan, leaves=(*plan.leaves[:number], changed, *plan.leaves[number + 1:]))

        for at, date in enumerate(leaf.dates):
            for expression in (-date.expression, date.expression + source.choice((1, -1, 2))):
                yield with_leaf(replace(leaf, dates=(*leaf.dates[:at], replace(date, expression=expression),
                                                     *leaf.dates[at + 1:])))
        if len(leaf.dates) > 1:
            yield with_leaf(replace(leaf, dates=(*leaf.dates[1:], leaf.dates[0])))
        yield with_leaf(replace(leaf, vector=leaf.sequential, sequential=leaf.vector, promote=False))
        yield with_leaf(replace(leaf, promote=not leaf.promote))
    if len(plan.leaves) > 1:
        swapped = list(plan.leaves)
        a, b = source.sample(range(len(swapped)), 2)
        swapped[a], swapped[b] = (replace(swapped[a], dates=swapped[b].dates),
                                  replace(swapped[b], dates=swapped[a].dates))
        yield replace(plan, leaves=tuple(swapped))


@pytest.mark.parametrize("name", some(_NESTS, 5))
def test_what_is_accepted_is_right(name: str) -> None:
    made = _NESTS[name].scop
    source = random.Random(name)
    seen: Counter[str] = Counter()
    try:
        large = nests(2000)[name].scop
        (plan, *_) = loop_plans(large, Context(ZEN5, Isa.AVX512, trips=2000))
    except Rejected:
        pytest.skip("no plan")
    mutants = list(_mutations(fitted(plan, large, made), source))
    for mutant in source.sample(mutants, min(len(mutants), 20)):
        try:
            same = all(run_plan(made, mutant, trips) == run_scop(made, trips) for trips in (2, 5))
        except (AssertionError, KeyError):  # no room, or a date of another statement's
            same = False
        try:
            check_loops(made, mutant)
            assert same, str(mutant)
            seen["accepted"] += 1
        except Rejected:
            seen["refused, right" if same else "refused, wrong"] += 1
    assert seen["refused, wrong"] or len(plan.leaves) == 1, seen
