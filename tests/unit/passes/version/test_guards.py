"""Guards on registers, numbers of iterations and modes, executed both ways."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from memopt.ir.linear import product
from memopt.ir.plan import Date, Isa, Leaf, LoopPlan, NestPlan
from memopt.ir.region import Lane, LiveIn, Register, Relation, Trips
from memopt.ir.scop import Access, Apply, Array, ElementType, Read, Scop, Statement
from passes.version.overflow_guards import extent_guards
from tests.support import nests, products
from tests.support.entering import TRIPS, N, check_kept, passes, with_guard
from tests.support.header import FLAGS, LIMIT, MXCSR, PLAN, Header, held_by_lane, linear
from tests.support.products import with_symbols


@pytest.mark.parametrize("bit", range(7, 13))
def test_an_unmasked_exception_keeps_the_version_out(header: Header, bit: int) -> None:
    header.install(header.region((N,), TRIPS))
    outcome = header.run({"rsi": 10}, mxcsr=MXCSR & ~(1 << bit))
    assert (outcome.runs, outcome.mxcsr) == (0, MXCSR & ~(1 << bit))
    check_kept(outcome, {"rsi": 10}, 0)


@pytest.mark.parametrize(("operator", "kept_out"), [("min", True), ("max", True), ("add", False)])
def test_denormals_that_are_zeros_keep_a_minimum_out(header: Header, operator: str, kept_out: bool) -> None:
    cell = Access("A", ())
    nested = Apply("neg", (Apply(operator, (Read(0), Read(0))),))
    scop = Scop((Array("A", ElementType.F64, linear(n=1), ()),), (Statement("S", (), cell, (cell,), nested, (0,)),))
    header.install(replace(header.region((N,), TRIPS), scop=scop))
    for mode, out in ((MXCSR, False), (MXCSR | 1 << 6, kept_out)):
        outcome = header.run({"rsi": 10}, mxcsr=mode)
        assert outcome.runs == (0 if out else 1)


@pytest.mark.parametrize(("numerator", "divisor", "trips"), [
    (0, 1, None), (1, 1, None), (2, 1, 2), (3, 1, 3), (-5, 1, None), (2**63 - 1, 1, 2**63 - 1),
    (16, 8, 2), (17, 8, None), (24, 8, 3), (-16, 8, None), (8, 8, None), (-16, -8, 2), (16, -8, None),
    (-2**63, -1, None), (-2**63, -2, None), (2**40, 2**31, 2**9), (2**40 + 2**30, 2**31, None), (2**40, 2**32, 2**8),
    (2**40 + 1, 2**32, None), (21, 7, 3), (20, 7, None), (22, 7, None), (-21, -7, 3), (6, 2**62, None),
    (-2**63, 2**63, None), (0, 2**63, None), (3 * 2**33 * 5, 2**33 * 5, 3), (3 * 2**33 * 5 + 1, 2**33 * 5, None),
    (-2**63, 2**64, None),
])
def test_trips(header: Header, numerator: int, divisor: int, trips: int | None) -> None:
    header.install(header.region((N,), Trips(linear(n=1), divisor)))
    outcome = header.run({"rsi": numerator})
    check_kept(outcome, {"rsi": numerator}, 0)
    found = (outcome.trips, outcome.limit) if outcome.runs else None
    assert found == (None if trips is None else (trips, trips - 1))


@pytest.mark.parametrize(("limit", "expected"), [(LIMIT, 9), (10, 9), (9, 9), (8, 8), (1, 1), (0, None), (-1, None)])
def test_limit(header: Header, limit: int, expected: int | None) -> None:
    header.install(header.region((N,), TRIPS))
    header.limit = limit
    outcome = header.run({"rsi": 10})
    assert (outcome.limit if outcome.runs else None) == expected
    assert outcome.statistics[2] == (expected or 0)


@pytest.mark.parametrize(("most", "expected"), [(1, 1), (8, 8), (9, 9), (10, 9), (2**40, 9)])
def test_a_plan_may_limit_the_iterations_of_one_run(most: int, expected: int) -> None:
    header = Header(plan=replace(PLAN, most_iterations=most))
    header.install(header.region((N,), TRIPS))
    for limit in (LIMIT, 3):
        header.limit = limit
        outcome = header.run({"rsi": 10})
        assert outcome.limit == min(limit, expected)
        assert outcome.statistics[2] == min(limit, expected)


@pytest.mark.parametrize("value", [0, 2**40, 2**40 + 1, -2**40, -2**40 - 1, 2**63 - 1, -2**63])
def test_loop_bounds_out_of_all_proportion_keep_the_version_out(value: int) -> None:
    nest = nests.region("for i < R\n  for j < m - 2*i\n    A[i, j] = mul(A[i, j], A[i, j])", {"A": (9, 9)})
    plan = LoopPlan(Isa.SSE2, nest.scop.statements, (Leaf("S0", (Date(linear(i=1)),), vector="j"),))
    header = Header(plan=NestPlan((plan,)))
    header.install(header.region((N, LiveIn("m", Register("rdi"))), TRIPS))
    assert header.run({"rsi": 10, "rdi": value}).runs == (abs(value) <= 2**40)
    assert header.run({"rsi": 2**40 + 1, "rdi": 1}).runs == 0


@pytest.mark.parametrize(("x", "passing"), [(41, False), (42, True), (43, False), (42 - 2**63, False)])
def test_equality(header: Header, x: int, passing: bool) -> None:
    header.install(with_guard(header, Relation(linear(-42, x=1), True, "")))
    assert passes(header, {"rsi": 10, "rax": x}) is passing


@pytest.mark.parametrize(("x", "passing"), [(41, False), (42, True), (43, True), (2**63 - 1, True), (-2**63, False)])
def test_at_least(header: Header, x: int, passing: bool) -> None:
    header.install(with_guard(header, Relation(linear(-42, x=1), False, "")))
    assert passes(header, {"rsi": 10, "rax": x}) is passing


def test_a_guard_may_use_the_trips(header: Header) -> None:
    header.install(with_guard(header, Relation(linear(0, x=1, R=-8), True, "")))
    assert passes(header, {"rsi": 10, "rax": 80})
    assert not passes(header, {"rsi": 10, "rax": 72})


@pytest.mark.parametrize("xcr0", [-1, 0])
@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("offset", [0, 4, 8, 12, 16, 20, 24])
def test_a_guard_may_use_part_of_a_vector_register(offset: int, width: int, xcr0: int) -> None:
    header = Header(xcr0=xcr0)
    if offset + width > 16 and not header.xcr0 & 4:
        pytest.skip("no upper halves")
    contents = int.from_bytes(held_by_lane(13, offset, width), "little", signed=True)
    for wrong in (0, 1, -1 << 8 * (width - 1)):
        lane = LiveIn("lane", Lane("xmm13", offset, width), width)
        header.install(header.region((N, lane), TRIPS, (Relation(linear(-contents - wrong, lane=1), True, ""),)))
        assert passes(header, {"rsi": 10}, FLAGS) is (wrong == 0)


def test_all_guards_must_pass(header: Header) -> None:
    header.install(with_guard(header, *(Relation(linear(-1, **{s: 1}), True, "") for s in "xyz")))
    assert passes(header, {"rsi": 10, "rax": 1, "rdx": 1, "rbp": 1})
    for name in ("rax", "rdx", "rbp"):
        assert not passes(header, {"rsi": 10, "rax": 1, "rdx": 1, "rbp": 1} | {name: 2})


@pytest.mark.parametrize(("a", "b", "x", "y"), [
    (4, 1, 2**62, 1), (4, 1, -2**62, -1), (4, 1, 2**63 - 1, 2**63 - 1), (4, 1, -2**63, 0), (4, 1, 2**61, -2**62),
    (1, 1, 2**63 - 1, 1), (1, 1, -2**63, -1), (1, -1, -2**63, 1), (1, -1, 1, -2**63), (-1, 3, -2**63, 0),
    (3, 3, 2**61, 2**61), (3, 5, -2**61, -2**60), (2**40, 1, 2**23, 0), (2**40, 2**41, 2**22, 2**21),
])
@pytest.mark.parametrize("equal", [True, False])
def test_overflow_is_a_failure(header: Header, a: int, b: int, x: int, y: int, equal: bool) -> None:
    """a * x + b * y wraps, at the latest in the sum: the wrapped value must not pass for the true one."""
    wrapped = (a * x + b * y + 2**63) % 2**64 - 2**63
    constant = -wrapped if equal and wrapped != -2**63 else 0
    header.install(with_guard(header, Relation(linear(constant, x=a, y=b), equal, "")))
    assert passes(header, {"rsi": 10, "rax": 0, "rdx": 0}) is (constant == 0)
    assert not passes(header, {"rsi": 10, "rax": x, "rdx": y})


@pytest.mark.parametrize("number", [2**31 - 1, 2**31, -2**31, -2**31 - 1, 2**32 - 1, 2**32, 2**40])
def test_numbers_around_32_bits(header: Header, number: int) -> None:
    header.install(with_guard(header, Relation(linear(-number, x=1), True, ""), Relation(
        linear(3 * number, y=number), True, ""), Relation(linear(0, z=number, x=3), True, "")))
    assert passes(header, {"rsi": 10, "rax": number, "rdx": -3, "rbp": -3})
    assert not passes(header, {"rsi": 10, "rax": number + 1, "rdx": -3, "rbp": -3})
    assert not passes(header, {"rsi": 10, "rax": number, "rdx": -4, "rbp": -3})
    assert not passes(header, {"rsi": 10, "rax": number, "rdx": -3, "rbp": -2})


def test_numbers_beyond_64_bits_never_pass(header: Header) -> None:
    header.install(with_guard(header, Relation(linear(2**63, x=1), False, "")))
    assert not passes(header, {"rsi": 10, "rax": 5})
    header.install(with_guard(header, Relation(linear(0, x=2**64), True, "")))
    assert not passes(header, {"rsi": 10, "rax": 0})


def test_registers_of_four_bytes(header: Header) -> None:
    live_ins = (N, LiveIn("s", Register("rax"), 4, True), LiveIn("u", Register("rdi"), 4, False))
    guards = (Relation(linear(1, s=1), True, ""), Relation(linear(1 - 2**32, u=1), True, ""))
    header.install(header.region(live_ins, TRIPS, guards))
    assert passes(header, {"rsi": 10, "rax": 0x1234_5678_ffff_ffff, "rdi": 0x9876_5432_ffff_ffff})
    assert not passes(header, {"rsi": 10, "rax": 0xffff_ffff, "rdi": 0xffff_fffe})
    assert not passes(header, {"rsi": 10, "rax": 0xffff_fffe, "rdi": 0xffff_ffff})


def test_random_guards_against_exact_arithmetic(header: Header) -> None:
    """No guard passes that is false over the integers; small ones pass exactly when true."""
    rng = random.Random(3)
    seen = {False: 0, True: 0}
    for _ in range(60):
        big = rng.random() < 0.5
        scale = 2**62 if big else 50
        relation = Relation(linear(rng.randrange(-scale, scale), **{s: rng.choice((0, 1, -1, 2, rng.randrange(
            -2**40, 2**40) if big else 3)) for s in "xyz"}), rng.random() < 0.3, "")
        header.install(with_guard(header, relation))
        for _ in range(20):
            values = {s: rng.choice((0, 1, -1, rng.randrange(-scale, scale))) for s in "xyz"}
            exact = relation.expression.evaluate(values)
            true = exact == 0 if relation.equal else exact >= 0
            found = header.run({"rsi": 5, "rax": values["x"], "rdx": values["y"], "rbp": values["z"]}).runs == 1
            assert not found or true
            assert big or found == true
            seen[found] += 1
    assert min(seen.values()) > 100


@pytest.mark.parametrize(("a", "b", "factor", "passing"), [
    (3, 5, 8, True), (0, 7, 8, True), (-1, 1, 8, False), (-3, -2, 8, True), (1 << 31, 1 << 31, 1, True),
    (1 << 31, 1 << 32, 1, False), (1 << 40, 1 << 40, 1, False), (1 << 32, 1 << 32, 1, False), (3, 1 << 60, 1, True),
    (3, 1 << 60, 8, False), (1 << 61, 1, 8, False), (2, 3, 1 << 40, True), (1 << 20, 16, 1 << 40, False),
])
def test_products_are_exact_or_keep_the_version_out(header: Header, a: int, b: int, factor: int, passing: bool) -> None:
    """2**64 would come out as 0 modulo 2**64, which is >= 0."""
    made = product(linear(x=1), linear(y=1)) * factor
    header.install(with_guard(header, Relation(made, False, "")))
    assert passes(header, {"rsi": 10, "rax": a, "rdx": b}) == passing
    header.install(with_guard(header, Relation(linear(z=1) + made + 7, False, "")))
    assert passes(header, {"rsi": 10, "rax": a, "rdx": b, "rbp": 0}) == passing


def test_extents_of_a_contraction_that_are_known_at_entry_only() -> None:
    """At least half a register tile, and nothing out of all proportion."""
    sizes = {"i": 20, "j": 30, "k": 40}
    region, _ = with_symbols(products.product("ijk", sizes), sizes)
    plan = NestPlan((products.tiled(region, Isa.AVX2, (6, 2)),))
    found = {str(g.expression) for g in extent_guards(region, plan)}
    assert found == {"n:j - 4", "-n:j + 1099511627776", "n:k - 1", "-n:k + 1099511627776"}
    assert extent_guards(products.product("ijk", sizes), plan) == ()
