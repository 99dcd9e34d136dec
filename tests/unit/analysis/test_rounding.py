"""Left-over quotients as loops of one iteration: the same instances in the same order."""

from __future__ import annotations

import pytest

from memopt.analysis.bounds import Limits
from memopt.analysis.rounding import without_quotients
from memopt.analysis.statements import CellStatement, StatementLoop
from memopt.ir.linear import Linear, quotient
from memopt.ir.reasons import Rejected
from memopt.ir.scop import ElementType, Read
from tests.support.statements import executed

R, ROW, J = Linear.symbol("R"), Linear.symbol("c:i"), Linear.symbol("c:j")


def copy(write: Linear, *conditions: Linear) -> CellStatement:
    return CellStatement(Linear.symbol("a") + write, (Linear.symbol("b"),), Read(0), ElementType.F64, 0,
                         conditions=conditions)


def rows(length: Linear, lanes: int) -> StatementLoop:
    """Vectors, and what is left of each row; before and after that something else."""
    whole = quotient(length, lanes)
    rest = (copy(whole * 8 * lanes + 8 * n + ROW * 800, length - whole * lanes - 1 - n) for n in range(lanes - 1))
    vectors = (copy(J * 8 * lanes + 8 * n + ROW * 800) for n in range(lanes))
    return StatementLoop("c:i", R, (copy(ROW), StatementLoop("c:j", whole, tuple(vectors)), *rest, copy(ROW + 9)))


@pytest.mark.parametrize("lanes", [2, 4])
@pytest.mark.parametrize("length", [R - ROW, ROW + 1, ROW - R + 77])
def test_rows_in_pieces(length: Linear, lanes: int) -> None:
    before = rows(length, lanes)
    after = without_quotients(before, Limits(70))
    assert "/" not in str(after)
    for trips in range(2, 20):
        values = {"R": trips, "a": 10000, "b": 0}
        assert list(executed(after, values)) == list(executed(before, values))


def test_a_quotient_of_something_unbounded() -> None:
    with pytest.raises(Rejected):
        without_quotients(rows(ROW * 2 - R, 4), Limits())


def test_a_quotient_of_a_quotient() -> None:
    half = quotient(R - ROW, 2)
    before = StatementLoop("c:i", R, (copy(quotient(half + ROW, 2) * 8, half - 1),))
    after = without_quotients(before, Limits())
    assert "/" not in str(after)
    values = {"R": 9, "a": 10000, "b": 0}
    assert list(executed(after, values)) == list(executed(before, values))
