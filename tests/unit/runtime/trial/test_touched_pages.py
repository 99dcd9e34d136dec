from __future__ import annotations

from runtime.target.memory import PAGE
from runtime.trial.touched_pages import union, whole_pages, without


def test_bytes_become_pages() -> None:
    assert whole_pages([]) == []
    assert whole_pages([(4090, 4100), (0, 1), (5 * PAGE, 5 * PAGE)]) == [(0, 2 * PAGE)]
    assert whole_pages([(3 * PAGE, 3 * PAGE + 1), (PAGE, 2 * PAGE)]) == [(PAGE, 2 * PAGE), (3 * PAGE, 4 * PAGE)]


def test_what_touches_is_one() -> None:
    assert union([(5, 7), (1, 3), (3, 4), (6, 9)]) == [(1, 4), (5, 9)]
    assert union([(1, 9), (2, 3)]) == [(1, 9)]


def test_what_is_left() -> None:
    assert list(without((0, 10), [(2, 4), (8, 12)])) == [(0, 2), (4, 8)]
    assert list(without((2, 10), [(0, 4), (10, 12)])) == [(4, 10)]
    assert list(without((0, 10), [])) == [(0, 10)]
    assert list(without((3, 5), [(0, 10)])) == []
