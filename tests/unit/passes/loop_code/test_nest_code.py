"""Loop plans run in this process and compared with scalar code: bytes of all arrays and exception flags."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.ir.code import Placement
from memopt.ir.plan import Date, Isa, Leaf, LoopPlan, NestPlan
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Lane, LiveIn, Region, Register, RegisterCarried
from memopt.ir.scop import Access, Apply, Constant, ElementType, Scop
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import Instruction
from passes.context import Context
from passes.legality.loops import check_loops
from passes.loop_code.collapsing import collapsed
from passes.loop_code.leaf_shape import leaf_shape
from passes.loop_schedule.candidates import loop_plans
from passes.version.kernel import nest_kernel
from tests.support.effort import some
from tests.support.inprocess import host_isas
from tests.support.loop_check import check
from tests.support.machines import ZEN5
from tests.support.nests import linear, region

ISAS = [pytest.param(isa, id=isa.value, marks=pytest.mark.skipif(isa not in host_isas(), reason="not this machine"))
        for isa in Isa]
MATRICES = {"A": (60, 60), "B": (60, 60), "C": (60, 60)}


def dates(*texts: str) -> tuple[Date, ...]:
    """``i/8`` is floor(i / 8)."""
    pairs = (text.partition("/") for text in texts)
    return tuple(Date(linear(e), int(d or 1)) for e, _, d in pairs)


def plan(nest: Region, isa: Isa, *leaves: Leaf) -> LoopPlan:
    return LoopPlan(isa, nest.scop.statements, leaves)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [1, 3])
def test_rows_and_vectors_without_a_sequence(isa: Isa, rows: int) -> None:
    nest = region("""
for i < R
  for j < 50
    A[i, j] = add(A[i, j], mul(B[j, i], C[i, j]))
""", MATRICES)
    for trips in (1, 2, 5, 17):
        leaf = Leaf("S0", dates("i/8"), rows="i", row_count=rows, vector="j", vector_count=2)
        check(nest, plan(nest, isa, leaf), {"H": trips}, seed=trips, specials=trips == 17)
        check(nest, plan(nest, isa, leaf), {"H": trips}, seed=trips, poison=True)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("tile", some([(1, 1), (3, 2), (4, 1)], 2))
@pytest.mark.parametrize("outer", some([("i/8", "j/24"), ("j/16",), ("0",)], 1))
def test_triangles_in_every_direction(isa: Isa, tile: tuple[int, int], outer: tuple[str, ...]) -> None:
    nest = region("""
for i < R
  for j < i + 1
    for k < 37 - j
      A[i, j] = add(A[i, j], mul(B[i, k], C[k, j]))
""", MATRICES)
    for trips in (1, 2, 5, 17, 30):
        leaf = Leaf("S0", dates(*outer), rows="i", row_count=tile[0], vector="j", vector_count=tile[1], sequential="k",
                    promote=True)
        check(nest, plan(nest, isa, leaf), {"H": trips}, seed=trips, specials=trips == 17)
        check(nest, plan(nest, isa, leaf), {"H": trips}, seed=trips, poison=True)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [1, 4, 8])
def test_bands_narrower_than_a_block_of_rows(isa: Isa, rows: int) -> None:
    """Nothing is common to the rows of a block, and nothing is run twice."""
    nest = region("""
for i < R
  for j < 43
    if j - i + 2 >= 0
      if i + 3 - j >= 0
        A[i, j] = add(A[i, j], B[i, j])
""", MATRICES)
    for trips in (1, 9, 40, 50):
        leaf = Leaf("S0", dates("0"), rows="i", row_count=rows, vector="j", vector_count=2)
        check(nest, plan(nest, isa, leaf), {"H": trips}, seed=trips, poison=True)


@pytest.mark.parametrize("isa", ISAS)
def test_each_step_adds_to_the_promoted_result_an_operand_that_no_step_changes(isa: Isa) -> None:
    nest = region("""
for i < R
  for k < 11
    A[i, 0] = add(A[i, 0], B[0, i])
""", MATRICES)
    leaf = Leaf("S0", dates("0"), vector="i", vector_count=2, sequential="k", promote=True)
    check(nest, plan(nest, isa, leaf), {"H": 43}, seed=1)


LEAVES = [Leaf("S0", dates("i"), sequential="j"), Leaf("S0", dates("i"), vector="j", vector_count=2),
          Leaf("S0", dates("0"), rows="i", row_count=3, vector="j", vector_count=1)]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("leaf", LEAVES)
def test_more_integers_that_never_change_than_registers(isa: Isa, leaf: Leaf) -> None:
    """As doubles that a compiler has spilled are, where the copy that is captured knows them as integers."""
    terms = [f"mul(bits(i64(n + {k})), B[i, j + {k}])" for k in range(40)]
    terms += ["i32tof64(i32(2*n - 3*m + 7))", "i32tof64(i32(m - 4 + j))"]
    total = terms[0]
    for term in terms[1:]:
        total = f"add({total}, {term})"
    nest = region(f"for i < R\n  for j < 19\n    A[i, j] = {total}", MATRICES)
    nest = replace(nest, live_ins=(*nest.live_ins, LiveIn("n", Register("rax")), LiveIn("m", Register("rbx"))))
    check(nest, plan(nest, isa, leaf), {"H": 7, "n": 0x3FF123456789ABCD, "m": -5}, seed=2, specials=True)
    check(nest, plan(nest, isa, leaf), {"H": 7, "n": 0x3FF123456789ABCD, "m": -5}, seed=3, poison=True)


PIXELS = {"A": (60, 3), "B": (60, 3), "C": (60, 3), "D": (60, 30), "E": (60, 30)}
JOINED = [
    ("for i < R\n  for c < 3\n    A[i,c] = add(mul(B[i,c], B[i+2,c]), C[i+1,c])", ("0",), ("i", "c"), True),
    ("for i < R\n  for c < 3\n    A[i+1,c] = add(B[i,c], C[i+1,c])", ("i/7",), ("i", "c"), True),
    ("for i < R\n  for c < 5\n    if c - 2 >= 0\n      A[i,c-2] = add(B[i,c-2], C[i+1,c-2])", ("0",), ("i", "c"), True),
    ("for i < R\n  for c < 2\n    A[i,c] = add(B[i,c], C[i+1,c])", ("0",), ("i", "c"), False),  # one is left out
    ("for i < R\n  for c < 3\n    A[i,c] = add(B[i,c], C[c,i])", ("0",), ("i", "c"), False),
    ("for i < R\n  for c < 3\n    if i - c >= 0\n      A[i,c] = add(B[i,c], C[i,c])", ("0",), ("i", "c"), False),
    ("for i < R\n  for x < 10\n    for c < 3\n      if x + i - 4 >= 0\n        D[i,3*x+c] = abs(E[i,3*x+c])",
     ("i",), ("x", "c"), True),
    ("for i < R\n  for x < 9\n    for c < 4\n      D[i,3*x+c] = neg(D[i,3*x+c])", ("c",), ("i", "x"), False),
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("text", "at", "loops", "one"), JOINED)
def test_rows_that_follow_each_other_are_one(isa: Isa, text: str, at: tuple[str, ...], loops: tuple[str, str],
                                             one: bool) -> None:
    nest = region(text, PIXELS)
    leaf = Leaf("S0", dates(*at), rows=loops[0], row_count=1, vector=loops[1], vector_count=2)
    made = plan(nest, isa, leaf)
    shape = leaf_shape(nest.scop, made, leaf, {})
    assert (collapsed(shape).leaf.rows is None) == one
    for trips in (1, 2, 9, 40, 57):
        check(nest, made, {"H": trips}, seed=trips, specials=trips == 9)
        check(nest, made, {"H": trips}, seed=trips, poison=True)


SMOOTH = 0x3FC999999999999A
RECURRENCES = [
    (f"for i < R\n  for j < 45\n    A[i+1, j+1] = mul(add(add(A[i+1, j+1], A[i+1, j]), A[i, j+1]), {SMOOTH})",
     (Leaf("S0", dates("i"), sequential="j"),)),
    (f"for i < R\n  for j < 45\n    A[i, j+2] = add(B[i, j], add(mul(A[i, j+1], {SMOOTH}), mul(A[i, j], {SMOOTH})))",
     (Leaf("S0", dates("i"), sequential="j"), Leaf("S0", dates("0"), sequential="j", rows="i", row_count=3),
      Leaf("S0", dates("0"), sequential="j", vector="i", vector_count=2))),
    ("for i < R\n  for j < 45\n    A[j+1, i] = add(A[j, i], B[j, i])",
     (Leaf("S0", dates("0"), sequential="j", vector="i", vector_count=2),
      Leaf("S0", dates("j/8"), sequential="j", vector="i", vector_count=3))),
    ("for i < R\n  for j < i - 3\n    A[i+1, j+3] = mul(A[i+1, j], A[i+1, j+2])",
     (Leaf("S0", dates("0"), sequential="j", rows="i", row_count=3),
      Leaf("S0", dates("0"), sequential="j", vector="i", vector_count=2))),
    ("for i < R\n  for j < 45\n    A[j+1, i] = A[j, i]",
     (Leaf("S0", dates("0"), sequential="j", vector="i", vector_count=2),)),
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("text", "leaves"), RECURRENCES)
def test_values_of_earlier_steps_stay_in_registers(text: str, leaves: tuple[Leaf, ...], isa: Isa) -> None:
    nest = region(text, MATRICES)
    for leaf in leaves:
        for trips in (1, 5, 9, 17, 50):
            check(nest, plan(nest, isa, leaf), {"H": trips}, seed=trips, specials=trips == 17)


@pytest.mark.long
@pytest.mark.parametrize("isa", some(ISAS, 1))
def test_short_sequences_run_whole_in_each_step(isa: Isa) -> None:
    """A 3 x 3 mask, counted from 0 and from the outer counters."""
    straight = """
for i < R
  for j < 41
    for p < 3
      for q < 3
        A[i, j] = add(A[i, j], mul(C[p, q], B[i+p, j+q]))
"""
    skewed = """
for i < R
  for j < 41
    for p < 3
      for q < 60
        if q - j >= 0
          if j + 2 - q >= 0
            A[i, j] = add(A[i, j], mul(C[p, q-j], B[i+p, q]))
"""
    for text in (straight, skewed):
        nest = region(text, MATRICES)
        for rows, vectors in ((1, 1), (2, 2), (4, 1)):
            leaf = Leaf("S0", dates("0", "p"), rows="i", row_count=rows, vector="j", vector_count=vectors,
                        sequential="q", promote=True)
            code = mnemonics(nest, plan(nest, isa, leaf))
            assert sum("mul" in m and m.endswith("pd") for m in code) % 3 == 0, "three turns in each step"
            for trips in (1, 5, 16):
                check(nest, plan(nest, isa, leaf), {"H": trips}, seed=trips, poison=trips == 5)


@pytest.mark.parametrize("isa", ISAS)
def test_the_count_of_a_shift_is_no_value_that_stays_in_a_register(isa: Isa) -> None:
    """It may be of a type whose lanes no vector holds: bytes are shifted by a 64-bit one."""
    nest = region("""
for i < R
  for j < 3
    A[i] = B[i, j]
""", {"A": (200,), "B": (200, 4)}, ElementType.I8)
    statement, = nest.scop.statements
    wide = Apply("zext", (statement.expression,), ElementType.I64)
    halved = Apply("shr", (wide, Constant(1, ElementType.I64)), ElementType.I64)
    statement = replace(statement, expression=Apply("trunc", (halved,), ElementType.I8))
    nest = replace(nest, scop=replace(nest.scop, statements=(statement,)))
    leaf = Leaf("S0", dates("0"), vector="i", vector_count=1, sequential="j", promote=True)
    for trips in (1, 70, 150):
        check(nest, plan(nest, isa, leaf), {"H": trips}, seed=trips)


def mnemonics(nest: Region, made: LoopPlan) -> list[str]:
    layout = FrameLayout.build(tuple(x.symbol for x in nest.live_ins), 16384)
    items = nest_kernel((nest,), NestPlan((made,)), layout, Placement(0, 0, 0, 0, 0, 1 << 40, 0)).items
    return [item.mnemonic for item in items if isinstance(item, Instruction)]


@pytest.mark.parametrize("isa", ISAS)
def test_an_operand_that_stays_is_overwritten_in_one_of_the_steps(isa: Isa) -> None:
    nest = region("""
for i < R
  for k < 11
    A[i, k] = add(A[i, k], mul(A[i, 4], B[0, i]))
""", MATRICES)
    leaf = Leaf("S0", dates("0"), vector="i", sequential="k")
    check(nest, plan(nest, isa, leaf), {"H": 43}, seed=1)


def test_products_and_sums_are_fused_only_when_permitted() -> None:
    nest = region("""
for i < R
  for j < 41
    A[i, j] = sub(mul(C[i, j], B[i, j]), add(mul(B[j, i], C[j, i]), A[i, j]))
""", MATRICES)
    leaf = Leaf("S0", dates("0"), rows="i", row_count=2, vector="j", vector_count=1)
    exact = plan(nest, Isa.AVX2, leaf)
    fused = replace(exact, fuse_multiply_add=True)
    assert not any("fm" in m for m in mnemonics(nest, exact))
    assert {m[:6] for m in mnemonics(nest, fused) if "fm" in m} == {"vfmadd", "vfmsub"}
    assert not any(m.startswith(("vmulpd", "vaddpd", "vsubpd")) for m in mnemonics(nest, fused))
    check(nest, fused, {"H": 19}, seed=1, poison=True)  # small numbers: one rounding or two, the result is the same


def test_code_of_unreasonable_size_is_refused() -> None:
    nest = region("\n".join(f"for i < R\n  for j < i + {n}\n    for k < j + 1\n"
                            f"      A[i, j] = add(A[i, j], mul(B[i, k], B[k, j]))" for n in range(40)), MATRICES)
    leaves = [Leaf(s.name, dates(str(n)), rows="i", row_count=6, vector="j", vector_count=3, sequential="k",
                   promote=True) for n, s in enumerate(nest.scop.statements)]
    with pytest.raises(Rejected) as refusal:
        mnemonics(nest, plan(nest, Isa.AVX512, *leaves))
    assert refusal.value.reason is Reason.NO_PLAN


@pytest.mark.parametrize("isa", ISAS)
def test_a_value_that_registers_pass_on_starts_and_ends_in_its_slot(isa: Isa) -> None:
    """A recurrence that no array holds, beside a nest that uses it."""
    nest = passing_on(region("""
for i < R
  for j < 50
    A[i, j] = add(A[i, j], mul(P[0], B[i, j]))
  P[0] = sub(mul(P[0], C[i, 0]), P[0])
""", MATRICES | {"P": (1,)}), "P")
    for trips in (1, 2, 19):
        made = next(loop_plans(nest.scop, Context(ZEN5, isa, trips=40), least_gain=0.0))
        check_loops(nest.scop, made)
        check(nest, made, {"H": trips, "p": 0x3FF4_0000_0000_0000}, seed=trips)


def passing_on(nest: Region, name: str) -> Region:
    """The one cell of an array as a value that xmm3 passes on."""
    def cell(access: Access) -> Access:
        return Access(name, ()) if access.array == name else access

    statements = tuple(replace(s, write=cell(s.write), reads=tuple(map(cell, s.reads))) for s in nest.scop.statements)
    arrays = tuple(replace(a, base=linear("0"), strides=(), private=True) if a.name == name else a
                   for a in nest.scop.arrays)
    lane = Lane("xmm3", 0, 8)
    live_ins = (*(x for x in nest.live_ins if x.symbol != f"{name.lower()}_"), LiveIn("p", lane))
    return replace(nest, scop=Scop(arrays, statements), live_ins=live_ins,
                   register_carried=(RegisterCarried(lane, 8, name, "p"),))
