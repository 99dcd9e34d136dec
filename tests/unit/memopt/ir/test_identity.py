"""What is remembered by identity: no call twice for one object, none saved for another."""

from __future__ import annotations

import gc

from memopt.ir import identity
from memopt.ir.identity import by_identity
from memopt.ir.linear import Linear


def test_one_object_is_asked_about_once_and_an_equal_one_again() -> None:
    asked: list[Linear] = []

    @by_identity
    def terms(linear: Linear) -> int:
        asked.append(linear)
        return len(linear.terms)

    first, equal = Linear.symbol("i"), Linear.symbol("i")
    assert [terms(first), terms(first), terms(equal)] == [1, 1, 1]
    assert len(asked) == 2


def test_objects_that_come_and_go_are_not_taken_for_each_other() -> None:
    constant = by_identity(lambda linear: linear.constant)
    for number in range(3 * identity.MOST):
        assert constant(Linear.of(number)) == number
        if number % identity.MOST == 0:
            gc.collect()


def test_what_is_remembered_is_bounded() -> None:
    kept = [0]

    class Counted:
        def __init__(self) -> None:
            kept[0] += 1

        def __del__(self) -> None:
            kept[0] -= 1

    asked = by_identity(repr)
    for _ in range(2 * identity.MOST + 2):
        asked(Counted())
    assert kept[0] <= identity.MOST
