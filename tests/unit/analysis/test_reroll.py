"""Unrolled, split and vectorised loops rolled up: the order of execution must stay, or be proved not to matter."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from memopt.analysis.algebra import Specialise
from memopt.analysis.aliasing import Aliasing
from memopt.analysis.reroll import reroll
from memopt.analysis.statements import CellStatement, StatementItem, StatementLoop
from memopt.ir.linear import Linear
from memopt.ir.scop import Apply, ElementType, Read

H, J, K = (Linear.symbol(f"c:{name}") for name in "ijk")
A, B, C = (Linear.symbol(name) for name in "abc")
SAMPLE = {"a": 100000, "b": 200000, "c": 300000, "d": 200040, "R": 4}
PRODUCT = Apply("add", (Read(0), Apply("mul", (Read(1), Read(2)))))


def statement(write: Linear, *reads: Linear) -> CellStatement:
    return CellStatement(write, reads, PRODUCT, ElementType.F64, 0)


def product(c: Linear, a: Linear, b: Linear) -> CellStatement:
    return statement(C + c, C + c, A + a, B + b)


def loop(name: str, trips: int, *items: StatementItem) -> StatementLoop:
    return StatementLoop(f"c:{name}", Linear.of(trips), items)


def ranges(item: StatementItem) -> dict[str, Linear]:
    if isinstance(item, CellStatement):
        return {}
    return {item.counter: item.trips - 1} | {c: r for i in item.items for c, r in ranges(i).items()}


def exactly(distance: Linear, expected: int) -> bool:
    if distance.is_constant:
        return distance.constant == expected
    raise Specialise(distance)


def rolled(*items: StatementItem) -> StatementLoop:
    outer = StatementLoop("c:i", Linear.symbol("R"), items)
    return reroll(outer, Aliasing(ranges(outer), SAMPLE), exactly)


def executed(item: StatementItem, values: dict[str, int]) -> Iterator[tuple[int, ...]]:
    if isinstance(item, CellStatement):
        yield tuple(a.evaluate(values) for a in item.accesses)
        return
    for number in range(item.trips.evaluate(values)):
        for inner in item.items:
            yield from executed(inner, values | {item.counter: number})


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
    with pytest.raises(Specialise) as need:
        rolled(loop("j", 5, product(H * 8, J * 16, J * 16), other))
    assert need.value.linear == Linear.build({"d": 1, "b": -1}, -32)


def test_statements_with_different_numbers_of_accesses_are_neighbours_only() -> None:
    copy = CellStatement(C + H * 8, (A,), Read(0), ElementType.F64, 0)
    items = (copy, loop("j", 5, product(H * 8, J * 8, J * 8)), copy)
    assert trace(*rolled(*items).items) == trace(*items)
