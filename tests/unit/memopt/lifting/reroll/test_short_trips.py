"""Versions of a row for the lengths that are too short for vectors: one loop with the others, or left alone."""

from __future__ import annotations

import pytest

from memopt.ir.linear import Linear, quotient
from memopt.lifting.demotion.statements import CellStatement, StatementItem, StatementLoop
from memopt.lifting.reroll.isomorphism import conditional
from tests.support.rolled import H, J, K, at, rolled, same

HALVES = quotient(H, 2) * 2
LONG = conditional(StatementLoop("c:j", H, (at(J),)), (H - 4,))
ALONE = conditional(StatementLoop("c:k", H, (at(K),)), (-H + 1,))


def short(*more: Linear, odd: Linear = HALVES) -> tuple[CellStatement, ...]:
    """A row of two or three elements."""
    known = (H - 2, -H + 3, *more)
    return (at(Linear(), *known), at(Linear.of(1), *known), at(odd, H - HALVES - 1, *known))


def whole(items: tuple[StatementItem, ...]) -> bool:
    result = rolled(*items)
    assert same(items, result)
    return len(result.items) == 1 and isinstance(i := result.items[0], StatementLoop) and i.trips == H


def test_all_lengths_become_one_loop() -> None:
    assert whole((ALONE, *short(), LONG))
    assert whole((LONG, *short(), ALONE))


def test_only_the_long_ones_and_the_next_shorter_ones() -> None:
    result = rolled(*short(), LONG)
    (loop,) = result.items
    assert loop == conditional(StatementLoop("c:j", H, (at(J),)), (H - 2,))
    assert same((*short(), LONG), result)


def test_a_loop_for_short_rows() -> None:
    pairs = conditional(StatementLoop("c:k", HALVES, (at(K),)), (H - 2, -H + 3))
    assert whole((ALONE, pairs, short()[-1], LONG))


@pytest.mark.parametrize("other", [
    short(odd=HALVES + 1), short()[:2], short()[::-1], short(H - 3), (*short(), *short()[2:]),
])
def test_something_else_for_short_rows(other: tuple[CellStatement, ...]) -> None:
    assert not whole((ALONE, *other, LONG))


def test_a_length_between_them_that_is_not_done() -> None:
    longer = conditional(StatementLoop("c:j", H, (at(J),)), (H - 5,))
    assert not whole((ALONE, *short(), longer))
