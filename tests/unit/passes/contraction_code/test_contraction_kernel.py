"""Kernels run in this process and compared with scalar code: bytes of all arrays and exception flags."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from memopt.ir.code import Placement
from memopt.ir.linear import Linear
from memopt.ir.plan import Isa, Pack, Plan, TileLoop
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.ir.region import LiveIn, Region, Register, Trips
from memopt.ir.scop import (
    FLOATS,
    Access,
    Apply,
    Array,
    Constant,
    Dimension,
    ElementType,
    Expression,
    Scalar,
    Scop,
    Statement,
)
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import Instruction, Label
from passes.contraction_code.contraction_kernel import scratch_bytes
from passes.contraction_schedule.contraction import contraction
from passes.version.kernel import kernel
from tests.support.effort import some
from tests.support.inprocess import Buffer, NativeKernel, host_isas
from tests.support.kernel_check import check
from tests.support.products import MULTIPLY_ADD, A, B, C, Layout, product, tiled, with_symbols

ISAS = [pytest.param(isa, id=isa.value, marks=pytest.mark.skipif(isa not in host_isas(), reason="not this machine"))
        for isa in Isa]
TILES = {Isa.SSE2: ((6, 2), (4, 3), (1, 1)), Isa.AVX2: ((6, 2), (4, 3), (3, 1)),
         Isa.AVX512: ((8, 3), (14, 2), (6, 4), (4, 1))}
BOUNDED = ("vkrvr", "vkrrv")  # a loop over blocks of each dimension, so that all panels have a size
NESTS = ("vkrvr", "vkvr", "krvrv", "vkrrv", "krvkvr", "rvkvr", "kvr", "krv")
ALPHA, BETA = Scalar("xmm1"), Scalar("xmm0")


def apply(operator: str, *operands: Expression) -> Apply:
    return Apply(operator, operands)


def constant(element: ElementType) -> Constant:
    return Constant(0x3FF8_0000_0000_0000 if element is ElementType.F64 else 0x3FC0_0000)


def scalars(element: ElementType) -> tuple[int, int]:
    return (0x3FF8_0000_0000_0000, 0x7FF8_0000_0000_0077) if element is ElementType.F64 else (0x3FC0_0000, 0x7FC0_0077)


def whole_scalars(element: ElementType) -> tuple[int, int]:
    """2 and -3."""
    return (0x4000_0000_0000_0000, 0xC008_0000_0000_0000) if element is ElementType.F64 else (0x4000_0000, 0xC040_0000)


def expressions(element: ElementType) -> tuple[Expression, ...]:
    k = constant(element)
    return (
        MULTIPLY_ADD,
        apply("add", C, apply("mul", B, A)),
        apply("add", apply("mul", A, B), C),
        apply("sub", apply("mul", B, A), C),
        apply("sub", C, apply("mul", apply("mul", BETA, A), B)),
        apply("add", C, apply("mul", A, apply("mul", B, ALPHA))),
        apply("add", C, apply("mul", apply("mul", A, B), k)),
        apply("add", C, apply("mul", apply("add", ALPHA, k), apply("mul", A, B))),
        apply("add", apply("mul", C, k), apply("mul", A, B)),
        apply("add", C, apply("div", A, B)),
        apply("add", C, A),
        apply("add", B, C),
        apply("min", C, apply("add", A, B)),
        apply("max", apply("add", A, B), C),
        apply("add", C, apply("mul", apply("sqrt", A), apply("sub", B, k))),
    )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("order", some(["ijk", "ikj", "jik", "jki", "kij", "kji"], 2))
def test_every_loop_order_is_bit_exact(isa: Isa, element: ElementType, order: str) -> None:
    sizes = {"i": 29, "j": 61, "k": 37}
    region = product(order, sizes, element)
    plan = tiled(region, isa, TILES[isa][0], {"r": 16, "v": 24, "k": 10})
    for seed, iterations in enumerate((1, 2, sizes[order[0]] - 1, sizes[order[0]])):
        check(region, plan, sizes, iterations, seed=seed, specials=0.02 * (seed % 2))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("element", some(FLOATS, 1))
def test_every_expression_keeps_operand_order(isa: Isa, element: ElementType) -> None:
    sizes = {"i": 13, "j": 27, "k": 9}
    for seed, expression in enumerate(expressions(element)):
        region = product("ijk", sizes, element, expression)
        for tile in TILES[isa]:
            check(region, tiled(region, isa, tile), sizes, 13, seed=seed, specials=0.3, scalars=scalars(element))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("seed", range(24))
def test_random_shapes(isa: Isa, seed: int) -> None:
    source = random.Random(seed)
    element = source.choice(list(FLOATS))
    order = "".join(source.sample("ijk", 3))
    sizes = {d: source.randint(1, source.choice((8, 70, 70, 150))) for d in "ijk"}
    layouts = {name: Layout(source.random() < 0.4, source.choice((0, 0, 1, 3)),
                            "".join(d for d in "ijk" if source.random() < 0.15), source.choice((1, 1, 1, 2)))
               for name in "cab"}
    region = product(order, sizes, element, source.choice(expressions(element)), layouts)
    blocks = {"r": source.choice((1, 24, 96)), "v": source.choice((24, 100)), "k": source.choice((1, 4, 7, 32))}
    plan = tiled(region, isa, source.choice(TILES[isa]), blocks, source.choice(NESTS), packed=source.random() < 0.6)
    check(region, plan, sizes, source.randint(1, sizes[order[0]]), seed=seed, specials=source.choice((0, 0.01, 0.2)),
          scalars=scalars(element))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("seed", some(range(16), 2))
def test_strides_and_extents_known_at_entry_only(isa: Isa, seed: int) -> None:
    """One kernel for all sizes: it is generated for some, and run with others."""
    source = random.Random(seed)
    element, order = source.choice(list(FLOATS)), "".join(source.sample("ijk", 3))
    layouts = {name: Layout(source.random() < 0.4, source.choice((0, 1, 3)), spacing=source.choice((1, 1, 2)))
               for name in "cab"}
    expression = source.choice(expressions(element))
    blocks = {"r": source.choice((1, 24, 96)), "v": source.choice((24, 100)), "k": source.choice((1, 4, 7, 32))}
    tile, loops = source.choice(TILES[isa]), source.choice(BOUNDED)
    made: set[str] = set()
    for _ in range(3):
        sizes = {d: source.randint(1, source.choice((8, 70))) for d in "ijk"}
        region, values = with_symbols(product(order, sizes, element, expression, layouts), sizes)
        plan = tiled(region, isa, tile, blocks, loops)
        layout, place = FrameLayout.build((*"cab", *values), 8192), Placement(0, 0, 0, 0, 0, 1 << 20, 1 << 20)
        made.add("\n".join(map(str, kernel(region, plan, layout, place).items)))
        check(region, plan, sizes, source.randint(1, sizes[order[0]]), seed=seed, specials=source.choice((0, 0.1)),
              scalars=scalars(element), symbols=values)
    assert len(made) == 1


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("order", ["ijk", "jki", "kij"])
def test_lanes_the_original_never_computes_raise_no_flags(isa: Isa, element: ElementType, order: str) -> None:
    sizes = {"i": 21, "j": 53, "k": 11}
    layouts = {name: Layout(padding=5) for name in "cab"}
    for transposed in ("", "a", "b", "c", "abc"):
        chosen = layouts | {name: Layout(transposed=True, padding=5) for name in transposed}
        computed = apply("add", C, apply("mul", apply("mul", A, ALPHA), apply("add", B, BETA)))
        for expression, depth in ((MULTIPLY_ADD, 4), (computed, 3)):  # panels of 3 x 6 elements are no whole vectors
            region = product(order, sizes, element, expression, chosen)
            plan = tiled(region, isa, TILES[isa][0], {"r": 16, "v": 24, "k": depth})
            check(region, plan, sizes, 7, poison=True, seed=1, scalars=whole_scalars(element))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("mxcsr", [0x9FC0, 0x5F80, 0x3F80, 0x7F80], ids=["ftz+daz", "up", "down", "to zero"])
def test_rounding_and_denormal_modes_are_the_programs(isa: Isa, mxcsr: int) -> None:
    sizes = {"i": 17, "j": 31, "k": 12}
    for element in FLOATS:
        region = product("ijk", sizes, element)
        check(region, tiled(region, isa, TILES[isa][0]), sizes, 17, seed=5, specials=0.1, mxcsr=mxcsr)


@pytest.mark.parametrize("isa", [p for p in ISAS if p.values[0] is not Isa.SSE2])
def test_fused_multiply_add_only_when_permitted(isa: Isa) -> None:
    sizes = {"i": 16, "j": 48, "k": 8}
    for expression in (MULTIPLY_ADD, apply("add", apply("mul", B, A), C), apply("sub", C, apply("mul", A, B))):
        region = product("ijk", sizes, expression=expression)
        exact = mnemonics(region, tiled(region, isa, TILES[isa][0]))
        fused = mnemonics(region, tiled(region, isa, TILES[isa][0], fuse=True))
        assert not any(name.startswith(("vfmadd", "vfnmadd")) for name in exact)
        assert any(name.startswith(("vfmadd231pd", "vfnmadd231pd")) for name in fused)
        assert "vmulpd" not in fused
        # Small integers: one rounding or two, the sum is the same.
        check(region, tiled(region, isa, TILES[isa][0], fuse=True), sizes, 16, seed=3)


def test_a_further_dimension_is_looped_outside() -> None:
    """Tensor product c[i, j] += a[i, q, k] * b[q, k, j] with q a reduction outside k."""
    def cells(*names: str) -> tuple[Linear, ...]:
        return tuple(Linear.symbol(n) for n in names)

    sizes = {"i": 9, "j": 11, "q": 3, "k": 5}
    arrays = (Array("c", ElementType.F64, Linear.symbol("c"), (88, 8)),
              Array("a", ElementType.F64, Linear.symbol("a"), (120, 40, 8)),
              Array("b", ElementType.F64, Linear.symbol("b"), (440, 88, 8)))
    accesses = (Access("c", cells("i", "j")), Access("a", cells("i", "q", "k")), Access("b", cells("q", "k", "j")))
    dimensions = tuple(Dimension(d, Linear.symbol("R") if d == "i" else Linear.of(sizes[d])) for d in "ijqk")
    statement = Statement("S0", dimensions, accesses[0], accesses, MULTIPLY_ADD, (0,) * 5)
    region = Region(0, b"", tuple(LiveIn(n, Register("rax")) for n in "cab"), Trips(Linear.of(9), 1), (), (), (),
                    Scop(arrays, (statement,)))
    plan = tiled(region, host_isas()[0], (4, 1), loops="vkr")
    good = tuple(TileLoop(*pair) for pair in (("q", 1), ("k", 2), ("j", plan.tile.lanes), ("i", 4)))
    check(region, with_loops(plan, good), sizes, 8, seed=2, specials=0.1)
    reordered = tuple(TileLoop(*pair) for pair in (("k", 2), ("q", 1), ("j", plan.tile.lanes), ("i", 4)))
    with pytest.raises(Rejected) as caught:
        contraction(region, with_loops(plan, reordered))
    assert caught.value.reason is Reason.NO_SCHEDULE


def with_loops(plan: Plan, loops: tuple[TileLoop, ...]) -> Plan:
    return Plan(plan.isa, plan.statement, loops, (), plan.tile)


def mnemonics(region: Region, plan: Plan) -> set[str]:
    layout = FrameLayout.build(("c", "a", "b"), 0)
    items = kernel(region, plan, layout, Placement(0, 0, 0, 0, 0, 1 << 40, 0)).items
    return {item.mnemonic for item in items if isinstance(item, Instruction)}


def test_nothing_runs_when_an_inner_loop_is_empty() -> None:
    region = product("ijk", {"i": 4, "j": 0, "k": 4}, layouts={name: Layout(padding=4) for name in "cab"})
    made = kernel(region, tiled(region, Isa.SSE2, (2, 2)), FrameLayout.build(("c", "a", "b"), 0),
                  Placement(0, 0, 0, 0, 0, 0, 0))
    assert [str(i) for i in made.items if not isinstance(i, Label)] == ["jmp kernel_done"]


def test_code_is_small_and_scratch_is_known_beforehand() -> None:
    region = product("ijk", {"i": 2048, "j": 2048, "k": 2048})
    for isa in Isa:
        plan = tiled(region, isa, TILES[isa][0])
        layout = FrameLayout.build(("c", "a", "b"), 0)
        made = kernel(region, plan, layout, Placement(0, 0, 0, 0, 0, 1 << 40, 0))
        assert len(made.items) < 2500
        assert made.scratch_needed == scratch_bytes(region, plan)
        assert made.local_bytes <= 1024


def test_scratch_is_not_written_past_its_end() -> None:
    isa = host_isas()[-1]
    sizes = {"i": 50, "j": 50, "k": 50}
    region = product("ijk", sizes)
    layout = FrameLayout.build(("c", "a", "b"), 4096)
    frame, arrays = Buffer(layout.size), {n: Buffer(50 * 50 * 8) for n in "cab"}
    plan = tiled(region, isa, TILES[isa][0], {"r": 24, "v": 24, "k": 20})
    scratch = Buffer(-(-scratch_bytes(region, plan) // 64) * 64, at_end=True)
    made = kernel(region, plan, layout, Placement(0, 0, frame.address, layout.size, 0, scratch.address, 0))
    for name, value in {**{n: b.address for n, b in arrays.items()}, "H": 50}.items():
        frame.view[layout.symbols[name]:layout.symbols[name] + 8] = value.to_bytes(8, "little")
    NativeKernel(made.items, isa).run(frame.address)


@pytest.mark.parametrize("change", ["lanes", "loops", "width", "level", "registers"])
def test_plans_that_contradict_the_region_are_our_bugs(change: str) -> None:
    region = product("ijk", {"i": 64, "j": 64, "k": 64})
    plan = tiled(region, Isa.AVX2, (8, 2) if change == "registers" else (4, 2), loops="kvr")
    tile, loops, packs = plan.tile, plan.loops, plan.packs
    if change == "lanes":
        plan = tiled(region, Isa.AVX512, (4, 2), loops="kvr")
        plan = Plan(Isa.AVX2, plan.statement, plan.loops, plan.packs, plan.tile)
    elif change == "loops":
        plan = Plan(plan.isa, plan.statement, loops[:-1], packs, tile)
    elif change == "width":
        plan = Plan(plan.isa, plan.statement, loops, (Pack(1, "i", 5, 1), *packs[1:]), tile)
    elif change == "level":
        plan = Plan(plan.isa, plan.statement, loops, (Pack(1, "i", 4, -1), *packs[1:]), tile)
    with pytest.raises(VerifyError):
        kernel(region, plan, FrameLayout.build(("c", "a", "b"), 0), Placement(0, 0, 0, 0, 0, 0, 0))


def test_two_iterations_never_share_an_accumulator() -> None:
    region = product("ikj", {"i": 8, "j": 8, "k": 8})
    plan = tiled(region, Isa.AVX2, (4, 2), loops="kvr")
    swapped = replace(plan, tile=replace(plan.tile, rows="k", reduction="i"), loops=(
        TileLoop("i", 4), TileLoop("j", 8), TileLoop("k", 4)), packs=())
    with pytest.raises(VerifyError):
        contraction(region, swapped)


def test_statements_of_another_shape_are_rejected() -> None:
    sizes = {"i": 8, "j": 8, "k": 8}
    good = product("ijk", sizes)
    plan = tiled(good, Isa.AVX2, (4, 2), loops="kvr")
    unknown = product("ijk", sizes, expression=apply("add", C, apply("neg", A)))
    aliased = replace(good, scop=aliased_scop(good))
    for region in (unknown, aliased):
        with pytest.raises(Rejected) as caught:
            contraction(region, plan)
        assert caught.value.reason is Reason.NO_SCHEDULE


def aliased_scop(region: Region) -> Scop:
    """b reads the array that is written."""
    (statement,) = region.scop.statements
    b = statement.reads[2]
    reads = (*statement.reads[:2], replace(b, array="c"))
    return replace(region.scop, statements=(replace(statement, reads=reads),))
