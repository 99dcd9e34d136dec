"""The passes of the contraction schedule: a plan for each loop order, or a refusal that names its reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from memopt.ir.linear import Linear
from memopt.ir.plan import Isa, Plan, RegisterTile, TileLoop
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.ir.region import Region
from memopt.ir.scop import FLOATS, Access, Apply, Dimension, ElementType, Read
from passes.context import Context
from passes.contraction_schedule.base import ScheduledRegion, verify
from passes.contraction_schedule.contraction import contraction
from passes.contraction_schedule.distribution import distribute
from passes.contraction_schedule.interchange import Interchange
from passes.contraction_schedule.pipeline import PIPELINE, initial, schedule
from passes.contraction_schedule.profitability import Profitability
from tests.support.machines import HASWELL, SMALL, ZEN5
from tests.support.plans import plan
from tests.support.products import A, B, C, Layout, product

_ORDERS = ("ijk", "ikj", "jik", "jki", "kij", "kji")
_SIZES = {"i": 2048, "j": 2048, "k": 2048}


def _region(order: str = "ijk", n: int = 2048, element: ElementType = ElementType.F64) -> Region:
    return product(order, dict.fromkeys("ijk", n), element)


def _refusal(region: Region, isa: Isa = Isa.AVX512, trips: int | None = None) -> Rejected:
    with pytest.raises(Rejected) as refusal:
        plan(region, ZEN5, isa, trips=trips)
    return refusal.value


def _with_write(region: Region, write: Access) -> Region:
    (statement,) = region.scop.statements
    moved = replace(statement, write=write, reads=(write, *statement.reads[1:]))
    return replace(region, scop=replace(region.scop, statements=(moved,)))


def _with_reads(region: Region, *others: Access) -> Region:
    (statement,) = region.scop.statements
    changed = replace(statement, reads=(statement.write, *others))
    return replace(region, scop=replace(region.scop, statements=(changed,)))


@pytest.mark.parametrize("order", _ORDERS)
@pytest.mark.parametrize("isa", list(Isa))
@pytest.mark.parametrize("element", list(FLOATS))
def test_every_loop_order_has_a_plan_the_leaf_compiler_takes(order: str, isa: Isa, element: ElementType) -> None:
    for n in (17, 100, 256, 1009, 2048, 4000):
        region = _region(order, n, element)
        made = plan(region, ZEN5, isa)
        assert (made.tile.rows, made.tile.vector, made.tile.reduction) == ("i", "j", "k")
        assert made.tile.lanes * element.size == isa.vector_bytes
        assert [t.dimension for t in made.loops] == ["j", "k", "i", "j", "i"]
        assert {(p.read, p.dimension, p.level) for p in made.packs} == {(1, "i", 2), (2, "j", 1)}
        assert contraction(region, made).plan == made
        assert not made.fuse_multiply_add


def test_register_tiles() -> None:
    tiles = {isa: plan(_region(), ZEN5, isa).tile for isa in Isa}
    assert {isa: (t.row_count, t.vector_count) for isa, t in tiles.items()} == {
        Isa.AVX512: (8, 3), Isa.AVX2: (6, 2), Isa.SSE2: (6, 2)
    }


def test_column_major_results_make_the_other_loop_the_vector() -> None:
    layouts = dict.fromkeys("abc", Layout(transposed=True))
    made = plan(product("jki", _SIZES, layouts=layouts), ZEN5, Isa.AVX2)
    assert (made.tile.rows, made.tile.vector, made.tile.reduction) == ("j", "i", "k")


def test_transposed_operands_are_packed() -> None:
    for name in "ab":
        made = plan(product("ijk", _SIZES, layouts={name: Layout(transposed=True)}), ZEN5, Isa.AVX2)
        assert len(made.packs) == 2


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 8, 9, 24, 25])
@pytest.mark.parametrize("order", _ORDERS)
def test_short_loops_get_a_plan_or_a_reason(order: str, n: int) -> None:
    for isa in Isa:
        region = _region(order, n)
        try:
            made = plan(region, ZEN5, isa)
        except Rejected as refusal:
            if refusal.reason not in (Reason.NO_PLAN, Reason.TOO_SHORT):
                raise
        else:
            contraction(region, made)


def test_short_work_is_not_worth_a_guard() -> None:
    assert _refusal(_region(n=8), trips=8).reason is Reason.TOO_SHORT
    assert plan(_region(n=64), ZEN5, Isa.AVX512, trips=64).packs


def test_a_plan_that_does_not_pay_is_refused() -> None:
    """One column of results: seven of eight lanes idle, and nothing to share."""
    region = product("ikj", {"i": 4096, "j": 1, "k": 64})
    assert _refusal(region).reason is Reason.NO_PLAN
    context = Context(ZEN5, Isa.AVX512)
    passes = (*PIPELINE[:5], Profitability(least_gain=0.0))
    gain = schedule(region, context, passes).estimate
    assert gain is not None
    assert gain.gain < 1.3


def test_tile_sizes_come_from_the_machine() -> None:
    large, small = (plan(_region(), machine, Isa.SSE2) for machine in (ZEN5, SMALL))
    element, tile = 8, small.tile

    def block(made: Plan, dimension: str) -> int:
        return next(t.size for t in made.loops if t.dimension == dimension)

    assert block(large, "i") > block(small, "i")
    assert block(small, "j") % (tile.vector_count * tile.lanes) == 0
    copies = tile.lanes
    assert block(small, "i") * block(small, "k") * element * copies <= max(
        SMALL.level(2).share // 2, tile.row_count * block(small, "k") * element * copies
    )
    assert plan(_region(), HASWELL, Isa.AVX2) != plan(_region(), ZEN5, Isa.AVX2)


def test_fused_multiply_add_only_when_allowed_and_there() -> None:
    region = _region()
    assert plan(region, ZEN5, Isa.AVX512, "fast").fuse_multiply_add
    assert plan(region, HASWELL, Isa.AVX2, "fast").fuse_multiply_add
    assert not plan(region, replace(HASWELL, extensions=("sse2", "avx", "avx2")), Isa.AVX2, "fast").fuse_multiply_add
    assert not plan(region, ZEN5, Isa.SSE2, "fast").fuse_multiply_add
    assert not plan(region, ZEN5, Isa.AVX512, "exact").fuse_multiply_add
    smallest = product("ijk", _SIZES, expression=Apply("min", (C, Apply("mul", (A, B)))))
    assert not plan(smallest, ZEN5, Isa.AVX512, "fast").fuse_multiply_add


def test_several_reductions_keep_their_order() -> None:
    """c[i, j] += a[i, p, k] * b[p, k, j]: p stays outside, one at a time."""
    region = _region()
    (statement,) = region.scop.statements
    i, j, k, p = (Linear.symbol(n) for n in "ijkp")
    dimensions = (Dimension("i", Linear.symbol("R")), Dimension("p", Linear.of(3)), *statement.dimensions[1:])
    reads = (statement.write, Access("a", (i, k + p * 2048)), Access("b", (k + p * 2048, j)))
    statement = replace(statement, dimensions=dimensions, reads=reads, position=(0,) * 5)
    made = plan(replace(region, scop=replace(region.scop, statements=(statement,))), ZEN5, Isa.AVX2)
    assert made.loops[0] == TileLoop("p", 1)
    assert made.tile.reduction == "k"


def _refused() -> Iterator[tuple[str, Region, Reason]]:
    region = _region()
    (statement,) = region.scop.statements
    i, j, k = (Linear.symbol(n) for n in "ijk")
    second = replace(statement, name="S1", position=(0, 0, 0, 1))
    yield "2 statements", replace(region, scop=replace(region.scop, statements=(statement, second))), Reason.NO_PLAN
    triangle = replace(statement, dimensions=(*statement.dimensions[:2], Dimension("k", i + 1)))
    yield "not constant", replace(region, scop=replace(region.scop, statements=(triangle,))), Reason.NO_PLAN
    empty = replace(statement, dimensions=(*statement.dimensions[:2], Dimension("k", Linear.of(0))))
    yield "no iterations", replace(region, scop=replace(region.scop, statements=(empty,))), Reason.NO_PLAN
    copy = replace(statement, reads=statement.reads[1:], expression=Apply("mul", (Read(0), Read(1))))
    yield "not accumulated", replace(region, scop=replace(region.scop, statements=(copy,))), Reason.NO_PLAN
    yield "read elsewhere", _with_reads(region, Access("c", (k, j)), statement.reads[2]), Reason.OVERLAP
    yield "no two loops", _with_reads(region, Access("a", (i, j)), statement.reads[2]), Reason.NO_PLAN
    yield "nothing is accumulated", _with_write(region, Access("c", (i, j + k))), Reason.NO_PLAN
    yield "no loop walks", _with_write(region, Access("c", (Linear.of(0), Linear.of(0)))), Reason.NO_PLAN
    narrow = replace(region.scop.array("a"), element=ElementType.F32)
    arrays = (region.scop.arrays[0], narrow, region.scop.arrays[2])
    yield "mixed", replace(region, scop=replace(region.scop, arrays=arrays)), Reason.NO_PLAN
    yield "keeps the dependences", _with_write(region, Access("c", (Linear.of(0), i + j))), Reason.NO_SCHEDULE


@pytest.mark.parametrize(("words", "region", "reason"), list(_refused()), ids=[r[0] for r in _refused()])
def test_other_shapes_are_refused_by_name(words: str, region: Region, reason: Reason) -> None:
    refusal = _refusal(region)
    assert refusal.reason is reason
    assert words in refusal.detail


def test_the_observer_sees_every_pass() -> None:
    seen: list[tuple[str, str]] = []
    plan(_region(), ZEN5, Isa.AVX512, observer=lambda name, state: seen.append((name, str(state))))
    assert [name for name, _ in seen] == [p.name for p in PIPELINE]
    assert len({name for name, _ in seen}) == len(seen)
    assert "[k] }" in seen[0][1]


def test_interchange_does_not_believe_strides_alone() -> None:
    """The scheduler's own check, without the second one: one cell reached from two rows."""
    region = _with_write(_region(), Access("c", (Linear.of(0), Linear.symbol("i") + Linear.symbol("j"))))
    context = Context(ZEN5, Isa.AVX512)
    with pytest.raises(Rejected) as refusal:
        Interchange().run(initial(region, context), context)
    assert refusal.value.reason is Reason.NO_SCHEDULE


def _broken() -> Iterator[tuple[str, ScheduledRegion]]:
    state = schedule(_region(), Context(ZEN5, Isa.AVX512))
    yield "does not cover", replace(state, points=("k",), loops=state.loops[:1])
    yield "appears twice", replace(state, points=("k", "k", "j", "i"))
    yield "does not nest", replace(state, loops=(TileLoop("j", 25), *state.loops[1:]))
    yield "not visited", replace(state, points=("k", "j"))
    yield "roles do not cover", replace(state, roles=replace(state.roles, rows="j") if state.roles else None)
    yield "does not fit", replace(state, tile=RegisterTile("i", 16, "j", 3, 8, "k"))
    yield "no operand", replace(state, packs=(replace(state.packs[0], read=0),))


@pytest.mark.parametrize(("words", "state"), list(_broken()), ids=[b[0] for b in _broken()])
def test_broken_values_are_bugs_of_ours(words: str, state: ScheduledRegion) -> None:
    with pytest.raises(VerifyError, match=words):
        verify(state, Context(ZEN5, Isa.AVX512))


def test_a_single_cell_is_no_contraction() -> None:
    region = _region()
    cell = Access(region.scop.arrays[0].name, ())
    assert _with_write(region, cell).scop.statements[0].write == cell
    with pytest.raises(Rejected) as refusal:
        distribute(_with_write(region, cell))
    assert refusal.value.reason is Reason.NO_PLAN
