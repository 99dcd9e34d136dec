from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.ir.linear import Linear
from memopt.ir.plan import Isa, Pack, Plan, TileLoop
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Access, Dimension, Scop, Statement
from passes.legality.contractions import check, dates, order_violations
from tests.support.machines import ZEN5
from tests.support.plans import plan
from tests.support.products import product

_REGION = product("ijk", {"i": 2048, "j": 2048, "k": 2048})
_SCOP = _REGION.scop
_STATEMENT = _SCOP.statements[0]
_PLAN = plan(_REGION, ZEN5, Isa.AVX512)


def _refusal(made: Plan, scop: Scop = _SCOP) -> str:
    with pytest.raises(Rejected) as refusal:
        check(scop, made)
    assert refusal.value.reason is Reason.NO_SCHEDULE
    return refusal.value.detail


def _with_statement(statement: Statement) -> Scop:
    return replace(_SCOP, statements=(statement,))


def test_the_plan_itself_is_legal() -> None:
    check(_SCOP, _PLAN)
    assert not list(order_violations(_SCOP, dates(_STATEMENT, _PLAN)))


def test_a_reversed_reduction_is_caught() -> None:
    times = dates(_STATEMENT, _PLAN)
    assert times[-1] == "{2}"
    assert list(order_violations(_SCOP, (*times[:-1], "-{2}")))
    blocks = tuple(t.replace("floor({2}", "-floor({2}") for t in times)
    assert blocks != times
    assert list(order_violations(_SCOP, blocks))


def test_a_dropped_dimension_is_caught() -> None:
    times = dates(_STATEMENT, _PLAN)
    assert list(order_violations(_SCOP, times[:-1])), "without the reduction"
    for number, loop in enumerate(_PLAN.loops[3:], 3):
        without = replace(_PLAN, loops=(*_PLAN.loops[:number], *_PLAN.loops[number + 1 :]))
        assert "left out or repeated" in _refusal(without), loop


def test_swapped_roles_are_caught() -> None:
    tile = _PLAN.tile
    rows_for_vector = replace(_PLAN, tile=replace(tile, rows=tile.vector, vector=tile.rows))
    assert _refusal(rows_for_vector)
    loops = tuple(replace(t, dimension={"i": "j", "j": "i"}.get(t.dimension, t.dimension)) for t in _PLAN.loops)
    packs = tuple(replace(p, dimension={"i": "j", "j": "i"}[p.dimension], read=3 - p.read) for p in _PLAN.packs)
    check(_SCOP, replace(rows_for_vector, loops=loops, packs=packs))  # slow, with lanes far apart, but right
    rows_for_reduction = replace(_PLAN, tile=replace(tile, rows="k", reduction="i"))
    assert _refusal(rows_for_reduction)
    loops = tuple(replace(t, dimension={"i": "k", "k": "i"}.get(t.dimension, t.dimension)) for t in _PLAN.loops)
    detail = _refusal(replace(rows_for_reduction, loops=loops, packs=()))
    assert "change their order" in detail


def test_reductions_that_overlap_their_blocks_are_caught() -> None:
    loops = (*_PLAN.loops[:2], TileLoop("k", 7), *_PLAN.loops[2:])
    assert "overlaps" in _refusal(replace(_PLAN, loops=loops))
    two = (TileLoop("k", 512), *(t for t in _PLAN.loops if t.dimension != "k"))
    check(_SCOP, replace(_PLAN, loops=two, packs=()))


def test_an_operand_that_is_written_is_caught() -> None:
    aliased = replace(_STATEMENT, reads=(_STATEMENT.write, Access("c", _STATEMENT.reads[1].subscripts),
                                         _STATEMENT.reads[2]))
    assert "is written" in _refusal(_PLAN, _with_statement(aliased))


def test_packing_the_results_is_caught() -> None:
    assert "is written" in _refusal(replace(_PLAN, packs=(*_PLAN.packs, Pack(0, "i", 8, 2))))


def test_a_pack_made_too_early_is_caught() -> None:
    rows, vector = _PLAN.packs
    outer = Dimension("p", Linear.of(3))
    later = Access("b", (Linear.symbol("k") + Linear.symbol("p") * 2048, Linear.symbol("j")))
    scop = _with_statement(replace(_STATEMENT, dimensions=(_STATEMENT.dimensions[0], outer, *_STATEMENT.dimensions[1:]),
                                   reads=(*_STATEMENT.reads[:2], later), position=(0,) * 5))
    packs = tuple(replace(p, level=p.level + 1) for p in _PLAN.packs)
    nested = replace(_PLAN, loops=(TileLoop("p", 1), *_PLAN.loops), packs=packs)
    check(scop, nested)
    inside = replace(_PLAN, loops=(*_PLAN.loops[:2], TileLoop("p", 1), *_PLAN.loops[2:]), packs=packs)
    assert "change their order" in _refusal(inside, scop)
    assert "out of date" in _refusal(replace(inside, packs=(replace(packs[1], level=1),)), scop)
    moved = replace(_PLAN, packs=(replace(rows, dimension="j"), vector))
    assert "several" in _refusal(moved)
    assert "no loop" in _refusal(replace(_PLAN, packs=(replace(rows, level=9), vector)))
    assert "no operand" in _refusal(replace(_PLAN, packs=(rows, vector, replace(rows, read=7))))


def test_results_that_share_a_cell_or_move_are_caught() -> None:
    i, j, k = (Linear.symbol(n) for n in "ijk")
    for subscripts, what in (((Linear.of(0), i + j), "change their order"), ((k, j), "change their order"),
                             ((Linear.of(0), j), "change their order"), ((i, j + k), "change their order")):
        write = Access("c", subscripts)
        moved = replace(_STATEMENT, write=write, reads=(write, *_STATEMENT.reads[1:]))
        assert what in _refusal(_PLAN, _with_statement(moved))


def test_a_result_without_dependences_may_still_not_move() -> None:
    """c[i, j, k] = ... has nothing to keep in order, but is no accumulator."""
    i, j, k = (Linear.symbol(n) for n in "ijk")
    write = Access("c", (i, k * 4096 + j))
    scop = _with_statement(replace(_STATEMENT, write=write, reads=(write, *_STATEMENT.reads[1:])))
    assert not list(order_violations(scop, dates(_STATEMENT, _PLAN)))
    assert "moves while it is kept" in _refusal(_PLAN, scop)


def test_other_statements_in_the_nest_are_refused() -> None:
    other = replace(_STATEMENT, name="S1", position=(0, 0, 0, 1))
    assert "2 statements" in _refusal(_PLAN, replace(_SCOP, statements=(_STATEMENT, other)))


def test_unknown_is_illegal() -> None:
    with pytest.raises(Rejected) as refusal:
        check(_SCOP, _PLAN, operations=10)
    assert refusal.value.reason is Reason.NO_SCHEDULE
