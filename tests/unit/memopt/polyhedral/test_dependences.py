from __future__ import annotations

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Access, Array, Dimension, ElementType, Read, Scop, Statement
from memopt.polyhedral.dependences import dependences, iteration_domain, original_schedule
from memopt.polyhedral.isl import IntegerMap, IntegerSet
from tests.support.products import product

_SIZES = {"i": 2048, "j": 2048, "k": 2048}


def _statement(name: str, write: Access, read: Access, position: tuple[int, ...], trips: Linear) -> Statement:
    return Statement(name, (Dimension("i", trips),), write, (read,), Read(0), position)


def _cell(array: str, offset: int) -> Access:
    return Access(array, (Linear.symbol("i", 1, offset),))


def _vectors(*names: str) -> tuple[Array, ...]:
    return tuple(Array(n, ElementType.F64, Linear.symbol(f"p_{n}"), (8,)) for n in names)


@pytest.mark.parametrize("order", ["ijk", "ikj", "jki", "kij", "kji", "jik"])
def test_a_product_depends_along_its_reduction_only(order: str) -> None:
    found = dependences(product(order, _SIZES).scop)
    assert found.flow == found.anti == found.output == found.all
    names = ", ".join(order)
    assert found.all.differences <= IntegerSet.parse(f"{{ S0[{names}] : i = 0 and j = 0 and k > 0 }}")
    assert not found.all.is_empty


def test_domain_and_schedule_have_the_patched_loops_trip_count_as_parameter() -> None:
    scop = product("ijk", {"i": 9, "j": 3, "k": 2}).scop
    expected = "[R] -> { S0[i, j, k] : 0 <= i < R and 0 <= j < 3 and 0 <= k < 2 }"
    assert iteration_domain(scop) == IntegerSet.parse(expected)
    assert original_schedule(scop) == IntegerMap.parse("[R] -> { S0[i, j, k] -> [0, i, 0, j, 0, k, 0] }")


def test_kinds_and_direction() -> None:
    """y[i] = x[i]; x[i + 1] = y[i] in one loop: flow through y at once, through x in the next iteration."""
    trips = Linear.symbol("R")
    first = _statement("S", _cell("y", 0), _cell("x", 0), (0, 0), trips)
    second = _statement("T", _cell("x", 1), _cell("y", 0), (0, 1), trips)
    found = dependences(Scop(_vectors("x", "y"), (first, second)))
    assert found.flow == IntegerMap.parse(
        "[R] -> { S[i] -> T[i] : 0 <= i < R; T[i] -> S[i + 1] : 0 <= i < R - 1 }"
    )
    assert found.anti.is_empty
    assert found.output.is_empty


def test_statements_of_two_loops_in_sequence() -> None:
    """for i: y[i] = x[i]; for i: x[i] = x[i + 1]; all of the second loop comes after the first."""
    trips = Linear.of(10)
    first = _statement("S", _cell("y", 0), _cell("x", 0), (0, 0), trips)
    second = _statement("T", _cell("x", 0), _cell("x", 1), (1, 0), trips)
    found = dependences(Scop(_vectors("x", "y"), (first, second)))
    assert found.anti == IntegerMap.parse("{ S[i] -> T[i] : 0 <= i < 10; T[i] -> T[i + 1] : 0 <= i < 9 }")
    assert found.flow.is_empty


def test_symbols_isl_cannot_spell_become_parameters() -> None:
    trips = Linear.symbol("[rsp+8]", 1, -1)
    found = dependences(Scop(_vectors("x"), (_statement("S", _cell("x", 0), _cell("x", 1), (0, 0), trips),)))
    assert found.flow.is_empty
    assert found.anti.differences <= IntegerSet.parse("{ S[1] }")
    assert not found.anti.is_empty


def test_too_large_is_rejected() -> None:
    with pytest.raises(Rejected) as refusal:
        dependences(product("ijk", _SIZES).scop, operations=10)
    assert refusal.value.reason is Reason.NO_SCHEDULE
