"""What turns of a version and the original say of the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle

import pytest

from memopt.session import turns
from memopt.session.turns import AHEAD, MOST_TURNS, Outcome, Turn, outcome

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


def gain(turns: Callable[[bool], Turn]) -> float | None:
    found = outcome(turns)
    return None if found is None else found.gain


def test_the_pace_is_that_of_the_version() -> None:
    found = outcome(taking([2e6], [1e6], inside=[0.5]))
    assert isinstance(found, Outcome)
    assert found.pace == pytest.approx(0.25e-6)


def test_a_clear_gain_takes_one_turn_of_the_original() -> None:
    log: list[bool] = []
    assert gain(taking([2e6], [1e6], log=log)) == pytest.approx(2.0)
    assert log == [False, True, False]


@pytest.mark.parametrize("ratio", [1.1, 0.9, 0.5])
def test_what_all_turns_say_is_believed(ratio: float) -> None:
    log: list[bool] = []
    assert gain(taking([ratio * 1e6], [1e6], log=log)) == pytest.approx(ratio)
    assert log.count(True) == AHEAD


@pytest.mark.parametrize("ratio", [1.08, 0.92])
def test_turns_that_others_disturb_are_outvoted(ratio: float) -> None:
    log: list[bool] = []
    found = gain(taking([ratio * 1e6], cycle([0.8e6 * ratio ** 2, 1.25e6, 1e6, 1e6, 1e6]), log=log))
    assert found == pytest.approx(ratio)
    assert AHEAD < log.count(True) < MOST_TURNS


def test_what_is_as_good_takes_no_more_turns_than_tell_that() -> None:
    log: list[bool] = []
    assert gain(taking([1e6], [0.9e6, 1.1e6], log=log)) == pytest.approx(1.0, abs=0.02)
    assert log.count(True) == MOST_TURNS


def test_one_turn_elsewhere_is_no_phase() -> None:
    assert gain(taking([0.9e6], [1e6], inside=[0.3, *[0.9] * 30])) == pytest.approx(0.9)


def test_a_program_with_phases_says_nothing() -> None:
    """Where a turn is spent in the loop and another elsewhere, rates are about that."""
    assert gain(taking([1e6], [2e6], inside=[0.9, 0.3])) is None


def test_an_original_that_does_not_come_by_says_nothing() -> None:
    assert gain(taking([1e6], [0.0])) is None


def test_processor_time_is_what_has_passed_where_a_tick_hides_the_difference() -> None:
    assert turns._finer(0.024, 0.0253) == 0.0253
    assert turns._finer(0.016, 0.0253) == 0.016
    assert turns._finer(0.048, 0.0253) == 0.048
