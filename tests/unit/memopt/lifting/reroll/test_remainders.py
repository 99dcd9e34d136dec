"""What a vectorised loop leaves over, done in pieces that depend on how much it is: one loop again, or left alone."""

from __future__ import annotations

import pytest

from memopt.ir.linear import Linear, quotient
from memopt.lifting.demotion.statements import CellStatement, StatementItem, StatementLoop
from tests.support.rolled import H, J, at, rolled, same

QUARTERS, HALVES = quotient(H, 4) * 4, quotient(H, 2) * 2
REST = H - QUARTERS


def row(*rest: StatementItem) -> tuple[StatementItem, ...]:
    """Vectors of four, then ``rest``."""
    return (StatementLoop("c:j", QUARTERS, (at(J),)), *rest)


def pieces(*more: Linear) -> tuple[CellStatement, ...]:
    """One element, or a pair, or a pair and then one; where ``more`` is >= 0 as well."""
    one, pair = (REST - 1, -REST + 1), (REST - 2,)
    return (at(QUARTERS, *one, *more), at(QUARTERS, *pair, *more), at(QUARTERS + 1, *pair, *more),
            at(HALVES, H - HALVES - 1, *pair, *more))


def test_pieces_for_each_remainder_complete_the_loop() -> None:
    result = rolled(*row(*pieces()))
    (whole,) = result.items
    assert isinstance(whole, StatementLoop)
    assert whole.trips == H
    assert same(row(*pieces()), result)


def test_what_is_only_done_for_long_rows() -> None:
    """The vectors run in no shorter row: that the pieces are not done there is the same for the whole loop."""
    items = row(*pieces(H - 4))
    result = rolled(*items)
    (whole,) = result.items
    assert isinstance(whole, StatementLoop)
    assert whole.trips == H
    assert same(items, result)


@pytest.mark.parametrize("missing", range(4))
def test_a_remainder_that_is_not_done(missing: int) -> None:
    items = row(*(p for n, p in enumerate(pieces()) if n != missing))
    result = rolled(*items)
    assert not any(isinstance(i, StatementLoop) and i.trips == H for i in result.items)
    assert same(items, result)


def test_pieces_in_another_order() -> None:
    one, low, high, odd = pieces()
    items = row(one, high, low, odd)
    result = rolled(*items)
    assert not any(isinstance(i, StatementLoop) and i.trips == H for i in result.items)
    assert same(items, result)


def test_pieces_of_rows_that_the_loop_does_not_run_in() -> None:
    """Short rows have pieces under another condition: they are not the end of any vectors."""
    items = row(*pieces(-H + 8))
    assert same(items, rolled(*items))
