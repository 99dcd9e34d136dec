"""Floor divisions in bounds: the same instances in the same order, and plain loops do most of them."""

from __future__ import annotations

import pytest

from memopt.ir.linear import Linear, quotient
from memopt.ir.reasons import Rejected
from memopt.ir.scop import ElementType, Read
from memopt.lifting.demotion.statements import CellStatement, StatementLoop
from memopt.lifting.reroll.floor_divisions import trimmed, without_quotients
from memopt.lifting.values.bounds import Limits
from tests.support.statements import executed

R, ROW, J = Linear.symbol("R"), Linear.symbol("c:i"), Linear.symbol("c:j")
SAMPLE = {"R": 60, "a": 10000, "b": 0}


def copy(write: Linear, *conditions: Linear) -> CellStatement:
    return CellStatement(Linear.symbol("a") + write, (Linear.symbol("b"),), Read(0), ElementType.F64, 0,
                         conditions=conditions)


def rows(length: Linear, lanes: int) -> StatementLoop:
    """Each row up to a multiple of ``lanes``, and what is left of it in another way."""
    whole = quotient(length, lanes) * lanes
    rest = (copy(whole * 8 + 8 * n + ROW * 800 + 4, length - whole - 1 - n) for n in range(lanes - 1))
    return StatementLoop("c:i", R, (copy(ROW), StatementLoop("c:j", whole, (copy(J * 8 + ROW * 800),)), *rest))


@pytest.mark.parametrize("lanes", [2, 4])
@pytest.mark.parametrize("length", [R - ROW, ROW + 1, R - ROW + 77])
def test_the_same_instances(length: Linear, lanes: int) -> None:
    before = rows(length, lanes)
    cut = trimmed(before, Limits(70), SAMPLE)
    after = without_quotients(cut, Limits(70))
    assert cut != before
    assert "/" not in str(after)
    for trips in range(2, 20):
        values = {**SAMPLE, "R": trips}
        assert list(executed(after, values)) == list(executed(before, values))


def test_the_plain_loop_has_no_condition() -> None:
    after = without_quotients(trimmed(rows(ROW + 1, 4), Limits(), SAMPLE), Limits())
    plain = next(i for i in after.items if isinstance(i, StatementLoop))
    assert plain.trips == ROW - 2
    assert plain.items == (copy(J * 8 + ROW * 800),)


def test_short_rows_stay_whole() -> None:
    before = rows(ROW + 1, 4)
    assert trimmed(before, Limits(), {**SAMPLE, "R": 12}) == before


def test_the_odd_element_is_where_the_even_ones_end() -> None:
    after = without_quotients(trimmed(rows(ROW + 1, 2), Limits(), SAMPLE), Limits())
    last = after.items[-1]
    assert isinstance(last, StatementLoop)
    (odd,) = last.items
    assert isinstance(odd, CellStatement)
    assert odd.write == Linear.symbol("a") + ROW * 808 + 4


# -- what is left rounded: loops of one iteration


def vectors(length: Linear, lanes: int) -> StatementLoop:
    """Vectors, and what is left of each row; before and after that something else."""
    whole = quotient(length, lanes)
    rest = (copy(whole * 8 * lanes + 8 * n + ROW * 800, length - whole * lanes - 1 - n) for n in range(lanes - 1))
    lanes_of = (copy(J * 8 * lanes + 8 * n + ROW * 800) for n in range(lanes))
    return StatementLoop("c:i", R, (copy(ROW), StatementLoop("c:j", whole, tuple(lanes_of)), *rest, copy(ROW + 9)))


@pytest.mark.parametrize("lanes", [2, 4])
@pytest.mark.parametrize("length", [R - ROW, ROW + 1, ROW - R + 77])
def test_rows_in_pieces(length: Linear, lanes: int) -> None:
    before = vectors(length, lanes)
    after = without_quotients(before, Limits(70))
    assert "/" not in str(after)
    for trips in range(2, 20):
        values = {"R": trips, "a": 10000, "b": 0}
        assert list(executed(after, values)) == list(executed(before, values))


def test_a_quotient_of_something_unbounded() -> None:
    with pytest.raises(Rejected):
        without_quotients(vectors(ROW * 2 - R, 4), Limits())


def test_a_quotient_of_a_quotient() -> None:
    half = quotient(R - ROW, 2)
    before = StatementLoop("c:i", R, (copy(quotient(half + ROW, 2) * 8, half - 1),))
    after = without_quotients(before, Limits())
    assert "/" not in str(after)
    values = {"R": 9, "a": 10000, "b": 0}
    assert list(executed(after, values)) == list(executed(before, values))
