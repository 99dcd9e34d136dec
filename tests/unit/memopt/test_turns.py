"""What turns of a version and the original say of the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, cycle

import pytest

from memopt.session import turns
from memopt.session.turns import LEAST_TURNS, LOSS, MOST_TURNS, Turn, gain

SECONDS = 0.025


def taking(versions: Sequence[float], originals: Sequence[float], inside: Sequence[float] = (0.9,),
           log: list[bool] | None = None) -> Callable[[bool], Turn]:
    """Turns with these rates, over and over; ``log``: which of them were the original's."""
    rates, shares = {False: cycle(versions), True: cycle(originals)}, cycle(inside)

    def turn(resting: bool) -> Turn:
        if log is not None:
            log.append(resting)
        return Turn(round(next(rates[resting]) * SECONDS), SECONDS, 0.0 if resting else next(shares) * SECONDS)

    return turn


def test_a_clear_gain_takes_one_turn_of_the_original() -> None:
    log: list[bool] = []
    assert gain(taking([2e6], [1e6], log=log)) == pytest.approx(2.0)
    assert log == [False, True, False]


@pytest.mark.parametrize("ratio", [1.1, 0.9, 0.5])
def test_what_all_turns_say_is_believed(ratio: float) -> None:
    log: list[bool] = []
    assert gain(taking([ratio * 1e6], [1e6], log=log)) == pytest.approx(ratio)
    assert log.count(True) == LEAST_TURNS


def test_one_turn_out_of_eight_may_be_disturbed() -> None:
    log: list[bool] = []
    found = gain(taking([0.9e6], chain([0.8e6], [1e6] * (MOST_TURNS - 1)), log=log))
    assert found is not None
    assert found < LOSS
    assert log.count(True) == MOST_TURNS


def test_turns_that_do_not_agree_say_nothing() -> None:
    assert gain(taking([1e6], [0.9e6, 1.1e6])) is None


def test_a_program_with_phases_says_nothing() -> None:
    """Where a turn is spent in the loop and another elsewhere, rates are about that."""
    assert gain(taking([1e6], [2e6], inside=[0.9, 0.3])) is None


def test_an_original_that_does_not_come_by_says_nothing() -> None:
    assert gain(taking([1e6], [0.0])) is None


def test_processor_time_is_what_has_passed_where_a_tick_hides_the_difference() -> None:
    assert turns._finer(0.024, 0.0253) == 0.0253
    assert turns._finer(0.016, 0.0253) == 0.016
    assert turns._finer(0.048, 0.0253) == 0.048
