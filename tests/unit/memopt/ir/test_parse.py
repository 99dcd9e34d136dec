"""Text forms read back: what prints as a text is what the text is parsed to, and nothing else is parsed."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memopt.ir.cells import CellSet
from memopt.ir.cursor import Cursor, ParseError
from memopt.ir.isa import Isa
from memopt.ir.linear import Linear, Quotient, quotient
from memopt.ir.linear import product as times
from memopt.ir.parse import parse_plan, parse_region, parse_scop
from memopt.ir.plan import Date, Leaf, LoopPlan, NestPlan, Pack, Plan, Rebase, RegisterTile, Storage, TileLoop
from memopt.ir.reasons import Rejected
from memopt.ir.region import (
    Cell,
    Disjoint,
    Footprint,
    Interval,
    Lane,
    LiveIn,
    MemoryBacked,
    NanFree,
    Progression,
    Region,
    Register,
    RegisterCarried,
    Rejoin,
    Relation,
    Trips,
)
from memopt.ir.scop import (
    Access,
    Apply,
    Array,
    Constant,
    Dimension,
    ElementType,
    Expression,
    Index,
    Read,
    Scalar,
    Scop,
    Statement,
    operand_counts,
)
from passes.planning import plan_candidates
from tests.support.affine_nests import nests
from tests.support.lifting import lift_assembly
from tests.support.loop_draw import draw
from tests.support.machines import HASWELL, ZEN5
from tests.support.products import product, tiled, with_symbols

_GOLDEN = Path(__file__).resolve().parents[3] / "golden"
_SYMBOLS = st.one_of(st.sampled_from((
    "R", "rax", "b:r10", "n:r8", "xmm3[0:8]", "[rsp-0x8]:8", "m[8*rbx + r13]:64", "c:401002", "i", "c", "[", "-", "2x",
    "n:m[m[rax - 8]:64]:32", "xmm0[0:8] at the header", "c:(x)/2", '"', "a\nb", "x y", "é",
)), st.text(min_size=1, max_size=6))
_WORDS = st.sampled_from(("A", "S0", "_", "at", "over", "reads", "floor", "f64", "array", "store", "R", "x", "call"))
_SMALL = st.integers(-9, 9)
_TEXT = st.text(max_size=9)


def _affine(terms: dict[str, int], constant: int, divisor: int) -> Linear:
    plain = Linear.build(terms, constant)
    return plain if divisor < 2 else quotient(plain, divisor) - plain


_LINEAR = st.builds(_affine, st.dictionaries(_SYMBOLS, st.integers(-(1 << 40), 1 << 40), max_size=3),
                    st.integers(-(1 << 64), 1 << 64), st.integers(0, 8))
_ELEMENTS = st.sampled_from(ElementType)


def _some(values: st.SearchStrategy, most: int = 2) -> st.SearchStrategy:
    return st.lists(values, max_size=most).map(tuple)


@given(_LINEAR)
@settings(max_examples=60, deadline=None)
def test_affine_expressions(value: Linear) -> None:
    read = Cursor(str(value)).whole(Cursor.linear)
    assert read == value
    assert [type(s) for s, _ in read.terms] == [type(s) for s, _ in value.terms]
    assert [q.numerator for q in read.quotients] == [q.numerator for q in value.quotients]


def test_a_symbol_that_looks_like_a_quotient_is_none() -> None:
    plain, rounded = Linear.symbol("c:(x)/2"), quotient(Linear.symbol("x"), 2)
    assert str(plain) == '"c:(x)/2"'
    assert str(rounded) == "c:(x)/2"
    assert isinstance(Cursor(str(rounded)).whole(Cursor.linear).terms[0][0], Quotient)


@st.composite
def _scops(draw: st.DrawFn) -> Scop:
    names = draw(st.lists(_WORDS, min_size=1, max_size=3, unique=True))
    arrays = tuple(
        Array(name, draw(_ELEMENTS), draw(_LINEAR), tuple(draw(st.lists(st.integers(1, 99), min_size=1, max_size=2))),
              draw(st.booleans())) for name in names)
    made = draw(st.lists(_WORDS, max_size=3, unique=True))
    return Scop(arrays, tuple(draw(_statements(name, arrays)) for name in made))


@st.composite
def _statements(draw: st.DrawFn, name: str, arrays: tuple[Array, ...]) -> Statement:
    counters = draw(st.lists(_WORDS, max_size=3, unique=True))
    dimensions = tuple(Dimension(c, draw(_LINEAR)) for c in counters)

    def access() -> Access:
        array = draw(st.sampled_from(arrays))
        return Access(array.name, tuple(draw(_LINEAR) for _ in array.strides))

    reads = tuple(access() for _ in range(draw(st.integers(0, 3))))
    reads += reads[:draw(st.integers(0, 1))]
    position = tuple(draw(st.integers(0, 2)) for _ in range(len(dimensions) + 1))
    return Statement(name, dimensions, access(), reads, draw(_expressions(len(reads))), position,
                     draw(_some(_LINEAR)))


def _expressions(reads: int) -> st.SearchStrategy[Expression]:
    leaves = [st.builds(Scalar, _WORDS, _ELEMENTS, st.integers(0, 24)), st.builds(Index, _LINEAR, _ELEMENTS),
              _ELEMENTS.flatmap(lambda e: st.builds(Constant, st.integers(0, (1 << 8 * e.size) - 1), st.just(e)))]
    if reads:
        leaves.append(st.builds(Read, st.integers(0, reads - 1)))
    return st.recursive(st.one_of(leaves), _applied, max_leaves=5)


def _applied(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """An operator or a function, with as many operands as it takes."""
    def operands(operator: str) -> st.SearchStrategy[Expression]:
        least, most = operand_counts(operator)
        some = st.lists(inner, min_size=least, max_size=min(most, 3)).map(tuple)
        return st.builds(Apply, st.just(operator), some, _ELEMENTS)

    names = ("add", "mul", "select", "when", "sqrt", "zext", "fsunord", "f64toi32", "round9", "beside", "call 401000",
             "check 7f00")
    return st.sampled_from(names).flatmap(operands)


@given(_scops())
@settings(max_examples=60, deadline=None)
def test_scops(scop: Scop) -> None:
    assert parse_scop(str(scop)) == scop


_INTERVALS = st.builds(Interval, _LINEAR, _LINEAR)
_REGISTERS = st.builds(Register, _WORDS)
_LANES = st.builds(Lane, _WORDS, st.integers(0, 24), st.integers(1, 8))
_CELLS = st.builds(Cell, st.one_of(st.just(""), _SYMBOLS), st.integers(-(1 << 47), 1 << 47), st.integers(1, 8))
_ADDRESSES = st.integers(0, 1 << 47)
_CELL_SETS = st.builds(CellSet, _LINEAR, _some(st.builds(Dimension, _WORDS, _LINEAR)), _some(_LINEAR))
_GUARDS = st.one_of(
    st.builds(Relation, _LINEAR, st.booleans(), _TEXT), st.builds(Disjoint, _INTERVALS, _INTERVALS, _TEXT),
    st.builds(Progression, _ADDRESSES, st.integers(-99, 1 << 40), _SMALL,
              st.lists(_CELL_SETS, min_size=1, max_size=2).map(tuple), _INTERVALS, _TEXT))
_REGIONS = st.builds(
    Region, _ADDRESSES, st.binary(max_size=7),
    _some(st.builds(LiveIn, _SYMBOLS, st.one_of(_REGISTERS, _LANES, _CELLS), st.sampled_from((1, 2, 4, 8)),
                    st.booleans(), st.frozensets(_SYMBOLS, max_size=2))),
    st.builds(Trips, _LINEAR, _SMALL), _some(_GUARDS, 3),
    _some(st.builds(Rejoin, st.one_of(_REGISTERS, _CELLS), _LINEAR, st.sampled_from((1, 4, 8)),
                    st.booleans())),
    _some(st.builds(Footprint, _WORDS, _INTERVALS, st.booleans())), _scops(), st.booleans(), st.just("") | _WORDS,
    _some(st.tuples(_ADDRESSES, st.binary(min_size=1, max_size=9))), st.integers(0, 3),
    st.none() | _some(st.integers(0, 9)),
    _some(st.builds(MemoryBacked, st.one_of(_REGISTERS, _LANES), st.integers(1, 8), _LINEAR, st.none() | _LINEAR)),
    _some(st.builds(RegisterCarried, st.one_of(_REGISTERS, _LANES), st.integers(1, 8), _WORDS, _SYMBOLS)),
    _some(st.builds(NanFree, st.one_of(_WORDS, _LANES), st.integers(4, 8))), _some(_CELLS),
    _some(_WORDS), st.integers(1, 3), st.booleans())


@given(_REGIONS)
@settings(max_examples=40, deadline=None)
def test_regions(region: Region) -> None:
    assert parse_region(str(region)) == region


_ISAS = st.sampled_from(Isa)
_PLANS = st.builds(Plan, _ISAS, _WORDS, _some(st.builds(TileLoop, _WORDS, _SMALL), 3),
                   _some(st.builds(Pack, _SMALL, _WORDS, _SMALL, _SMALL)),
                   st.builds(RegisterTile, _WORDS, _SMALL, _WORDS, _SMALL, _SMALL, _WORDS), st.booleans())
_LEAVES = st.builds(
    Leaf, _WORDS, _some(st.builds(Date, _LINEAR, _SMALL)), st.none() | _WORDS, st.none() | _WORDS, _SMALL,
    st.none() | _WORDS, _SMALL, st.booleans(), st.booleans())
_STORAGE = st.builds(
    lambda array, pairs: Storage(array, tuple(o for o, _ in pairs), tuple(s for _, s in pairs)), _WORDS,
    st.lists(st.tuples(_LINEAR, _SMALL), max_size=2))
_LOOP_PLANS = st.builds(LoopPlan, _ISAS, _scops().map(lambda s: s.statements), _some(_LEAVES), _some(_STORAGE), _SMALL,
                        _TEXT, st.booleans(), _some(st.builds(Rebase, _WORDS, _WORDS, _LINEAR)), st.none() | _SMALL)


@given(st.one_of(_PLANS, _LOOP_PLANS, st.builds(
    NestPlan, st.lists(st.one_of(_PLANS, _LOOP_PLANS), min_size=1, max_size=3).map(tuple), st.none() | _SMALL)))
@settings(max_examples=60, deadline=None)
def test_plans(plan: Plan | LoopPlan | NestPlan) -> None:
    assert parse_plan(str(plan)) == plan


@pytest.mark.parametrize("name", nests(8))
def test_affine_nests_and_their_plans(name: str) -> None:
    region = nests(100)[name]
    assert parse_region(str(region)) == region
    try:
        found = plan_candidates(region, HASWELL, Isa.AVX2, trips=100)
    except Rejected:
        return
    for regions, plan in found:
        assert parse_plan(str(plan)) == plan
        assert all(parse_region(str(r)) == r for r in regions)


def test_products_and_their_plans() -> None:
    for order in ("ijk", "kij", "jki"):
        region = product(order, dict.fromkeys("ijk", 500), ElementType.F32)
        ((regions, plan),) = plan_candidates(region, ZEN5, Isa.AVX512, "fast")
        assert parse_plan(str(plan)) == plan
        assert parse_region(str(regions[0])) == regions[0]
        plain = tiled(region, Isa.SSE2, (3, 2))
        assert parse_plan(str(plain)) == plain


def test_rows_of_any_length_and_products() -> None:
    sizes = dict.fromkeys("ijk", 500)
    region, _ = with_symbols(product("ijk", sizes), sizes)
    moved = Linear.symbol("rdi") + times(Linear.symbol("H"), Linear.symbol("n:m[rsp + 8]:64")) * 8
    region = replace(region, rejoin=(Rejoin(Register("rdi"), moved),), guards=(Relation(moved - 8, False, "why"),))
    assert "strides (n:a = 4000, 8)" in str(region)
    assert "rejoin rdi := 8*c:(H)*(n:m[rsp + 8]:64) + rdi" in str(region)
    assert parse_region(str(region)) == region


@pytest.mark.parametrize("text", ["c:(i + 1)*(n)", "c:(i)*(2*n)", "c:(i)*(3)", "c:(c:(i)*(n))*(n)", "c:(i)*n"])
def test_no_product_of_more_than_two_symbols(text: str) -> None:
    region = str(product("ijk", dict.fromkeys("ijk", 500)))
    with pytest.raises(ParseError):
        parse_region(region.replace("at a,", f"at {text},"))


def test_drawn_statements_and_their_plans() -> None:
    for seed in range(60):
        drawn = draw(random.Random(seed), Isa.AVX2)
        assert parse_region(str(drawn.region)) == drawn.region, seed
        assert parse_plan(str(drawn.plan)) == drawn.plan, seed


def test_lifted_regions() -> None:
    """With cells, lanes, guards, mirrors and dead registers."""
    bodies = (
        "i: movsd xmm2, [rdi+rcx*8]; addsd xmm2, xmm1; movsd [rdi+rcx*8], xmm2; inc rcx; cmp rcx, r8; jne i; ret",
        """i: movsd xmm1, [r9+rcx*8]; mulsd xmm1, xmm0; movsd [rdi+rcx*8], xmm1; xorpd xmm1, xmm1; inc rcx
           cmp rcx, [rsp+8]; jne i; ret""",
        """i: mov eax, [rdi+rcx*4]; add eax, [rsi]; mov [rdi+rcx*4], eax; mov ebx, ecx; inc rcx; cmp rcx, r8; jl i
           xor eax, eax; xor ebx, ebx; ret""",
    )
    registers = {"rdi": 0x1000_0000, "r9": 0x2000_0000, "rsi": 0x3000_0000, "rcx": 0, "r8": 20}
    texts = []
    for body in bodies:
        region = lift_assembly(body, registers, {0x7FFF_0000_0008: 20}, {"xmm1": bytes(32)}).region
        texts.append(str(region))
        assert parse_region(texts[-1]) == region
    for part in ("guard ", "rejoin ", "footprint ", "dead registers "):
        assert part in "".join(texts), texts


@pytest.mark.parametrize("path", sorted(_GOLDEN.glob("analysis/*.txt")), ids=lambda path: path.stem)
def test_regions_of_compiled_products(path: Path) -> None:
    text = path.read_text().split("\n\n")[2].rstrip("\n")
    assert str(parse_region(text)) == text


_NEST = """region 0x401000
  a = s64 rax
  R = (a + 8) / 8
  guard a >= 0 "why"
  array A: f64 at a, strides (800, 8)
  S0[i<R, j<9]: A[i, j] = add(A[i, j], xmm3[8:16])
"""


def test_comments_blank_lines_and_spaces_do_not_count() -> None:
    spaced = "# a nest\n\n" + _NEST.replace(", ", "  ,  ").replace("\n", "\n\n").replace("= add(", " =  add (")
    assert parse_region(spaced) == parse_region(_NEST)


@pytest.mark.parametrize(("old", "new", "line", "expected"), [
    ("  R = (a + 8) / 8\n", "", 3, "'='"),
    ("region 0x401000", "region 0x401000, unrolled", 1, "the end of the line"),
    ("region 0x401000", "region 0x401000, period 2, flags dead", 1, "the end of the line"),
    ("guard a >= 0", "guard a > 0", 4, "'== 0' or '>= 0'"),
    ('"why"', "why", 4, "the end of the line"),
    ("  array", "  rollback (1)\n  rollback (2)\n  array", 6, "the end of the text"),
    ("  array", "  footprint A [0, 8) w\n  array", 5, "'r' or 'rw'"),
    ("f64", "f16", 5, "an element type"),
    ("f64 at a,", "f64,", 5, "'at'"),
    ("(800, 8)", "(8)", 6, "A to be declared with 2 strides"),
    ("A[i, j],", "B[i, j],", 6, "B to be declared with 2 strides"),
    ("j<9", "i<9", 6, "different loops, and conditions behind them"),
    ("i<R, j<9", "i<R, i >= 0, j<9", 6, "different loops, and conditions behind them"),
    ("]: A", "] at (0): A", 6, "a position with a number for each loop and one for the statement"),
    ("xmm3[8:16]", "xmm3[8:12]", 6, "8 bytes, not the first ones"),
    ("xmm3[8:16]", "#1", 6, "a read #1 in the list of reads"),
    ("add(A", "plus(A", 6, "an operator instead of plus"),
    ("add(A", "add A", 6, "the end of the line"),
    ("xmm3[8:16])", "xmm3[8:16]), reads A[j, i]", 6, "a list of all reads"),
    ("a + 8", "a + a", 3, "one term with a, with a coefficient other than 0, before"),
    ("a + 8", "0*a", 3, "one term with a, with a coefficient other than 0, before"),
    ("a + 8", "c:(4*a)/2", 3, "a quotient in lowest terms"),
    ("s64 rax", "s64 rax, before b", 2, "the end of the line"),
])
def test_what_is_never_printed_is_not_read(old: str, new: str, line: int, expected: str) -> None:
    assert old in _NEST
    with pytest.raises(ParseError) as caught:
        parse_region(_NEST.replace(old, new, 1))
    assert (caught.value.line, caught.value.expected) == (line, expected)


def test_names_are_given_once() -> None:
    statement = _NEST.splitlines()[-1]
    for doubled in (_NEST + statement, _NEST.replace("  S0", "  array A: f64 at a, strides (800, 8)\n  S0")):
        with pytest.raises(ParseError, match="different names"):
            parse_region(doubled)


def test_plans_that_are_never_printed() -> None:
    plan = str(LoopPlan(Isa.AVX2, (), (Leaf("S0", (Date(Linear.symbol("i")),)),), summary="x", trial_iterations=7))
    for wrong in (plan.replace("avx2", "avx3"), plan + "\nsummary \"y\"", plan.replace("S0 at", "S0 in"),
                  plan.replace(", 7 trial", ", trial"), "scheme avx2", ""):
        with pytest.raises(ParseError):
            parse_plan(wrong)


def test_fields_change_the_text() -> None:
    """No two values print alike: a change of any field shows."""
    region = parse_region(_NEST)
    changed = (replace(region, flags_dead=True), replace(region, period=2), replace(region, rollback=()),
               replace(region, original_iterations=2), replace(region, dead_registers=("rbx",)),
               replace(region, free_register="rbx"), replace(region, code=((0x401030, b"\xc3"),)),
               replace(region, code=((0x401030, b"\xc3\x90"),)), replace(region, returns_often=True))
    assert len({str(r) for r in (region, *changed)}) == 10


@pytest.mark.parametrize("text", [
    pytest.param("S0[i<R]: A[i] = add(A[i])", id="an operand is missing"),
    pytest.param("S0[i<R]: A[i] = sqrt(A[i], A[i])", id="an operand too many"),
    pytest.param("S0[i<R]: A[i] = 0xffffffffffffffffff", id="a constant wider than its type"),
    pytest.param("S0[i<R]: A[i] = " + "neg(" * 3000 + "A[i]" + ")" * 3000, id="too deep"),
    pytest.param("S0[i<" + "9" * 5000 + "]: A[i] = A[i]", id="a number too long"),
])
def test_what_has_no_meaning_is_an_error(text: str) -> None:
    with pytest.raises(ParseError):
        parse_scop(f"array A: f64 at p, strides (8)\n{text}")


def test_strides_are_positive() -> None:
    for strides in ("()", "(0)", "(-8)"):
        with pytest.raises(ParseError):
            parse_scop(f"array A: f64 at p, strides {strides}")


def test_an_array_called_like_a_word_of_the_form() -> None:
    plan = LoopPlan(Isa.AVX2, (), (), (Storage("counts", (Linear(),), (5,)),))
    assert parse_plan(str(plan)) == plan
