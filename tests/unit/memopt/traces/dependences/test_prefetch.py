"""Whether looking ahead is worth it."""

from __future__ import annotations

import pytest

from memopt.traces.dependences.prefetch import Worth

_WORDS = 1 << 18


@pytest.mark.parametrize("helps", [True, False])
def test_it_is_done_where_it_helps(helps: bool) -> None:
    worth, with_it = Worth(), 0
    for _ in range(120):
        with_it += bool(worth)
        worth.learn(_WORDS, 1.0 if bool(worth) == helps else 1.3)
    assert with_it >= 100 if helps else with_it <= 20


def test_it_is_tried_again() -> None:
    """What is looked at changes while the program runs."""
    worth, tried = Worth(), []
    for _ in range(50):
        worth.learn(_WORDS, 1.3 if worth else 1.0)
    for _ in range(50):
        tried.append(bool(worth))
        worth.learn(_WORDS, 1.0 if worth else 1.3)
    assert sum(tried[-24:]) >= 20


def test_pieces_of_few_words_say_nothing() -> None:
    worth = Worth()
    for _ in range(50):
        worth.learn(100, 1.0)
    assert worth
