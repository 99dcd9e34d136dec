"""Unrolled, split and vectorised loops rolled up: the order of execution must stay, or be proved not to matter."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from memopt.ir.linear import Linear, quotient
from memopt.ir.scop import Apply, ElementType, Read, Scalar
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.statements import CellStatement, StatementItem, StatementLoop
from memopt.lifting.reroll.reroll import reroll
from memopt.lifting.values.algebra import AssumeEqual
from tests.support.rolled import SAMPLE, A, B, C, H, J, K, Lanes, loop, product, rolled, statement
from tests.support.statements import executed


def trace(*items: StatementItem) -> list[tuple[int, ...]]:
    return list(executed(StatementLoop("c:i", Linear.symbol("R"), items), SAMPLE))


def lines(item: StatementItem) -> list[str]:
    return [line.strip() for line in str(item).splitlines()][1:]


def test_an_unrolled_loop() -> None:
    items = (loop("j", 5, product(H * 8, J * 16, J * 16), product(H * 8, J * 16 + 8, J * 16 + 8)),)
    result = rolled(*items)
    assert lines(result)[0] == "for c:j < 10"
    assert trace(*result.items) == trace(*items)


def test_a_loop_and_its_epilogue() -> None:
    items = (loop("j", 4, product(H * 8, J * 8, J * 8)), product(H * 8, Linear.of(32), Linear.of(32)))
    result = rolled(*items)
    assert lines(result)[0] == "for c:j < 5"
    assert len(lines(result)) == 2
    assert trace(*result.items) == trace(*items)


def test_a_prologue_with_loops_of_its_own() -> None:
    first = loop("j", 6, product(Linear.of(-8), J * 8 - 48, J * 8))
    result = rolled(first, loop("j2", 3, loop("k", 6, product(
        Linear.symbol("c:j2", 8), Linear.symbol("c:j2", 48) + K * 8, K * 8))))
    assert [line for line in lines(result) if line.startswith("for")] == ["for c:j2 < 4", "for c:k < 6"]
    assert len(trace(*result.items)) == SAMPLE["R"] * 24


def test_unrolled_copies_in_another_order_stay() -> None:
    items = (loop("j", 5, product(H * 8, J * 16 + 8, J * 16 + 8), product(H * 8, J * 16, J * 16)),)
    assert trace(*rolled(*items).items) == trace(*items)


def test_vector_lanes_over_one_reduction_are_distributed() -> None:
    """for j: for k: c[2j] += ..., c[2j+1] += ... becomes for j: for k: c[j] += ..."""
    items = (loop("j", 3, loop("k", 7, product(J * 16, K * 8, J * 16 + K * 48),
                               product(J * 16 + 8, K * 8, J * 16 + 8 + K * 48))),)
    result = rolled(*items)
    assert [line for line in lines(result) if line.startswith("for")] == ["for c:j < 6", "for c:k < 7"]
    assert sorted(trace(*result.items)) == sorted(trace(*items))
    for cell in {t[0] for t in trace(*items)}:
        assert [t for t in trace(*result.items) if t[0] == cell] == [t for t in trace(*items) if t[0] == cell]


def test_dependent_lanes_are_not_distributed() -> None:
    """The second lane reads what the first wrote one k earlier."""
    first, second = statement(C + K * 8, C + K * 8, A, B), statement(C + 800 + K * 8, C + K * 8 - 8, A, B)
    items = (loop("j", 3, loop("k", 7, first, second)),)
    assert trace(*rolled(*items).items) == trace(*items)


def test_lanes_that_meet_only_when_two_counters_differ_are_not_distributed() -> None:
    cell, place = J * 8 + K * 8 + Linear.symbol("c:l", 80), J * 800 + K * 8 + Linear.symbol("c:l", 80000)
    lanes = (statement(C + cell + 40 * n, C + cell + 40 * n, A + place + 40000 * n, B) for n in range(2))
    items = (loop("l", 2, loop("j", 5, loop("k", 5, *lanes))),)
    before, after = trace(*items), trace(*rolled(*items).items)
    assert conflicts_in_order(before[:100], after[:100])


def test_a_rolled_loop_reaches_as_far_as_its_copies() -> None:
    """Each lane covers six cells, three at a time in two copies; the second lane starts at the first one's fourth."""
    def lane(number: int) -> StatementLoop:
        m = Linear.symbol(f"c:m{number}")
        copies = (statement(C + J * 48 + 24 * number + m * 16 + 8 * n, C + J * 48 + 24 * number + m * 16 + 8 * n,
                            A + J * 160000 + 80000 * number + K * 800 + m * 16 + 8 * n, B) for n in range(2))
        return loop(f"m{number}", 3, *copies)

    items = (loop("j", 2, loop("k", 5, lane(0), lane(1))),)
    result = rolled(*items)
    assert "for c:m0 < 6" in lines(result)
    before, after = trace(*items), trace(*result.items)
    assert len(set(before)) * SAMPLE["R"] == len(before)
    assert conflicts_in_order(before[:len(set(before))], after[:len(set(before))])


def conflicts_in_order(before: list[tuple[int, ...]], after: list[tuple[int, ...]]) -> bool:
    """Instances that touch one cell, one of them writing, come in the same order."""
    place = {instance: n for n, instance in enumerate(after)}
    return all(place[x] < place[y] for x, y in itertools.combinations(before, 2)
               if x != y and (x[0] in y or y[0] in x))


def test_copies_through_another_register_are_specialised_on() -> None:
    """The second copy reads b through a register that lies 8 bytes further."""
    other = statement(C + H * 8, C + H * 8, A + J * 16 + 8, Linear.symbol("d") + J * 16 - 32)
    with pytest.raises(AssumeEqual) as need:
        rolled(loop("j", 5, product(H * 8, J * 16, J * 16), other))
    assert need.value.linear == Linear.build({"d": 1, "b": -1}, -40)


def test_statements_with_different_numbers_of_accesses_are_neighbours_only() -> None:
    copy = CellStatement(C + H * 8, (A,), Read(0), ElementType.F64, 0)
    items = (copy, loop("j", 5, product(H * 8, J * 8, J * 8)), copy)
    assert trace(*rolled(*items).items) == trace(*items)


def stencil(b: Linear, a: Linear) -> CellStatement:
    return CellStatement(B + b, (A + a, A + a + 8), Apply("add", (Read(0), Read(1))), ElementType.F64, 0)


def scaled(c: Linear, b: Linear, *lanes: Scalar) -> CellStatement:
    expression = Apply("mul", (Read(0), lanes[0])) if lanes else Read(0)
    return CellStatement(C + c, (B + b,), expression, ElementType.F64, 0)


def test_vector_code_of_two_statements() -> None:
    """All lanes of the first, then all lanes of the second, which reads what the first wrote in its own lane."""
    lanes = range(4)
    items = (loop("j", 5, *(stencil(J * 32 + 8 * n, J * 32 + 8 * n) for n in lanes),
                  *(scaled(J * 32 + 8 * n, J * 32 + 8 * n) for n in lanes)),)
    result = rolled(*items)
    assert lines(result)[0] == "for c:j < 20"
    assert len(lines(result)) == 3
    assert sorted(trace(*result.items)) == sorted(trace(*items))
    assert conflicts_in_order(trace(*items)[:40], trace(*result.items)[:40])


def test_lanes_that_read_what_a_later_lane_wrote_stay() -> None:
    """In the original every lane of the first comes first; rolled up, lane 0 of the second would read an old value."""
    lanes = range(4)
    items = (loop("j", 5, *(stencil(J * 32 + 8 * n, J * 32 + 8 * n) for n in lanes),
                  *(scaled(J * 32 + 8 * n, J * 32 + 8 * n + 8) for n in lanes)),)
    assert trace(*rolled(*items).items) == trace(*items)


def test_two_statements_and_their_epilogue() -> None:
    items = (loop("j", 5, stencil(J * 8, J * 8), scaled(J * 8, J * 8)), stencil(Linear.of(40), Linear.of(40)),
             scaled(Linear.of(40), Linear.of(40)))
    result = rolled(*items)
    assert lines(result)[0] == "for c:j < 6"
    assert trace(*result.items) == trace(*items)


def test_an_epilogue_behind_an_independent_loop() -> None:
    other = loop("k", 5, scaled(K * 8 + 4000, K * 8 + 4000))
    items = (loop("j", 5, stencil(J * 8, J * 8)), other, stencil(Linear.of(40), Linear.of(40)))
    result = rolled(*items)
    assert [line for line in lines(result) if line.startswith("for")] == ["for c:j < 6", "for c:k < 5"]
    assert sorted(trace(*result.items)) == sorted(trace(*items))


def test_an_epilogue_that_must_wait_for_a_loop_stays() -> None:
    """The loop between reads the cell that the epilogue writes."""
    other = loop("k", 5, scaled(K * 8, K * 8 + 8))
    items = (loop("j", 5, stencil(J * 8, J * 8)), other, stencil(Linear.of(40), Linear.of(40)))
    assert trace(*rolled(*items).items) == trace(*items)


def test_statements_are_parted_where_only_some_roll_up() -> None:
    """Two lanes of one statement, and one of another that touches nothing of theirs."""
    single = CellStatement(C + J * 16, (C + J * 16,), Apply("sqrt", (Read(0),)), ElementType.F64, 0)
    items = (loop("j", 5, stencil(J * 16, J * 16), single, stencil(J * 16 + 8, J * 16 + 8)),)
    result = rolled(*items)
    assert [line for line in lines(result) if line.startswith("for")] == ["for c:j < 10", "for c:j~1 < 5"]
    assert sorted(trace(*result.items)) == sorted(trace(*items))


def test_two_sums_of_one_cell_are_rolled_in_the_order_of_both_loops() -> None:
    """for k: for j: c[j] += a[2k] b[2k, j]; c[j] += a[2k + 1] b[2k + 1, j] (unroll and jam)"""
    items = (loop("k", 3, loop("j", 5, *(product(J * 8, K * 16 + 8 * n, K * 80 + J * 8 + 40 * n) for n in range(2)))),)
    result = rolled(*items)
    assert [line for line in lines(result) if line.startswith("for")] == ["for c:k < 6", "for c:j < 5"]
    before, after = trace(*items)[:30], trace(*result.items)[:30]
    assert sorted(before) == sorted(after)
    for cell in {t[0] for t in before}:
        assert [t for t in after if t[0] == cell] == [t for t in before if t[0] == cell]


def test_lanes_multiplied_by_lanes_of_a_register() -> None:
    low, high, other = Scalar("xmm1"), Scalar("xmm1", ElementType.F64, 8), Scalar("xmm2")
    lanes = Lanes({low: 5, high: 5, other: 6})
    items = (loop("j", 5, scaled(J * 16, J * 16, low), scaled(J * 16 + 8, J * 16 + 8, high)),
             scaled(Linear.of(80), Linear.of(80), other))
    result = rolled(*items, lanes=lanes)
    assert [line for line in lines(result) if line.startswith("for")] == ["for c:j < 10"]
    assert lanes.equated == [(low, high)]
    assert "xmm1" in lines(result)[1]
    assert "xmm2" in lines(result)[2]


def test_lanes_that_hold_different_numbers_stay() -> None:
    low, high = Scalar("xmm1"), Scalar("xmm1", ElementType.F64, 8)
    lanes = Lanes({low: 5, high: 6})
    items = (loop("j", 5, scaled(J * 16, J * 16, low), scaled(J * 16 + 8, J * 16 + 8, high)),)
    assert trace(*rolled(*items, lanes=lanes).items) == trace(*items)
    assert not lanes.equated


def test_straight_line_copies_become_a_loop() -> None:
    """Two statements, unrolled completely, in the order of vector code."""
    items = (*(stencil(Linear.of(8 * n), Linear.of(8 * n)) for n in range(6)),
             *(scaled(Linear.of(8 * n), Linear.of(8 * n)) for n in range(6)))
    result = rolled(*items)
    assert [line for line in lines(result) if line.startswith("for")] == ["for c:run0 < 6"]
    assert len(lines(result)) == 3
    before, after = trace(*items)[:12], trace(*result.items)[:12]
    assert sorted(before) == sorted(after)
    assert conflicts_in_order(before, after)


def test_straight_line_copies_around_a_dependence_stay_in_order() -> None:
    """The statement in the middle reads what the copies before it wrote, and is read by those after it."""
    middle = CellStatement(A + 40, (B + 16,), Read(0), ElementType.F64, 0)
    copies = [stencil(Linear.of(8 * n), Linear.of(8 * n)) for n in range(6)]
    items = (*copies[:3], middle, *copies[3:])
    before, after = trace(*items)[:7], trace(*rolled(*items).items)[:7]
    assert sorted(before) == sorted(after)
    assert conflicts_in_order(before, after)


def test_lanes_that_a_loop_does_not_make_up_are_a_loop_inside() -> None:
    """Every iteration does four of six columns: the copies are a loop, but not the one around them."""
    items = (loop("j", 5, *(stencil(J * 48 + 8 * n, J * 48 + 8 * n) for n in range(4))),)
    result = rolled(*items)
    assert [line for line in lines(result) if line.startswith("for")] == ["for c:j < 5", "for c:run0 < 4"]
    assert trace(*result.items) == trace(*items)


LENGTH = Linear.symbol("R") - H  # of a row of a triangle


def below(item: CellStatement, *conditions: Linear) -> CellStatement:
    return replace(item, conditions=conditions)


def vector(lanes: int, trips: Linear, *conditions: Linear) -> StatementLoop:
    copies = (below(scaled(J * 8 * lanes + 8 * n, J * 8 * lanes + 8 * n), *conditions) for n in range(lanes))
    return StatementLoop("c:j", trips, tuple(copies))


@pytest.mark.parametrize("trips", [2, 3, 4, 7, 8])
def test_rows_of_a_triangle_in_vectors_of_two(trips: int) -> None:
    """As gcc does it: a row of one on its own; else pairs, and one more where the length is odd."""
    whole = quotient(LENGTH, 2)
    odd = (LENGTH - whole * 2 - 1, LENGTH - 2)
    items = (below(scaled(Linear(), Linear()), -LENGTH + 1), vector(2, whole, LENGTH - 2),
             below(scaled(whole * 16, whole * 16), *odd))
    check_triangle(items, trips)


@pytest.mark.parametrize("trips", [4, 7, 8, 9])
def test_rows_of_a_triangle_in_vectors_of_four(trips: int) -> None:
    """As clang does it: a row shorter than four in a loop of its own; else fours, and a loop over the rest."""
    whole = quotient(LENGTH, 4)
    short = StatementLoop("c:k", LENGTH, (below(scaled(K * 8, K * 8), -LENGTH + 3),))
    place = Linear.symbol("c:m", 8) + whole * 32
    rest = StatementLoop("c:m", LENGTH - whole * 4, (below(
        scaled(place, place), LENGTH - 4, LENGTH - whole * 4 - 1),))
    check_triangle((short, vector(4, whole, LENGTH - 4), rest), trips)


@pytest.mark.parametrize("trips", [2, 3, 4, 7, 8, 9])
def test_up_to_three_iterations_written_out_after_vectors_of_four(trips: int) -> None:
    whole = quotient(LENGTH, 4)
    left = [LENGTH - whole * 4 - 1 - n for n in range(3)]
    rest = (below(scaled(whole * 32 + 8 * n, whole * 32 + 8 * n), *left[:n + 1]) for n in range(3))
    check_triangle((vector(4, whole), *rest), trips)


def check_triangle(items: tuple[StatementItem, ...], trips: int) -> None:
    """One loop over the row, and the same instances in the same order."""
    outer = StatementLoop("c:i", Linear.symbol("R"), items)
    known = {c: t - 1 for item in (outer, *(i for i in items if isinstance(i, StatementLoop)))
             for c, t in [(item.counter, item.trips)]}
    result = reroll(outer, Aliasing(known, SAMPLE | {"R": trips}), Lanes())
    assert [line for line in lines(result) if line.startswith("for")] == [f"for c:j < {LENGTH}"]
    assert len(lines(result)) == 2
    for entered in range(2, 12):
        values = SAMPLE | {"R": entered}
        assert list(executed(result, values)) == list(executed(outer, values))


def test_one_iteration_too_few_is_no_whole_row() -> None:
    """The rest starts one element late: what is left out must stay left out."""
    whole = quotient(LENGTH, 4)
    place = Linear.symbol("c:m", 8) + whole * 32 + 8
    rest = StatementLoop("c:m", LENGTH - whole * 4 - 1, (scaled(place, place),))
    outer = StatementLoop("c:i", Linear.symbol("R"), (vector(4, whole), rest))
    known = {"c:i": Linear.symbol("R") - 1, "c:j": whole - 1, "c:m": LENGTH - whole * 4 - 2}
    result = reroll(outer, Aliasing(known, SAMPLE), Lanes())
    assert list(executed(result, SAMPLE | {"R": 9})) == list(executed(outer, SAMPLE | {"R": 9}))


def test_the_copies_of_the_outermost_loop_are_a_loop_inside_it() -> None:
    """It keeps its iterations; a statement that is no copy of another, or depends on one, keeps them apart."""
    two = (statement(C + H * 16, A + H * 16, A, B), statement(C + H * 16 + 8, A + H * 16 + 8, A, B))
    result = rolled(*two)
    assert lines(result)[0] == "for c:run0 < 2"
    assert sorted(trace(*result.items)) == sorted(trace(*two))
    other = statement(C + H * 16 + 8, A + H * 16 + 16, A, B)
    assert rolled(two[0], other).items == (two[0], other)
    pairs = (two[0], statement(C + H * 16 + 4096, A + H * 16, A, B), two[1],
             statement(C + H * 16 + 4104, C + H * 16, A, B))
    assert rolled(*pairs).items == pairs
